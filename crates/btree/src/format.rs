//! Every byte that the B-tree puts on storage.
//!
//! All integers are little-endian. A type is never zero, so zeroed or never written bytes are not mistaken for content.
//!
//! | bytes | where | module |
//! |---|---|---|
//! | run | appended to a page of a leaf | [`run`] |
//! | internal node | one page, written once | [`node`] |
//! | root record, redo | the checkpoint and the log, which keep them for us | [`root`] |
//!
//! A **pointer** stands in an internal node or a root record. Its fields are enough to read a child and to verify that
//! the pages belong to the expected child. A node keeps the fields of all its children in [`columns`]; a root record
//! holds one whole pointer:
//!
//! ```text
//! leaf pointer (38 bytes)                        node pointer
//!   0  page         u48                            page, incarnation, due
//!   6  shape        u40
//!  11  incarnation  u64                          shape, from its lowest bit
//!  19  length       u32  bytes published           1 bit    appended: runs stand behind the sorted pages
//!  23  chain        u32  CRC of the last run      15 bits   sorted: pages with a run each, in key order
//!  27  entries      u24  in runs, dead ones too    4 bits   pages of a part, as a power of two
//!  30  keys         u24  live at least             1 bit    documents: whether it has any
//!  33  due          u40  in units of 1024 ms      15 bits   pages of the leaf's extent
//! ```
//!
//! The **sorted pages** of a leaf are the pages that were written with the new leaf. Each holds one run, and their keys
//! rise from page to page. The last one may also hold the first appended runs. Sorted pages are cut into **parts** of
//! one page, or of two, four, … where the fences between parts would be too long ([`BOUND_BYTES_MAX`]). The fences
//! stand in the node above, so a search reads one part. After appends, a search also needs the appended runs:
//!
//! - Without a filter, the last part goes on to the end of the published bytes, and a search reads that part too.
//! - With a filter, the last part ends with the sorted pages, and each page behind is a block that is read alone.
//!
//! An **incarnation** is (open-epoch mod 2^24) << 40 | counter. Each node and leaf gets a new one, so that the content
//! of an extent's earlier life never checks. Should epoch or counter ever wrap, a mistake still needs an old page with
//! the very same number at the very same page, table and position.
//!
//! `keys` is exact when a leaf is written anew. Each appended tombstone subtracts one, and puts add none, because no
//! append looks up whether the keys already exist. An expired entry counts as live until a rewrite removes it.
//!
//! `due` is the time at which enough entries have expired to make a rewrite worthwhile ([`index::due`]): in the leaf,
//! or in a leaf below the node. 0 is never.
//!
//! Invariant: [`LEAF_PAGES_MAX`] pages hold fewer entries than 24 bits can count.

pub(crate) mod columns;
mod limits;
pub(crate) mod node;
pub(crate) mod root;
pub(crate) mod run;

use std::ops::Range;

use codec::{u24_at, u32_at, u40_at, u48_at, u64_at};
pub(crate) use index::Damage;
use space::PAGE;

use index::Seq;
use index::due::{Due, UNITS_LIMIT};

use crate::filter::Shape;
pub use limits::{INLINE_BYTES_MAX, KEY_BYTES_MAX, LEAF_PAGES_MAX};

/// Length of a whole leaf pointer.
pub(crate) const LEAF_POINTER: usize = 38;

/// Offset of the due time in a pointer.
pub(crate) const DUE_AT: usize = 33;

/// Most bytes of a leaf's lower bound and its fences together, each with [`BOUND_FIXED`] bytes more. Only a lower bound
/// without fences may be longer.
pub(crate) const BOUND_BYTES_MAX: usize = 500;

/// Most bytes that a bound takes in a node besides its own.
pub(crate) const BOUND_FIXED: usize = 3;

/// Bits of the counter in an incarnation.
pub(crate) const INCARNATION_COUNTER_BITS: u32 = 40;

/// Bit positions of the fields of a leaf's shape.
const SORTED_BIT: u32 = 1;
const PART_BIT: u32 = 16;
const DOCUMENTS_BIT: u32 = 20;
const PAGES_BIT: u32 = 21;

/// Bytes of a page.
#[expect(clippy::cast_possible_truncation, reason = "4096")]
const PAGE_BYTES: u32 = PAGE as u32;

/// Pages that 48 bits can name.
pub(crate) const PAGE_LIMIT: u64 = 1 << 48;

