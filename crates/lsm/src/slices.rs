//! Slices of files: the keys of a file that a version of a tree refers to. At first that is the whole file. Where a
//! merge takes only some of its keys, the slices of the others stay, and the file itself is not touched.

use std::ops::{Bound, Range};
use std::sync::Arc;

use index::{Bounds, Direction, Result};
use space::StreamKind;

use crate::format::edit::Entry;
use crate::format::footer::Written;
use crate::scan::Scan;
use crate::shared::Shared;
use crate::sst::Sst;

/// A slice of a file. Its first and its last key are in the file.
#[derive(Clone)]
pub(crate) struct Slice {
    sst: Arc<Sst>,
    age: u64,
    low: Vec<u8>,
    high: Vec<u8>,
    /// Where it is in the file, about.
    part: Range<u32>,
    /// Versions in it: exact in the sum over the slices of a file.
    entries: u64,
}

impl Slice {
    /// All of a file that was written.
    pub(crate) fn whole(kind: StreamKind, age: u64, written: &Written) -> Self {
        let Written { bytes, low, high, footer } = written;
        Self::all_of(&Arc::new(Sst::new(kind, *bytes, *footer)), age, low.clone(), high.clone())
    }

    /// All of a file, which has these first and last keys.
    pub(crate) fn all_of(sst: &Arc<Sst>, age: u64, low: Vec<u8>, high: Vec<u8>) -> Self {
        let end = u32::try_from(sst.bytes()).unwrap_or(u32::MAX);
        Self { sst: Arc::clone(sst), age, low, high, part: 0..end, entries: sst.footer().entries }
    }

    /// The slice of a file that a record describes.
    pub(crate) fn of(entry: &Entry, sst: Arc<Sst>) -> Self {
        let (low, high) = (entry.low.clone(), entry.high.clone());
        Self { sst, age: entry.age, low, high, part: entry.part.clone(), entries: entry.entries }
    }

    /// The record of this slice in a level.
    pub(crate) fn entry(&self, level: usize) -> Entry {
        let (low, high, footer) = (self.low.clone(), self.high.clone(), *self.sst.footer());
        Entry {
            level,
            age: self.age,
            part: self.part.clone(),
            entries: self.entries,
            low,
            high,
            file_bytes: self.sst.bytes(),
            footer,
        }
    }

    /// The file.
    pub(crate) const fn sst(&self) -> &Arc<Sst> {
        &self.sst
    }

    /// Of two slices of level 0, the one with the greater age is the newer one.
    pub(crate) const fn age(&self) -> u64 {
        self.age
    }

    /// The first key.
    pub(crate) fn low(&self) -> &[u8] {
        &self.low
    }

    /// The last key.
    pub(crate) fn high(&self) -> &[u8] {
        &self.high
    }

    /// The first key behind the slice.
    pub(crate) fn end(&self) -> Vec<u8> {
        behind(&self.high)
    }

    /// Bytes of the slice, about.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.part.end.saturating_sub(self.part.start)).max(1)
    }

    /// The part of a count of its file that the slice has, about.
    pub(crate) fn part_of(&self, count: u64) -> u64 {
        let part = u128::from(count) * u128::from(self.bytes()) / u128::from(self.sst.bytes().max(1));
        u64::try_from(part).unwrap_or(count).min(count)
    }

    /// Versions in the slice: exact in the sum over the slices of a file.
    pub(crate) const fn entries(&self) -> u64 {
        self.entries
    }

    /// Whether `key` is between the first and the last key.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && key <= self.high.as_slice()
    }

    /// Whether the slice has keys from `low` on and below `high`, as far as its first and last key tell.
    pub(crate) fn overlaps(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        self.high.as_slice() >= low && index::is_below(&self.low, high)
    }

    /// What is left of the slice without the keys from `low` on and below `high`: the part before, and the part behind.
    pub(crate) fn without(&self, shared: &Arc<Shared>, low: &[u8], high: Option<&[u8]>) -> Result<Vec<Self>> {
        let mut left = Vec::new();
        if self.low.as_slice() < low {
            let before = Bounds { lower: self.lower(), upper: Bound::Excluded(low.to_vec()) };
            left.extend(self.part(shared, &before, Direction::Backward)?);
        }
        if let Some(high) = high
            && self.high.as_slice() >= high
        {
            let behind = Bounds { lower: Bound::Included(high.to_vec()), upper: self.upper() };
            left.extend(self.part(shared, &behind, Direction::Forward)?);
        }
        Ok(left)
    }

    fn lower(&self) -> Bound<Vec<u8>> {
        Bound::Included(self.low.clone())
    }

    fn upper(&self) -> Bound<Vec<u8>> {
        Bound::Included(self.high.clone())
    }

    /// The bounds of the slice's keys.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { lower: self.lower(), upper: self.upper() }
    }

    /// The part within `bounds`, of which one end is that of the slice. The other end is at the first key that a walk
    /// in this direction meets; without one there is no part.
    fn part(&self, shared: &Arc<Shared>, bounds: &Bounds, direction: Direction) -> Result<Option<Self>> {
        let mut scan = Scan::new(shared, &self.sst, bounds, direction)?;
        if !scan.advance()? {
            return Ok(None);
        }
        let key = scan.key().to_vec();
        let Range { start, end } = self.part;
        let (before, behind) = scan.block();
        let (low, high, part) = match direction {
            Direction::Backward => (self.low.clone(), key, start..behind.clamp(start, end)),
            Direction::Forward => (key, self.high.clone(), before.clamp(start, end)..end),
        };
        let slice = Self { sst: Arc::clone(&self.sst), age: self.age, low, high, part, entries: 0 };
        let entries = u128::from(self.entries) * u128::from(slice.bytes()) / u128::from(self.bytes());
        Ok(Some(Self { entries: u64::try_from(entries).unwrap_or(self.entries), ..slice }))
    }
}

/// The first key behind `key`.
pub(crate) fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
