//! A version of a tree, which never changes: slices of its files, by level.
//!
//! 1. Level 0 has the slices of the newest versions, in the order of their age. They overlap, so they are sorted into
//!    **sublevels** ([`Run::sublevels`]). Every other level is one run.
//! 2. An **edit** makes the next version. Files that both have are the same in memory, so a file lives as long as a
//!    version has a slice of it.
//!
//! Invariant: for each key, versions in a newer run are not older than those in an older one. Runs are, from the newest
//! on: the sublevels from the last to the first, then the levels from 1 on.

use std::collections::HashMap;
use std::sync::Arc;

use doclog::Compression;
use index::{Damage, Moment, Result, Seq, TableId, Time, Update};
use space::StreamKind;

use crate::format::Checked;
use crate::format::edit::{Edit, Entry, LEVELS, Record};
use crate::runs::Run;
use crate::search::{Asked, find};
use crate::shared::Shared;
use crate::slices::Slice;
use crate::sst::Sst;
use crate::writer::Format;

/// The lowest level.
pub(crate) const BOTTOM: usize = LEVELS - 1;

/// A version of a tree.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: TableId,
    /// The lowest number that no file had.
    next: u64,
    /// Whether a value with an expiry was put since the tree last had no keys.
    pub(crate) expires: bool,
    /// Readers below see nothing.
    floor: Seq,
    newest: Arc<[Arc<Slice>]>,
    sublevels: Arc<[Run]>,
    /// Levels 1 and on.
    levels: [Run; BOTTOM],
}

/// A change of a version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    /// Files that go, with all their slices.
    pub(crate) removed: Vec<u64>,
    /// Slices that come.
    pub(crate) added: Vec<Entry>,
    /// Whether a value with an expiry was put.
    pub(crate) expires: bool,
}

/// The stream of a file of a level.
pub(crate) const fn stream_of(level: usize) -> StreamKind {
    if level == 0 { StreamKind::L0 } else { StreamKind::Ln }
}

impl Version {
    /// A tree without files.
    pub(crate) fn empty(shared: Arc<Shared>, table: TableId) -> Self {
        let (newest, sublevels) = (Vec::new().into(), Vec::new().into());
        Self { shared, table, next: 1, expires: false, floor: Seq(0), newest, sublevels, levels: Default::default() }
    }

    /// The same version, of which readers below `floor` see nothing.
    pub(crate) fn with_floor(mut self, floor: Seq) -> Self {
        self.floor = floor;
        self
    }

    pub(crate) const fn floor(&self) -> Seq {
        self.floor
    }

