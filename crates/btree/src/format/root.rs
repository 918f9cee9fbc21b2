//! The root record, which the checkpoint keeps, and the redo of a batch, which the log keeps.
//!
//! ```text
//! root record (61 bytes)                         redo
//!   0  magic       u32  "BtRt"                     0  magic      u32  "BtRe"
//!   4  crc         u32  of all that follows        4  crc        u32  of all that follows
//!   8  version     u8   1                          8  version    u8   1
//!   9  height      u8   levels, 0 when empty       9  zero       3 bytes
//!  10  zero        u16                            12  table      u32
//!  12  table       u32                            16  allocated  u32  extents
//!  16  leaf pages  u32  of a new leaf             20  retired    u32  extents
//!  20  expires     u8   1 if values may expire    24  root record
//!  21  zero        u16
//!  23  root        pointer, zero when empty       85  extents, allocated before retired,
//!                                                     each {page u48, pages u16}
//! ```
//!
//! The pointer has the layout of a leaf pointer, also where its child is a node.

use codec::{u16_at, u32_at, u40_at, u48_at, u64_at};
use index::TableId;
use space::{Extent, PageId};

use super::{DUE_AT, Damage, LEAF_PAGES_MAX, LEAF_POINTER, Pointer};
use index::due::{Due, UNITS_LIMIT};

/// Length of a root record.
pub(crate) const ROOT_BYTES: usize = 61;

/// Most levels: a higher tree would need more pages than 48 bits can name, even with the least fanout.
pub(crate) const HEIGHT_MAX: u8 = 48;

const ROOT_MAGIC: u32 = u32::from_le_bytes(*b"BtRt");
const REDO_MAGIC: u32 = u32::from_le_bytes(*b"BtRe");
const VERSION: u8 = 1;
const EXPIRES_AT: usize = 20;
const POINTER_AT: usize = 23;
pub(crate) const REDO_HEADER: usize = 24;
const EXTENT_BYTES: usize = 8;

const _: () = assert!(POINTER_AT + LEAF_POINTER == ROOT_BYTES);

/// The record from which a tree is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Levels, leaves included; 0 in an empty tree.
    pub(crate) height: u8,
    /// The root node, or the only leaf. None in an empty tree.
    pub(crate) pointer: Option<Pointer>,
    /// Pages of a new leaf.
    pub(crate) leaf_pages: u32,
    /// Whether an entry with an expiry was ever put into the tree.
    pub(crate) expires: bool,
}

impl Root {
    pub(crate) fn encode(&self, table: TableId) -> Vec<u8> {
        let mut out = Vec::with_capacity(ROOT_BYTES);
        out.extend_from_slice(&ROOT_MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[VERSION, self.height, 0, 0]);
        out.extend_from_slice(&table.0.to_le_bytes());
        out.extend_from_slice(&self.leaf_pages.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.expires), 0, 0]);
        if let Some(pointer) = &self.pointer {
            pointer.encode_leaf(&mut out);
        }
        out.resize(ROOT_BYTES, 0);
        sign(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8], table: TableId) -> Result<Self, Damage> {
        if bytes.len() != ROOT_BYTES {
            return Err(Damage::new(0, "length of a root record", ROOT_BYTES, bytes.len()));
        }
        check(bytes, ROOT_MAGIC, "root record", table)?;
        let height = bytes[9];
        let leaf_pages = u32_at(bytes, 16).unwrap_or(0);
        if height > HEIGHT_MAX {
            return Err(Damage::new(9, "height of a tree", format!("at most {HEIGHT_MAX}"), height));
        }
        if leaf_pages == 0 || leaf_pages > LEAF_PAGES_MAX {
            let expected = format!("1 to {LEAF_PAGES_MAX}");
            return Err(Damage::new(16, "pages of a leaf", expected, leaf_pages));
        }
        let expires = bytes[EXPIRES_AT];
        if expires > 1 {
            return Err(Damage::new(EXPIRES_AT, "whether values expire", "0 or 1", expires));
        }
        let pointer = &bytes[POINTER_AT..];
        let pointer = match height {
            0 => None,
            1 => Pointer::decode_leaf(pointer),
            _ => node_pointer(pointer),
        };
        if pointer.is_none() && height > 0 {
            return Err(Damage::new(POINTER_AT, "root pointer", "a pointer", "one that cannot be"));
        }
        Ok(Self { height, pointer, leaf_pages, expires: expires == 1 })
    }
}

