//! The queue that takes operations: a sequence of them, sorted runs, a hash table.
//!
//! 1. As long as each key is above the one before it, the sequence is sorted as it is. Appending compares two keys, and a lookup is a
//!    binary search: a table that is filled in order needs neither hashes nor sorting.
//! 2. The first key that is not above the last one ends that. What rose so far stays as it is, if it is long, and what follows gets a hash table.
//! 3. What follows is sorted every `sort_period` operations, for those who walk ranges. A run is a stretch of the sequence. As soon as there are
//!    [`FANOUT`] runs of a level, their stretch is sorted as one of the next level: so there are few, and each operation is sorted rarely.
//! 4. Sorting reads the keys of a stretch in the order in which they lie in memory, and compares their first eight bytes as numbers.
//!
//! Invariants: the keys of the first `rising` operations rise strictly, and none of these is in the hash table; runs are adjacent stretches from the
//! first operation on; the memory that a queue reports never becomes less.

use std::{cmp::Ordering, hash::BuildHasher, ops::Range, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable};
use index::{Bounds, Direction, Found, Moment, Seq, Update};
use mapped::{List, Mapped};
use wal::Lsn;

use super::{
    filter::Filter,
    sequence::{NO_ENTRY, Sequence},
};

/// Operations between two sorts of the tail: PIO's speriod, with the value of its evaluation (§4).
pub(crate) const SORT_PERIOD: usize = 5_000;

/// One key of a range, with its newest version at the reader's seq.
pub(crate) struct Step {
    /// The key.
    pub(crate) key: Vec<u8>,
    /// Its version: a deleted key is shown as such.
    pub(crate) found: Found,
}

/// So many runs of a level become one of the next.
const FANOUT: usize = 4;
/// The level of the run of keys that rose from the first one on: it is never sorted again.
const RISING: u8 = u8::MAX;
/// Operations that rose are kept apart from the hash table where there are so many: less are put into it at once.
const RISING_MIN: usize = 1024;

/// Fewer keys are compared as a whole.
const SORTED_WHOLE: usize = 16;
/// So often keys that are alike are told apart by what comes next.
const SORT_DEPTH: u8 = 8;

/// A stretch of the operations, sorted.
struct Run {
    level: u8,
    indexes: List<u32>,
}

impl Run {
    fn bytes(&self) -> usize {
        mapped::taken(self.indexes.capacity() * size_of::<u32>())
    }
}

/// The operations of one section of a table in the order in which they became visible.
pub(crate) struct Opq {
    operations: Sequence,
    /// How many of the first operations have rising keys, and are found by binary search.
    rising: usize,
    newest: HashTable<u32, Mapped>,
    hasher: DefaultHashBuilder,
    /// Its keys, for lookups that do not lock it, and how many were added there.
    filter: Arc<Filter>,
    filtered: usize,
    runs: Vec<Run>,
    sorted: usize,
    sort_period: usize,
    /// Seq and place in the log of the oldest operation. It need not be the first where queues were joined.
    oldest: Option<(Seq, Lsn)>,
}

impl Opq {
    /// An empty queue whose tail is sorted every `sort_period` operations.
    pub(crate) fn new(sort_period: usize) -> Self {
        let hasher = DefaultHashBuilder::default();
        Self {
            operations: Sequence::default(),
            rising: 0,
            newest: HashTable::new_in(Mapped),
            filter: Arc::new(Filter::new(hasher)),
            filtered: 0,
            hasher,
            runs: Vec::new(),
            sorted: 0,
            sort_period,
            oldest: None,
        }
    }

    /// Sorts what is not sorted, and from now on every `sort_period` operations.
    pub(crate) fn sort_every(&mut self, sort_period: usize) {
        self.sort_period = sort_period;
        if self.operations.len() > self.sorted {
            self.sort_tail();
        }
    }

    /// Which keys it may have.
    pub(super) const fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Operations between two sorts.
    pub(crate) const fn sort_period(&self) -> usize {
        self.sort_period
    }

