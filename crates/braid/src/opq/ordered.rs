//! Entries in key order, for any order of arrival: a B+-tree in memory over the newest entry of each key.
//!
//! 1. Keys stay in the queue's arena. A slot of a node holds the entry that has the key, and four bytes of the key (its
//!    *head*). Heads tell most keys apart without a look at the keys. A search counts the lower heads over all of a
//!    node, because that takes no branch and no longer than a few steps of a binary search.
//! 2. Heads leave out the common prefix of all keys between the fences of a node, because every key that comes to the
//!    node begins with that prefix. The prefix is left out only where heads would otherwise tell few keys apart. A node
//!    at an edge of the tree lacks one fence; its heads leave out the common prefix of all keys of the tree.
//! 3. A full node is halved. If the new key comes before or behind all keys of the node, the node stays whole instead,
//!    so rising and falling keys fill nodes completely. A key behind all keys of a full leaf gets a new leaf only if
//!    there is no next leaf, or the next leaf is at least half full. Otherwise keys that fall towards a full leaf would
//!    each get a leaf. An inner node that is full stays whole behind its last key only if it is the last of its level.
//! 4. Inner nodes know the newest entry below each child. So one descent finds the next key that was written since a
//!    given entry, past all older ones ([`Ordered::nearest_since`]).
//!
//! Invariants: entries of a key get higher numbers as they come; each key has one slot in one leaf; leaf 0 has the
//! lowest keys; heads of empty slots are the highest possible.

use std::cmp::Ordering;
use std::ops::{Index, IndexMut, Range};

use index::{Direction, common_prefix};
use mapped::{List, Mapped};

use super::sequence::Sequence;

/// Slots of a node.
const FANOUT: usize = 64;
/// Nodes allocated at once.
const PER_CHUNK: usize = 32;
/// Stands for no leaf.
const NO_LEAF: u32 = u32::MAX;
/// The head of an empty slot, not below any other head.
const NO_HEAD: u32 = u32::MAX;

/// The slots of a node: heads and entries of its keys.
struct Slots {
    len: usize,
    /// Bytes of each key that heads leave out.
    skip: usize,
    /// In an inner node the head of the first child is not used, and 0.
    heads: [u32; FANOUT],
    /// In a leaf: the newest entry of each key. In an inner node: entries whose keys begin the children; the first is
    /// not used.
    entries: [u32; FANOUT],
}

struct Leaf {
    slots: Slots,
    previous: u32,
    next: u32,
}

struct Inner {
    slots: Slots,
    children: [u32; FANOUT],
    /// The newest entry below each child.
    newest: [u32; FANOUT],
}

/// Nodes of one kind.
struct Nodes<T> {
    chunks: Vec<List<T>>,
    /// Bytes of all chunks but the last.
    full_bytes: usize,
}

/// The position of a key in a leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    leaf: u32,
    slot: usize,
}

/// The keys of entries, including one entry that is not appended yet.
struct Keys<'a> {
    operations: &'a Sequence,
    coming: Option<(u32, &'a [u8])>,
}

/// The bounds of all keys of a node, as entries.
#[derive(Clone, Copy, Default)]
struct Fences {
    low: Option<u32>,
    high: Option<u32>,
}

/// An inner node on a descent, and the slot of the child taken there.
struct Step {
    node: u32,
    slot: usize,
    fences: Fences,
}

/// A new node that a split produced. Its place is behind the node that was split.
struct Split {
    /// The newest entry of the node that was split.
    stayed: u32,
    separator: u32,
    node: u32,
    newest: u32,
}

/// The newest entries of all keys, in order.
#[derive(Default)]
pub(super) struct Ordered {
    leaves: Nodes<Leaf>,
    inners: Nodes<Inner>,
    root: u32,
    /// Levels of inner nodes.
    height: usize,
    /// The common prefix of all keys.
    prefix: Vec<u8>,
    /// The path to the leaf of the last entry; kept to reuse its memory.
    path: Vec<Step>,
}

impl<T> Default for Nodes<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), full_bytes: 0 }
    }
}

impl<T> Nodes<T> {
    fn len(&self) -> u32 {
        let last = self.chunks.last().map_or(0, |last| last.len() + (self.chunks.len() - 1) * PER_CHUNK);
        u32::try_from(last).expect("fewer nodes than entries")
    }

