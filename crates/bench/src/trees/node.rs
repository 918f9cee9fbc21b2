//! Nodes of the in-place trees: sorted arrays of entries of one length.
//!
//! 1. A node is a header, the high key where the tree has one, an array of keys and an array of payloads,
//!    little-endian. The header: type (`u8`, 1 leaf, 2 inner) · level (`u8`, 0 for leaves) · 0 (`u16`) · entries
//!    (`u32`) · right neighbour (`u64`, 0 for none).
//! 2. The payloads of a leaf are values, those of an inner node are children: child `i` has the keys from key `i` up
//!    to, without, key `i + 1`. The first key of an inner node is only a lower bound: keys below the bound go to the
//!    first child too.
//! 3. [`Node::open`] parses the header once per visit; searches are binary, in the array of keys alone.
//!
//! Invariants: keys are strictly ascending; entries are at most [`Layout::capacity`].
//!
//! Left to others: the place of each node, and the time of a split. A file of nodes lasts no longer than a measurement,
//! so the format has no version and no checksums.

use std::ops::{Deref, DerefMut, Range};

use super::Shape;
use super::pager::NodeId;
use crate::{Error, Result};

const HEADER_BYTES: usize = 16;
const LEAF: u8 = 1;
const INNER: u8 = 2;
const CHILD_BYTES: usize = size_of::<u64>();

/// Most levels of a tree: more than two children each fill any device.
pub(super) const LEVELS_MAX: usize = 48;

/// Offsets in the nodes of one tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    key_bytes: usize,
    keys_at: usize,
    leaf: Payloads,
    inner: Payloads,
}

#[derive(Clone, Copy, Debug)]
struct Payloads {
    bytes: usize,
    at: usize,
    capacity: usize,
}

impl Layout {
    /// The layout for entries of `shape` in nodes of `node_bytes`, with or without a high key.
    pub(super) fn new(shape: Shape, node_bytes: usize, high_key: bool) -> Result<Self> {
        let keys_at = HEADER_BYTES + if high_key { shape.key_bytes } else { 0 };
        let payloads = |bytes: usize| {
            let capacity = node_bytes.saturating_sub(keys_at) / (shape.key_bytes + bytes).max(1);
            Payloads { bytes, at: keys_at + capacity * shape.key_bytes, capacity }
        };
        let layout = Self {
            key_bytes: shape.key_bytes,
            keys_at,
            leaf: payloads(shape.value_bytes),
            inner: payloads(CHILD_BYTES),
        };
        // A split of an overfull node leaves at least one entry in each half, and at least two in an inner node.
        if shape.key_bytes == 0 || layout.leaf.capacity < 2 || layout.inner.capacity < 4 {
            let (key, value) = (shape.key_bytes, shape.value_bytes);
            return Err(Error::Invalid(format!(
                "entries of {key} + {value} bytes do not fit nodes of {node_bytes} bytes"
            )));
        }
        Ok(layout)
    }

    /// Most entries of a node of that level.
    pub(super) const fn capacity(&self, level: usize) -> usize {
        self.payloads(level).capacity
    }

    /// Bytes of a key.
    pub(super) const fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Refuses entries of another shape.
    pub(super) fn check(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.shape().check(key, value)
    }

    /// Refuses keys of another length.
    pub(super) fn check_key(&self, key: &[u8]) -> Result<()> {
        self.shape().check_key(key)
    }

    /// The shape of the entries.
    pub(super) const fn shape(&self) -> Shape {
        Shape { key_bytes: self.key_bytes, value_bytes: self.leaf.bytes }
    }

    const fn payloads(&self, level: usize) -> &Payloads {
        if level == 0 { &self.leaf } else { &self.inner }
    }
}

/// The bytes of a node, and its parsed header. `B` is a latch or memory of its own.
pub(super) struct Node<'l, B> {
    bytes: B,
    layout: &'l Layout,
    level: usize,
    count: usize,
}

