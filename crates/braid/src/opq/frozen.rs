//! Queues that take no more operations, sorted: the batch that a structure applies.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, OnceLock},
};

use index::{Batch, Horizon, Seq, Update};
use mapped::List;
use parking_lot::{ArcRwLockReadGuard, Mutex, RawRwLock, RwLock};
use space::Class;
use wal::Lsn;

use super::{queue::Opq, sections::Sections};

/// The frozen queues of a table. Readers use them until the structure has the batch.
pub(crate) struct Frozen {
    sections: Arc<Sections>,
    through: Seq,
    bytes: u64,
    order: OnceLock<Order>,
    /// Ranges of the sorted operations that are not applied yet; the first is next.
    left: Mutex<VecDeque<Range<usize>>>,
}

/// A section larger than so many rounds, such as one with keys that only rise, is applied in slices, because the
/// structure needs several times the memory of a slice to apply a slice. A lower limit would cut sections of random
/// keys as well, and each slice takes a flush.
const SLICE_ROUNDS: u64 = 4;

/// The operations of some queues, sorted.
#[derive(Default)]
struct Order {
    runs: Vec<Run>,
    len: usize,
}

/// The sorted operations of one section.
struct Run {
    section: usize,
    /// The number of operations before this run.
    start: usize,
    sorted: Arc<Sorted>,
}

struct Sorted {
    guard: ArcRwLockReadGuard<RawRwLock, Opq>,
    indexes: List<u32>,
}

impl Run {
    fn end(&self) -> usize {
        self.start + self.sorted.indexes.len()
    }

    fn update(&self, position: usize) -> Update<'_> {
        self.sorted.guard.update(self.sorted.indexes[position - self.start])
    }
}

impl Order {
    fn run(&self, position: usize) -> &Run {
        &self.runs[self.runs.partition_point(|run| run.start <= position) - 1]
    }

    fn push(&mut self, section: usize, sorted: Arc<Sorted>) {
        let start = self.len;
        self.len += sorted.indexes.len();
        self.runs.push(Run { section, start, sorted });
    }

    fn update(&self, position: usize) -> Update<'_> {
        self.run(position).update(position)
    }

    fn key(&self, position: usize) -> &[u8] {
        self.update(position).key
    }

    /// The first position from `from` on, below `end`, at which another key begins.
    fn cut(&self, from: usize, end: usize) -> Option<usize> {
        (from..end).find(|&position| self.key(position) != self.key(position - 1))
    }
}

impl Frozen {
    /// Freezes the queues of `sections`, which hold `bytes`; no operation is appended to them any more. These queues or
    /// older ones have all commits up to `through`, within the ranges of their sections.
    pub(crate) const fn new(sections: Arc<Sections>, through: Seq, bytes: u64) -> Self {
        Self { sections, through, bytes, order: OnceLock::new(), left: Mutex::new(VecDeque::new()) }
    }

    /// The queues themselves.
    pub(crate) const fn sections(&self) -> &Arc<Sections> {
        &self.sections
    }

    /// Memory of the queues at the time of the freeze, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Log position of the first operation that is not applied and still counts.
    pub(crate) fn first_lsn(&self) -> Option<Lsn> {
        if self.order.get().is_none() {
            return self.sections.first_lsn();
        }
        self.left_min(|run, position| run.sorted.guard.lsn(run.sorted.indexes[position - run.start]))
    }

    /// The seq of the first operation that is not applied and still counts.
    pub(crate) fn first_seq(&self) -> Option<Seq> {
        if self.order.get().is_none() {
            return self.sections.first_seq();
        }
        self.left_min(|run, position| run.update(position).seq)
    }

    fn left_min<T: Ord>(&self, of: impl Fn(&Run, usize) -> T) -> Option<T> {
        let order = self.order();
        let left = self.left.lock();
        left.iter().flat_map(Clone::clone).map(|position| of(order.run(position), position)).min()
    }