    fn push(&mut self, node: T) -> u32 {
        let number = self.len();
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < PER_CHUNK => chunk.push(node),
            full => {
                self.full_bytes += full.map_or(0, |chunk| chunk_bytes(chunk));
                // The first chunk is small, because most queues are small.
                let capacity = if self.chunks.is_empty() { 1 } else { PER_CHUNK };
                let mut chunk = List::with_capacity_in(capacity, Mapped);
                chunk.push(node);
                self.chunks.push(chunk);
            }
        }
        number
    }

    fn bytes(&self) -> usize {
        self.full_bytes + self.chunks.last().map_or(0, chunk_bytes)
    }
}

fn chunk_bytes<T>(chunk: &List<T>) -> usize {
    mapped::taken(chunk.capacity() * size_of::<T>())
}

impl<T> Index<u32> for Nodes<T> {
    type Output = T;

    fn index(&self, node: u32) -> &T {
        &self.chunks[node as usize / PER_CHUNK][node as usize % PER_CHUNK]
    }
}

impl<T> IndexMut<u32> for Nodes<T> {
    fn index_mut(&mut self, node: u32) -> &mut T {
        &mut self.chunks[node as usize / PER_CHUNK][node as usize % PER_CHUNK]
    }
}

impl<'a> Keys<'a> {
    const fn of_all(operations: &'a Sequence) -> Self {
        Self { operations, coming: None }
    }

    fn of(&self, entry: u32) -> &'a [u8] {
        match self.coming {
            Some((coming, key)) if coming == entry => key,
            _ => self.operations.key(entry),
        }
    }
}

impl Slots {
    const fn new(skip: usize) -> Self {
        Self { len: 0, skip, heads: [NO_HEAD; FANOUT], entries: [0; FANOUT] }
    }

    const fn is_full(&self) -> bool {
        self.len == FANOUT
    }

    /// Where `key` is among the slots from `first` on, or where to insert it.
    fn find(&self, first: usize, key: &[u8], keys: &Keys<'_>) -> Result<usize, usize> {
        let head = self.head(key);
        let (less, alike) = self
            .heads
            .iter()
            .fold((0, 0), |(less, alike), other| (less + u32::from(*other < head), alike + u32::from(*other == head)));
        // `less` is a slot number: either 0, or the slots before `first` are among those counted, because their heads
        // are 0. Slots behind the last have the highest head; `len` excludes them.
        let low = (less as usize).max(first);
        let end = ((less + alike) as usize).min(self.len);
        if low >= end {
            return Err(low);
        }
        let found = self.entries[low..end].binary_search_by(|&entry| keys.of(entry).cmp(key));
        found.map(|at| low + at).map_err(|at| low + at)
    }

    fn head(&self, key: &[u8]) -> u32 {
        let behind = key.get(self.skip..).unwrap_or_default();
        let mut bytes = [0; 4];
        match behind.first_chunk() {
            Some(first) => bytes = *first,
            None => bytes[..behind.len()].copy_from_slice(behind),
        }
        u32::from_be_bytes(bytes)
    }

    fn insert(&mut self, at: usize, key: &[u8], entry: u32) {
        self.heads.copy_within(at..self.len, at + 1);
        self.entries.copy_within(at..self.len, at + 1);
        (self.heads[at], self.entries[at]) = (self.head(key), entry);
        self.len += 1;
    }

    fn split_off(&mut self, cut: usize) -> Self {
        let mut right = Self::new(self.skip);
        right.len = self.len - cut;
        right.heads[..right.len].copy_from_slice(&self.heads[cut..self.len]);
        right.entries[..right.len].copy_from_slice(&self.entries[cut..self.len]);
        self.heads[cut..].fill(NO_HEAD);
        self.len = cut;
        right
    }

    /// If the heads from slot `first` on tell few keys apart, takes new heads behind the common prefix of all keys that
    /// can come to this node.
    fn tell_apart(&mut self, first: usize, fences: Fences, prefix: usize, keys: &Keys<'_>) {
        let heads = &self.heads[first..self.len];
        let told_apart = heads.windows(2).filter(|pair| pair[0] != pair[1]).count();
        if told_apart >= heads.len() / 2 {
            return;
        }
        let skip = match (fences.low, fences.high) {
            (Some(low), Some(high)) => common_prefix(keys.of(low), keys.of(high)),
            _ => prefix,
        };
        if skip > self.skip {
            self.skip_to(skip, first, keys);
        }
    }

