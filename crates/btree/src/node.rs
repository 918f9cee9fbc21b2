//! Internal nodes in memory.
//!
//! 1. A [`Node`] is the used bytes of its page, checked once. A node never changes, and readers share it through the
//!    cache.
//! 2. [`Node::find`] finds the child and the part of it that may hold a key. The bytes that all separators share are
//!    compared once, then heads, as one integer each, and whole separators only among equal heads.
//! 3. [`Edges`] is a list of children under construction: each with its lower bound, its fences and its pointer.
//!
//! Invariant: heads are in the order of the separators, because zero-padded big-endian integers sort as the bytes do.

use std::cmp::Ordering;
use std::ops::Range;

use index::{common_prefix, head};
use mapped::{Shared, SharedBytes};

use crate::format::Pointer;
use crate::format::node::Layout;
use crate::partition::partition_point;

/// An internal node.
#[derive(Debug)]
pub(crate) struct Node {
    bytes: SharedBytes,
    layout: Layout,
}

/// The place of a key in a node: the child, and the part of that child. `bound` is the part's number among those of all
/// children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) child: usize,
    pub(crate) part: usize,
    bound: usize,
}

impl Node {
    /// The decoder has checked the layout against the bytes.
    pub(crate) const fn new(bytes: SharedBytes, layout: Layout) -> Self {
        Self { bytes, layout }
    }

    pub(crate) const fn level(&self) -> u8 {
        self.layout.level()
    }

    /// Children.
    pub(crate) const fn len(&self) -> usize {
        self.layout.children()
    }

    pub(crate) fn pointer(&self, child: usize) -> Pointer {
        self.layout.pointer(&self.bytes, child).expect("the decoder has looked at every pointer")
    }

    /// The filter of a leaf.
    #[inline]
    pub(crate) fn filter(&self, child: usize) -> &[u8] {
        self.layout.filter(&self.bytes, child)
    }

    pub(crate) fn pointers(&self) -> impl ExactSizeIterator<Item = Pointer> {
        (0..self.len()).map(|child| self.pointer(child))
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        Shared::taken(self.bytes.len())
    }

    /// The last bound at or below `key`, which is within the node's.
    #[inline]
    fn bound_of(&self, key: &[u8]) -> usize {
        let (layout, separators) = (&self.layout, self.layout.separators());
        if separators == 0 {
            return 0;
        }
        let prefix = layout.prefix(&self.bytes);
        let shared = prefix.len().min(key.len());
        match key[..shared].cmp(&prefix[..shared]) {
            Ordering::Less => return 0,
            Ordering::Greater => return separators,
            Ordering::Equal if shared < prefix.len() => return 0,
            Ordering::Equal => {}
        }
        let rest = &key[shared..];
        let number = layout.head_of(head(rest));
        let mut low = layout.heads_below(&self.bytes, number);
        while low < separators && layout.head(&self.bytes, low) == number && self.order(low, rest) != Ordering::Greater
        {
            low += 1;
        }
        low
    }

    /// Compares a separator with a key, both without the prefix.
    fn order(&self, separator: usize, key: &[u8]) -> Ordering {
        let first = self.layout.suffix_head(&self.bytes, separator);
        let shared = first.len().min(key.len());
        let (key, behind) = key.split_at(shared);
        first[..shared].cmp(key).then_with(|| {
            if shared < first.len() {
                return Ordering::Greater;
            }
            self.layout.suffix_rest(&self.bytes, separator).cmp(behind)
        })
    }

