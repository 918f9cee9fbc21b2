//! Operations that wait in memory, in key order: the head of the FD-tree, the reservation buffer of BFTL.
//!
//! The structure is a B+-tree of two levels: blocks of one page, and the first keys of all blocks in one array. A full
//! block splits in halves, with one exception: a split at the end of the tree leaves the old block full. A block that a
//! [`Snapshot`] holds is copied when the block changes, so snapshots cost no copies of their own and read without a
//! lock.

use std::cmp::Ordering;
use std::sync::Arc;

use psync::BLOCK;

use crate::trees::Shape;

/// The operation that waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    /// The key gets this value.
    Put(&'a [u8]),
    /// The key is deleted.
    Delete,
}

/// Bytes that a block costs beside its page: its counts and the allocator's share.
const BLOCK_OVERHEAD_BYTES: usize = 64;

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// Sorted operations, one per key: the last.
pub(super) struct Pending {
    shape: Shape,
    blocks: Vec<Arc<Block>>,
    /// The least key that belongs to each block. All keys below the second belong to the first.
    firsts: Vec<u8>,
    count: usize,
}

/// Slots of key, value and kind.
struct Block {
    slots: Vec<u8>,
}

/// The operations of a range at one moment, and a position among them.
pub(super) struct Snapshot {
    shape: Shape,
    blocks: Vec<Arc<Block>>,
    block: usize,
    slot: usize,
}

impl Pending {
    /// No operations.
    #[must_use]
    pub(super) fn new(shape: Shape) -> Self {
        Self { shape, blocks: Vec::new(), firsts: Vec::new(), count: 0 }
    }

    /// Removes all operations.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.shape);
    }

    /// Number of keys with an operation.
    #[must_use]
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no operations.
    #[must_use]
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of memory.
    #[must_use]
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.blocks.len() * (BLOCK + BLOCK_OVERHEAD_BYTES) + self.firsts.capacity()) as u64
    }

    /// The operation that waits for a key.
    #[must_use]
    pub(super) fn find(&self, key: &[u8]) -> Option<Operation<'_>> {
        let block = self.blocks.get(self.block_of(key))?;
        let slot = block.search(self.shape, key).ok()?;
        Some(block.operation(self.shape, slot))
    }

    /// Sets the operation that waits for a key.
    ///
    /// # Panics
    /// When the key or value is not as long as the shape says.
    pub(super) fn set(&mut self, key: &[u8], operation: Operation<'_>) {
        let shape = self.shape;
        assert_eq!(key.len(), shape.key_bytes, "a key has the length of all keys");
        if self.blocks.is_empty() {
            self.blocks.push(Arc::new(Block::new()));
            self.firsts.extend_from_slice(key);
        }
        let mut at = self.block_of(key);
        let mut found = self.blocks[at].search(shape, key);
        if let Err(slot) = found
            && self.blocks[at].len(shape) == slots_max(shape)
        {
            found = Err(self.split(&mut at, slot, key));
        }
        let block = Arc::make_mut(&mut self.blocks[at]);
        match found {
            Ok(slot) => block.write(shape, slot, key, operation),
            Err(slot) => {
                block.open(shape, slot);
                block.write(shape, slot, key, operation);
                self.count += 1;
            }
        }
    }

    /// The operations from `first` on. Operations from `end` on are incomplete.
    #[must_use]
    pub(super) fn snapshot(&self, first: &[u8], end: Option<&[u8]>) -> Snapshot {
        let from = self.block_of(first);
        let to = end.map_or(self.blocks.len(), |end| self.block_of(end) + 1).min(self.blocks.len());
        let blocks = self.blocks.get(from..to.max(from)).unwrap_or_default().to_vec();
        let slot = blocks.first().map_or(0, |block| block.search(self.shape, first).unwrap_or_else(|slot| slot));
        let mut snapshot = Snapshot { shape: self.shape, blocks, block: 0, slot };
        snapshot.skip_empty();
        snapshot
    }

    fn block_of(&self, key: &[u8]) -> usize {
        let key_bytes = self.shape.key_bytes;
        let after = partition(self.blocks.len(), |block| &self.firsts[block * key_bytes..][..key_bytes] <= key);
        after.saturating_sub(1)
    }

    /// Splits block `at`, into which a key is to go at `slot`. Sets `at` to the block of the key after the split;
    /// returns its slot there.
    fn split(&mut self, at: &mut usize, slot: usize, key: &[u8]) -> usize {
        let (shape, key_bytes) = (self.shape, self.shape.key_bytes);
        let block = Arc::make_mut(&mut self.blocks[*at]);
        let count = block.len(shape);
        let is_end = *at + 1 == self.firsts.len() / key_bytes && slot == count;
        let keep = if is_end { count } else { count / 2 };
        let mut upper = Block::new();
        upper.slots.extend_from_slice(&block.slots[keep * slot_bytes(shape)..]);
        block.slots.truncate(keep * slot_bytes(shape));
        let first = upper.slots.get(..key_bytes).unwrap_or(key);
        let place = (*at + 1) * key_bytes;
        self.firsts.splice(place..place, first.iter().copied());
        self.blocks.insert(*at + 1, Arc::new(upper));
        if slot < keep || (slot == keep && !is_end) {
            return slot;
        }
        *at += 1;
        slot - keep
    }
}

