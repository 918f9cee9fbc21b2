//! Filters: the blocks of a leaf that may hold a key, known before any of them is read (Bloom, CACM 13(7), 1970).
//!
//! 1. A leaf has one filter, beside its pointer in the node above. A key that the leaf was made with is in the filter
//!    as *sorted*. An appended key is in the filter together with the page of its run.
//! 2. So a lookup reads the appended pages that may hold its key, the newest first, then the part that the fences name.
//!    The lookup ends with the first block that has the key.
//! 3. A filter has [`shape::ENTRY_BITS`] bits for each entry that the leaf has room for, so a filter never grows: an
//!    append sets bits. Where a node has no room for so many bits, only appended keys are in the filter, in as many
//!    bits as there are ([`Shape::covers_sorted`]).
//! 4. Before the bits stand the *ends*: the CRC of the last run of each page from the last sorted one on, except the
//!    leaf's very last page. With the ends, each of these pages checks by itself, and a page that is not whole is
//!    detected.
//!
//! ```text
//!   0  ends   u32 × (pages - sorted), zero where there is no such page yet
//!   .  bits   u64 × words
//! ```
//!
//! Invariants:
//!
//! - A key in a published run is in its leaf's filter, so a lookup may skip the blocks that the filter excludes.
//! - Of two versions of a key, the version in the later run is not the older one. So the first block that has a version
//!   at or below a seq has the newest of them. An append keeps that by the newest seq in the pointer (`apply::window`).

mod shape;

use codec::u32_at;
use index::bloom::{self, Hash};
use shape::END;
pub(crate) use shape::{BYTES_MAX, Shape};

use crate::format::Pointer;

/// The hash of a key together with the page that the key was appended on, or as sorted.
fn on(hash: Hash, page: Option<u32>) -> Hash {
    hash.with(page.map_or(0, |page| u64::from(page) + 1))
}

/// The filter of a leaf.
#[derive(Clone, Copy)]
pub(crate) struct Filter<'a> {
    pointer: &'a Pointer,
    bytes: &'a [u8],
}

/// CRCs that a block of a leaf has to be checked against, besides the pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// CRC of the run before the block's first one; 0 where none is.
    pub(crate) before: u32,
    /// CRC of the block's last run, where that is known and is not the leaf's last.
    pub(crate) end: Option<u32>,
}

impl<'a> Filter<'a> {
    /// `bytes` stand beside `pointer`.
    pub(crate) fn new(pointer: &'a Pointer, bytes: &'a [u8]) -> Self {
        debug_assert_eq!(bytes.len(), pointer.filter_bytes(), "a filter has the bytes that its pointer says");
        Self { pointer, bytes }
    }

    /// Whether the key may be on a page to which that key was appended, or among the keys that the leaf was made with.
    fn may_hold(&self, hash: Hash, page: Option<u32>) -> bool {
        if page.is_none() && !self.pointer.filter.covers_sorted() {
            return true;
        }
        let bits = &self.bytes[self.pointer.ends() * END..];
        bloom::may_have(bits, on(hash, page))
    }

    /// The next block to look for a key whose part is `part`, after `last` had no version of the key that counts.
    pub(crate) fn next(&self, hash: Hash, part: usize, last: Option<usize>) -> Option<usize> {
        let sorted_end = self.pointer.parts() - 1;
        let appended = (sorted_end..last.unwrap_or_else(|| self.pointer.blocks())).rev();
        let mut appended = appended.filter(|_| self.pointer.appended);
        if let Some(block) = appended.find(|block| self.may_hold(hash, Some(self.pointer.page_appended(*block)))) {
            return Some(block);
        }
        let looked = last.is_some_and(|last| last == part || last < sorted_end);
        (!looked && self.may_hold(hash, None)).then_some(part)
    }

    /// The CRCs that a block has to be checked against.
    pub(crate) fn link(&self, block: usize) -> Link {
        let Some(place) = (block + 1).checked_sub(self.pointer.parts()) else { return Link::default() };
        let end = |place: usize| u32_at(self.bytes, place * END);
        let is_last = block + 1 == self.pointer.blocks();
        Link { before: place.checked_sub(1).and_then(end).unwrap_or(0), end: if is_last { None } else { end(place) } }
    }

    /// Whether a lookup by this filter reaches `key` in a run on `page`, which is sorted or appended.
    pub(crate) fn knows(&self, key: &[u8], page: u32, is_sorted: bool) -> bool {
        self.may_hold(Hash::of(key), (!is_sorted).then_some(page))
    }
}