fn node_pointer(bytes: &[u8]) -> Option<Pointer> {
    let due = u40_at(bytes, DUE_AT).filter(|due| *due < UNITS_LIMIT)?;
    let node = Pointer::to_node(u48_at(bytes, 0)?, u64_at(bytes, 11)?);
    Some(Pointer { due: Due::from_units(due), ..node })
}

/// The data that recovery needs to make a batch's version current again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redo {
    pub(crate) root: Root,
    pub(crate) allocated: Vec<Extent>,
    pub(crate) retired: Vec<Extent>,
}

impl Redo {
    pub(crate) fn encode(&self, table: TableId) -> Vec<u8> {
        let (allocated, retired) = (pieces(&self.allocated), pieces(&self.retired));
        let extents = allocated.len() + retired.len();
        let mut out = Vec::with_capacity(REDO_HEADER + ROOT_BYTES + extents * EXTENT_BYTES);
        out.extend_from_slice(&REDO_MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[VERSION, 0, 0, 0]);
        out.extend_from_slice(&table.0.to_le_bytes());
        for list in [&allocated, &retired] {
            let count = u32::try_from(list.len()).expect("a batch touches fewer than 2^32 extents");
            out.extend_from_slice(&count.to_le_bytes());
        }
        out.extend_from_slice(&self.root.encode(table));
        for (page, pages) in allocated.into_iter().chain(retired) {
            out.extend_from_slice(&page.to_le_bytes()[..6]);
            out.extend_from_slice(&pages.to_le_bytes());
        }
        sign(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8], table: TableId) -> Result<Self, Damage> {
        if bytes.len() < REDO_HEADER + ROOT_BYTES {
            let expected = format!("at least {}", REDO_HEADER + ROOT_BYTES);
            return Err(Damage::new(0, "length of a redo", expected, bytes.len()));
        }
        check(bytes, REDO_MAGIC, "redo", table)?;
        let (head, extents) = bytes.split_at(REDO_HEADER + ROOT_BYTES);
        let counts = (u32_at(bytes, 16).unwrap_or(0) as usize, u32_at(bytes, 20).unwrap_or(0) as usize);
        if extents.len() != (counts.0.saturating_add(counts.1)).saturating_mul(EXTENT_BYTES) {
            let expected = format!("{} + {}", counts.0, counts.1);
            return Err(Damage::new(16, "extents of a redo", expected, extents.len() / EXTENT_BYTES));
        }
        let root = Root::decode(&head[REDO_HEADER..], table)?;
        let mut list = extents
            .chunks_exact(EXTENT_BYTES)
            .filter_map(|bytes| {
                let pages = u32::from(u16_at(bytes, 6)?);
                Some(Extent { page: PageId(u48_at(bytes, 0)?), pages })
            })
            .collect::<Vec<_>>();
        let retired = list.split_off(counts.0);
        Ok(Self { root, allocated: list, retired })
    }
}

/// Cuts extents into pieces whose pages 16 bits can count.
fn pieces(extents: &[Extent]) -> Vec<(u64, u16)> {
    let mut out = Vec::with_capacity(extents.len());
    for extent in extents {
        let (mut page, mut left) = (extent.page.0, extent.pages);
        while left > 0 {
            let pages = u16::try_from(left).unwrap_or(u16::MAX);
            out.push((page, pages));
            page += u64::from(pages);
            left -= u32::from(pages);
        }
    }
    out
}