    /// Sorts the operations and selects those that count. For each key these are:
    ///
    /// - the newest version, unless a range delete hides it;
    /// - the versions that `horizon` sees;
    /// - the versions with documents, because only the structure reports which documents die, each once.
    ///
    /// Then cuts the sorted operations into slices:
    ///
    /// - a slice has at most `most` operations, up to the next key boundary;
    /// - a slice ends with the section that brings it to `bytes`, the size of a round;
    /// - a section larger than [`SLICE_ROUNDS`] times `bytes` is cut into equal slices of at most that size, up to the
    ///   next key boundary.
    pub(crate) fn sort(&self, horizon: &Horizon, most: usize, bytes: u64) {
        self.order.get_or_init(|| {
            let (mut order, mut left) = (Order::default(), self.left.lock());
            let (mut start, mut taken) = (0, 0);
            for (section, queue) in self.sections.queues().iter().enumerate() {
                let guard = RwLock::read_arc(queue);
                // Only sections without operations are skipped. A section whose operations do not count is still
                // covered, because they must not be replayed.
                if guard.len() == 0 {
                    continue;
                }
                if taken >= bytes && order.len > start {
                    left.push_back(start..order.len);
                    (start, taken) = (order.len, 0);
                }
                let held = guard.bytes() as u64;
                taken += held;
                let indexes = sorted(&guard, horizon);
                let slices =
                    usize::try_from(held.div_ceil(bytes.saturating_mul(SLICE_ROUNDS).max(1))).unwrap_or(usize::MAX);
                let most = if slices > 1 { most.min(indexes.len().div_ceil(slices).max(1)) } else { most };
                order.push(section, Arc::new(Sorted { guard, indexes }));
                while order.len - start > most {
                    let Some(cut) = order.cut(start + most, order.len) else { break };
                    left.push_back(start..cut);
                    start = cut;
                }
            }
            // If no operation counts there is still one slice, for the sections that are covered.
            if start < order.len || left.is_empty() {
                left.push_back(start..order.len);
            }
            drop(left);
            order
        });
    }

    /// The same without the sections that are fully applied, and the memory of those sections at the time of the
    /// freeze. None if there are no such sections, or no others.
    pub(crate) fn rest(&self) -> Option<(Self, u64)> {
        let (old, left) = (self.order(), self.left.lock());
        let is_left = |run: &&Run| left.iter().any(|range| range.start < run.end() && run.start < range.end);
        let kept: Vec<&Run> = old.runs.iter().filter(is_left).collect();
        if kept.is_empty() || kept.len() == old.runs.len() {
            return None;
        }
        let (mut order, mut places, mut bytes) = (Order::default(), Vec::with_capacity(kept.len()), 0);
        for run in kept {
            places.push((run.start, order.len));
            bytes += run.sorted.guard.bytes() as u64;
            order.push(run.section, Arc::clone(&run.sorted));
        }
        // A range that is left lies in sections that are kept, which stay adjacent.
        let moved = |range: &Range<usize>| {
            let (before, now) = places[places.partition_point(|(start, _)| *start <= range.start) - 1];
            let start = range.start - before + now;
            start..start + range.len()
        };
        let sections: Vec<usize> = order.runs.iter().map(|run| run.section).collect();
        let rest = Self {
            sections: Arc::new(self.sections.only(&sections)),
            through: self.through,
            bytes,
            order: OnceLock::from(order),
            left: Mutex::new(left.iter().map(moved).collect()),
        };
        Some((rest, self.bytes.saturating_sub(bytes)))
    }

    /// Some of the sorted operations.
    pub(crate) fn updates(&self, range: Range<usize>) -> impl Iterator<Item = Update<'_>> {
        let order = self.order();
        range.map(|position| order.update(position))
    }

    /// The number of operations after the sort.
    pub(crate) fn len(&self) -> usize {
        self.order().len
    }

    /// These queues or older ones have all commits up to this one, within the ranges of their sections.
    pub(crate) const fn through(&self) -> Seq {
        self.through
    }

    /// The slice to be applied next. Requires that the operations are sorted and a slice is left.
    pub(crate) fn next_slice(&self) -> Slice<'_> {
        let range = self.left.lock().front().cloned().expect("asked only while something is left");
        Slice { frozen: self, range, class: Class::Normal }
    }

    /// The first slice is applied.
    pub(crate) fn slice_applied(&self) {
        self.left.lock().pop_front();
    }

    /// Puts an applied slice back, because the structure does not have these operations after all.
    pub(crate) fn take_back(&self, range: Range<usize>) {
        self.left.lock().push_front(range);
    }

    /// Handles a lack of space for the first slice. A slice is halved between two keys, or put last if it has no more
    /// than `smallest` operations. Returns whether the slice was halved.
    pub(crate) fn slice_refused(&self, smallest: usize) -> bool {
        let mut left = self.left.lock();
        let range = left.pop_front().expect("refused only while something is left");
        let middle = range.start + range.len() / 2;
        let cut = self.order().cut(middle.max(range.start + 1), range.end);
        match cut.filter(|_| range.len() > smallest) {
            Some(cut) => {
                left.push_front(cut..range.end);
                left.push_front(range.start..cut);
                true
            }
            None => {
                left.push_back(range);
                false
            }
        }
    }

    /// Whether the structure has a part of the batch, but not all.
    pub(crate) fn is_applied_in_part(&self) -> bool {
        self.order.get().is_some_and(|order| self.left.lock().iter().map(Range::len).sum::<usize>() < order.len)
    }

    /// The number of slices left; 0 means that all of the batch is applied.
    pub(crate) fn slices_left(&self) -> usize {
        self.left.lock().len()
    }

    /// The sorted operations that are not applied, in their order.
    pub(crate) fn left(&self) -> impl Iterator<Item = Update<'_>> {
        let mut left: Vec<Range<usize>> = self.left.lock().iter().cloned().collect();
        left.sort_unstable_by_key(|range| range.start);
        left.into_iter().flat_map(|range| self.updates(range))
    }

    fn order(&self) -> &Order {
        self.order.get().expect("frozen queues are sorted before they are applied")
    }
}