    /// Appends one operation of the commit at `lsn`. A second operation of the same commit on the same key replaces the first.
    pub(crate) fn append(&mut self, update: &Update<'_>, lsn: Lsn) {
        let oldest = (update.seq, lsn);
        self.oldest = Some(self.oldest.map_or(oldest, |known| known.min(oldest)));
        let index = self.operations.end();
        if self.is_rising() {
            if index == 0 || self.key(index - 1) < update.key {
                return self.append_rising(update, lsn, index);
            }
            self.end_rising();
        }
        let older = self.find_or_note(update.key, index).unwrap_or(NO_ENTRY);
        self.operations.push(update, lsn, older);
        if self.operations.len() - self.sorted >= self.sort_period {
            self.sort_tail();
        }
    }

    /// Whether the keys of all its operations rise strictly: then there is one of each, and they are in order.
    pub(super) fn is_rising(&self) -> bool {
        self.rising == self.operations.len()
    }

    fn append_rising(&mut self, update: &Update<'_>, lsn: Lsn, index: u32) {
        self.filter.cover(update.key);
        self.operations.push(update, lsn, NO_ENTRY);
        match self.runs.last_mut() {
            Some(run) => run.indexes.push(index),
            None => {
                let mut indexes = List::new_in(Mapped);
                indexes.push(index);
                self.runs.push(Run { level: RISING, indexes });
            }
        }
        self.rising += 1;
        self.sorted += 1;
    }

    /// A key that may not have come before.
    fn note_in_filter(&mut self, hash: u64) {
        self.filter.add(hash, self.filtered);
        self.filtered += 1;
    }

    /// A key comes that is not above the last one. Few operations that rose are added to filter and hash table one by one. Many stay as they are, covered by the filter and
    /// found by a binary search: to add them would hold up the commit that ends their rise, and all behind it.
    fn end_rising(&mut self) {
        if self.rising >= RISING_MIN {
            return;
        }
        for index in 0..u32::try_from(self.rising).expect("few") {
            let hash = self.hasher.hash_one(self.operations.key(index));
            self.note_in_filter(hash);
            let (operations, hasher) = (&self.operations, &self.hasher);
            self.newest.insert_unique(hash, index, |&other| hasher.hash_one(operations.key(other)));
        }
        self.filter.uncover();
        self.rising = 0;
    }

