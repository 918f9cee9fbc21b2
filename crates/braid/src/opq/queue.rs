//! The queue that takes operations: a sequence of operations, and an order over their keys.
//!
//! 1. Entries of one key are chained from the newest to the oldest. The order leads to the newest entry of each key,
//!    and from key to key.
//! 2. The order is a B+-tree ([`Ordered`]), because a walk then begins anywhere as fast as a lookup, however many
//!    operations wait. For experiments the order is the paper's ([`Runs`]).
//! 3. A rise is a sequence of operations from the first on in which each key is above the one before. Its keys are
//!    appended behind all others without a comparison in the tree. The filter covers them by bounds, so they are not
//!    hashed. A table that is filled in order needs neither search nor hash.
//!
//! Invariants: a walk shows keys in order, each key once; the memory that a queue reports never decreases.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::DefaultHashBuilder;
use index::{Bounds, Direction, Found, Moment, Seq, Update};
use mapped::{List, Mapped};
use wal::Lsn;

use super::{
    filter::Filter,
    ordered::{Ordered, Position},
    runs::Runs,
    sequence::{NO_ENTRY, Sequence},
    sort::sorted_stretch,
};

/// One key of a range, with its newest version at the reader's seq.
pub(crate) struct Step {
    /// The key.
    pub(crate) key: Vec<u8>,
    /// Its version; a deleted key is shown as deleted.
    pub(crate) found: Found,
}

/// How queues keep their operations in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sorting {
    /// The operations are always in order.
    Always,
    /// The tail is sorted after every so many operations: PIO's speriod.
    Every(usize),
}

/// Keys that a walk may pass over.
pub(crate) struct Passed<'a> {
    /// All versions of these keys older than this seq are gone.
    pub(crate) before: Seq,
    /// The end of these keys in the walk's direction, if there is one: forwards the first key behind them, backwards
    /// the last of them.
    pub(crate) end: Option<&'a [u8]>,
}

/// Given the key that a walk has reached, tells which keys the walk may pass over, if any.
pub(crate) type Pass<'a> = dyn Fn(&[u8]) -> Option<Passed<'a>> + 'a;

/// The keys of a shorter rise (in operations) are added to the filter one by one when the rise ends.
const RISING_MIN: u32 = 1024;
/// After so many deleted keys in a row a walk asks which keys to pass over.
const DELETED_MAX: usize = 16;

/// The order that leads from key to key.
enum Order {
    Tree(Ordered),
    Runs(Runs),
}

/// The operations of one section of a table in the order in which they became visible.
pub(crate) struct Opq {
    operations: Sequence,
    order: Order,
    /// The length of the rise: how many of the first operations have rising keys.
    rising: u32,
    hasher: DefaultHashBuilder,
    /// The keys of the queue, for lookups that do not lock the queue, and the number of keys added to the filter.
    filter: Arc<Filter>,
    filtered: usize,
    /// Seq and log position of the oldest operation. In a queue that was joined from others the oldest need not be the
    /// first.
    oldest: Option<(Seq, Lsn)>,
    newest: Seq,
    /// No operation is older than one before it.
    is_by_age: bool,
}

impl Opq {
    /// An empty queue.
    pub(crate) fn new(sorting: Sorting) -> Self {
        let hasher = DefaultHashBuilder::default();
        let order = match sorting {
            Sorting::Always => Order::Tree(Ordered::default()),
            Sorting::Every(speriod) => Order::Runs(Runs::new(speriod)),
        };
        Self {
            operations: Sequence::default(),
            order,
            rising: 0,
            filter: Arc::new(Filter::new(hasher.clone())),
            filtered: 0,
            hasher,
            oldest: None,
            newest: Seq(0),
            is_by_age: true,
        }
    }

    /// A queue of operations that are already there, by age. Sorting all at once is cheaper than finding a place for
    /// each.
    pub(crate) fn of(mut operations: Sequence, sorting: Sorting) -> Self {
        let mut queue = Self::new(sorting);
        if sorting != Sorting::Always {
            operations.updates().for_each(|(update, lsn)| queue.append(&update, lsn));
            return queue;
        }
        for entry in (0..operations.end()).map(|index| operations.entry(index)) {
            queue.note_age(entry.seq, entry.lsn);
        }
        let sorted = sorted_stretch(&operations, 0..operations.len());
        let is_same = |one: &u32, other: &u32| operations.key(*one) == operations.key(*other);
        let rises = sorted.is_sorted() && !sorted.windows(2).any(|pair| is_same(&pair[0], &pair[1]));
        let (mut tree, mut older) = (Ordered::default(), Vec::new());
        for versions in sorted.chunk_by(is_same) {
            older.extend(versions.windows(2).map(|pair| (pair[1], pair[0])));
            let newest = versions[versions.len() - 1];
            let key = operations.key(newest);
            tree.note(key, true, newest, &operations);
            if rises {
                queue.filter.cover(key);
            } else {
                queue.note_in_filter(queue.hasher.hash_one(key));
            }
        }
        queue.rising = if rises { operations.end() } else { 0 };
        older.into_iter().for_each(|(index, older)| operations.set_older(index, older));
        (queue.operations, queue.order) = (operations, Order::Tree(tree));
        queue
    }