    /// The place of `key`, which is within the node's bounds.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Place {
        let bound = self.bound_of(key);
        if self.layout.bounds() == self.len() {
            return Place { child: bound, part: 0, bound };
        }
        let child = partition_point(self.len(), |child| self.layout.first(&self.bytes, child) <= bound) - 1;
        Place { child, part: bound - self.layout.first(&self.bytes, child), bound }
    }

    /// The child whose bounds hold `key`.
    #[inline]
    pub(crate) fn search(&self, key: &[u8]) -> usize {
        self.find(key).child
    }

    /// The last child that can hold keys below `key`.
    pub(crate) fn search_below(&self, key: &[u8]) -> usize {
        let child = self.search(key);
        if child > 0 && self.separator(child) == key { child - 1 } else { child }
    }

    /// The lower bound of child `child`, which is not the first.
    pub(crate) fn separator(&self, child: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.push_separator(self.layout.first(&self.bytes, child) - 1, &mut out);
        out
    }

    fn push_separator(&self, separator: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.layout.prefix(&self.bytes));
        out.extend_from_slice(self.layout.suffix_head(&self.bytes, separator));
        out.extend_from_slice(self.layout.suffix_rest(&self.bytes, separator));
    }

    /// Whether `key` is below the upper bound of `child`, as far as this node knows that bound.
    #[inline]
    pub(crate) fn below_end(&self, child: usize, key: &[u8]) -> bool {
        child + 1 >= self.len() || self.below_bound(self.layout.first(&self.bytes, child + 1), key)
    }

    /// Whether `key` is below the upper bound of the part at `place`, as far as this node knows that bound.
    #[inline]
    pub(crate) fn below_part_end(&self, place: Place, key: &[u8]) -> bool {
        self.below_bound(place.bound + 1, key)
    }

    fn below_bound(&self, bound: usize, key: &[u8]) -> bool {
        if bound > self.layout.separators() {
            return true;
        }
        let prefix = self.layout.prefix(&self.bytes);
        match key.strip_prefix(prefix) {
            Some(rest) => self.order(bound - 1, rest) == Ordering::Greater,
            None => key < prefix,
        }
    }

    /// All children; `low` is the lower bound that the parent gives.
    pub(crate) fn edges(&self, low: &[u8]) -> Edges {
        let mut edges = Edges { pointers: self.pointers().collect(), ..Edges::default() };
        edges.firsts = (0..self.len()).map(|child| self.layout.first(&self.bytes, child)).collect();
        (0..self.len()).for_each(|child| edges.filters.push(self.filter(child)));
        edges.bounds.push(low);
        for separator in 0..self.layout.separators() {
            self.push_separator(separator, &mut edges.bounds.bytes);
            edges.bounds.ends.push(edges.bounds.bytes.len());
        }
        edges
    }
}

/// Keys, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn place(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        start..self.ends[index]
    }

    pub(crate) fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.place(index)]
    }

    fn get_mut(&mut self, index: usize) -> &mut [u8] {
        let place = self.place(index);
        &mut self.bytes[place]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    pub(crate) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }
}

/// A list of children: lower bound, fences between its parts, filter and pointer of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edges {
    /// For each child, its lower bound and its fences.
    bounds: Keys,
    /// The bounds that are a child's lower bound.
    firsts: Vec<usize>,
    /// The filter of each child; nothing where its pointer has none.
    filters: Keys,
    pointers: Vec<Pointer>,
}

impl Edges {
    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pointers.is_empty()
    }

    /// Adds a child without fences and filter.
    pub(crate) fn push(&mut self, low: &[u8], pointer: Pointer) {
        self.push_fenced(low, &Keys::default(), pointer);
    }

    /// Adds a child without a filter.
    pub(crate) fn push_fenced(&mut self, low: &[u8], fences: &Keys, pointer: Pointer) {
        self.push_leaf(low, fences, &[], pointer);
    }

    /// Adds a leaf, with the filter that its pointer declares.
    pub(crate) fn push_leaf(&mut self, low: &[u8], fences: &Keys, filter: &[u8], pointer: Pointer) {
        debug_assert_eq!(filter.len(), pointer.filter_bytes());
        self.firsts.push(self.bounds.len());
        self.bounds.push(low);
        fences.iter().for_each(|fence| self.bounds.push(fence));
        self.filters.push(filter);
        self.pointers.push(pointer);
    }

    /// Takes over `others[from..to]`.
    pub(crate) fn extend_from(&mut self, others: &Self, range: Range<usize>) {
        for child in range {
            self.firsts.push(self.bounds.len());
            others.bounds_of(child).for_each(|bound| self.bounds.push(others.bound(bound)));
            self.filters.push(others.filter(child));
            self.pointers.push(others.pointers[child]);
        }
    }

    /// Some of the children.
    pub(crate) fn some(&self, range: Range<usize>) -> Self {
        let mut some = Self::default();
        some.extend_from(self, range);
        some
    }

    /// Sets the pointer to a child that has the same fences, and a filter as long as before.
    pub(crate) fn set_pointer(&mut self, child: usize, filter: &[u8], pointer: Pointer) {
        debug_assert_eq!(filter.len(), pointer.filter_bytes());
        self.filters.get_mut(child).copy_from_slice(filter);
        self.pointers[child] = pointer;
    }

    /// The filter of a child.
    pub(crate) fn filter(&self, child: usize) -> &[u8] {
        self.filters.get(child)
    }

    /// The lower bound of a child.
    pub(crate) fn low(&self, child: usize) -> &[u8] {
        self.bounds.get(self.firsts[child])
    }

    pub(crate) fn pointers(&self) -> &[Pointer] {
        &self.pointers
    }

    /// Lower bounds and fences of all children.
    pub(crate) fn bounds(&self) -> usize {
        self.bounds.len()
    }

    pub(crate) fn bound(&self, bound: usize) -> &[u8] {
        self.bounds.get(bound)
    }

    /// The bounds of a child.
    pub(crate) fn bounds_of(&self, child: usize) -> Range<usize> {
        self.firsts[child]..self.firsts.get(child + 1).copied().unwrap_or(self.bounds.len())
    }

    /// Whether bounds rise strictly.
    pub(crate) fn is_sorted(&self) -> bool {
        (1..self.bounds.len()).all(|bound| self.bound(bound - 1) < self.bound(bound))
    }

    /// Bytes that all bounds but the first begin with.
    pub(crate) fn separator_prefix(&self) -> usize {
        match self.bounds.len() {
            0 | 1 => 0,
            bounds => common_prefix(self.bound(1), self.bound(bounds - 1)),
        }
    }
}

