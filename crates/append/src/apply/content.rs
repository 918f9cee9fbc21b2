//! The new content of a node: its entries, written.

use std::ops::Range;

use crate::format::input::Input;
use crate::format::node::{Node, encode, put_child};
use crate::format::{Link, NODE_BYTES};

/// Bytes of a node beside its entries and its skip: at most its level, and two numbers.
const BESIDE: usize = 8;
/// Most bytes of the entries of a node that has several.
const ENTRY_BYTES_MAX: usize = NODE_BYTES - BESIDE;

/// Entries of a node, of any number.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) level: u8,
    /// No chunk of the node is below this bound.
    pub(super) low: Vec<u8>,
    bytes: Vec<u8>,
    starts: Vec<usize>,
    /// Whether there are copied entries of a leaf among them, which nobody looked at.
    pub(super) is_copied: bool,
}

impl Content {
    pub(super) const fn new(level: u8, low: Vec<u8>) -> Self {
        Self { level, low, bytes: Vec::new(), starts: Vec::new(), is_copied: false }
    }

    pub(super) fn of(node: &Node, low: Vec<u8>) -> Self {
        let mut content = Self::new(node.level(), low);
        (0..node.len()).for_each(|index| content.copy(node.entry(index)));
        content
    }

    /// The entries, out of the hands of whoever collected them.
    pub(super) const fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.level, Vec::new()))
    }

    /// Adds an entry behind the others.
    pub(super) fn push(&mut self, entry: &[u8]) {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(entry);
    }

    /// Adds an entry that `put` writes.
    pub(super) fn push_with(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        self.starts.push(self.bytes.len());
        put(&mut self.bytes);
    }

    /// Adds an entry that was there.
    pub(super) fn copy(&mut self, entry: &[u8]) {
        self.push(entry);
        self.is_copied = true;
    }

    /// Adds a child that is a node of its own.
    pub(super) fn push_child(&mut self, low: &[u8], link: &Link) {
        self.starts.push(self.bytes.len());
        put_child(&mut self.bytes, low, link);
    }

    /// Adds the entries of the next node of the same level.
    pub(super) fn join(&mut self, next: &Self) {
        let base = self.bytes.len();
        self.is_copied |= next.is_copied;
        self.starts.extend(next.starts.iter().map(|start| base + start));
        self.bytes.extend_from_slice(&next.bytes);
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Bytes of the entries.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the node is to be joined with a neighbour.
    pub(super) fn is_small(&self) -> bool {
        self.bytes.len() < ENTRY_BYTES_MAX / 4
    }

    /// Whether the node has to be split.
    pub(super) fn is_large(&self) -> bool {
        self.bytes.len() > ENTRY_BYTES_MAX && self.len() > 1
    }

    /// The bytes of the node.
    pub(super) fn encode(&self, skip: &[u8]) -> Vec<u8> {
        encode(self.level, skip, self.len(), &self.bytes)
    }

    fn end(&self, index: usize) -> usize {
        self.starts.get(index + 1).copied().unwrap_or(self.bytes.len())
    }

    fn bound(&self, index: usize) -> &[u8] {
        Input::new(&self.bytes, self.starts[index]).bytes().expect("its entries were written here")
    }

    /// Pieces that fit in nodes, of about the same size.
    pub(super) fn split(self) -> Vec<Self> {
        let goal = self.bytes.len() / self.bytes.len().div_ceil(ENTRY_BYTES_MAX);
        let (mut pieces, mut first) = (Vec::new(), 0);
        for index in 0..self.len() {
            let bytes = self.starts[index] - self.starts[first];
            let with = self.end(index) - self.starts[first];
            if index > first && (bytes >= goal || with > ENTRY_BYTES_MAX) {
                pieces.push(self.piece(first..index));
                first = index;
            }
        }
        pieces.push(self.piece(first..self.len()));
        pieces
    }

    fn piece(&self, entries: Range<usize>) -> Self {
        let low = match entries.start {
            0 => self.low.clone(),
            first if self.level > 0 => self.bound(first).to_vec(),
            first => separator(self.bound(first - 1), self.bound(first)).to_vec(),
        };
        let bytes = &self.bytes[self.starts[entries.start]..self.end(entries.end - 1)];
        let base = self.starts[entries.start];
        let starts = self.starts[entries].iter().map(|start| start - base).collect();
        Self { level: self.level, low, bytes: bytes.to_vec(), starts, is_copied: self.is_copied }
    }
}

/// The shortest beginning of `above` that is above `below`.
fn separator<'a>(below: &[u8], above: &'a [u8]) -> &'a [u8] {
    &above[..(index::common_prefix(below, above) + 1).min(above.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_short() {
        assert_eq!(separator(b"abc", b"abx"), b"abx");
        assert_eq!(separator(b"abc", b"b"), b"b");
        assert_eq!(separator(b"ab", b"abcd"), b"abc");
        assert_eq!(separator(b"", b"zz"), b"z");
    }
}