    /// The filter of the keys that the queue may have.
    pub(super) const fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Appends one operation of the commit at `lsn`. A second operation of the same commit on the same key replaces the
    /// first.
    pub(crate) fn append(&mut self, update: &Update<'_>, lsn: Lsn) {
        self.note_age(update.seq, lsn);
        let index = self.operations.end();
        let rises = self.rising == index && (index == 0 || self.key(index - 1) < update.key);
        if rises {
            self.filter.cover(update.key);
            self.rising += 1;
        } else {
            self.end_rising();
        }
        let (hasher, operations) = (&self.hasher, &self.operations);
        let older = match &mut self.order {
            Order::Tree(tree) => tree.note(update.key, rises, index, operations),
            Order::Runs(runs) => runs.note(update.key, index, operations, |key| hasher.hash_one(key)),
        };
        if older.is_none() && !rises {
            self.note_in_filter(self.hasher.hash_one(update.key));
        }
        self.operations.push(update, lsn, older.unwrap_or(NO_ENTRY));
        if let Order::Runs(runs) = &mut self.order {
            runs.appended(&self.operations);
        }
    }

    /// An operation comes, of this commit at `lsn`.
    fn note_age(&mut self, seq: Seq, lsn: Lsn) {
        let oldest = (seq, lsn);
        self.oldest = Some(self.oldest.map_or(oldest, |known| known.min(oldest)));
        self.is_by_age &= self.newest <= seq;
        self.newest = self.newest.max(seq);
    }

    /// Whether the keys of all operations rise strictly. Then each key has one operation, and the operations are in
    /// order.
    pub(super) fn is_rising(&self) -> bool {
        self.rising == self.operations.end()
    }

    /// Adds a key that may be new to the filter.
    fn note_in_filter(&mut self, hash: u64) {
        self.filter.add(hash, self.filtered);
        self.filtered += 1;
    }

    /// Ends the rise, because a key comes that is not above the last one. The keys of a short rise are added to the
    /// filter one by one. The keys of a long rise stay covered, because adding them would hold up the commit that ends
    /// the rise, and all commits behind.
    fn end_rising(&mut self) {
        if self.rising == 0 || self.rising >= RISING_MIN {
            return;
        }
        for index in 0..self.rising {
            let hash = self.hasher.hash_one(self.operations.key(index));
            self.note_in_filter(hash);
        }
        self.filter.uncover();
        self.rising = 0;
    }

