//! A page of a sorted run: entries and fences, each in key order.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | magic |
//! | 2, 2 | counts of entries and of fences |
//! | one bit per entry there is room for | set for each entry that is a filter |
//! | counts × (key, value) | the entries; the value of a filter is zeros |
//! | counts × (key, 4) | the fences: from this key on, the page of the next level to read |
//!
//! Two arrays in place of the paper's one let fences and entries have their own lengths: a fence is 24 bytes where an
//! entry has 116.

use std::ops::Range;

use psync::BLOCK;

use crate::trees::Shape;
use crate::trees::pending::{Operation, partition};
use crate::{Error, Result};

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = BLOCK;

const MAGIC: u32 = 0xFD7E_0001;
const HEADER_BYTES: usize = 8;
const POINTER_BYTES: usize = 4;

/// The offsets in a page, for one shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) shape: Shape,
    /// The offset of the entries.
    entries_at: usize,
}

/// A checked page.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    layout: Layout,
    bytes: &'a [u8],
    pub(super) entries: usize,
    pub(super) fences: usize,
}

/// A page under construction.
pub(super) struct PageBuilder {
    layout: Layout,
    filters: Vec<u8>,
    entries: Vec<u8>,
    fences: Vec<u8>,
    entry_count: usize,
}

impl Layout {
    /// # Errors
    /// [`Error::Invalid`] when a page has no room for a few entries of the shape.
    pub(super) fn new(shape: Shape) -> Result<Self> {
        let entries_max = (PAGE_BYTES - HEADER_BYTES) / shape.entry_bytes().max(1);
        let layout = Self { shape, entries_at: HEADER_BYTES + entries_max.div_ceil(8) };
        if shape.key_bytes == 0 || layout.entries_per_page() < 4 || layout.fences_per_page() < 4 {
            let what =
                format!("pages of {PAGE_BYTES} bytes are too small for entries of {} bytes", shape.entry_bytes());
            return Err(Error::Invalid(what));
        }
        Ok(layout)
    }

    /// Entries that fill a page without fences.
    pub(super) const fn entries_per_page(self) -> usize {
        (PAGE_BYTES - self.entries_at) / self.shape.entry_bytes()
    }

    /// Fences that fill a page without entries.
    pub(super) const fn fences_per_page(self) -> usize {
        (PAGE_BYTES - self.entries_at) / self.fence_bytes()
    }

    const fn fence_bytes(self) -> usize {
        self.shape.key_bytes + POINTER_BYTES
    }
}

impl<'a> Page<'a> {
    /// # Errors
    /// [`Error::Invalid`] when the bytes are no page of a run.
    pub(super) fn parse(layout: Layout, bytes: &'a [u8]) -> Result<Self> {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (entries, fences) = (usize::from(word(4)), usize::from(word(6)));
        let end = layout.entries_at + entries * layout.shape.entry_bytes() + fences * layout.fence_bytes();
        if bytes[..4] != MAGIC.to_le_bytes() || end > PAGE_BYTES || entries > layout.entries_per_page() {
            return Err(Error::Invalid("a page of the FD-tree is not one of its pages".to_owned()));
        }
        Ok(Self { layout, bytes, entries, fences })
    }

    /// A page that has been checked before, with the counts found by that check.
    pub(super) const fn known(layout: Layout, bytes: &'a [u8], entries: usize, fences: usize) -> Self {
        Self { layout, bytes, entries, fences }
    }

    /// Whether any of the entries is a filter.
    pub(super) fn has_filters(&self) -> bool {
        self.bytes[HEADER_BYTES..self.layout.entries_at].iter().any(|byte| *byte != 0)
    }

