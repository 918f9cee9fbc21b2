//! Every byte that the B-tree puts on storage.
//!
//! All integers are little-endian. A type is never zero, so zeroed or never written bytes are never taken for content.
//!
//! | bytes | where | module |
//! |---|---|---|
//! | run | appended to a page of a leaf | [`run`] |
//! | internal node | one page, written once | [`node`] |
//! | root record, redo | the checkpoint and the log, which keep them for us | [`root`] |
//!
//! A **pointer** stands in an internal node or a root record and says everything that is needed to read a child and to
//! know that it is the right one:
//!
//! ```text
//! leaf pointer (30 bytes)                        node pointer (14 bytes)
//!   0  page         u48                            0  page         u48
//!   6  pages        u15  of the leaf's extent      6  incarnation  u64
//!      documents    u1   whether it has any
//!   8  incarnation  u64
//!  16  length       u32  bytes published
//!  20  chain        u32  CRC of the last run
//!  24  entries      u24  in runs, dead ones too
//!  27  keys         u24  live at least
//! ```
//!
//! `pages` and `documents` share a u16, whose most significant bit is `documents`.
//!
//! An **incarnation** is (open-epoch mod 2^24) << 40 | counter: it is given once to each node and leaf, so that what an extent held in an
//! earlier life never checks. Should epoch or counter ever wrap, an old page would have to carry the very same number
//! at the very same page, table and position to be mistaken.
//!
//! `keys` is exact when a leaf is written anew; each tombstone that is appended takes one off, and puts add none, because nobody
//! looks whether their keys are there already.
//!
//! Invariant: [`LEAF_PAGES_MAX`] pages hold fewer entries than 24 bits can count.

pub(crate) mod node;
pub(crate) mod root;
pub(crate) mod run;

use space::PAGE;

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 1024;

/// Most bytes of a value that stands in a leaf; longer ones are documents.
pub const INLINE_BYTES_MAX: usize = 2048;

/// Most pages of a leaf: 64 MiB.
pub const LEAF_PAGES_MAX: u32 = 16_384;

/// Length of an encoded leaf pointer.
pub(crate) const LEAF_POINTER: usize = 30;

/// Length of an encoded pointer to an internal node.
pub(crate) const NODE_POINTER: usize = 14;

/// Bits of the counter in an incarnation.
pub(crate) const INCARNATION_COUNTER_BITS: u32 = 40;

/// The bit beside a leaf's pages that says that one of its entries is a document.
const DOCUMENTS: u16 = 1 << 15;

/// Pages that 48 bits can name.
const PAGE_LIMIT: u64 = 1 << 48;

const _: () = assert!(LEAF_PAGES_MAX as usize * run::PAGE_ENTRIES_MAX < 1 << 24);
const _: () = assert!(LEAF_PAGES_MAX < DOCUMENTS as u32);
const _: () = assert!(run::RUN_HEADER + run::ENTRY_FIXED + 8 + KEY_BYTES_MAX + INLINE_BYTES_MAX <= PAGE);

/// Where a child is, and what makes it the right one. The last five are zero for an internal node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// First page.
    pub(crate) page: u64,
    /// Pages of its extent.
    pub(crate) pages: u32,
    /// Its incarnation.
    pub(crate) incarnation: u64,
    /// Bytes of the leaf that are published: where its last run ends.
    pub(crate) length: u32,
    /// CRC of its last run, which covers those of all runs before it.
    pub(crate) chain: u32,
    /// Entries in its runs.
    pub(crate) entries: u32,
    /// Least number of keys whose newest version is no tombstone.
    pub(crate) keys_min: u32,
    /// Whether an entry is a document.
    pub(crate) documents: bool,
}

impl Pointer {
    /// A pointer to an internal node.
    pub(crate) const fn to_node(page: u64, incarnation: u64) -> Self {
        Self { page, pages: 1, incarnation, length: 0, chain: 0, entries: 0, keys_min: 0, documents: false }
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

    pub(crate) fn encode_leaf(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.page.to_le_bytes()[..6]);
        let pages = u16::try_from(self.pages).expect("a leaf has at most LEAF_PAGES_MAX pages");
        out.extend_from_slice(&(pages | if self.documents { DOCUMENTS } else { 0 }).to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.chain.to_le_bytes());
        out.extend_from_slice(&self.entries.to_le_bytes()[..3]);
        out.extend_from_slice(&self.keys_min.to_le_bytes()[..3]);
    }