/// The entries of a queue that count, in key order, and entries of equal keys in the order of their seqs.
fn sorted(queue: &Opq, horizon: &Horizon) -> List<u32> {
    let mut all = queue.sorted_indexes();
    let hides = !horizon.tombstones.is_empty();
    if queue.is_rising() && !hides {
        return all;
    }
    let (mut kept, mut next) = (0, all.first().map(|&index| queue.update(index)));
    for position in 0..all.len() {
        let index = all[position];
        let Some(version) = next else { break };
        next = all.get(position + 1).map(|&index| queue.update(index));
        let newer = next.filter(|next| next.key == version.key);
        let has_document = || version.operation.document().is_some();
        let is_seen = |newer: Update<'_>| newer.seq != version.seq && horizon.sees(version.seq, newer.seq);
        let is_hidden = || hides && horizon.is_hidden(version.key, version.seq);
        if newer.is_none_or(is_seen) && !is_hidden() || has_document() {
            all[kept] = index;
            kept += 1;
        }
    }
    all.truncate(kept);
    all
}

/// A part of the frozen operations: the batch that a structure applies at once.
pub(crate) struct Slice<'a> {
    frozen: &'a Frozen,
    range: Range<usize>,
    class: Class,
}

impl Slice<'_> {
    /// The same slice, to be applied with the space that is reserved for deletes, because deletes wait behind this
    /// slice.
    pub(crate) fn urgent(self) -> Self {
        Self { class: Class::Urgent, ..self }
    }

    /// The range of the sorted operations.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Visits the key ranges, each from its first key to below its second, in which this slice completes the frozen
    /// operations.
    pub(crate) fn for_each_span(&self, mut visit: impl FnMut(&[u8], Option<&[u8]>)) {
        let (order, sections) = (self.frozen.order(), self.frozen.sections());
        for run in &order.runs {
            let end = run.end();
            if run.start == end {
                visit(sections.low(run.section), sections.high(run.section));
                continue;
            }
            if end <= self.range.start || self.range.end <= run.start {
                continue;
            }
            let begins_here = self.range.start > run.start;
            let low = if begins_here { order.key(self.range.start) } else { sections.low(run.section) };
            let ends_here = self.range.end < end;
            let high = if ends_here { Some(order.key(self.range.end)) } else { sections.high(run.section) };
            visit(low, high);
        }
    }
}

impl Batch for Slice<'_> {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn get(&self, index: usize) -> Update<'_> {
        self.frozen.order().update(self.range.start + index)
    }

    fn through(&self) -> Seq {
        self.frozen.through
    }

    fn class(&self) -> Class {
        self.class
    }
}

#[cfg(test)]
mod tests {
    use index::{Operation, Payload, RangeTombstones};

    use super::{super::queue::Sorting, *};

    fn append(sections: &Sections, updates: &[(&[u8], u64)]) {
        for (key, seq) in updates {
            let operation = Operation::Put(Payload::Inline(key), None);
            let queue = sections.queue(sections.of_key(key));
            queue.write().append(&Update { key, seq: Seq(*seq), operation }, Lsn(*seq));
        }
    }