    pub(super) fn key(&self, entry: usize) -> &'a [u8] {
        &self.bytes[self.entry_at(entry)..][..self.layout.shape.key_bytes]
    }

    pub(super) fn operation(&self, entry: usize) -> Operation<'a> {
        if self.bytes[HEADER_BYTES + entry / 8] >> (entry % 8) & 1 == 1 {
            return Operation::Delete;
        }
        let shape = self.layout.shape;
        Operation::Put(&self.bytes[self.entry_at(entry) + shape.key_bytes..][..shape.value_bytes])
    }

    pub(super) fn fence_key(&self, fence: usize) -> &'a [u8] {
        &self.bytes[self.fence_at(fence)..][..self.layout.shape.key_bytes]
    }

    pub(super) fn fence_pointer(&self, fence: usize) -> u32 {
        let at = self.fence_at(fence) + self.layout.shape.key_bytes;
        u32::from_le_bytes([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]])
    }

    /// The first entry that is not below a key.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        partition(self.entries, |entry| self.key(entry) < key)
    }

    /// The page's entry or filter of a key.
    pub(super) fn find(&self, key: &[u8]) -> Option<Operation<'a>> {
        let entry = self.lower_bound(key);
        (entry < self.entries && self.key(entry) == key).then(|| self.operation(entry))
    }

    /// The page of the next level that a key can be in; none when there is no next level.
    pub(super) fn child(&self, key: &[u8]) -> Option<u32> {
        let after = partition(self.fences, |fence| self.fence_key(fence) <= key);
        (after > 0).then(|| self.fence_pointer(after - 1))
    }

    fn entry_at(&self, entry: usize) -> usize {
        self.layout.entries_at + entry * self.layout.shape.entry_bytes()
    }

    fn fence_at(&self, fence: usize) -> usize {
        self.entry_at(self.entries) + fence * self.layout.fence_bytes()
    }
}

impl PageBuilder {
    pub(super) fn new(layout: Layout) -> Self {
        let filters = vec![0; layout.entries_at - HEADER_BYTES];
        let (entries, fences) = (Vec::with_capacity(PAGE_BYTES), Vec::with_capacity(PAGE_BYTES));
        Self { layout, filters, entries, fences, entry_count: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.fences.is_empty()
    }

    pub(super) fn has_room_for_entry(&self) -> bool {
        self.room() >= self.layout.shape.entry_bytes()
    }

    pub(super) fn has_room_for_fence(&self) -> bool {
        self.room() >= self.layout.fence_bytes()
    }

    pub(super) fn push_entry(&mut self, key: &[u8], operation: Operation<'_>) {
        self.entries.extend_from_slice(key);
        match operation {
            Operation::Put(value) => self.entries.extend_from_slice(value),
            Operation::Delete => {
                self.entries.resize(self.entries.len() + self.layout.shape.value_bytes, 0);
                self.filters[self.entry_count / 8] |= 1 << (self.entry_count % 8);
            }
        }
        self.entry_count += 1;
    }

    /// Adds as many of these entries, none of which is a filter, as there is room for. Returns how many.
    pub(super) fn push_entries(&mut self, page: &Page<'_>, entries: Range<usize>) -> usize {
        let count = (self.room() / self.layout.shape.entry_bytes()).min(entries.len());
        let bytes = page.entry_at(entries.start)..page.entry_at(entries.start + count);
        self.entries.extend_from_slice(&page.bytes[bytes]);
        self.entry_count += count;
        count
    }

    pub(super) fn push_fence(&mut self, key: &[u8], pointer: u32) {
        self.fences.extend_from_slice(key);
        self.fences.extend_from_slice(&pointer.to_le_bytes());
    }

    /// Writes the page into `page` and begins another.
    pub(super) fn finish(&mut self, page: &mut [u8]) {
        let count = |count: usize| u16::try_from(count).expect("a page has fewer bytes than u16 counts").to_le_bytes();
        page[..4].copy_from_slice(&MAGIC.to_le_bytes());
        page[4..6].copy_from_slice(&count(self.entry_count));
        page[6..8].copy_from_slice(&count(self.fences.len() / self.layout.fence_bytes()));
        let (at, entries_end) = (self.layout.entries_at, self.layout.entries_at + self.entries.len());
        page[HEADER_BYTES..at].copy_from_slice(&self.filters);
        page[at..entries_end].copy_from_slice(&self.entries);
        page[entries_end..][..self.fences.len()].copy_from_slice(&self.fences);
        page[entries_end + self.fences.len()..].fill(0);
        self.filters.fill(0);
        self.entries.clear();
        self.fences.clear();
        self.entry_count = 0;
    }

    fn room(&self) -> usize {
        PAGE_BYTES - self.layout.entries_at - self.entries.len() - self.fences.len()
    }
}