    /// Notes the entry that `key` is about to get as its newest. Its newest one before.
    fn find_or_note(&mut self, key: &[u8], index: u32) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let (operations, hasher) = (&self.operations, &self.hasher);
        let slot = self.newest.entry(
            hash,
            |&other| operations.key(other) == key,
            |&other| hasher.hash_one(operations.key(other)),
        );
        match slot {
            hashbrown::hash_table::Entry::Occupied(mut occupied) => Some(std::mem::replace(occupied.get_mut(), index)),
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert(index);
                self.note_in_filter(hash);
                self.find_rising(key)
            }
        }
    }

    /// The entry of `key` among the first ones, whose keys rise.
    fn find_rising(&self, key: &[u8]) -> Option<u32> {
        let last = u32::try_from(self.rising.checked_sub(1)?).expect("bounded by append");
        if key > self.key(last) {
            return None;
        }
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        (self.key(low) == key).then_some(low)
    }

    /// How many operations it holds.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Memory it holds, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.operations.bytes()
            + mapped::taken(self.newest.allocation_size())
            + Filter::bytes(self.filtered)
            + self.runs.iter().map(Run::bytes).sum::<usize>()
    }

    /// Where the log holds the oldest of its operations.
    pub(crate) fn first_lsn(&self) -> Option<Lsn> {
        self.oldest.map(|(_, lsn)| lsn)
    }

    /// The seq of the oldest of its operations.
    pub(crate) fn first_seq(&self) -> Option<Seq> {
        self.oldest.map(|(seq, _)| seq)
    }

    /// The newest version of `key` at or below the seq of `at`.
    pub(crate) fn get(&self, key: &[u8], at: Moment) -> Option<Found> {
        let mut index = self.newest_of(key)?;
        while index != NO_ENTRY {
            let entry = self.operations.entry(index);
            if entry.seq <= at.seq {
                return Some(Found::of(&self.operations.update(index), at.now));
            }
            index = entry.older;
        }
        None
    }

    /// The newest entry of `key`.
    fn newest_of(&self, key: &[u8]) -> Option<u32> {
        if !self.newest.is_empty() {
            let hash = self.hasher.hash_one(key);
            if let Some(&newest) = self.newest.find(hash, |&other| self.operations.key(other) == key) {
                return Some(newest);
            }
        }
        self.find_rising(key)
    }

    /// The update that entry `index` holds.
    pub(super) fn update(&self, index: u32) -> Update<'_> {
        self.operations.update(index)
    }

    /// Every operation with the log position of its commit, in the order of appending.
    pub(crate) fn updates(&self) -> impl Iterator<Item = (Update<'_>, Lsn)> {
        self.operations.updates()
    }

    /// Up to `limit` keys within `bounds`, in the given direction, strictly behind `after` where that is given.
    pub(crate) fn steps(
        &self, bounds: &Bounds, direction: Direction, after: Option<&[u8]>, limit: usize, at: Moment,
    ) -> Vec<Step> {
        let mut heads: Vec<(&[u32], usize)> = Vec::with_capacity(self.runs.len() + 1);
        let tail = self.tail_within(bounds, direction, after);
        for run in self.runs.iter().map(|run| &run.indexes).chain(std::iter::once(&tail)) {
            let start = match direction {
                Direction::Forward => run.partition_point(|&index| !self.is_beyond(index, bounds, direction, after)),
                Direction::Backward => run.partition_point(|&index| self.is_beyond(index, bounds, direction, after)),
            };
            heads.push((run, start));
        }
        self.merge_steps(heads, bounds, direction, limit, at)
    }

    fn merge_steps(
        &self, mut heads: Vec<(&[u32], usize)>, bounds: &Bounds, direction: Direction, limit: usize, at: Moment,
    ) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::with_capacity(limit.min(64));
        while steps.len() < limit {
            let head = |&(run, position): &(&[u32], usize)| match direction {
                Direction::Forward => run.get(position).copied(),
                Direction::Backward => position.checked_sub(1).map(|below| run[below]),
            };
            let best = heads.iter().filter_map(head).reduce(|best, other| {
                let order = self.key(other).cmp(self.key(best));
                let nearer = if direction == Direction::Forward { Ordering::Less } else { Ordering::Greater };
                if order == nearer { other } else { best }
            });
            let Some(best) = best else { break };
            let key = self.key(best);
            let within =
                if direction == Direction::Forward { bounds.below_upper(key) } else { bounds.above_lower(key) };
            if !within {
                break;
            }
            for candidate in &mut heads {
                while head(candidate).is_some_and(|index| self.key(index) == key) {
                    candidate.1 = if direction == Direction::Forward { candidate.1 + 1 } else { candidate.1 - 1 };
                }
            }
            if let Some(found) = self.get(key, at) {
                steps.push(Step { key: key.to_vec(), found });
            }
        }
        steps
    }

    /// Whether the key of `index` lies where a walk in `direction` has still to go.
    fn is_beyond(&self, index: u32, bounds: &Bounds, direction: Direction, after: Option<&[u8]>) -> bool {
        let key = self.key(index);
        match direction {
            Direction::Forward => bounds.above_lower(key) && after.is_none_or(|after| key > after),
            Direction::Backward => bounds.below_upper(key) && after.is_none_or(|after| key < after),
        }
    }

    fn tail_within(&self, bounds: &Bounds, direction: Direction, after: Option<&[u8]>) -> List<u32> {
        let end = self.operations.end();
        let start = u32::try_from(self.sorted).expect("bounded by append");
        self.sorted_of(
            (start..end)
                .filter(|&index| bounds.contains(self.key(index)) && self.is_beyond(index, bounds, direction, after)),
        )
    }

    fn sort_tail(&mut self) {
        let run = self.sorted_stretch(self.sorted..self.operations.len());
        self.runs.push(Run { level: 0, indexes: run });
        self.sorted = self.operations.len();
        while let Some(first) = self.runs.len().checked_sub(FANOUT)
            && let Some(level) = self.runs.last().map(|run| run.level)
            && self.runs[first..].iter().all(|run| run.level == level)
        {
            let joined: usize = self.runs.drain(first..).map(|run| run.indexes.len()).sum();
            let indexes = self.sorted_stretch(self.sorted - joined..self.sorted);
            self.runs.push(Run { level: level + 1, indexes });
        }
    }

    /// Some of the operations, by key and then by age.
    fn sorted_stretch(&self, stretch: Range<usize>) -> List<u32> {
        let index = |position| u32::try_from(position).expect("bounded by append");
        self.sorted_of(index(stretch.start)..index(stretch.end))
    }

    fn sorted_of(&self, indexes: impl Iterator<Item = u32>) -> List<u32> {
        let mut keyed = List::with_capacity_in(indexes.size_hint().0, Mapped);
        keyed.extend(indexes.map(|index| (0, index)));
        self.sort(&mut keyed, 0, SORT_DEPTH);
        // In memory of its own, which is no more than it needs.
        let mut sorted = List::with_capacity_in(keyed.len(), Mapped);
        sorted.extend(keyed.into_iter().map(|(_, index)| index));
        sorted
    }

    /// Sorts entries, which come in order of age, by key and then by age: by the eight bytes behind what all have in common, and those that are still
    /// alike by what comes behind those, `depth` times at most. All have at least the first `known` bytes in common, or else they are compared as a whole.
    fn sort(&self, keyed: &mut [(u64, u32)], known: usize, depth: u8) {
        let Some(&(_, first)) = keyed.first() else { return };
        let first = self.key(first);
        let common =
            keyed.iter().fold(first.len(), |common, &(_, index)| common_bytes(&first[..common], self.key(index)));
        if keyed.len() < SORTED_WHOLE || depth == 0 || common < known {
            return keyed.sort_by(|&(_, left), &(_, right)| self.key(left).cmp(self.key(right)));
        }
        keyed.iter_mut().for_each(|(head, index)| *head = number(&self.key(*index)[common..]));
        keyed.sort_unstable();
        for alike in keyed.chunk_by_mut(|(one, _), (other, _)| one == other).filter(|alike| alike.len() > 1) {
            self.sort(alike, common + 1, depth - 1);
        }
    }

    /// Where the log holds the commit of entry `index`.
    pub(super) fn lsn(&self, index: u32) -> Lsn {
        self.operations.lsn(index)
    }

    /// All entries by key and then by age, the newest of a key last.
    pub(super) fn sorted_indexes(&self) -> List<u32> {
        match self.runs.as_slice() {
            [all] if self.sorted == self.operations.len() => all.indexes.clone(),
            _ => self.sorted_stretch(0..self.operations.len()),
        }
    }

    pub(super) fn key(&self, index: u32) -> &[u8] {
        self.operations.key(index)
    }
}

