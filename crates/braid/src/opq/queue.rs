//! The queue that takes operations: a sequence of them, a hash table, sorted runs.

use std::{cmp::Ordering, hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable};
use index::{Bounds, Direction, Found, Moment, Seq, Update};
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

/// The operations of one section of a table in the order in which they became visible.
pub(crate) struct Opq {
    operations: Sequence,
    newest: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Its keys, for lookups that do not lock it.
    filter: Arc<Filter>,
    runs: Vec<Vec<u32>>,
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
            newest: HashTable::new(),
            filter: Arc::new(Filter::new(hasher)),
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
        let index = self.operations.end();
        let hash = self.hasher.hash_one(update.key);
        let (operations, hasher) = (&self.operations, &self.hasher);
        let slot = self.newest.entry(
            hash,
            |&other| operations.key(other) == update.key,
            |&other| hasher.hash_one(operations.key(other)),
        );
        let older = match slot {
            hashbrown::hash_table::Entry::Occupied(mut occupied) => std::mem::replace(occupied.get_mut(), index),
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert(index);
                self.filter.add(hash, self.newest.len() - 1);
                NO_ENTRY
            }
        };
        let oldest = (update.seq, lsn);
        self.oldest = Some(self.oldest.map_or(oldest, |known| known.min(oldest)));
        self.operations.push(update, lsn, older);
        if self.operations.len() - self.sorted >= self.sort_period {
            self.sort_tail();
        }
    }

    /// How many operations it holds.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Memory it holds, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.operations.bytes()
            + self.newest.capacity() * 5
            + Filter::bytes(self.newest.len())
            + self.runs.iter().map(|run| run.capacity() * size_of::<u32>()).sum::<usize>()
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
        if self.newest.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        let newest = self.newest.find(hash, |&other| self.operations.key(other) == key)?;
        let mut index = *newest;
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

    /// Up to `limit` keys within `bounds`, in the given direction, strictly behind `after` where that is given.
    pub(crate) fn steps(
        &self, bounds: &Bounds, direction: Direction, after: Option<&[u8]>, limit: usize, at: Moment,
    ) -> Vec<Step> {
        let mut heads: Vec<(&[u32], usize)> = Vec::with_capacity(self.runs.len() + 1);
        let tail = self.tail_within(bounds, direction, after);
        for run in self.runs.iter().chain(std::iter::once(&tail)) {
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

    fn tail_within(&self, bounds: &Bounds, direction: Direction, after: Option<&[u8]>) -> Vec<u32> {
        let end = self.operations.end();
        let start = u32::try_from(self.sorted).expect("bounded by append");
        let mut tail: Vec<u32> = (start..end)
            .filter(|&index| bounds.contains(self.key(index)) && self.is_beyond(index, bounds, direction, after))
            .collect();
        self.sort(&mut tail);
        tail
    }

    fn sort_tail(&mut self) {
        let end = self.operations.end();
        let start = u32::try_from(self.sorted).expect("bounded by append");
        let mut run: Vec<u32> = (start..end).collect();
        self.sort(&mut run);
        while self.runs.last().is_some_and(|last| last.len() < run.len() * 2) {
            let last = self.runs.pop().expect("the loop saw it");
            run = self.merged(&last, &run);
        }
        self.runs.push(run);
        self.sorted = self.operations.len();
    }

    fn sort(&self, run: &mut [u32]) {
        run.sort_by_cached_key(|&index| (prefix(self.key(index)), index));
        let mut start = 0;
        while start < run.len() {
            let head = prefix(self.key(run[start]));
            let end = start + run[start..].partition_point(|&index| prefix(self.key(index)) == head);
            run[start..end].sort_unstable_by(|&left, &right| self.order(left, right));
            start = end;
        }
    }

    fn order(&self, left: u32, right: u32) -> Ordering {
        self.key(left).cmp(self.key(right)).then(left.cmp(&right))
    }

    fn merged(&self, left: &[u32], right: &[u32]) -> Vec<u32> {
        let mut merged = Vec::with_capacity(left.len() + right.len());
        let (mut at_left, mut at_right) = (0, 0);
        while at_left < left.len() && at_right < right.len() {
            if self.order(left[at_left], right[at_right]) == Ordering::Less {
                merged.push(left[at_left]);
                at_left += 1;
            } else {
                merged.push(right[at_right]);
                at_right += 1;
            }
        }
        merged.extend_from_slice(&left[at_left..]);
        merged.extend_from_slice(&right[at_right..]);
        merged
    }

    /// Where the log holds the commit of entry `index`.
    pub(super) fn lsn(&self, index: u32) -> Lsn {
        self.operations.lsn(index)
    }

    /// All entries by key and then by age, the newest of a key last.
    pub(super) fn sorted_indexes(&self) -> Vec<u32> {
        let end = self.operations.end();
        let start = u32::try_from(self.sorted).expect("bounded by append");
        let mut all: Vec<u32> = (start..end).collect();
        self.sort(&mut all);
        for run in self.runs.iter().rev() {
            all = self.merged(run, &all);
        }
        all
    }

    pub(super) fn key(&self, index: u32) -> &[u8] {
        self.operations.key(index)
    }
}

/// The first eight bytes as a number: orders keys like the bytes do, but for equal prefixes.
fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
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
        ) {
            let mut opq = Opq::new(SORT_PERIOD);
            let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let mut seq = 0;
            for round in 0..scale {
                for key in &keys {
                    seq += 1;
                    let mut long = key.clone();
                    long.extend_from_slice(&(round as u64 % 3).to_be_bytes());
                    opq.append(&put(&long, seq, &seq.to_le_bytes()), Lsn(seq));
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