    /// Leaves so many bytes out of heads.
    fn skip_to(&mut self, skip: usize, first: usize, keys: &Keys<'_>) {
        self.skip = skip;
        for slot in first..self.len {
            self.heads[slot] = self.head(keys.of(self.entries[slot]));
        }
    }

    fn newest(&self) -> u32 {
        self.entries[..self.len].iter().copied().max().unwrap_or(0)
    }
}

impl Inner {
    /// The slot of the child that has `key`, if any child has it.
    fn slot_of(&self, key: &[u8], keys: &Keys<'_>) -> usize {
        self.slots.find(1, key, keys).unwrap_or_else(|behind| behind - 1)
    }

    /// Inserts a child at slot `at`, which is not the first unless the node is new and empty.
    fn insert(&mut self, at: usize, split: &Split, keys: &Keys<'_>) {
        let len = self.slots.len;
        self.children.copy_within(at..len, at + 1);
        self.newest.copy_within(at..len, at + 1);
        (self.children[at], self.newest[at]) = (split.node, split.newest);
        self.slots.insert(at, keys.of(split.separator), split.separator);
        // Also if the child is the first of a new node.
        self.slots.heads[0] = 0;
    }

    fn split_off(&mut self, cut: usize) -> Self {
        let (len, slots) = (self.slots.len, self.slots.split_off(cut));
        let mut right = Self { slots, children: [0; FANOUT], newest: [0; FANOUT] };
        right.slots.heads[0] = 0;
        right.children[..len - cut].copy_from_slice(&self.children[cut..len]);
        right.newest[..len - cut].copy_from_slice(&self.newest[cut..len]);
        right
    }

    fn newest(&self) -> u32 {
        self.newest[..self.slots.len].iter().copied().max().unwrap_or(0)
    }
}

impl Fences {
    /// The fences of the child at `slot`.
    fn of_child(self, slot: usize, slots: &Slots) -> Self {
        let low = if slot > 0 { Some(slots.entries[slot]) } else { self.low };
        let high = if slot + 1 < slots.len { Some(slots.entries[slot + 1]) } else { self.high };
        Self { low, high }
    }

    /// The fences below a key and those above it.
    const fn cut(self, at: u32) -> [Self; 2] {
        [Self { low: self.low, high: Some(at) }, Self { low: Some(at), high: self.high }]
    }
}

/// Where to split a full node that gets a key at slot `at`. `may_stay_full` says whether the cut may be at the node's
/// end.
const fn cut_for(at: usize, may_stay_full: bool) -> usize {
    if at == 0 || (at == FANOUT && may_stay_full) { at } else { FANOUT / 2 }
}

/// Whether a key at slot `at` goes to the right of a node that is split at `cut`.
const fn goes_right(at: usize, cut: usize) -> bool {
    at > cut || at == FANOUT
}

