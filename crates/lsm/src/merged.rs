//! A walk through several runs at once: key by key, with all versions of each.
//!
//! The walks of the runs are kept in the order of their current keys, and alike ones with the newer run first. After a
//! step, a walk moves back in that order as far as its new key asks. Where runs hardly overlap, that is no step at all.

use std::cmp::Ordering;
use std::sync::Arc;

use index::{Direction, Found, Operation, Result, Stored, Time, Update};

use crate::runs::{Run, RunScan};
use crate::shared::Shared;

/// A version of the current key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfKey {
    /// Index of the run that has it, among those of the walk: a higher one is newer.
    pub run: usize,
    /// The version, expired or not.
    pub version: Found,
}

impl OfKey {
    /// The version as an update of its key.
    pub(crate) fn of<'a>(&'a self, key: &'a [u8]) -> Update<'a> {
        let Found { seq, value, expiry } = &self.version;
        let put = |stored: &'a Stored| Operation::Put(stored.as_payload(), *expiry);
        Update { key, seq: *seq, operation: value.as_ref().map_or(Operation::Delete, put) }
    }
}

/// A walk through runs, before its first key.
pub struct Merged {
    direction: Direction,
    /// Walks that have a current version, in order, each with the index of its run.
    walks: Vec<(usize, RunScan)>,
    key: Vec<u8>,
    versions: Vec<OfKey>,
}

impl Merged {
    /// A walk from `from` on, in its direction; through everything without it. `runs` are the oldest first.
    ///
    /// # Errors
    /// When a read fails, or what was read does not check.
    pub fn new(shared: &Arc<Shared>, runs: &[Run], from: Option<&[u8]>, direction: Direction) -> Result<Self> {
        let mut merged = Self { direction, walks: Vec::new(), key: Vec::new(), versions: Vec::new() };
        for (index, run) in runs.iter().enumerate() {
            let mut walk = RunScan::new(shared, run, from, direction)?;
            if walk.advance()? {
                merged.walks.push((index, walk));
            }
        }
        let order = |one: &(usize, RunScan), other: &(usize, RunScan)| compare(one, other, direction);
        merged.walks.sort_by(order);
        Ok(merged)
    }

    /// Moves to the next key; false at the end.
    ///
    /// # Errors
    /// As [`Merged::new`].
    pub fn advance(&mut self) -> Result<bool> {
        self.versions.clear();
        let Some((_, first)) = self.walks.first() else { return Ok(false) };
        self.key.clear();
        self.key.extend_from_slice(first.key());
        while let Some((run, walk)) = self.walks.first_mut()
            && walk.key() == self.key
            && let Some(update) = walk.current()
        {
            // At time 0 nothing has expired.
            self.versions.push(OfKey { run: *run, version: Found::of(&update, Time(0)) });
            if walk.advance()? {
                self.settle();
            } else {
                self.walks.remove(0);
            }
        }
        Ok(true)
    }

    /// Moves the first walk back to its place.
    fn settle(&mut self) {
        let mut index = 0;
        while index + 1 < self.walks.len()
            && compare(&self.walks[index], &self.walks[index + 1], self.direction) == Ordering::Greater
        {
            self.walks.swap(index, index + 1);
            index += 1;
        }
    }

    /// The current key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The versions of the current key: forward those of the newest run first, and of each run the newest first;
    /// backward those of the newest run first, and of each run the oldest first.
    #[must_use]
    pub fn versions(&self) -> &[OfKey] {
        &self.versions
    }
}

fn compare(one: &(usize, RunScan), other: &(usize, RunScan), direction: Direction) -> Ordering {
    direction.order(one.1.key(), other.1.key()).then_with(|| other.0.cmp(&one.0))
}
