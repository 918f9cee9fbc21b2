//! Entries in sorted runs with an unsorted tail: the order that PIO's paper gives an OPQ (§3.1.3), for its experiments.
//!
//! 1. A hash table knows the newest entry of each key.
//! 2. A run is a sorted stretch of the operations. Every `speriod` operations the tail is sorted and becomes a run, for
//!    walks over ranges.
//! 3. As soon as a level has [`FANOUT`] runs, their stretch is sorted as one run of the next level. So runs are few,
//!    and each operation is sorted rarely.
//! 4. A walk sorts the part of the tail that it needs.
//!
//! Invariant: runs are adjacent stretches from the first operation on.

use std::cmp::Ordering;

use hashbrown::{HashTable, hash_table};
use index::{Bounds, Direction};
use mapped::{List, Mapped};

use super::{
    sequence::Sequence,
    sort::{sorted, sorted_stretch},
};

/// So many runs of a level become one of the next.
const FANOUT: usize = 4;

/// A stretch of the operations, sorted.
struct Run {
    level: u8,
    indexes: List<u32>,
}

/// The order of a queue that is sorted from time to time.
pub(super) struct Runs {
    speriod: usize,
    newest: HashTable<u32, Mapped>,
    runs: Vec<Run>,
    sorted: usize,
}

impl Runs {
    /// An order of no operations, to be sorted every `speriod`.
    pub(super) const fn new(speriod: usize) -> Self {
        Self { speriod, newest: HashTable::new_in(Mapped), runs: Vec::new(), sorted: 0 }
    }

    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let indexes = |run: &Run| mapped::taken(run.indexes.capacity() * size_of::<u32>());
        mapped::taken(self.newest.allocation_size()) + self.runs.iter().map(indexes).sum::<usize>()
    }

    /// Notes entry `index` as the newest of `key`, and returns the newest before.
    pub(super) fn note(
        &mut self, key: &[u8], index: u32, operations: &Sequence, hash: impl Fn(&[u8]) -> u64,
    ) -> Option<u32> {
        let is_one = |&other: &u32| operations.key(other) == key;
        match self.newest.entry(hash(key), is_one, |&other| hash(operations.key(other))) {
            hash_table::Entry::Occupied(mut occupied) => Some(std::mem::replace(occupied.get_mut(), index)),
            hash_table::Entry::Vacant(vacant) => {
                vacant.insert(index);
                None
            }
        }
    }

    /// The newest entry of `key`.
    pub(super) fn newest_of(&self, key: &[u8], operations: &Sequence, hash: u64) -> Option<u32> {
        self.newest.find(hash, |&other| operations.key(other) == key).copied()
    }

    /// Sorts the tail if it is long enough.
    pub(super) fn appended(&mut self, operations: &Sequence) {
        if operations.len() - self.sorted >= self.speriod {
            self.sort_tail(operations);
        }
    }

    fn sort_tail(&mut self, operations: &Sequence) {
        let run = sorted_stretch(operations, self.sorted..operations.len());
        self.runs.push(Run { level: 0, indexes: run });
        self.sorted = operations.len();
        while let Some(first) = self.runs.len().checked_sub(FANOUT)
            && let Some(level) = self.runs.last().map(|run| run.level)
            && self.runs[first..].iter().all(|run| run.level == level)
        {
            let joined: usize = self.runs.drain(first..).map(|run| run.indexes.len()).sum();
            let indexes = sorted_stretch(operations, self.sorted - joined..self.sorted);
            self.runs.push(Run { level: level + 1, indexes });
        }
    }

    /// All entries by key and then by age, the newest of a key last.
    pub(super) fn sorted_indexes(&self, operations: &Sequence) -> List<u32> {
        match self.runs.as_slice() {
            [all] if self.sorted == operations.len() => all.indexes.clone(),
            _ => sorted_stretch(operations, 0..operations.len()),
        }
    }

    /// Shows the newest entry of each key within `bounds`, in the given direction, strictly behind `after` if given,
    /// until `show` returns false.
    pub(super) fn walk(
        &self, operations: &Sequence, bounds: &Bounds, direction: Direction, after: Option<&[u8]>,
        mut show: impl FnMut(u32) -> bool,
    ) {
        let is_ahead = |&index: &u32| bounds.is_ahead(operations.key(index), direction, after);
        let end = operations.end();
        let start = u32::try_from(self.sorted).expect("bounded by append");
        let tail = (start..end).filter(|index| bounds.contains(operations.key(*index)) && is_ahead(index));
        let tail = sorted(operations, tail);
        let mut heads: Vec<(&[u32], usize)> = Vec::with_capacity(self.runs.len() + 1);
        for run in self.runs.iter().map(|run| &run.indexes).chain(std::iter::once(&tail)) {
            let start = match direction {
                Direction::Forward => run.partition_point(|index| !is_ahead(index)),
                Direction::Backward => run.partition_point(is_ahead),
            };
            heads.push((run, start));
        }
        loop {
            let head = |&(run, position): &(&[u32], usize)| match direction {
                Direction::Forward => run.get(position).copied(),
                Direction::Backward => position.checked_sub(1).map(|below| run[below]),
            };
            let best = heads.iter().filter_map(head).reduce(|best, other| {
                let order = direction.order(operations.key(other), operations.key(best));
                if order == Ordering::Less { other } else { best }
            });
            let Some(best) = best else { return };
            let key = operations.key(best);
            let mut newest = best;
            for candidate in &mut heads {
                while let Some(index) = head(candidate).filter(|&index| operations.key(index) == key) {
                    newest = newest.max(index);
                    candidate.1 = if direction == Direction::Forward { candidate.1 + 1 } else { candidate.1 - 1 };
                }
            }
            if !bounds.contains(key) || !show(newest) {
                return;
            }
        }
    }
}
