//! Internal nodes in memory.
//!
//! 1. A [`Node`] is parsed once from its page and never changes; readers share it through the cache.
//! 2. [`Node::search`] finds the child of a key: the bytes that all separators share are compared once, then the first
//!    eight bytes after them as one integer each, and whole separators only among equal integers.
//! 3. [`Edges`] is a list of children under construction: each with its lower bound and its pointer.
//!
//! Invariant: `heads` is in the order of the separators, because zero-padded big-endian integers sort as the bytes do.

use crate::format::Pointer;

/// An internal node, parsed.
#[derive(Debug)]
pub(crate) struct Node {
    level: u8,
    prefix: Box<[u8]>,
    suffixes: Box<[u8]>,
    ends: Box<[u16]>,
    heads: Box<[u64]>,
    pointers: Box<[Pointer]>,
}

/// The first eight bytes of a key, padded with zeros, as a number that sorts as they do.
pub(crate) fn head(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

impl Node {
    /// `ends[i]` is where separator `i` ends in `suffixes`; the decoder has checked that they rise to its length.
    pub(crate) fn new(level: u8, prefix: &[u8], suffixes: &[u8], ends: Vec<u16>, pointers: Box<[Pointer]>) -> Self {
        let mut node = Self {
            level,
            prefix: prefix.into(),
            suffixes: suffixes.into(),
            ends: ends.into(),
            heads: Box::default(),
            pointers,
        };
        node.heads = (0..node.ends.len()).map(|index| head(node.suffix(index))).collect();
        node
    }

    pub(crate) const fn level(&self) -> u8 {
        self.level
    }

    /// Children.
    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }

    pub(crate) fn pointer(&self, child: usize) -> &Pointer {
        &self.pointers[child]
    }

    pub(crate) fn pointers(&self) -> &[Pointer] {
        &self.pointers
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.prefix.len()
            + self.suffixes.len()
            + self.ends.len() * size_of::<u16>()
            + self.heads.len() * size_of::<u64>()
            + self.pointers.len() * size_of::<Pointer>()
    }

    fn suffix(&self, separator: usize) -> &[u8] {
        let start = if separator == 0 { 0 } else { usize::from(self.ends[separator - 1]) };
        &self.suffixes[start..usize::from(self.ends[separator])]
    }

    /// The child whose bounds hold `key`.
    #[inline]
    pub(crate) fn search(&self, key: &[u8]) -> usize {
        if self.ends.is_empty() {
            return 0;
        }
        let shared = self.prefix.len().min(key.len());
        match key[..shared].cmp(&self.prefix[..shared]) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return self.ends.len(),
            std::cmp::Ordering::Equal if shared < self.prefix.len() => return 0,
            std::cmp::Ordering::Equal => {}
        }
        let rest = &key[shared..];
        let number = head(rest);
        let mut child = self.heads.partition_point(|head| *head < number);
        while child < self.heads.len() && self.heads[child] == number && self.suffix(child) <= rest {
            child += 1;
        }
        child
    }

    /// The last child that can hold keys below `key`.
    pub(crate) fn search_below(&self, key: &[u8]) -> usize {
        let child = self.search(key);
        if child > 0 && self.begins_at(child, key) { child - 1 } else { child }
    }

    /// Whether `key` is the lower bound of child `child`, which is not the first.
    fn begins_at(&self, child: usize, key: &[u8]) -> bool {
        key.strip_prefix(&*self.prefix).is_some_and(|rest| rest == self.suffix(child - 1))
    }

    /// The lower bound of child `child`, which is not the first.
    pub(crate) fn separator(&self, child: usize) -> Vec<u8> {
        [&self.prefix, self.suffix(child - 1)].concat()
    }

    /// Whether `key` is below the upper bound of `child`, as far as this node knows it.
    #[inline]
    pub(crate) fn below_end(&self, child: usize, key: &[u8]) -> bool {
        if child >= self.ends.len() {
            return true;
        }
        match key.strip_prefix(&*self.prefix) {
            Some(rest) => rest < self.suffix(child),
            None => key < &*self.prefix,
        }
    }

    /// All children; `low` is the lower bound that the parent gives.
    pub(crate) fn edges(&self, low: &[u8]) -> Edges {
        let mut edges = Edges::with_capacity(self.len(), self.suffixes.len() + self.len() * self.prefix.len());
        for (child, pointer) in self.pointers.iter().enumerate() {
            if child == 0 {
                edges.push(low, *pointer);
            } else {
                edges.push_joined(&self.prefix, self.suffix(child - 1), *pointer);
            }
        }
        edges
    }

    /// Whether separators rise strictly.
    pub(crate) fn is_sorted(&self) -> bool {
        (1..self.ends.len()).all(|index| self.suffix(index - 1) < self.suffix(index))
    }
}