    fn frozen(updates: &[(&[u8], u64)], through: u64) -> Frozen {
        let sections = Sections::new(Sorting::Always);
        append(&sections, updates);
        Frozen::new(Arc::new(sections), Seq(through), 0)
    }

    fn spans(frozen: &Frozen) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut spans = Vec::new();
        let mut visit = |low: &[u8], high: Option<&[u8]>| spans.push((low.to_vec(), high.map(<[u8]>::to_vec)));
        frozen.next_slice().for_each_span(&mut visit);
        spans
    }

    #[test]
    fn only_the_newest_version_and_what_a_snapshot_sees_is_applied() {
        let frozen = frozen(&[(b"b", 1), (b"a", 2), (b"b", 3), (b"b", 5)], 5);
        frozen.sort(&[Seq(3)].into_iter().collect(), usize::MAX, u64::MAX);
        let slice = frozen.next_slice();
        let batch: Vec<_> = (0..slice.len()).map(|index| slice.get(index)).map(|u| (u.key[0], u.seq.0)).collect();
        assert_eq!(batch, [(b'a', 2), (b'b', 3), (b'b', 5)]);
        assert_eq!((frozen.first_seq(), frozen.first_lsn()), (Some(Seq(2)), Some(Lsn(2))));
    }

    #[test]
    fn refused_slices_are_halved_and_then_put_last() {
        let keys: Vec<[u8; 2]> = (0..12u16).map(u16::to_be_bytes).collect();
        let updates: Vec<_> = keys.iter().zip(1..).map(|(key, seq)| (&key[..], seq)).collect();
        let frozen = frozen(&updates, 12);
        frozen.sort(&Horizon::default(), usize::MAX, u64::MAX);
        assert_eq!(frozen.next_slice().range(), 0..12);
        assert!(frozen.slice_refused(4) && frozen.slice_refused(4));
        assert_eq!(frozen.next_slice().range(), 0..3);
        assert!(!frozen.slice_refused(4));
        assert_eq!(frozen.next_slice().range(), 3..6);
        assert_eq!(spans(&frozen), [(vec![0, 3], Some(vec![0, 6]))]);
        assert!(!frozen.is_applied_in_part());
        frozen.slice_applied();
        assert!(frozen.is_applied_in_part());
        frozen.slice_applied();
        assert_eq!(frozen.next_slice().range(), 0..3);
        assert_eq!(spans(&frozen), [(vec![], Some(vec![0, 3]))]);
        assert_eq!(frozen.first_seq(), Some(Seq(1)));
        frozen.slice_applied();
        assert_eq!(frozen.slices_left(), 0);
    }

    #[test]
    fn a_bound_on_rounds_cuts_between_keys() {
        let updates: Vec<(&[u8], u64)> = vec![(b"a", 1), (b"b", 2), (b"b", 3), (b"b", 4), (b"c", 5), (b"d", 6)];
        let frozen = frozen(&updates, 6);
        frozen.sort(&(1..7).map(Seq).collect(), 2, u64::MAX);
        let mut ranges = Vec::new();
        while frozen.slices_left() > 0 {
            ranges.push(frozen.next_slice().range());
            frozen.slice_applied();
        }
        assert_eq!(ranges, [0..4, 4..6]);
    }

    #[test]
    fn a_section_of_many_rounds_falls_to_slices_of_a_few() {
        let keys: Vec<[u8; 2]> = (0..4000u16).map(u16::to_be_bytes).collect();
        let updates: Vec<_> = keys.iter().zip(1..).map(|(key, seq)| (&key[..], seq)).collect();
        let frozen = frozen(&updates, 4000);
        let bytes = frozen.sections().bytes();
        frozen.sort(&Horizon::default(), usize::MAX, bytes.div_ceil(10));
        let mut ranges = Vec::new();
        while frozen.slices_left() > 0 {
            ranges.push(frozen.next_slice().range());
            frozen.slice_applied();
        }
        assert_eq!(ranges, [0..1334, 1334..2668, 2668..4000], "ten rounds, at most four in a slice");
    }

    #[test]
    fn queues_of_sections_apart_are_one_batch_with_a_span_for_each() {
        let fences: Vec<Vec<u8>> = (1..32).map(|fence| vec![fence]).collect();
        let sections = Sections::new(Sorting::Always).recut(&[], &fences, 4);
        append(&sections, &[(&[3], 1), (&[30], 2), (&[12], 3), (&[4], 4)]);
        let frozen = Frozen::new(Arc::new(sections.only(&[0, 3])), Seq(9), 0);
        frozen.sort(&Horizon::default(), usize::MAX, u64::MAX);
        let slice = frozen.next_slice();
        let keys: Vec<_> = (0..slice.len()).map(|index| slice.get(index).key[0]).collect();
        assert_eq!(keys, [3, 4, 30]);
        assert_eq!(spans(&frozen), [(vec![], Some(vec![8])), (vec![24], None)]);
    }

    #[test]
    fn queues_go_as_soon_as_all_of_them_is_applied() {
        let fences: Vec<Vec<u8>> = (1..32).map(|fence| vec![fence]).collect();
        let sections = Sections::new(Sorting::Always).recut(&[], &fences, 4);
        let updates: [(&[u8], u64); 7] =
            [(&[3], 1), (&[4], 2), (&[12], 3), (&[13], 4), (&[14], 5), (&[30], 6), (&[31], 7)];
        append(&sections, &updates);
        let (all, bytes_of) = (sections.bytes(), |section: usize| sections.queue(section).read().bytes() as u64);
        let frozen = Frozen::new(Arc::new(sections.only(&[0, 1, 3])), Seq(9), all);
        frozen.sort(&Horizon::default(), usize::MAX, bytes_of(0) + 1);
        assert_eq!((frozen.next_slice().range(), frozen.slices_left()), (0..5, 2), "sections until there is enough");
        assert!(frozen.rest().is_none(), "nothing is applied");
        // Half of the batch is applied: all of the first section, and some of the second.
        assert!(frozen.slice_refused(4));
        assert_eq!(frozen.next_slice().range(), 0..2);
        frozen.slice_applied();
        let (rest, gone) = frozen.rest().expect("one section is through");
        assert_eq!((gone, rest.bytes()), (bytes_of(0), bytes_of(1) + bytes_of(3)));
        assert_eq!((rest.next_slice().range(), rest.len(), rest.slices_left()), (0..3, 5, 2));
        assert_eq!((rest.first_seq(), rest.through()), (Some(Seq(3)), Seq(9)));
        assert_eq!(spans(&rest), [(vec![8], Some(vec![16]))]);
        let keys = |frozen: &Frozen| -> Vec<u8> { frozen.updates(0..frozen.len()).map(|u| u.key[0]).collect() };
        assert_eq!(keys(&rest), [12, 13, 14, 30, 31]);
        assert_eq!(rest.sections().operations(), 5);
        // The last slice may be applied first.
        while rest.next_slice().range() != (3..5) {
            rest.slice_refused(4);
        }
        rest.slice_applied();
        let (rest, gone) = rest.rest().expect("another is through");
        assert_eq!((gone, keys(&rest)), (bytes_of(3), vec![12, 13, 14]));
        rest.slice_applied();
        assert!(rest.slices_left() == 0 && rest.rest().is_none(), "the last one goes as a whole");
    }

    #[test]
    fn a_section_whose_operations_are_all_hidden_is_covered_with_each_slice() {
        let fences: Vec<Vec<u8>> = (1..32).map(|fence| vec![fence]).collect();
        let sections = Sections::new(Sorting::Always).recut(&[], &fences, 4);
        append(&sections, &[(&[3], 1), (&[12], 2), (&[30], 3), (&[31], 4)]);
        let mut tombstones = RangeTombstones::default();
        tombstones.add(&[0], Some(&[16]), Seq(5), &Horizon::default());
        let horizon = Horizon { tombstones, visible: Seq(5), ..Horizon::default() };
        let frozen = Frozen::new(Arc::new(sections.only(&[0, 1, 3])), Seq(5), 0);
        frozen.sort(&horizon, 1, u64::MAX);
        let hidden = [(vec![], Some(vec![8])), (vec![8], Some(vec![16]))];
        assert_eq!(spans(&frozen), [&hidden[..], &[(vec![24], Some(vec![31]))]].concat());
        frozen.slice_applied();
        assert_eq!(spans(&frozen), [&hidden[..], &[(vec![31], None)]].concat());
    }

    #[test]
    fn a_commit_that_writes_a_key_twice_leaves_its_last_version() {
        let frozen = frozen(&[(b"a", 7), (b"a", 7)], 7);
        frozen.sort(&[Seq(7)].into_iter().collect(), usize::MAX, u64::MAX);
        assert_eq!(frozen.len(), 1);
    }
}
