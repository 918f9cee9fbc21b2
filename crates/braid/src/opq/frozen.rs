//! A queue that takes no more operations, sorted: the batch a structure applies.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, OnceLock},
};

use index::{Batch, Found, Horizon, Operation, Payload, Seq, Update};
use parking_lot::{ArcRwLockReadGuard, Mutex, RawRwLock, RwLock};
use wal::Lsn;

use super::queue::Opq;

/// A frozen queue. Readers go on using it until its structure has the batch.
pub(crate) struct Frozen {
    opq: Arc<RwLock<Opq>>,
    through: Seq,
    bytes: u64,
    order: OnceLock<Order>,
    /// Ranges of the sorted operations that are not applied yet; the first is next.
    left: Mutex<VecDeque<Range<usize>>>,
}

/// A slice of so few operations is not split any more: it touches few leaves.
const SMALLEST_SLICE: usize = 32;

struct Order {
    guard: ArcRwLockReadGuard<RawRwLock, Opq>,
    indexes: Vec<u32>,
}

impl Frozen {
    /// Freezes `opq`, which holds `bytes`; nobody appends to it any more. All commits up to `through` are in it or in
    /// older queues.
    pub(crate) const fn new(opq: Arc<RwLock<Opq>>, through: Seq, bytes: u64) -> Self {
        Self { opq, through, bytes, order: OnceLock::new(), left: Mutex::new(VecDeque::new()) }
    }

    /// The newest version of a key at or below `at`.
    pub(crate) fn get(&self, key: &[u8], at: Seq) -> Option<Found> {
        self.opq.read().get(key, at)
    }

    /// The queue itself.
    pub(crate) const fn opq(&self) -> &Arc<RwLock<Opq>> {
        &self.opq
    }

    /// Memory it held when it was frozen, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the log holds the first of its operations that is not applied and still counts.
    pub(crate) fn first_lsn(&self) -> Option<Lsn> {
        let Some(order) = self.order.get() else { return self.opq.read().first_lsn() };
        let left = self.left.lock();
        let indexes = left.iter().flat_map(|range| &order.indexes[range.clone()]);
        indexes.map(|&index| order.guard.lsn(index)).min()
    }

    /// The seq of the first of its operations.
    pub(crate) fn first_seq(&self) -> Option<Seq> {
        self.opq.read().first_seq()
    }

    /// Sorts it and keeps of each key the newest version, those that `horizon` sees, and those with documents: which documents
    /// die is the structure's to tell, once for each.
    pub(crate) fn sort(&self, horizon: &Horizon) {
        self.order.get_or_init(|| {
            let guard = RwLock::read_arc(&self.opq);
            let all = guard.sorted_indexes();
            let mut indexes = Vec::with_capacity(all.len());
            for (position, &index) in all.iter().enumerate() {
                let version = guard.update(index);
                let newer =
                    all.get(position + 1).map(|&next| guard.update(next)).filter(|next| next.key == version.key);
                let stays = newer.is_none_or(|newer| {
                    let has_document = matches!(version.operation, Operation::Put(Payload::Document(_)));
                    has_document || (newer.seq != version.seq && horizon.sees(version.seq, newer.seq))
                });
                if stays {
                    indexes.push(index);
                }
            }
            self.left.lock().push_back(0..indexes.len());
            Order { guard, indexes }
        });
    }

    /// How many operations there are after the sort.
    pub(crate) fn len(&self) -> usize {
        self.order().indexes.len()
    }

    /// All commits up to this one are in it or in older queues.
    pub(crate) const fn through(&self) -> Seq {
        self.through
    }