    pub(crate) fn encode_node(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.page.to_le_bytes()[..6]);
        out.extend_from_slice(&self.incarnation.to_le_bytes());
    }

    /// None where it is not one that we would write.
    pub(crate) fn decode_leaf(bytes: &[u8]) -> Option<Self> {
        let pages = u16_at(bytes, 6)?;
        let pointer = Self {
            page: u48(bytes, 0)?,
            pages: u32::from(pages & !DOCUMENTS),
            incarnation: u64_at(bytes, 8)?,
            length: u32_at(bytes, 16)?,
            chain: u32_at(bytes, 20)?,
            entries: u24(bytes, 24)?,
            keys_min: u24(bytes, 27)?,
            documents: pages & DOCUMENTS != 0,
        };
        let possible = pointer.pages >= 1
            && pointer.pages <= LEAF_PAGES_MAX
            && pointer.length >= 1
            && pointer.length as usize <= pointer.capacity()
            && pointer.page < PAGE_LIMIT - u64::from(pointer.pages)
            && pointer.entries >= 1
            && pointer.keys_min <= pointer.entries;
        possible.then_some(pointer)
    }

    /// None where bytes are missing.
    pub(crate) fn decode_node(bytes: &[u8]) -> Option<Self> {
        Some(Self::to_node(u48(bytes, 0)?, u64_at(bytes, 6)?))
    }
}

/// Bytes that are not what we would have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Byte offset within what was decoded.
    pub(crate) offset: usize,
    pub(crate) what: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Damage {
    pub(crate) fn new(
        offset: usize, what: &'static str, expected: impl std::fmt::Display, found: impl std::fmt::Display,
    ) -> Self {
        Self { offset, what, expected: expected.to_string(), found: found.to_string() }
    }
}

pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn u24(bytes: &[u8], at: usize) -> Option<u32> {
    let [a, b, c] = array(bytes, at)?;
    Some(u32::from_le_bytes([a, b, c, 0]))
}

pub(crate) fn u48(bytes: &[u8], at: usize) -> Option<u64> {
    let [a, b, c, d, e, f] = array(bytes, at)?;
    Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn pointers_are_golden() {
        let pointer = Pointer {
            page: 0x0102_0304_0506,
            pages: 8,
            incarnation: 0x1112_1314_1516_1718,
            length: 0x7001,
            chain: 0x3132_3334,
            entries: 0x0041_4243,
            keys_min: 0x0051,
            documents: false,
        };
        let mut leaf = Vec::new();
        pointer.encode_leaf(&mut leaf);
        assert_eq!(leaf.len(), LEAF_POINTER);
        assert_eq!(hex(&leaf), "060504030201080018171615141312110170000034333231434241510000");
        assert_eq!(Pointer::decode_leaf(&leaf), Some(pointer));
        let with_documents = Pointer { documents: true, ..pointer };
        let mut leaf = Vec::new();
        with_documents.encode_leaf(&mut leaf);
        assert_eq!(hex(&leaf), "060504030201088018171615141312110170000034333231434241510000");
        assert_eq!(Pointer::decode_leaf(&leaf), Some(with_documents));
        let mut node = Vec::new();
        pointer.encode_node(&mut node);
        assert_eq!(node.len(), NODE_POINTER);
        assert_eq!(hex(&node), "0605040302011817161514131211");
        assert_eq!(Pointer::decode_node(&node), Some(Pointer::to_node(pointer.page, pointer.incarnation)));
    }

    #[test]
    fn impossible_leaf_pointers_are_refused() {
        let good = Pointer {
            page: 7,
            pages: 2,
            incarnation: 1,
            length: 8192,
            chain: 0,
            entries: 3,
            keys_min: 3,
            documents: true,
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
        assert_eq!(decode(Pointer { entries: 2, ..good }), None);
        assert_eq!(decode(Pointer { keys_min: 4, ..good }), None);
        assert_eq!(decode(Pointer { pages: LEAF_PAGES_MAX + 1, ..good }), None);
        assert_eq!(Pointer::decode_leaf(&[0; LEAF_POINTER - 1]), None);
    }
}
