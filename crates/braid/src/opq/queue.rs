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
            filter: Arc::new(Filter::new(hasher)),
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
        let Order::Tree(tree) = &mut queue.order else {
            operations.updates().for_each(|(update, lsn)| queue.append(&update, lsn));
            return queue;
        };
        for entry in (0..operations.end()).map(|index| operations.entry(index)) {
            let oldest = (entry.seq, entry.lsn);
            queue.oldest = Some(queue.oldest.map_or(oldest, |known| known.min(oldest)));
            queue.is_by_age &= queue.newest <= entry.seq;
            queue.newest = queue.newest.max(entry.seq);
        }
        let sorted = sorted_stretch(&operations, 0..operations.len());
        let is_same = |one: &u32, other: &u32| operations.key(*one) == operations.key(*other);
        let rises = sorted.is_sorted() && !sorted.windows(2).any(|pair| is_same(&pair[0], &pair[1]));
        let mut older = Vec::new();
        for versions in sorted.chunk_by(is_same) {
            older.extend(versions.windows(2).map(|pair| (pair[1], pair[0])));
            let newest = versions[versions.len() - 1];
            let key = operations.key(newest);
            tree.note(key, true, newest, &operations);
            if rises {
                queue.filter.cover(key);
            } else {
                queue.filter.add(queue.hasher.hash_one(key), queue.filtered);
                queue.filtered += 1;
            }
        }
        queue.rising = if rises { operations.end() } else { 0 };
        older.into_iter().for_each(|(index, older)| operations.set_older(index, older));
        queue.operations = operations;
        queue
    }

    /// The filter of the keys that the queue may have.
    pub(super) const fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Appends one operation of the commit at `lsn`. A second operation of the same commit on the same key replaces the
    /// first.
    pub(crate) fn append(&mut self, update: &Update<'_>, lsn: Lsn) {
        let oldest = (update.seq, lsn);
        self.oldest = Some(self.oldest.map_or(oldest, |known| known.min(oldest)));
        self.is_by_age &= self.newest <= update.seq;
        self.newest = self.newest.max(update.seq);
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
        let mut steps: Vec<Step> = Vec::with_capacity(limit.min(64));
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
mod tests {
    use std::collections::BTreeMap;

    use doclog::{DocLength, SegmentId};
    use index::{DocPointer, Expiry, Operation, Payload, Stored, Time};
    use proptest::prelude::*;

    use super::*;

    fn put<'a>(key: &'a [u8], seq: u64, value: &'a [u8]) -> Update<'a> {
        Update { key, seq: Seq(seq), operation: Operation::Put(Payload::Inline(value), None) }
    }

    #[test]
    fn small_operations_take_about_three_times_their_bytes() {
        let mut opq = Opq::new(Sorting::Always);
        for number in 0..100_000_u64 {
            let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            opq.append(&put(&key, number, &key), Lsn(number * 60));
        }
        let each = opq.bytes() / opq.len();
        assert!(each <= 56, "{each} bytes for an operation of 16");
    }

    #[test]
    fn no_order_of_keys_takes_much_more() {
        let falling = |number: u64| u64::MAX - number;
        // Keys grouped by user, users in order, the newest key of each user first; and keys that approach the middle
        // from both ends.
        let of_users = |number: u64| ((number % 100) << 32) | ((1 << 20) - number);
        let from_both_ends = |number: u64| if number.is_multiple_of(2) { number } else { falling(number) };
        let key_of: [&dyn Fn(u64) -> u64; 4] = [&falling, &of_users, &from_both_ends, &|number| number << 32];
        for (which, rising) in [0, 64, 640, 650, 4096, 64 * 4096].into_iter().enumerate() {
            for (order, key_of) in key_of.iter().enumerate() {
                let mut opq = Opq::new(Sorting::Always);
                let keys = (0..rising).chain((0..40_000).map(|number| rising + key_of(number) / 2));
                for (seq, key) in (0..).zip(keys) {
                    opq.append(&put(&key.to_be_bytes(), seq, &key.to_be_bytes()), Lsn(seq * 60));
                }
                let each = opq.bytes() / opq.len();
                assert!(each <= 72, "{each} bytes for an operation of 16, keys {which} and {order}");
            }
        }
    }

    #[test]
    fn keys_that_rise_are_not_hashed() {
        let mut opq = Opq::new(Sorting::Always);
        let key = |number: u64| (2 * number).to_be_bytes();
        (0..3000).for_each(|number| opq.append(&put(&key(number), number + 1, b"v"), Lsn(number)));
        assert!(opq.is_rising() && opq.filtered == 0);
        assert!(opq.sorted_indexes().iter().copied().eq(0..3000));
        let seq_of = |opq: &Opq, key: &[u8]| opq.get(key, Seq::MAX.into()).map(|found| found.seq.0);
        assert!((0..3000).all(|number| seq_of(&opq, &key(number)) == Some(number + 1)));
        assert_eq!(seq_of(&opq, &3u64.to_be_bytes()), None);
        assert_eq!(seq_of(&opq, &9999u64.to_be_bytes()), None);

        // A key that is already there, and one that is not.
        opq.append(&put(&key(5), 4000, b"v"), Lsn(4000));
        opq.append(&put(&11u64.to_be_bytes(), 4001, b"v"), Lsn(4001));
        opq.append(&put(&key(2999), 4002, b"v"), Lsn(4002));
        assert!(!opq.is_rising() && opq.filtered == 1, "those that rose are not hashed");
        assert_eq!((seq_of(&opq, &key(5)), seq_of(&opq, &key(6))), (Some(4000), Some(7)));
        assert_eq!(opq.get(&key(5), Seq(3999).into()).map(|found| found.seq), Some(Seq(6)));
        assert_eq!(seq_of(&opq, &11u64.to_be_bytes()), Some(4001));
        let sorted = opq.sorted_indexes();
        assert_eq!(sorted.len(), 3003);
        assert!(sorted.windows(2).all(|pair| (opq.key(pair[0]), pair[0]) < (opq.key(pair[1]), pair[1])));
    }

    #[test]
    fn keys_that_are_alike_for_long_are_sorted_too() {
        for sorting in [Sorting::Always, Sorting::Every(7)] {
            let mut opq = Opq::new(sorting);
            let mut model = BTreeMap::new();
            for number in 0..5000_u64 {
                let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let below = |limit: u64| usize::try_from((mixed >> 9) % limit).expect("small");
                // Long common prefixes, keys that end within them, zeros at the end, and repeated keys.
                let mut key = vec![7; 40 * below(3)];
                key.extend(&(mixed % 3000).to_be_bytes()[..below(9)]);
                opq.append(&put(&key, number + 1, b""), Lsn(number));
                model.insert((key, number), ());
                if number % 197 == 0 {
                    let sorted = opq.sorted_indexes();
                    let sorted = sorted.iter().map(|&index| (opq.key(index).to_vec(), u64::from(index)));
                    assert!(sorted.eq(model.keys().cloned()), "{number}");
                }
            }
        }
    }

    /// The keys that a walk meets if it passes over keys below `end`, or above it, that have no version older than
    /// `before` left.
    fn met(opq: &Opq, direction: Direction, before: u64, end: Option<&[u8]>) -> Vec<Vec<u8>> {
        let passes = |key: &[u8]| match (direction, end) {
            (_, None) => true,
            (Direction::Forward, Some(end)) => key < end,
            (Direction::Backward, Some(end)) => key >= end,
        };
        let pass = |key: &[u8]| passes(key).then_some(Passed { before: Seq(before), end });
        let steps = opq.steps(&Bounds::all(), direction, None, usize::MAX, Seq::MAX.into(), &pass);
        steps.into_iter().map(|step| step.key).collect()
    }

    #[test]
    fn a_walk_passes_over_what_is_gone() {
        let key = |number: u64| number.to_be_bytes().to_vec();
        let count = 20_000_u64;
        let (mut appended, mut operations) = (Opq::new(Sorting::Always), Sequence::default());
        for number in 0..count {
            let mixed = key(number.wrapping_mul(7919) % count);
            let update = Update { key: &mixed, seq: Seq(number + 1), operation: Operation::Delete };
            appended.append(&update, Lsn(number));
            operations.append(&update, Lsn(number));
        }
        for opq in [appended, Opq::of(operations, Sorting::Always)] {
            passes_over(opq, count);
        }
    }

    fn passes_over(mut opq: Opq, count: u64) {
        let key = |number: u64| number.to_be_bytes().to_vec();
        // Later operations are met, and so are all keys behind the end.
        [(700, 1), (9_000, 2), (15_000, 3)].iter().for_each(|&(number, more)| {
            opq.append(&put(&key(number), count + more, b"v"), Lsn(count + more));
        });
        // Of the deleted keys the walk meets a few: at its beginning, and behind each live key.
        let (end, few) = (key(10_000), 5 * DELETED_MAX);
        let check = |direction, before, end: Option<&[u8]>, newer: &[u64], behind: usize| {
            let met = met(&opq, direction, before, end);
            assert!(newer.iter().all(|&number| met.contains(&key(number))), "{newer:?}");
            assert!((behind + newer.len()..behind + newer.len() + few).contains(&met.len()), "{} keys", met.len());
            assert!(met.is_sorted_by(|one, other| direction.order(one, other).is_lt()));
        };
        check(Direction::Forward, count + 1, Some(&end), &[700, 9_000], 10_000);
        check(Direction::Backward, count + 2, Some(&end), &[15_000], 10_000);
        check(Direction::Forward, count + 1, None, &[700, 9_000, 15_000], 0);
        check(Direction::Backward, count + 3, None, &[15_000], 0);
        check(Direction::Forward, count + 4, None, &[], 0);
    }

    #[test]
    fn a_reader_sees_the_version_of_its_seq() {
        let mut opq = Opq::new(Sorting::Always);
        opq.append(&put(b"k", 1, b"one"), Lsn(0));
        opq.append(&Update { key: b"k", seq: Seq(3), operation: Operation::Delete }, Lsn(8));
        let one = Found { seq: Seq(1), value: Some(Stored::Inline(b"one".to_vec())), expiry: None };
        assert_eq!(opq.get(b"k", Seq(0).into()), None);
        assert_eq!(opq.get(b"k", Seq(2).into()), Some(one));
        assert_eq!(opq.get(b"k", Seq(3).into()), Some(Found { seq: Seq(3), value: None, expiry: None }));
        assert_eq!(opq.get(b"x", Seq(3).into()), None);
    }

    #[test]
    fn a_reader_sees_what_has_not_expired_by_its_time() {
        let mut opq = Opq::new(Sorting::Always);
        let document = DocPointer { segment: SegmentId(1), offset: 8, length: DocLength::plain(5000), crc: 3 };
        let expiry = Expiry::at(50);
        let operations = [
            (b"a", Operation::Put(Payload::Inline(b"one"), expiry)),
            (b"b", Operation::Put(Payload::Document(document), expiry)),
            (b"c", Operation::Put(Payload::Inline(b"stays"), None)),
        ];
        for (seq, (key, operation)) in (1..).zip(operations) {
            opq.append(&Update { key, seq: Seq(seq), operation }, Lsn(seq));
            let update = opq.updates().last().expect("it was appended").0;
            assert_eq!(update.operation, operation);
        }
        let at = |now| Moment { seq: Seq(9), now: Time(now) };
        let there = Found { seq: Seq(2), value: Some(Stored::Document(document)), expiry };
        assert_eq!(opq.get(b"b", at(49)), Some(there.clone()));
        assert_eq!(opq.get(b"b", at(50)), Some(Found { value: None, ..there }));
        let shown = |now| {
            let steps = opq.steps(&Bounds::all(), Direction::Forward, None, 9, at(now), &|_| None);
            steps.into_iter().filter(|step| step.found.value.is_some()).map(|step| step.key).collect::<Vec<_>>()
        };
        assert_eq!(shown(49), [b"a", b"b", b"c"]);
        assert_eq!(shown(50), [b"c"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn operations_in_order_at_once_are_as_if_they_came_one_by_one(
            keys in prop::collection::vec((prop::collection::vec(0u8..4, 0..5), 0usize..9), 0..600),
            rises: bool,
            at_once: prop::sample::Index,
            sorting in prop::sample::select(vec![Sorting::Always, Sorting::Every(50)]),
        ) {
            let mut keys: Vec<Vec<u8>> = keys.iter().map(|(key, more)| [key.as_slice(), &[7; 9][..*more]].concat()).collect();
            if rises {
                keys.sort();
                keys.dedup();
            }
            let (mut one, mut operations) = (Opq::new(sorting), Sequence::default());
            let seq = |index: usize| index as u64 / 2 + 1;
            let at_once = at_once.index(keys.len() + 1);
            for (index, key) in keys.iter().enumerate() {
                let update = put(key, seq(index), &[]);
                one.append(&update, Lsn(seq(index)));
                if index < at_once {
                    operations.append(&update, Lsn(seq(index)));
                }
            }
            let mut other = Opq::of(operations, sorting);
            prop_assert_eq!(other.is_rising(), at_once == 0 || keys[..at_once].is_sorted_by(|one, other| one < other));
            for (index, key) in keys.iter().enumerate().skip(at_once) {
                other.append(&put(key, seq(index), &[]), Lsn(seq(index)));
            }
            prop_assert_eq!((one.first_lsn(), one.first_seq(), one.len()), (other.first_lsn(), other.first_seq(), other.len()));
            prop_assert!(one.sorted_indexes() == other.sorted_indexes());
            for (index, key) in keys.iter().enumerate() {
                prop_assert!(other.filter().may_have(key));
                for seq in [seq(index) - 1, seq(index), u64::MAX] {
                    prop_assert_eq!(one.get(key, Seq(seq).into()), other.get(key, Seq(seq).into()));
                }
            }
            for direction in [Direction::Forward, Direction::Backward] {
                prop_assert_eq!(met(&one, direction, 0, None), met(&other, direction, 0, None));
            }
        }

        #[test]
        fn ranges_agree_with_a_map(
            keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..5), 1..400),
            scale in 1usize..40,
            lower in prop::collection::vec(0u8..4, 0..4),
            upper in prop::collection::vec(0u8..4, 0..4),
            backward: bool,
            limit in 1usize..50,
            rising in prop::sample::select(vec![0u64, 3, 2000]),
            sorting in prop::sample::select(vec![Sorting::Always, Sorting::Every(50), Sorting::Every(5000)]),
        ) {
            let mut opq = Opq::new(sorting);
            let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let mut seq = 0;
            for number in 0..rising {
                seq += 1;
                let key = [(number / 600).to_be_bytes(), (number % 600).to_be_bytes()].concat();
                let before = opq.bytes();
                opq.append(&put(&key, seq, &seq.to_le_bytes()), Lsn(seq));
                prop_assert!(opq.bytes() >= before);
                model.insert(key, seq);
            }
            for round in 0..scale {
                for key in &keys {
                    seq += 1;
                    let mut long = key.clone();
                    long.extend_from_slice(&(round as u64 % 3).to_be_bytes());
                    let before = opq.bytes();
                    opq.append(&put(&long, seq, &seq.to_le_bytes()), Lsn(seq));
                    prop_assert!(opq.bytes() >= before);
                    prop_assert_eq!(opq.get(&long, Seq::MAX.into()).map(|found| found.seq.0), Some(seq));
                    model.insert(long, seq);
                }
            }
            let bounds = Bounds {
                lower: std::ops::Bound::Included(lower.clone()),
                upper: std::ops::Bound::Excluded(upper.clone()),
            };
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            let mut expected: Vec<(Vec<u8>, u64)> =
                model.iter().filter(|(key, _)| bounds.contains(key)).map(|(key, seq)| (key.clone(), *seq)).collect();
            if backward {
                expected.reverse();
            }
            let mut seen = Vec::new();
            loop {
                let after = seen.last().map(|(key, _): &(Vec<u8>, u64)| key.clone());
                let steps = opq.steps(&bounds, direction, after.as_deref(), limit, Seq::MAX.into(), &|_| None);
                let done = steps.len() < limit;
                seen.extend(steps.into_iter().map(|step| (step.key, step.found.seq.0)));
                if done {
                    break;
                }
            }
            prop_assert_eq!(seen, expected);
        }
    }
}