    /// What is to be applied next; only once the queue is sorted, and while anything is left. While it is not the last, the table has
    /// everything up to `applied` as before.
    pub(crate) fn next_slice(&self, applied: Seq) -> Slice<'_> {
        let left = self.left.lock();
        let range = left.front().cloned().expect("asked only while something is left");
        let through = if left.len() == 1 { self.through } else { applied };
        Slice { frozen: self, range, through }
    }

    /// The first slice is applied.
    pub(crate) fn slice_applied(&self) {
        self.left.lock().pop_front();
    }

    /// What was applied is not in the structure after all.
    pub(crate) fn take_back(&self, range: Range<usize>) {
        self.left.lock().push_front(range);
    }

    /// There was no space for the first slice: it is halved between two keys, or put last where it is small already. Returns
    /// whether it was halved.
    pub(crate) fn slice_refused(&self) -> bool {
        let mut left = self.left.lock();
        let range = left.pop_front().expect("refused only while something is left");
        let order = self.order();
        let key = |position: usize| order.guard.key(order.indexes[position]);
        let middle = range.start + range.len() / 2;
        let cut = (middle.max(range.start + 1)..range.end).find(|&position| key(position) != key(position - 1));
        match cut.filter(|_| range.len() > SMALLEST_SLICE) {
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

    /// How many slices are left; none: all of it is applied.
    pub(crate) fn slices_left(&self) -> usize {
        self.left.lock().len()
    }

    fn order(&self) -> &Order {
        self.order.get().expect("a frozen queue is sorted before it is applied")
    }
}

/// Part of a frozen queue: what a structure applies at once.
pub(crate) struct Slice<'a> {
    frozen: &'a Frozen,
    range: Range<usize>,
    through: Seq,
}

impl Slice<'_> {
    /// Which of the sorted operations.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl Batch for Slice<'_> {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn get(&self, index: usize) -> Update<'_> {
        let order = self.frozen.order();
        order.guard.update(order.indexes[self.range.start + index])
    }

    fn through(&self) -> Seq {
        self.through
    }
}

#[cfg(test)]
mod tests {
    use index::Stored;

    use super::*;

    fn queue(updates: &[(&[u8], u64)]) -> Arc<RwLock<Opq>> {
        let mut opq = Opq::default();
        for (key, seq) in updates {
            let operation = Operation::Put(Payload::Inline(key));
            opq.append(&Update { key, seq: Seq(*seq), operation }, Lsn(*seq));
        }
        Arc::new(RwLock::new(opq))
    }

    #[test]
    fn only_the_newest_version_and_what_a_snapshot_sees_is_applied() {
        let frozen = Frozen::new(queue(&[(b"b", 1), (b"a", 2), (b"b", 3), (b"b", 5)]), Seq(5), 0);
        frozen.sort(&Horizon { snapshots: vec![Seq(3)] });
        let slice = frozen.next_slice(Seq(0));
        let batch: Vec<_> = (0..slice.len()).map(|index| slice.get(index)).map(|u| (u.key[0], u.seq.0)).collect();
        assert_eq!(batch, [(b'a', 2), (b'b', 3), (b'b', 5)]);
        assert_eq!(frozen.get(b"b", Seq(2)).map(|found| found.value), Some(Some(Stored::Inline(b"b".to_vec()))));
    }

    #[test]
    fn refused_slices_are_halved_and_then_put_last() {
        let keys: Vec<[u8; 2]> = (0..100u16).map(u16::to_be_bytes).collect();
        let updates: Vec<_> = keys.iter().zip(1..).map(|(key, seq)| (&key[..], seq)).collect();
        let frozen = Frozen::new(queue(&updates), Seq(100), 0);
        frozen.sort(&Horizon::default());
        assert_eq!(frozen.next_slice(Seq(0)).range(), 0..100);
        assert!(frozen.slice_refused() && frozen.slice_refused());
        assert_eq!(frozen.next_slice(Seq(0)).range(), 0..25);
        assert!(!frozen.slice_refused());
        assert_eq!(frozen.next_slice(Seq(0)).range(), 25..50);
        frozen.slice_applied();
        frozen.slice_applied();
        assert_eq!(frozen.next_slice(Seq(0)).range(), 0..25);
        frozen.slice_applied();
        assert_eq!(frozen.slices_left(), 0);
    }

    #[test]
    fn a_commit_that_writes_a_key_twice_leaves_its_last_version() {
        let frozen = Frozen::new(queue(&[(b"a", 7), (b"a", 7)]), Seq(7), 0);
        frozen.sort(&Horizon { snapshots: vec![Seq(7)] });
        assert_eq!(frozen.len(), 1);
    }
}