/// The filter of a leaf that is being made or appended to.
pub(crate) struct Maker {
    shape: Shape,
    ends: usize,
    bytes: Vec<u8>,
}

impl Maker {
    /// Nothing is in it yet.
    pub(crate) fn new(shape: Shape, pages: u32, sorted: u32) -> Self {
        let ends = if shape.is_none() { 0 } else { (pages - sorted) as usize };
        Self { shape, ends, bytes: vec![0; shape.bytes(pages - sorted)] }
    }

    /// Goes on with the filter beside `pointer`.
    pub(crate) fn from(pointer: &Pointer, bytes: &[u8]) -> Self {
        Self { shape: pointer.filter, ends: pointer.ends(), bytes: bytes.to_vec() }
    }

    /// Adds a key of a sorted page.
    pub(crate) fn add_sorted(&mut self, hash: Hash) {
        if self.shape.covers_sorted() {
            self.add(hash, None);
        }
    }

    /// Adds a key of a run that was appended on `page` of the leaf.
    pub(crate) fn add_appended(&mut self, hash: Hash, page: u32) {
        self.add(hash, Some(page));
    }

    fn add(&mut self, hash: Hash, page: Option<u32>) {
        if self.shape.is_none() || seeded::on(seeded::Bug::FilterMissesKey) && hash.bits().is_multiple_of(16) {
            return;
        }
        bloom::add(&mut self.bytes[self.ends * END..], on(hash, page));
    }

    /// The last run on a page ended with this CRC: `place` is 0 for the last sorted page.
    pub(crate) fn end(&mut self, place: usize, crc: u32) {
        if !self.shape.is_none() {
            self.bytes[place * END..(place + 1) * END].copy_from_slice(&crc.to_le_bytes());
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leaf of 8 pages, 3 of them sorted, published up to the 6th, whose entries take 120 bytes.
    fn leaf() -> Pointer {
        let length = 5 * 4096 + 100;
        let filter = Shape::new(8, 3, 100, 12_000);
        Pointer { pages: 8, sorted: 3, appended: true, length, entries: 150, filter, ..Pointer::to_node(7, 9) }
    }

    fn key(number: u32) -> [u8; 16] {
        let mut key = [7; 16];
        key[12..].copy_from_slice(&number.to_be_bytes());
        key
    }

    #[test]
    fn a_lookup_goes_to_where_a_key_is() {
        let pointer = leaf();
        let mut maker = Maker::new(pointer.filter, 8, 3);
        for number in 0..100 {
            maker.add_sorted(Hash::of(&key(number)));
        }
        maker.add_appended(Hash::of(&key(5)), 2);
        maker.add_appended(Hash::of(&key(6)), 4);
        maker.add_appended(Hash::of(&key(6)), 5);
        maker.add_appended(Hash::of(&key(1000)), 4);
        let bytes = maker.finish();
        let filter = Filter::new(&pointer, &bytes);
        let walk = |number: u32, part: usize| {
            let (mut blocks, mut last) = (Vec::new(), None);
            while let Some(block) = filter.next(Hash::of(&key(number)), part, last) {
                blocks.push(block);
                last = Some(block);
            }
            blocks
        };
        // Blocks 0 to 2 are the parts, 3 to 5 the pages behind them.
        assert_eq!(walk(7, 0), [0]);
        assert_eq!(walk(5, 0), [2, 0]);
        assert_eq!(walk(5, 2), [2]);
        assert_eq!(walk(6, 1), [5, 4, 1]);
        assert_eq!(walk(1000, 1), [4]);
        let misled = (2000..12_000).filter(|number| !walk(*number, 1).is_empty()).count();
        assert!(misled < 100, "{misled} of 10000 keys that are not there");
        let misled = (8..100).filter(|number| walk(*number, 1).len() > 1).count();
        assert!(misled < 5, "{misled} of 92 keys that are on one page");
    }

    #[test]
    fn pages_are_linked() {
        let pointer = leaf();
        let mut maker = Maker::new(pointer.filter, 8, 3);
        (100..).zip(0..3).for_each(|(crc, place)| maker.end(place, crc));
        let bytes = maker.finish();
        let filter = Filter::new(&pointer, &bytes);
        let link = |before, end| Link { before, end };
        let links: Vec<_> = (0..pointer.blocks()).map(|block| filter.link(block)).collect();
        let expected = [
            link(0, None),
            link(0, None),
            link(0, Some(100)),
            link(100, Some(101)),
            link(101, Some(102)),
            link(102, None),
        ];
        assert_eq!(links, expected);
    }
}