impl<'l, B: Deref<Target = [u8]>> Node<'l, B> {
    /// Opens a node as written, on the level of the descent; `id` is for the error about a damaged node.
    pub(super) fn open(layout: &'l Layout, id: NodeId, level: usize, bytes: B) -> Result<Self> {
        let count = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        if bytes[0] != kind(level) || usize::from(bytes[1]) != level || count > layout.capacity(level) {
            return Err(Error::Invalid(format!(
                "node {} is damaged: type {}, level {} instead of {level}, {count} entries",
                id.0, bytes[0], bytes[1]
            )));
        }
        Ok(Self { bytes, layout, level, count })
    }

    /// Its memory.
    pub(super) fn into_bytes(self) -> B {
        self.bytes
    }

    /// The latch of the node.
    pub(super) const fn bytes(&self) -> &B {
        &self.bytes
    }

    /// Number of entries.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Whether there is room for no more entry.
    pub(super) const fn is_full(&self) -> bool {
        self.count == self.layout.capacity(self.level)
    }

    /// The next node of its level.
    pub(super) fn right(&self) -> NodeId {
        NodeId(u64_at(&self.bytes, 8))
    }

    /// The high key: all keys of the node are below. Without meaning in a node that has no right neighbour.
    pub(super) fn high_key(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..self.layout.keys_at]
    }

    /// The right neighbour if a key belongs there or beyond.
    pub(super) fn beyond(&self, key: &[u8]) -> Option<NodeId> {
        let right = self.right();
        (!right.is_none() && key >= self.high_key()).then_some(right)
    }

    /// Key `index`.
    pub(super) fn key(&self, index: usize) -> &[u8] {
        &self.keys()[index * self.layout.key_bytes..][..self.layout.key_bytes]
    }

    /// Value `index`, of a leaf.
    pub(super) fn value(&self, index: usize) -> &[u8] {
        let payloads = self.layout.payloads(self.level);
        &self.bytes[payloads.at + index * payloads.bytes..][..payloads.bytes]
    }

    /// Child `index`, of an inner node.
    pub(super) fn child(&self, index: usize) -> NodeId {
        NodeId(u64_at(&self.bytes, self.layout.inner.at + index * CHILD_BYTES))
    }

    /// The index of a key, or the index at which to insert the key.
    pub(super) fn search(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        let index = self.lower_bound(key);
        if index < self.count && self.key(index) == key { Ok(index) } else { Err(index) }
    }

    /// Copies the value of a key, if the leaf has the key; returns whether the leaf has the key.
    pub(super) fn copy_value(&self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let Ok(index) = self.search(key) else { return false };
        value.clear();
        value.extend_from_slice(self.value(index));
        true
    }

    /// Number of keys that are less than `key`.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        // With a length that is a constant, each comparison is one of machine words.
        match (key.len(), key.first_chunk::<8>(), key.first_chunk::<16>()) {
            (8, Some(key), _) if self.layout.key_bytes == 8 => {
                self.keys().as_chunks().0.partition_point(|other| other < key)
            }
            (16, _, Some(key)) if self.layout.key_bytes == 16 => {
                self.keys().as_chunks().0.partition_point(|other| other < key)
            }
            _ => {
                let (mut low, mut high) = (0, self.count);
                while low < high {
                    let middle = usize::midpoint(low, high);
                    if self.key(middle) < key { low = middle + 1 } else { high = middle }
                }
                low
            }
        }
    }

    /// Shows the entries of a leaf in `range`, which may be the wrong way round. Returns how many they are.
    pub(super) fn visit(&self, range: Range<usize>, visit: &mut dyn FnMut(&[u8], &[u8])) -> u64 {
        let count = range.len() as u64;
        for index in range {
            visit(self.key(index), self.value(index));
        }
        count
    }

    /// The index of the child that a key belongs to; an error in a node without children.
    pub(super) fn child_index(&self, key: &[u8]) -> Result<usize> {
        if self.count == 0 {
            return Err(Error::Invalid(format!("a node of level {} has no children: it is damaged", self.level)));
        }
        Ok(match self.search(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        })
    }

    fn keys(&self) -> &[u8] {
        &self.bytes[self.layout.keys_at..][..self.count * self.layout.key_bytes]
    }
}