    /// The number of operations.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Memory held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let order = match &self.order {
            Order::Tree(tree) => tree.bytes(),
            Order::Runs(runs) => runs.bytes(),
        };
        self.operations.bytes() + order + Filter::bytes(self.filtered)
    }

    /// Log position of the oldest operation.
    pub(crate) fn first_lsn(&self) -> Option<Lsn> {
        self.oldest.map(|(_, lsn)| lsn)
    }

    /// The seq of the oldest operation.
    pub(crate) fn first_seq(&self) -> Option<Seq> {
        self.oldest.map(|(seq, _)| seq)
    }

    /// The newest version of `key` at or below the seq of `at`.
    pub(crate) fn get(&self, key: &[u8], at: Moment) -> Option<Found> {
        let newest = match &self.order {
            Order::Tree(tree) => tree.newest_of(key, &self.operations),
            Order::Runs(runs) => runs.newest_of(key, &self.operations, self.hasher.hash_one(key)),
        };
        self.version(newest?, at)
    }

    /// The newest version at or below the seq of `at`, of the key whose newest entry is `index`.
    fn version(&self, mut index: u32, at: Moment) -> Option<Found> {
        while index != NO_ENTRY {
            let entry = self.operations.entry(index);
            if entry.seq <= at.seq {
                return Some(Found::of(&self.operations.update(index), at.now));
            }
            index = entry.older;
        }
        None
    }

    /// The update that entry `index` holds.
    pub(super) fn update(&self, index: u32) -> Update<'_> {
        self.operations.update(index)
    }

    /// Every operation with the log position of its commit, in the order of appending.
    pub(crate) fn updates(&self) -> impl Iterator<Item = (Update<'_>, Lsn)> {
        self.operations.updates()
    }

    /// Up to `limit` keys within `bounds`, in the given direction, strictly behind `after` if given. Keys that `pass`
    /// names are left out.
    pub(crate) fn steps(
        &self, bounds: &Bounds, direction: Direction, after: Option<&[u8]>, limit: usize, at: Moment, pass: &Pass<'_>,
    ) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::with_capacity(limit.min(64).min(self.len()));
        let step = |newest: u32| {
            let found = self.version(newest, at)?;
            Some(Step { key: self.key(newest).to_vec(), found })
        };
        match &self.order {
            Order::Runs(runs) => runs.walk(&self.operations, bounds, direction, after, |newest| {
                steps.extend(step(newest));
                steps.len() < limit
            }),
            Order::Tree(tree) => {
                let mut next = self.begin(tree, bounds, direction, after);
                let mut deleted = DELETED_MAX;
                while let Some(position) = next.filter(|_| steps.len() < limit) {
                    let newest = tree.entry(position);
                    if !bounds.contains(self.key(newest)) {
                        break;
                    }
                    if deleted >= DELETED_MAX {
                        let behind = self.behind(tree, position, direction, pass);
                        if behind != Some(position) {
                            next = behind;
                            continue;
                        }
                        deleted = 0;
                    }
                    let found = step(newest);
                    deleted =
                        if found.as_ref().is_some_and(|step| step.found.value.is_some()) { 0 } else { deleted + 1 };
                    steps.extend(found);
                    next = tree.next(position, direction);
                }
            }
        }
        steps
    }

    /// The position of a walk's first key.
    fn begin(&self, tree: &Ordered, bounds: &Bounds, direction: Direction, after: Option<&[u8]>) -> Option<Position> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let bound = match direction {
            Direction::Forward => &bounds.lower,
            Direction::Backward => &bounds.upper,
        };
        let key = match (after, bound) {
            (Some(after), _) => after,
            (None, Included(key) | Excluded(key)) => key.as_slice(),
            (None, Unbounded) => return tree.end(direction),
        };
        let at_or_above = tree.at_or_above(key, &self.operations);
        let is_first = |position: &Position| bounds.is_ahead(self.key(tree.entry(*position)), direction, after);
        match (at_or_above, direction) {
            (Some(position), _) if is_first(&position) => Some(position),
            (Some(position), _) => tree.next(position, direction),
            (None, Direction::Forward) => None,
            (None, Direction::Backward) => tree.end(direction),
        }
    }

    /// The position at which a walk goes on from `position`: the same position, if there are no keys to pass over.
    fn behind(&self, tree: &Ordered, position: Position, direction: Direction, pass: &Pass<'_>) -> Option<Position> {
        let key = self.key(tree.entry(position));
        let Some(passed) = pass(key).filter(|_| self.is_by_age) else { return Some(position) };
        let since = self.operations.first_since(passed.before);
        let newer = tree.nearest_since(key, direction, since, &self.operations);
        let Some(end) = passed.end else { return newer };
        let is_within = |position: &Position| {
            let key = self.key(tree.entry(*position));
            if direction == Direction::Forward { key < end } else { key >= end }
        };
        newer.filter(is_within).or_else(|| match (tree.at_or_above(end, &self.operations), direction) {
            (at_or_above, Direction::Forward) => at_or_above,
            (Some(first), Direction::Backward) => tree.next(first, direction),
            (None, Direction::Backward) => tree.end(direction),
        })
    }

    /// Log position of the commit of entry `index`.
    pub(super) fn lsn(&self, index: u32) -> Lsn {
        self.operations.lsn(index)
    }

    /// All entries by key and then by age, the newest of a key last.
    pub(super) fn sorted_indexes(&self) -> List<u32> {
        let tree = match &self.order {
            Order::Runs(runs) => return runs.sorted_indexes(&self.operations),
            Order::Tree(tree) => tree,
        };
        let mut sorted = List::with_capacity_in(self.operations.len(), Mapped);
        let mut next = tree.end(Direction::Forward);
        while let Some(position) = next {
            let (begin, mut index) = (sorted.len(), tree.entry(position));
            while index != NO_ENTRY {
                sorted.push(index);
                index = self.operations.entry(index).older;
            }
            sorted[begin..].reverse();
            next = tree.next(position, Direction::Forward);
        }
        sorted
    }

    pub(super) fn key(&self, index: u32) -> &[u8] {
        self.operations.key(index)
    }
}

#[cfg(test)]
mod tests;