impl Ordered {
    /// Memory held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.leaves.bytes() + self.inners.bytes()
    }

    /// Notes entry `index` as the newest of `key`, and returns the newest before. `is_last`: no other key is at or
    /// above `key`.
    pub(super) fn note(&mut self, key: &[u8], is_last: bool, index: u32, operations: &Sequence) -> Option<u32> {
        let keys = Keys { operations, coming: Some((index, key)) };
        if self.leaves.len() == 0 {
            self.prefix = key.to_vec();
            self.root = self.leaves.push(Leaf { slots: Slots::new(key.len()), previous: NO_LEAF, next: NO_LEAF });
        }
        let common = common_prefix(&self.prefix, key);
        if common < self.prefix.len() {
            self.shorten_prefix(common, &keys);
        }
        self.path.clear();
        let (mut fences, mut node) = (Fences::default(), self.root);
        for _ in 0..self.height {
            let inner = &mut self.inners[node];
            let slot = if is_last { inner.slots.len - 1 } else { inner.slot_of(key, &keys) };
            inner.newest[slot] = inner.newest[slot].max(index);
            self.path.push(Step { node, slot, fences });
            fences = fences.of_child(slot, &inner.slots);
            node = inner.children[slot];
        }
        let slots = &mut self.leaves[node].slots;
        let at = match if is_last { Err(slots.len) } else { slots.find(0, key, &keys) } {
            Ok(at) => return Some(std::mem::replace(&mut slots.entries[at], index)),
            Err(at) => at,
        };
        let at = if slots.is_full() && seeded::on(seeded::Bug::QueueOutOfOrder) { at.saturating_sub(1) } else { at };
        if slots.is_full() {
            let split = self.split(node, at, fences, &keys, (key, index));
            self.add(split, &keys);
        } else {
            slots.insert(at, key, index);
        }
        None
    }

    /// Shortens the common prefix to so many bytes, for a key that has no more in common with the others.
    fn shorten_prefix(&mut self, bytes: usize, keys: &Keys<'_>) {
        self.prefix.truncate(bytes);
        for is_last in [false, true] {
            let mut node = self.root;
            for _ in 0..self.height {
                let inner = &mut self.inners[node];
                if inner.slots.skip > bytes {
                    inner.slots.skip_to(bytes, 1, keys);
                }
                node = inner.children[if is_last { inner.slots.len - 1 } else { 0 }];
            }
            let slots = &mut self.leaves[node].slots;
            if slots.skip > bytes {
                slots.skip_to(bytes, 0, keys);
            }
        }
    }

    /// How `key` compares with all keys of the tree, if it does not begin with their common prefix.
    fn compare_outside(&self, key: &[u8]) -> Ordering {
        if key.starts_with(&self.prefix) { Ordering::Equal } else { key.cmp(&self.prefix) }
    }

    /// Splits a full leaf that gets an entry at slot `at`.
    fn split(&mut self, node: u32, at: usize, fences: Fences, keys: &Keys<'_>, (key, index): (&[u8], u32)) -> Split {
        let next = self.leaves[node].next;
        let may_stay_full = next == NO_LEAF || self.leaves[next].slots.len >= FANOUT / 2;
        let (cut, number) = (cut_for(at, may_stay_full), self.leaves.len());
        let left = &mut self.leaves[node];
        let mut right = Leaf { slots: left.slots.split_off(cut), previous: node, next: left.next };
        left.next = number;
        if goes_right(at, cut) {
            right.slots.insert(at - cut, key, index);
        } else {
            left.slots.insert(at, key, index);
        }
        let separator = right.slots.entries[0];
        let [below, above] = fences.cut(separator);
        left.slots.tell_apart(0, below, self.prefix.len(), keys);
        right.slots.tell_apart(0, above, self.prefix.len(), keys);
        let split = Split { stayed: left.slots.newest(), separator, node: number, newest: right.slots.newest() };
        if right.next != NO_LEAF {
            self.leaves[right.next].previous = number;
        }
        self.leaves.push(right);
        split
    }

    /// Inserts the new node of a split into the parent that the path leads to.
    fn add(&mut self, mut split: Split, keys: &Keys<'_>) {
        while let Some(step) = self.path.pop() {
            let number = self.inners.len();
            let inner = &mut self.inners[step.node];
            inner.newest[step.slot] = split.stayed;
            let at = step.slot + 1;
            if !inner.slots.is_full() {
                inner.insert(at, &split, keys);
                return;
            }
            let cut = cut_for(at, step.fences.high.is_none());
            let mut right = inner.split_off(cut);
            if goes_right(at, cut) {
                right.insert(at - cut, &split, keys);
            } else {
                inner.insert(at, &split, keys);
            }
            let separator = right.slots.entries[0];
            let [below, above] = step.fences.cut(separator);
            inner.slots.tell_apart(1, below, self.prefix.len(), keys);
            right.slots.tell_apart(1, above, self.prefix.len(), keys);
            split = Split { stayed: inner.newest(), separator, node: number, newest: right.newest() };
            self.inners.push(right);
        }
        let slots = Slots::new(self.prefix.len());
        let mut root = Inner { slots, children: [0; FANOUT], newest: [0; FANOUT] };
        (root.slots.len, root.children[0], root.newest[0]) = (1, self.root, split.stayed);
        root.insert(1, &split, keys);
        self.root = self.inners.push(root);
        self.height += 1;
    }

    /// The newest entry of `key`.
    pub(super) fn newest_of(&self, key: &[u8], operations: &Sequence) -> Option<u32> {
        if self.leaves.len() == 0 || self.compare_outside(key).is_ne() {
            return None;
        }
        let keys = Keys::of_all(operations);
        let slots = &self.leaves[self.leaf_of(key, &keys)].slots;
        slots.find(0, key, &keys).ok().map(|at| slots.entries[at])
    }

    fn leaf_of(&self, key: &[u8], keys: &Keys<'_>) -> u32 {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node];
            node = inner.children[inner.slot_of(key, keys)];
        }
        node
    }

    /// The position of the first key at or above `key`.
    pub(super) fn at_or_above(&self, key: &[u8], operations: &Sequence) -> Option<Position> {
        if self.leaves.len() == 0 {
            return None;
        }
        match self.compare_outside(key) {
            Ordering::Less => return self.end(Direction::Forward),
            Ordering::Greater => return None,
            Ordering::Equal => {}
        }
        let keys = Keys::of_all(operations);
        let leaf = self.leaf_of(key, &keys);
        let slot = self.leaves[leaf].slots.find(0, key, &keys).unwrap_or_else(|at| at);
        self.at(leaf, slot)
    }

    /// This position, or the first one of the next leaf if the slot is behind the end of the leaf.
    fn at(&self, leaf: u32, slot: usize) -> Option<Position> {
        let node = &self.leaves[leaf];
        if slot < node.slots.len {
            return Some(Position { leaf, slot });
        }
        (node.next != NO_LEAF).then_some(Position { leaf: node.next, slot: 0 })
    }

    /// The end of the tree where a walk in this direction begins: forwards the lowest key, backwards the highest.
    pub(super) fn end(&self, direction: Direction) -> Option<Position> {
        if self.leaves.len() == 0 {
            return None;
        }
        if direction == Direction::Forward {
            return Some(Position { leaf: 0, slot: 0 });
        }
        let mut leaf = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[leaf];
            leaf = inner.children[inner.slots.len - 1];
        }
        Some(Position { leaf, slot: self.leaves[leaf].slots.len - 1 })
    }

    /// The next position in this direction.
    pub(super) fn next(&self, Position { leaf, slot }: Position, direction: Direction) -> Option<Position> {
        if direction == Direction::Forward {
            return self.at(leaf, slot + 1);
        }
        if slot > 0 {
            return Some(Position { leaf, slot: slot - 1 });
        }
        let leaf = self.leaves[leaf].previous;
        (leaf != NO_LEAF).then(|| Position { leaf, slot: self.leaves[leaf].slots.len - 1 })
    }

    /// The newest entry of the key at a position.
    pub(super) fn entry(&self, position: Position) -> u32 {
        self.leaves[position.leaf].slots.entries[position.slot]
    }

    /// The nearest key at or behind `key` in this direction whose newest entry is `since` or a later one.
    pub(super) fn nearest_since(
        &self, key: &[u8], direction: Direction, since: u32, operations: &Sequence,
    ) -> Option<Position> {
        if self.leaves.len() == 0 {
            return None;
        }
        let from = match (self.compare_outside(key), direction) {
            (Ordering::Equal, _) => Some(key),
            (Ordering::Less, Direction::Forward) | (Ordering::Greater, Direction::Backward) => None,
            _ => return None,
        };
        self.nearest_below(self.root, self.height, from, direction, since, &Keys::of_all(operations))
    }

    fn nearest_below(
        &self, node: u32, height: usize, key: Option<&[u8]>, direction: Direction, since: u32, keys: &Keys<'_>,
    ) -> Option<Position> {
        if height == 0 {
            let slots = &self.leaves[node].slots;
            let is_one = |slot: &usize| slots.entries[*slot] >= since;
            let found = match key.map(|key| slots.find(0, key, keys)) {
                None => nearest(0..slots.len, direction, is_one),
                Some(at) if direction == Direction::Forward => {
                    nearest(at.unwrap_or_else(|at| at)..slots.len, direction, is_one)
                }
                Some(at) => nearest(0..at.map_or_else(|at| at, |at| at + 1), direction, is_one),
            };
            return found.map(|slot| Position { leaf: node, slot });
        }
        let inner = &self.inners[node];
        let first = key.map(|key| inner.slot_of(key, keys));
        let mut left = match (direction, first) {
            (Direction::Forward, first) => first.unwrap_or(0)..inner.slots.len,
            (Direction::Backward, first) => 0..first.map_or(inner.slots.len, |first| first + 1),
        };
        while let Some(slot) = nearest(left.clone(), direction, |slot| inner.newest[*slot] >= since) {
            let key = key.filter(|_| first == Some(slot));
            if let found @ Some(_) = self.nearest_below(inner.children[slot], height - 1, key, direction, since, keys) {
                return found;
            }
            left = if direction == Direction::Forward { slot + 1..left.end } else { left.start..slot };
        }
        None
    }
}

fn nearest(mut slots: Range<usize>, direction: Direction, is_one: impl Fn(&usize) -> bool) -> Option<usize> {
    match direction {
        Direction::Forward => slots.find(is_one),
        Direction::Backward => slots.rev().find(is_one),
    }
}