impl<'l, B: DerefMut<Target = [u8]>> Node<'l, B> {
    /// Formats the memory as an empty node.
    pub(super) fn format(layout: &'l Layout, level: usize, mut bytes: B) -> Self {
        bytes[..layout.keys_at].fill(0);
        bytes[0] = kind(level);
        bytes[1] = u8::try_from(level).expect("levels are at most LEVELS_MAX");
        Self { bytes, layout, level, count: 0 }
    }

    /// Sets the next node of the level.
    pub(super) fn set_right(&mut self, right: NodeId) {
        self.bytes[8..16].copy_from_slice(&right.0.to_le_bytes());
    }

    /// Sets the high key; does nothing in a layout without high keys.
    pub(super) fn set_high_key(&mut self, key: &[u8]) {
        let place = HEADER_BYTES..self.layout.keys_at;
        if !place.is_empty() {
            self.bytes[place].copy_from_slice(key);
        }
    }

    /// Sets key `index`.
    pub(super) fn set_key(&mut self, index: usize, key: &[u8]) {
        let bytes = self.layout.key_bytes;
        self.bytes[self.layout.keys_at + index * bytes..][..bytes].copy_from_slice(key);
    }

    /// Sets value `index`, of a leaf.
    pub(super) fn set_value(&mut self, index: usize, payload: &[u8]) {
        let payloads = self.layout.payloads(self.level);
        self.bytes[payloads.at + index * payloads.bytes..][..payloads.bytes].copy_from_slice(payload);
    }

    /// Inserts an entry of a leaf at `index`. There is room.
    pub(super) fn insert(&mut self, index: usize, key: &[u8], value: &[u8]) {
        self.open_gap(index, 1);
        self.set_key(index, key);
        self.set_value(index, value);
    }

    /// Inserts a child at `index`. There is room.
    pub(super) fn insert_child(&mut self, index: usize, key: &[u8], child: NodeId) {
        self.insert(index, key, &child.0.to_le_bytes());
    }

    /// Inserts copies of another node's entries at `index`. There is room.
    pub(super) fn insert_from<C>(&mut self, index: usize, other: &Node<'_, C>, range: Range<usize>)
    where
        C: Deref<Target = [u8]>,
    {
        self.open_gap(index, range.len());
        let (keys_at, key_bytes) = (self.layout.keys_at, self.layout.key_bytes);
        let payloads = self.layout.payloads(self.level);
        for (at, bytes) in [(keys_at, key_bytes), (payloads.at, payloads.bytes)] {
            let source = &other.bytes[at + range.start * bytes..at + range.end * bytes];
            self.bytes[at + index * bytes..][..source.len()].copy_from_slice(source);
        }
    }

    /// Removes entries.
    pub(super) fn remove(&mut self, range: Range<usize>) {
        self.shift(range.end, range.start);
        self.set_count(self.count - range.len());
    }

    /// Moves the entries from `index` on to an empty node, which becomes the right neighbour, in front of the present
    /// one.
    pub(super) fn split_off<C: DerefMut<Target = [u8]>>(&mut self, index: usize, right: &mut Node<'_, C>, id: NodeId) {
        right.insert_from(0, self, index..self.count);
        right.set_right(self.right());
        right.set_high_key(self.high_key());
        self.remove(index..self.count);
        self.set_right(id);
    }

    fn open_gap(&mut self, index: usize, entries: usize) {
        assert!(self.count + entries <= self.layout.capacity(self.level), "an insert into a node has room");
        self.shift(index, index + entries);
        self.set_count(self.count + entries);
    }

    /// Moves the entries from `from` on to `to`.
    fn shift(&mut self, from: usize, to: usize) {
        let payloads = self.layout.payloads(self.level);
        for (at, bytes) in [(self.layout.keys_at, self.layout.key_bytes), (payloads.at, payloads.bytes)] {
            self.bytes.copy_within(at + from * bytes..at + self.count * bytes, at + to * bytes);
        }
    }

    fn set_count(&mut self, count: usize) {
        self.count = count;
        let count = u32::try_from(count).expect("a node's entries are fewer than its bytes");
        self.bytes[4..8].copy_from_slice(&count.to_le_bytes());
    }
}

const fn kind(level: usize) -> u8 {
    if level == 0 { LEAF } else { INNER }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}