const _: () = assert!(LEAF_PAGES_MAX < 1 << (PART_BIT - SORTED_BIT));

/// Position and identity of a child. An internal node has one sorted page, and zeros from the length on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// First page.
    pub(crate) page: u64,
    /// Pages of the extent.
    pub(crate) pages: u32,
    /// Incarnation of the child.
    pub(crate) incarnation: u64,
    /// Number of sorted pages, from the first page on.
    pub(crate) sorted: u32,
    /// Pages of a part, as a power of two.
    pub(crate) part_log: u8,
    /// Whether runs stand behind those of the sorted pages.
    pub(crate) appended: bool,
    /// Published bytes of the leaf, up to the end of its last run.
    pub(crate) length: u32,
    /// CRC of the last run, which covers the CRCs of all runs before.
    pub(crate) chain: u32,
    /// Entries in the runs.
    pub(crate) entries: u32,
    /// Least number of keys whose newest version is no tombstone.
    pub(crate) keys_min: u32,
    /// Whether an entry is a document.
    pub(crate) documents: bool,
    /// Time from which expired entries make a rewrite worthwhile: of the leaf, or of the first leaf below the node.
    pub(crate) due: Option<Due>,
    /// The newest seq in the leaf, where there is a filter.
    pub(crate) newest: Seq,
    /// Shape of the leaf's filter, which stands beside the pointer in a node. A pointer in a root record has none.
    pub(crate) filter: Shape,
}

impl Pointer {
    /// A pointer to an internal node.
    pub(crate) const fn to_node(page: u64, incarnation: u64) -> Self {
        Self {
            page,
            pages: 1,
            incarnation,
            sorted: 1,
            part_log: 0,
            appended: false,
            length: 0,
            chain: 0,
            entries: 0,
            keys_min: 0,
            documents: false,
            due: None,
            newest: Seq(0),
            filter: Shape::NONE,
        }
    }

    /// Byte offset in the file.
    pub(crate) const fn offset(&self) -> u64 {
        self.page * PAGE as u64
    }

    /// Bytes that the extent can hold.
    pub(crate) const fn capacity(&self) -> usize {
        self.pages as usize * PAGE
    }

    /// Bytes of the pages that hold the published length.
    pub(crate) const fn published_bytes(&self) -> usize {
        (self.length as usize).next_multiple_of(PAGE)
    }

    pub(crate) fn extent(&self) -> space::Extent {
        space::Extent { page: space::PageId(self.page), pages: self.pages }
    }

    /// Parts of the leaf.
    pub(crate) const fn parts(&self) -> usize {
        (self.sorted as usize).div_ceil(1 << self.part_log)
    }

    /// Number of blocks, the units of a read: parts and, where there is a filter, the pages behind.
    pub(crate) fn blocks(&self) -> usize {
        self.parts()
            + if self.filter.is_none() { 0 } else { self.published_pages().saturating_sub(self.sorted) as usize }
    }

    /// The bytes of a block's pages; the last block ends with the published bytes.
    pub(crate) fn block(&self, block: usize) -> Range<usize> {
        let parts = self.parts();
        let (first, end) = match block.checked_sub(parts) {
            Some(behind) => (self.sorted as usize + behind, self.sorted as usize + behind + 1),
            None if block + 1 < parts => (block << self.part_log, (block + 1) << self.part_log),
            None if self.filter.is_none() => (block << self.part_log, self.published_pages() as usize),
            None => (block << self.part_log, self.sorted as usize),
        };
        first * PAGE..end * PAGE
    }

    /// The page of a block that may have been appended to: the last sorted page, or one behind.
    pub(crate) fn page_appended(&self, block: usize) -> u32 {
        let behind = u32::try_from(block + 1 - self.parts()).expect("a leaf has fewer than 2^15 pages");
        self.sorted - 1 + behind
    }

    /// Whether a filter stands beside the pointer.
    pub(crate) const fn is_filtered(&self) -> bool {
        !self.filter.is_none()
    }

    /// The page of the last run.
    pub(crate) const fn last_page(&self) -> u32 {
        self.published_pages() - 1
    }

    /// The pointer without a filter, as a root record has it.
    pub(crate) const fn bare(self) -> Self {
        Self { newest: Seq(0), filter: Shape::NONE, ..self }
    }

    /// The pointer as a node can have it: without a filter, there is no newest seq.
    pub(crate) const fn sound(self) -> Self {
        if self.is_filtered() { self } else { self.bare() }
    }