/// Sets the CRC of a record.
pub(crate) fn sign(record: &mut [u8]) {
    let crc = checksum::crc32c(&record[8..]);
    record[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn check(record: &[u8], magic: u32, what: &'static str, table: TableId) -> Result<(), Damage> {
    let found = u32_at(record, 0).unwrap_or(0);
    if found != magic {
        return Err(Damage::new(0, what, format!("magic {magic:08x}"), format!("{found:08x}")));
    }
    let (stored, crc) = (u32_at(record, 4).unwrap_or(0), checksum::crc32c(&record[8..]));
    if stored != crc {
        return Err(Damage::new(4, what, format!("CRC {stored:08x}"), format!("{crc:08x}")));
    }
    if record[8] != VERSION {
        return Err(Damage::new(8, what, format!("version {VERSION}"), record[8]));
    }
    let owner = u32_at(record, 12).unwrap_or(0);
    if owner != table.0 {
        return Err(Damage::new(12, what, format!("table {}", table.0), owner));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::hex;
    use super::*;
    use crate::filter::Shape;
    use index::Seq;

    fn extent(page: u64, pages: u32) -> Extent {
        Extent { page: PageId(page), pages }
    }

    fn sample() -> Redo {
        let pointer = Pointer {
            page: 5,
            pages: 2,
            incarnation: 9,
            sorted: 1,
            part_log: 0,
            appended: false,
            length: 100,
            chain: 3,
            entries: 2,
            keys_min: 1,
            documents: true,
            due: Due::from_units(0x04_0506),
            newest: Seq(0),
            filter: Shape::NONE,
        };
        Redo {
            root: Root { height: 1, pointer: Some(pointer), leaf_pages: 2, expires: true },
            allocated: vec![extent(5, 2), extent(70_000, 65_535)],
            retired: vec![extent(1, 1)],
        }
    }

    #[test]
    fn a_redo_is_golden_and_comes_back() {
        let redo = sample();
        let bytes = redo.encode(TableId(6));
        assert_eq!(
            hex(&bytes[8..]),
            concat!(
                "01000000060000000200000001000000",
                "42745274",
                "ROOTCRC!",
                "010100000600000002000000010000",
                "0500000000000200500000",
                "09000000000000006400000003000000020000010000",
                "0605040000",
                "0500000000000200",
                "701101000000ffff",
                "0100000000000100",
            )
            .replace("ROOTCRC!", &hex(&bytes[28..32]))
        );
        assert_eq!(Redo::decode(&bytes, TableId(6)), Ok(redo));
        Redo::decode(&bytes, TableId(7)).expect_err("another table");
    }

    #[test]
    fn roots_of_every_height_come_back() {
        let node = Pointer { due: Due::from_units(9), ..Pointer::to_node(7, 8) };
        for root in [
            Root { height: 0, pointer: None, leaf_pages: 1, expires: false },
            sample().root,
            Root { height: 3, pointer: Some(node), leaf_pages: LEAF_PAGES_MAX, expires: true },
        ] {
            let bytes = root.encode(TableId(1));
            assert_eq!(bytes.len(), ROOT_BYTES);
            assert_eq!(Root::decode(&bytes, TableId(1)), Ok(root));
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let bytes = sample().encode(TableId(6));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            Redo::decode(&bad, TableId(6)).expect_err("a flipped bit");
        }
        for length in 0..bytes.len() {
            Redo::decode(&bytes[..length], TableId(6)).expect_err("cut short");
        }
    }

    #[test]
    fn an_extent_too_long_for_a_piece_is_cut() {
        assert_eq!(pieces(&[extent(10, 65_536)]), vec![(10, 65_535), (65_545, 1)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            if bytes.len() >= REDO_HEADER {
                bytes[..4].copy_from_slice(&REDO_MAGIC.to_le_bytes());
                sign(&mut bytes);
            }
            let _ = Redo::decode(&bytes, TableId(0));
            if bytes.len() >= REDO_HEADER {
                bytes.resize(ROOT_BYTES, 0);
                bytes[..4].copy_from_slice(&ROOT_MAGIC.to_le_bytes());
                sign(&mut bytes);
            }
            let _ = Root::decode(&bytes, TableId(0));
        }
    }
}