impl Snapshot {
    /// The current key and operation; none at the end.
    #[must_use]
    pub(super) fn current(&self) -> Option<(&[u8], Operation<'_>)> {
        let block = self.blocks.get(self.block)?;
        Some((block.key(self.shape, self.slot), block.operation(self.shape, self.slot)))
    }

    /// Advances to the next operation.
    pub(super) fn advance(&mut self) {
        self.slot += 1;
        self.skip_empty();
    }

    fn skip_empty(&mut self) {
        while self.blocks.get(self.block).is_some_and(|block| self.slot >= block.len(self.shape)) {
            self.block += 1;
            self.slot = 0;
        }
    }
}

impl Block {
    fn new() -> Self {
        Self { slots: Vec::with_capacity(BLOCK) }
    }

    fn len(&self, shape: Shape) -> usize {
        self.slots.len() / slot_bytes(shape)
    }

    fn key(&self, shape: Shape, slot: usize) -> &[u8] {
        &self.slots[slot * slot_bytes(shape)..][..shape.key_bytes]
    }

    fn operation(&self, shape: Shape, slot: usize) -> Operation<'_> {
        let rest = &self.slots[slot * slot_bytes(shape) + shape.key_bytes..];
        if rest[shape.value_bytes] == PUT { Operation::Put(&rest[..shape.value_bytes]) } else { Operation::Delete }
    }

    /// The slot of a key, or the slot before which the key would be inserted.
    fn search(&self, shape: Shape, key: &[u8]) -> Result<usize, usize> {
        let slot = partition(self.len(shape), |slot| self.key(shape, slot) < key);
        let is_there = slot < self.len(shape) && self.key(shape, slot).cmp(key) == Ordering::Equal;
        if is_there { Ok(slot) } else { Err(slot) }
    }

    fn open(&mut self, shape: Shape, slot: usize) {
        let (begin, end) = (slot * slot_bytes(shape), self.slots.len());
        self.slots.resize(end + slot_bytes(shape), 0);
        self.slots.copy_within(begin..end, begin + slot_bytes(shape));
    }

    fn write(&mut self, shape: Shape, slot: usize, key: &[u8], operation: Operation<'_>) {
        let slot = &mut self.slots[slot * slot_bytes(shape)..][..slot_bytes(shape)];
        slot[..shape.key_bytes].copy_from_slice(key);
        let (value, kind) = slot[shape.key_bytes..].split_at_mut(shape.value_bytes);
        match operation {
            Operation::Put(bytes) => {
                value.copy_from_slice(bytes);
                kind[0] = PUT;
            }
            Operation::Delete => kind[0] = DELETE,
        }
    }
}

impl Clone for Block {
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        copy.slots.extend_from_slice(&self.slots);
        copy
    }
}

/// The number of items of `0..count` before the first for which `is_before` does not hold. All items for which the
/// predicate holds come first.
pub(super) fn partition(count: usize, mut is_before: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

const fn slot_bytes(shape: Shape) -> usize {
    shape.entry_bytes() + 1
}

/// Slots of a block. At least two, so that a block can split; with entries of more than half a page, a block is larger
/// than one page.
const fn slots_max(shape: Shape) -> usize {
    let slots = BLOCK / slot_bytes(shape);
    if slots < 2 { 2 } else { slots }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Eleven slots to a block.
    const SHAPE: Shape = Shape { key_bytes: 2, value_bytes: 360 };

    fn entries(mut snapshot: Snapshot) -> Vec<(Vec<u8>, Option<u8>)> {
        let mut entries = Vec::new();
        while let Some((key, operation)) = snapshot.current() {
            let value = match operation {
                Operation::Put(value) => Some(value[0]),
                Operation::Delete => None,
            };
            entries.push((key.to_vec(), value));
            snapshot.advance();
        }
        entries
    }

    proptest! {
        #[test]
        fn it_does_what_a_map_does(
            operations in vec((0u16..600, any::<Option<u8>>()), 0..500), first in 0u16..600, end in 0u16..600, rising: bool,
        ) {
            let mut pending = Pending::new(SHAPE);
            let mut model = BTreeMap::new();
            let mut early = None;
            let count = operations.len();
            for (index, (key, value)) in operations.into_iter().enumerate() {
                let key = if rising { u16::try_from(index).expect("small") } else { key }.to_be_bytes();
                let bytes = value.map(|value| [value; 360]);
                let operation = bytes.as_ref().map_or(Operation::Delete, |bytes| Operation::Put(bytes));
                pending.set(&key, operation);
                model.insert(key.to_vec(), value);
                prop_assert_eq!(pending.find(&key), Some(operation));
                if index == count / 2 {
                    early = Some((pending.snapshot(&[0; 2], None), model.clone()));
                }
            }
            prop_assert_eq!(pending.len(), model.len());
            let (first, end) = (first.min(end).to_be_bytes(), first.max(end).to_be_bytes());
            let mut found = entries(pending.snapshot(&first, Some(&end)));
            found.retain(|(key, _)| *key < end.to_vec());
            let expected: Vec<_> = model.range(first.to_vec()..end.to_vec()).map(|(key, value)| (key.clone(), *value)).collect();
            prop_assert_eq!(found, expected);
            if let Some((snapshot, model)) = early {
                prop_assert_eq!(entries(snapshot), model.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