    /// Pages that hold published bytes.
    const fn published_pages(&self) -> u32 {
        self.length.div_ceil(PAGE_BYTES)
    }

    /// Number of pages whose end is in the filter.
    pub(crate) const fn ends(&self) -> usize {
        if self.filter.is_none() { 0 } else { (self.pages - self.sorted) as usize }
    }

    /// Bytes of the filter.
    pub(crate) const fn filter_bytes(&self) -> usize {
        self.filter.bytes(self.pages - self.sorted)
    }

    /// The bytes of all published pages.
    pub(crate) const fn all(&self) -> Range<usize> {
        0..self.published_bytes()
    }

    /// Whether a run at this byte of the leaf is the first on a sorted page, and so follows no other run.
    pub(crate) const fn begins_page(&self, at: usize) -> bool {
        at.is_multiple_of(PAGE) && at / PAGE < self.sorted as usize
    }

    fn shape(&self) -> u64 {
        u64::from(self.appended)
            | u64::from(self.sorted) << SORTED_BIT
            | u64::from(self.part_log) << PART_BIT
            | u64::from(self.documents) << DOCUMENTS_BIT
            | u64::from(self.pages) << PAGES_BIT
    }

    /// A leaf pointer's fields, in the order of a node's columns.
    pub(crate) fn leaf_fields(&self) -> [u64; LEAF_FIELDS] {
        [
            self.page,
            self.incarnation,
            Due::to_units(self.due),
            self.shape(),
            self.length.into(),
            self.chain.into(),
            self.entries.into(),
            u64::from(self.entries.saturating_sub(self.keys_min)),
            self.newest.0,
            self.filter.field(),
        ]
    }

    /// The leaf pointer with these fields; none where the encoder would never write such a pointer.
    pub(crate) fn of_leaf(fields: [u64; LEAF_FIELDS]) -> Option<Self> {
        let [page, incarnation, due, shape, length, chain, entries, dead, newest, filter] = fields;
        let bits = |from: u32, count: u32| shape >> from & ((1 << count) - 1);
        let pages = u32::try_from(shape >> PAGES_BIT).ok()?;
        let sorted = u32::try_from(bits(SORTED_BIT, PART_BIT - SORTED_BIT)).ok()?;
        let pointer = Self {
            page,
            pages,
            incarnation,
            sorted,
            part_log: u8::try_from(bits(PART_BIT, DOCUMENTS_BIT - PART_BIT)).ok()?,
            appended: bits(0, 1) == 1,
            length: u32::try_from(length).ok()?,
            chain: u32::try_from(chain).ok()?,
            entries: u32::try_from(entries).ok()?,
            keys_min: u32::try_from(entries.checked_sub(dead)?).ok()?,
            documents: bits(DOCUMENTS_BIT, 1) == 1,
            due: Due::from_units(due),
            newest: Seq(newest),
            filter: Shape::of_field(filter, pages, sorted)?,
        };
        (pointer.is_possible() && due < UNITS_LIMIT).then_some(pointer)
    }

    fn is_possible(&self) -> bool {
        let (sorted, length) = (self.sorted as usize, self.length as usize);
        self.pages >= 1
            && self.pages <= LEAF_PAGES_MAX
            && length >= 1
            && length <= self.capacity()
            && self.page < PAGE_LIMIT - u64::from(self.pages)
            && self.entries >= 1
            && self.entries as usize <= length.div_ceil(PAGE) * run::PAGE_ENTRIES_MAX
            && self.keys_min <= self.entries
            && sorted >= 1
            && self.sorted <= self.pages
            && (self.is_filtered() || self.newest == Seq(0))
            && length > (sorted - 1) * PAGE
            && (self.appended || length <= sorted * PAGE)
    }

    pub(crate) fn encode_leaf(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.page.to_le_bytes()[..6]);
        out.extend_from_slice(&self.shape().to_le_bytes()[..5]);
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.chain.to_le_bytes());
        out.extend_from_slice(&self.entries.to_le_bytes()[..3]);
        out.extend_from_slice(&self.keys_min.to_le_bytes()[..3]);
        out.extend_from_slice(&Due::to_units(self.due).to_le_bytes()[..5]);
    }

    /// None where the encoder would never write such a pointer.
    pub(crate) fn decode_leaf(bytes: &[u8]) -> Option<Self> {
        let shape = u40_at(bytes, 6)?;
        let (entries, keys_min) = (u24_at(bytes, 27)?, u24_at(bytes, 30)?);
        let (length, chain) = (u32_at(bytes, 19)?, u32_at(bytes, 23)?);
        let dead = entries.checked_sub(keys_min)?;
        Self::of_leaf([
            u48_at(bytes, 0)?,
            u64_at(bytes, 11)?,
            u40_at(bytes, DUE_AT)?,
            shape,
            length.into(),
            chain.into(),
            entries.into(),
            dead.into(),
            0,
            Shape::NONE.field(),
        ])
    }
}