/// The shortest separator: above `below`, at or below `above`.
pub(crate) fn separator<'a>(below: &[u8], above: &'a [u8]) -> &'a [u8] {
    debug_assert!(below < above, "a separator stands between different keys");
    &above[..(common_prefix(below, above) + 1).min(above.len())]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::node::{NodeIdentity, decode, encode, node_bytes};

    /// A node whose separators are lower bounds of children and, after each `parts - 1` of them, fences of one.
    fn node_of(separators: &[Vec<u8>], parts: usize) -> Option<Node> {
        let mut edges = Edges::default();
        let bounds: Vec<_> = std::iter::once(Vec::new()).chain(separators.iter().cloned()).collect();
        for (index, bounds) in bounds.chunks(parts).enumerate() {
            let mut fences = Keys::default();
            bounds[1..].iter().for_each(|fence| fences.push(fence));
            let sorted = u32::try_from(bounds.len()).expect("few");
            let length = sorted * 4096;
            let leaf = Pointer { pages: sorted, sorted, length, entries: 1, ..Pointer::to_node(index as u64, 1) };
            edges.push_fenced(&bounds[0], &fences, leaf);
        }
        if node_bytes(1, &edges) > 4096 {
            return None;
        }
        let identity = NodeIdentity { table: index::TableId(1), page: 9, incarnation: 1, level: 1 };
        let mut page = vec![0; 4096];
        encode(&identity, &edges, &mut page);
        let node = decode(&identity, &page).expect("whole");
        assert_eq!(node.edges(b""), edges);
        Some(node)
    }

    proptest! {
        #[test]
        fn search_finds_the_child_that_a_scan_finds(
            prefix in prop::collection::vec(any::<u8>(), 0..12),
            keys in prop::collection::btree_set(prop::collection::vec(0..4_u8, 1..12), 0..40),
            probes in prop::collection::vec(prop::collection::vec(0..4_u8, 0..14), 1..40), parts in 1..5_usize,
        ) {
            let long = |key: &Vec<u8>| [prefix.as_slice(), key].concat();
            let separators: Vec<_> = keys.iter().map(long).collect();
            // An empty separator would be no lower bound.
            prop_assume!(separators.first().is_none_or(|first| !first.is_empty()));
            let Some(node) = node_of(&separators, parts) else { return Ok(()) };
            prop_assert!(node.edges(b"").is_sorted());
            for probe in probes.iter().map(long).chain(probes.clone()) {
                let expected = separators.iter().filter(|separator| **separator <= probe).count();
                let found = node.find(&probe);
                prop_assert_eq!((found.child, found.part), (expected / parts, expected % parts));
                prop_assert!(node.below_part_end(found, &probe));
                for child in 0..node.len() {
                    let below = separators.get((child + 1) * parts - 1).is_none_or(|end| probe < *end);
                    prop_assert_eq!(node.below_end(child, &probe), below);
                }
            }
        }

        #[test]
        fn a_separator_separates(one in prop::collection::vec(0..3_u8, 0..6), other in prop::collection::vec(0..3_u8, 0..6)) {
            prop_assume!(one != other);
            let (below, above) = if one < other { (&one, &other) } else { (&other, &one) };
            let separator = separator(below, above);
            prop_assert!(below.as_slice() < separator && separator <= above.as_slice());
        }
    }
}