/// The first eight bytes as a number: orders keys like the bytes do, but for equal ones.
fn number(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// How many bytes two keys begin with alike.
fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
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
        let mut opq = Opq::new(SORT_PERIOD);
        for number in 0..100_000_u64 {
            let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            opq.append(&put(&key, number, &key), Lsn(number * 60));
        }
        let each = opq.bytes() / opq.len();
        assert!(each <= 56, "{each} bytes for an operation of 16");
    }

    #[test]
    fn keys_that_rise_need_no_hashes_and_no_sorting() {
        let mut opq = Opq::new(10);
        let key = |number: u64| (2 * number).to_be_bytes();
        (0..3000).for_each(|number| opq.append(&put(&key(number), number + 1, b"v"), Lsn(number)));
        assert!(opq.is_rising() && opq.newest.is_empty());
        assert!(opq.sorted_indexes().iter().copied().eq(0..3000));
        let seq_of = |opq: &Opq, key: &[u8]| opq.get(key, Seq::MAX.into()).map(|found| found.seq.0);
        assert!((0..3000).all(|number| seq_of(&opq, &key(number)) == Some(number + 1)));
        assert_eq!(seq_of(&opq, &3u64.to_be_bytes()), None);
        assert_eq!(seq_of(&opq, &9999u64.to_be_bytes()), None);

        // One that is there already, and one that is not.
        opq.append(&put(&key(5), 4000, b"v"), Lsn(4000));
        opq.append(&put(&11u64.to_be_bytes(), 4001, b"v"), Lsn(4001));
        opq.append(&put(&key(2999), 4002, b"v"), Lsn(4002));
        assert!(!opq.is_rising() && opq.newest.len() == 3, "those that rose are not hashed");
        assert_eq!((seq_of(&opq, &key(5)), seq_of(&opq, &key(6))), (Some(4000), Some(7)));
        assert_eq!(opq.get(&key(5), Seq(3999).into()).map(|found| found.seq), Some(Seq(6)));
        assert_eq!(seq_of(&opq, &11u64.to_be_bytes()), Some(4001));
        let sorted = opq.sorted_indexes();
        assert_eq!(sorted.len(), 3003);
        assert!(sorted.windows(2).all(|pair| (opq.key(pair[0]), pair[0]) < (opq.key(pair[1]), pair[1])));
    }

    #[test]
    fn keys_that_are_alike_for_long_are_sorted_too() {
        let mut opq = Opq::new(7);
        let mut model = BTreeMap::new();
        for number in 0..2000_u64 {
            let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let below = |limit: u64| usize::try_from((mixed >> 9) % limit).expect("small");
            // Long beginnings in common, keys that end within them, zeros at the end, and keys that come again.
            let mut key = vec![7; 40 * below(3)];
            key.extend(&(mixed % 300).to_be_bytes()[..below(9)]);
            opq.append(&put(&key, number + 1, b""), Lsn(number));
            model.insert((key, number), ());
            if number % 97 == 0 {
                let sorted: Vec<_> =
                    opq.sorted_indexes().into_iter().map(|index| (opq.key(index).to_vec(), u64::from(index))).collect();
                assert!(sorted.iter().eq(model.keys()), "{number}");
            }
        }
        assert!(opq.runs.len() < 4 * FANOUT, "{} runs", opq.runs.len());
    }

    #[test]
    fn a_reader_sees_the_version_of_its_seq() {
        let mut opq = Opq::new(SORT_PERIOD);
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
        let mut opq = Opq::new(SORT_PERIOD);
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
            let steps = opq.steps(&Bounds::all(), Direction::Forward, None, 9, at(now));
            steps.into_iter().filter(|step| step.found.value.is_some()).map(|step| step.key).collect::<Vec<_>>()
        };
        assert_eq!(shown(49), [b"a", b"b", b"c"]);
        assert_eq!(shown(50), [b"c"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn ranges_agree_with_a_map(
            keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..5), 1..400),
            scale in 1usize..40,
            lower in prop::collection::vec(0u8..4, 0..4),
            upper in prop::collection::vec(0u8..4, 0..4),
            backward: bool,
            limit in 1usize..50,
            rising in prop::sample::select(vec![0u64, 3, 2000]),
            sort_period in prop::sample::select(vec![50, SORT_PERIOD]),
        ) {
            let mut opq = Opq::new(sort_period);
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
                let steps = opq.steps(&bounds, direction, after.as_deref(), limit, Seq::MAX.into());
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