/// Fields of a leaf pointer in a node.
pub(crate) const LEAF_FIELDS: usize = 10;

/// Fields of a pointer to an internal node: the first of a leaf pointer's.
pub(crate) const NODE_FIELDS: usize = 3;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_leaf_pointer_is_golden() {
        let pointer = Pointer {
            page: 0x0102_0304_0506,
            pages: 8,
            incarnation: 0x1112_1314_1516_1718,
            sorted: 6,
            part_log: 1,
            appended: true,
            length: 0x7001,
            chain: 0x3132_3334,
            entries: 0x1342,
            keys_min: 0x0051,
            documents: false,
            due: Due::from_units(0x41_4243_4445),
            newest: Seq(0),
            filter: Shape::NONE,
        };
        let mut leaf = Vec::new();
        pointer.encode_leaf(&mut leaf);
        assert_eq!(leaf.len(), LEAF_POINTER);
        assert_eq!(hex(&leaf), "0605040302010d00010100181716151413121101700000343332314213005100004544434241");
        assert_eq!(Pointer::decode_leaf(&leaf), Some(pointer));
        let with_documents = Pointer { documents: true, ..pointer };
        let mut leaf = Vec::new();
        with_documents.encode_leaf(&mut leaf);
        assert_eq!(hex(&leaf), "0605040302010d00110100181716151413121101700000343332314213005100004544434241");
        assert_eq!(Pointer::decode_leaf(&leaf), Some(with_documents));
    }

    #[test]
    fn blocks_are_all_of_a_leaf() {
        for (sorted, part_log, expected) in [(1, 0, 1), (5, 0, 5), (5, 1, 3), (6, 1, 3), (5, 3, 1)] {
            let leaf = Pointer { pages: 8, sorted, part_log, length: 7 * 4096 - 5, ..Pointer::to_node(1, 1) };
            let filtered = Pointer { filter: Shape::new(8, sorted, 100, 8192), ..leaf };
            assert_eq!((leaf.parts(), filtered.parts()), (expected, expected));
            assert_eq!((leaf.blocks(), filtered.blocks()), (expected, expected + 7 - sorted as usize));
            for leaf in [leaf, filtered] {
                let mut end = 0;
                for block in 0..leaf.blocks() {
                    assert_eq!(leaf.block(block).start, end);
                    end = leaf.block(block).end;
                }
                assert_eq!(end, 7 * 4096);
            }
            assert!((expected..filtered.blocks()).all(|block| filtered.block(block).len() == 4096));
        }
    }

    #[test]
    fn impossible_leaf_pointers_are_refused() {
        let good = Pointer {
            page: 7,
            pages: 2,
            incarnation: 1,
            sorted: 2,
            part_log: 0,
            appended: false,
            length: 8192,
            chain: 0,
            entries: 3,
            keys_min: 3,
            documents: true,
            due: None,
            newest: Seq(0),
            filter: Shape::NONE,
        };
        let decode = |pointer: Pointer| {
            let mut bytes = Vec::new();
            pointer.encode_leaf(&mut bytes);
            Pointer::decode_leaf(&bytes)
        };
        assert_eq!(decode(good), Some(good));
        assert_eq!(decode(Pointer { pages: 0, ..good }), None);
        assert_eq!(decode(Pointer { length: 8193, ..good }), None);
        assert_eq!(decode(Pointer { length: 0, ..good }), None);
        assert_eq!(decode(Pointer { length: 4096, ..good }), None);
        assert_eq!(decode(Pointer { sorted: 1, ..good }), None);
        assert_eq!(decode(Pointer { sorted: 0, ..good }), None);
        assert_eq!(decode(Pointer { entries: 2, ..good }), None);
        assert_eq!(decode(Pointer { keys_min: 4, ..good }), None);
        assert_eq!(decode(Pointer { pages: LEAF_PAGES_MAX + 1, ..good }), None);
        assert_eq!(Pointer::decode_leaf(&[0; LEAF_POINTER - 1]), None);
    }
}