    /// Whether there are no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.is_empty() && self.levels.iter().all(|run| run.slices().is_empty())
    }

    /// The lowest number that no file had.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The runs, the oldest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.levels.iter().rev().filter(|run| !run.slices().is_empty()).chain(self.sublevels.iter())
    }

    /// The runs of level 0, the oldest first.
    pub(crate) fn sublevels(&self) -> &[Run] {
        &self.sublevels
    }

    /// The run of a level below 0.
    pub(crate) fn level(&self, level: usize) -> &Run {
        &self.levels[level - 1]
    }

    /// The slices of a level, in key order, or for level 0 in the order of their age.
    pub(crate) fn slices(&self, level: usize) -> &[Arc<Slice>] {
        level.checked_sub(1).map_or(&self.newest, |below| self.levels[below].slices())
    }

    /// Bytes of a level, about.
    pub(crate) fn bytes_of(&self, level: usize) -> u64 {
        self.slices(level).iter().map(|slice| slice.bytes()).sum()
    }

    /// Bytes of a file of this tree, about.
    pub(crate) fn file_bytes(&self) -> usize {
        self.shared.sizes().file_bytes((0..LEVELS).map(|level| self.bytes_of(level)).sum())
    }

    /// All slices, each with its level.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &Arc<Slice>)> {
        (0..LEVELS).flat_map(|level| self.slices(level).iter().map(move |slice| (level, slice)))
    }

    /// The slices that may have `key`, the newest first.
    pub(crate) fn slices_of<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Arc<Slice>> {
        let runs = self.sublevels.iter().rev().chain(&self.levels);
        runs.filter_map(move |run| run.slice_of(key))
    }

    /// The files that may have `key`, the newest first.
    pub(crate) fn files_of<'a>(&'a self, key: &'a [u8]) -> Vec<&'a Sst> {
        self.slices_of(key).map(|slice| &**slice.sst()).collect()
    }

    /// Shows each of the keys, by its index, its newest version at or below the seq of `at`, if there is one.
    ///
    /// # Errors
    /// When a read fails, or what was read does not check.
    pub(crate) fn find(&self, keys: &[&[u8]], at: Moment, show: &mut dyn FnMut(usize, &Update<'_>)) -> Result<()> {
        let asked: Vec<_> = keys.iter().map(|key| Asked { key, at: at.seq, files: self.files_of(key) }).collect();
        find(&self.shared, &asked, &mut |index, _, update| show(index, update))
    }

    /// How a file of a level is written now.
    pub(crate) const fn format(&self, _level: usize, now: Time) -> Format {
        Format { compression: Compression::None, filter_tenths: 100, now }
    }

    /// The bytes that a checkpoint keeps to find this version again.
    pub(crate) fn root(&self) -> Vec<u8> {
        let added = self.all().map(|(level, slice)| slice.entry(level)).collect();
        self.edit(Vec::new(), added, self.expires).encode(Record::Root)
    }

    fn edit(&self, removed: Vec<u64>, added: Vec<Entry>, expires: bool) -> Edit {
        let next = added.iter().map(|entry| entry.footer.number + 1).max().unwrap_or(0).max(self.next);
        Edit { table: self.table, next, expires, removed, added }
    }

    /// The version that a checkpoint kept. Its files are not looked at.
    ///
    /// # Errors
    /// When the record is malformed, or of another table.
    pub(crate) fn open(shared: Arc<Shared>, table: TableId, root: &[u8]) -> Result<Self> {
        let edit = Edit::decode(root, Record::Root, table);
        edit.and_then(|edit| Self::empty(shared, table).after(&edit))
            .map_err(|damage| damage.in_record("the root of an LSM tree", table))
    }

    /// The record of a change.
    pub(crate) fn redo(&self, change: Change) -> Vec<u8> {
        self.edit(change.removed, change.added, change.expires).encode(Record::Redo)
    }

    /// The version after a change.
    ///
    /// # Errors
    /// When the record is malformed, of another table, or does not fit this version: a file that goes is not there, or
    /// slices of a level would overlap.
    pub(crate) fn replay(&self, redo: &[u8]) -> Result<Self> {
        let edit = Edit::decode(redo, Record::Redo, self.table);
        edit.and_then(|edit| self.after(&edit)).map_err(|damage| damage.in_record("a redo of an LSM tree", self.table))
    }

    fn after(&self, edit: &Edit) -> Checked<Self> {
        let damage = |what, expected: &str, found: u64| Err(Damage::new(0, what, expected, found));
        let mut gone: HashMap<u64, Option<Arc<Sst>>> = edit.removed.iter().map(|number| (*number, None)).collect();
        let mut comes: [Vec<Arc<Slice>>; LEVELS] = Default::default();
        let mut goes = [false; LEVELS];
        for (level, slice) in self.all() {
            if let Some(file) = gone.get_mut(&slice.sst().number()) {
                *file = Some(Arc::clone(slice.sst()));
                goes[level] = true;
            }
        }
        if let Some((number, _)) = gone.iter().find(|(_, file)| file.is_none()) {
            return damage("file that goes", "one that is there", *number);
        }
        let mut files: HashMap<u64, Arc<Sst>> = HashMap::new();
        for entry in &edit.added {
            let number = entry.footer.number;
            // A number below the next one is that of a file which has other slices from here on, or of a root record.
            let is_new = !gone.contains_key(&number);
            if number >= edit.next || (is_new && number < self.next) {
                return damage("file that comes", "a new one, below the next number", number);
            }
            let sst = gone.get(&number).cloned().flatten().or_else(|| files.get(&number).cloned());
            let new = || Arc::new(Sst::new(stream_of(entry.level), entry.file_bytes, entry.footer));
            let sst = sst.unwrap_or_else(new);
            if (sst.bytes(), sst.footer()) != (entry.file_bytes, &entry.footer) {
                return damage("file of a slice", "that of the other slices of this number", number);
            }
            files.insert(number, Arc::clone(&sst));
            comes[entry.level].push(Arc::new(Slice::of(entry, sst)));
        }
        let mut next = self.clone();
        next.next = edit.next.max(self.next);
        for (level, mut comes) in comes.into_iter().enumerate() {
            if comes.is_empty() && !goes[level] {
                continue;
            }
            let stays = self.slices(level).iter().filter(|slice| !gone.contains_key(&slice.sst().number()));
            comes.extend(stays.cloned());
            if level == 0 {
                comes.sort_by(|one, other| (one.age(), one.low()).cmp(&(other.age(), other.low())));
                next.sublevels = Run::sublevels(&comes).into();
                next.newest = comes.into();
                continue;
            }
            comes.sort_by(|one, other| one.low().cmp(other.low()));
            if let Some(slices) = comes.windows(2).find(|slices| slices[0].high() >= slices[1].low()) {
                return damage("slices of a level", "no overlap", slices[1].sst().number());
            }
            next.levels[level - 1] = Run::new(comes);
        }
        next.expires = (edit.expires || self.expires) && !next.is_empty();
        Ok(next)
    }
}