/// A list of children: lower bound and pointer of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edges {
    keys: Vec<u8>,
    ends: Vec<usize>,
    pointers: Vec<Pointer>,
}

impl Edges {
    pub(crate) fn with_capacity(children: usize, key_bytes: usize) -> Self {
        Self {
            keys: Vec::with_capacity(key_bytes),
            ends: Vec::with_capacity(children),
            pointers: Vec::with_capacity(children),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pointers.is_empty()
    }

    pub(crate) fn push(&mut self, low: &[u8], pointer: Pointer) {
        self.push_joined(low, &[], pointer);
    }

    fn push_joined(&mut self, prefix: &[u8], suffix: &[u8], pointer: Pointer) {
        self.keys.extend_from_slice(prefix);
        self.keys.extend_from_slice(suffix);
        self.ends.push(self.keys.len());
        self.pointers.push(pointer);
    }

    /// Takes over `others[from..to]`.
    pub(crate) fn extend_from(&mut self, others: &Self, range: std::ops::Range<usize>) {
        for index in range {
            self.push(others.low(index), others.pointers[index]);
        }
    }

    pub(crate) fn set_pointer(&mut self, child: usize, pointer: Pointer) {
        self.pointers[child] = pointer;
    }

    /// The lower bound of a child.
    pub(crate) fn low(&self, child: usize) -> &[u8] {
        let start = if child == 0 { 0 } else { self.ends[child - 1] };
        &self.keys[start..self.ends[child]]
    }

    pub(crate) fn pointers(&self) -> &[Pointer] {
        &self.pointers
    }

    /// Bytes of all lower bounds but the first, which the parent knows.
    pub(crate) fn separator_bytes(&self) -> usize {
        self.keys.len() - self.ends.first().copied().unwrap_or(0)
    }

    /// Bytes that all separators begin with.
    pub(crate) fn separator_prefix(&self) -> usize {
        if self.len() < 2 {
            return 0;
        }
        common_prefix(self.low(1), self.low(self.len() - 1))
    }

    /// Bytes of a child's lower bound.
    pub(crate) fn low_bytes(&self, child: usize) -> usize {
        self.low(child).len()
    }
}

/// Bytes that two keys share at their beginning.
pub(crate) fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
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

    fn node_of(separators: &[Vec<u8>]) -> Option<Node> {
        let mut edges = Edges::default();
        edges.push(b"", Pointer::to_node(1, 1));
        for (index, separator) in separators.iter().enumerate() {
            edges.push(separator, Pointer::to_node(index as u64 + 2, 1));
        }
        if node_bytes(2, &edges) > 4096 {
            return None;
        }
        let identity = NodeIdentity { table: index::TableId(1), page: 9, incarnation: 1, level: 2 };
        let mut page = vec![0; 4096];
        encode(&identity, &edges, &mut page);
        Some(decode(&identity, &page).expect("whole"))
    }

    proptest! {
        #[test]
        fn search_finds_the_child_that_a_scan_finds(
            prefix in prop::collection::vec(any::<u8>(), 0..12),
            keys in prop::collection::btree_set(prop::collection::vec(0..4_u8, 1..12), 0..40),
            probes in prop::collection::vec(prop::collection::vec(0..4_u8, 0..14), 1..40),
        ) {
            let long = |key: &Vec<u8>| [prefix.as_slice(), key].concat();
            let separators: Vec<_> = keys.iter().map(long).collect();
            let Some(node) = node_of(&separators) else { return Ok(()) };
            prop_assert!(node.is_sorted());
            for probe in probes.iter().map(long).chain(probes.clone()) {
                let expected = separators.iter().filter(|separator| **separator <= probe).count();
                prop_assert_eq!(node.search(&probe), expected);
                for child in 0..node.len() {
                    let below = separators.get(child).is_none_or(|end| probe < *end);
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
