//! Internal nodes: one page each, written once and never changed.
//!
//! ```text
//!   0  magic        u32  "BtNd"
//!   4  crc          u32  of the rest of the page
//!   8  version      u8   1
//!   9  level        u8   1 above leaves, 2 above that, …
//!  10  count        u16  children, at least 1
//!  12  used         u16  bytes used, header and all
//!  14  prefix       u16  bytes that all separators begin with
//!  16  page         u64  its own
//!  24  incarnation  u64  its own
//!  32  table        u32
//!  36  children     count pointers: to leaves on level 1, to nodes above
//!   .  lengths      u16 × (count - 1): bytes of each separator after the prefix
//!   .  prefix
//!   .  separators   count - 1, rising, without the prefix
//!   .  zero to the end of the page
//! ```
//!
//! Child `i` holds the keys k with separator `i - 1` <= k < separator `i`; the outer bounds are the parent's.

use index::TableId;
use space::PAGE;

use super::{Damage, KEY_BYTES_MAX, LEAF_POINTER, NODE_POINTER, Pointer, u16_at, u32_at, u64_at};
use crate::node::{Edges, Node};

const MAGIC: u32 = u32::from_le_bytes(*b"BtNd");
const VERSION: u8 = 1;
const HEADER: usize = NODE_HEADER;

/// Bytes of a node before its children.
pub(crate) const NODE_HEADER: usize = 36;

/// Three children with the longest separators fit, so every node can be split.
const _: () = assert!(HEADER + 3 * LEAF_POINTER + 2 * (2 + KEY_BYTES_MAX) <= PAGE);

/// Who a node is: what its pointer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeIdentity {
    pub(crate) table: TableId,
    pub(crate) page: u64,
    pub(crate) incarnation: u64,
    pub(crate) level: u8,
}

/// Bytes of a pointer on `level`.
pub(crate) const fn pointer_bytes(level: u8) -> usize {
    if level == 1 { LEAF_POINTER } else { NODE_POINTER }
}

/// Bytes that a node of these children needs.
pub(crate) fn node_bytes(level: u8, edges: &Edges) -> usize {
    let children = edges.len();
    let separators = children.saturating_sub(1);
    let prefix = edges.separator_prefix();
    let keys = edges.separator_bytes() - separators * prefix;
    HEADER + children * pointer_bytes(level) + separators * 2 + prefix + keys
}

/// Encodes a node as a page.
pub(crate) fn encode(identity: &NodeIdentity, edges: &Edges, page: &mut [u8]) {
    let used = node_bytes(identity.level, edges);
    assert!(!edges.is_empty() && used <= PAGE, "a node is split before it is too large for a page");
    let short = |value: usize| u16::try_from(value).expect("nothing in a node is longer than a page");
    let prefix = edges.separator_prefix();
    let mut out = Vec::with_capacity(PAGE);
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[VERSION, identity.level]);
    for value in [edges.len(), used, prefix] {
        out.extend_from_slice(&short(value).to_le_bytes());
    }
    out.extend_from_slice(&identity.page.to_le_bytes());
    out.extend_from_slice(&identity.incarnation.to_le_bytes());
    out.extend_from_slice(&identity.table.0.to_le_bytes());
    for pointer in edges.pointers() {
        if identity.level == 1 {
            pointer.encode_leaf(&mut out);
        } else {
            pointer.encode_node(&mut out);
        }
    }
    for index in 1..edges.len() {
        out.extend_from_slice(&short(edges.low(index).len() - prefix).to_le_bytes());
    }
    if edges.len() > 1 {
        out.extend_from_slice(&edges.low(1)[..prefix]);
    }
    for index in 1..edges.len() {
        out.extend_from_slice(&edges.low(index)[prefix..]);
    }
    assert_eq!(out.len(), used, "a node takes the bytes that were computed for it");
    out.resize(PAGE, 0);
    let crc = checksum::crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    page.copy_from_slice(&out);
}

/// Decodes and checks a page that should be the node `identity`.
pub(crate) fn decode(identity: &NodeIdentity, page: &[u8]) -> Result<Node, Damage> {
    const WHAT: &str = "internal node";
    if page.len() != PAGE {
        return Err(Damage::new(0, WHAT, format!("{PAGE} bytes"), page.len()));
    }
    let magic = u32_at(page, 0).unwrap_or(0);
    if magic != MAGIC {
        return Err(Damage::new(0, WHAT, format!("magic {MAGIC:08x}"), format!("{magic:08x}")));
    }
    let (stored, crc) = (u32_at(page, 4).unwrap_or(0), checksum::crc32c(&page[8..]));
    if stored != crc {
        return Err(Damage::new(4, WHAT, format!("CRC {stored:08x}"), format!("{crc:08x}")));
    }
    if page[8] != VERSION {
        return Err(Damage::new(8, WHAT, format!("version {VERSION}"), page[8]));
    }
    let found = NodeIdentity {
        table: TableId(u32_at(page, 32).unwrap_or(0)),
        page: u64_at(page, 16).unwrap_or(0),
        incarnation: u64_at(page, 24).unwrap_or(0),
        level: page[9],
    };
    if found != *identity {
        return Err(Damage::new(9, WHAT, format!("{identity:?}"), format!("{found:?}")));
    }
    body(identity, page).ok_or_else(|| Damage::new(HEADER, WHAT, "children and separators", "some that cannot be"))
}

fn body(identity: &NodeIdentity, page: &[u8]) -> Option<Node> {
    let count = usize::from(u16_at(page, 10)?);
    let used = usize::from(u16_at(page, 12)?);
    let prefix = usize::from(u16_at(page, 14)?);
    let size = pointer_bytes(identity.level);
    let lengths_at = HEADER + count * size;
    let prefix_at = lengths_at + count.checked_sub(1)? * 2;
    let keys_at = prefix_at + prefix;
    if used > PAGE || keys_at > used || (identity.level == 0) {
        return None;
    }
    let pointers = page[HEADER..lengths_at]
        .chunks_exact(size)
        .map(|bytes| if identity.level == 1 { Pointer::decode_leaf(bytes) } else { Pointer::decode_node(bytes) })
        .collect::<Option<Box<[_]>>>()?;
    let mut end = 0_u16;
    let mut ends = Vec::with_capacity(count - 1);
    for bytes in page[lengths_at..prefix_at].chunks_exact(2) {
        let length = u16_at(bytes, 0)?;
        if usize::from(length) + prefix > KEY_BYTES_MAX {
            return None;
        }
        end = end.checked_add(length)?;
        ends.push(end);
    }
    if keys_at + usize::from(end) != used {
        return None;
    }
    Some(Node::new(identity.level, &page[prefix_at..keys_at], &page[keys_at..used], ends, pointers))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::hex;
    use super::*;

    const IDENTITY: NodeIdentity = NodeIdentity { table: TableId(2), page: 77, incarnation: 5, level: 1 };

    fn leaf(page: u64) -> Pointer {
        Pointer { page, pages: 1, incarnation: page, length: 50, chain: 1, entries: 2, keys_min: 0, documents: false }
    }

    fn page_of(identity: &NodeIdentity, edges: &Edges) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        encode(identity, edges, &mut page);
        page
    }

    #[test]
    fn a_node_is_golden() {
        let mut edges = Edges::default();
        edges.push(b"ignored: the parent's bound", leaf(1));
        edges.push(b"user/m", leaf(2));
        edges.push(b"user/mo", leaf(3));
        let page = page_of(&IDENTITY, &edges);
        assert_eq!(
            hex(&page[8..36]),
            "0101030089000600".to_owned() + "4d00000000000000" + "0500000000000000" + "02000000"
        );
        assert_eq!(hex(&page[126..138]), "00000100757365722f6d6f00");
        assert!(page[137..].iter().all(|byte| *byte == 0));
        let node = decode(&IDENTITY, &page).expect("whole");
        assert_eq!(node.edges(b"ignored: the parent's bound"), edges);
        let above = NodeIdentity { level: 2, ..IDENTITY };
        let mut edges = Edges::default();
        edges.push(b"", Pointer::to_node(8, 9));
        let page = page_of(&above, &edges);
        assert_eq!(hex(&page[36..50]), "0800000000000900000000000000");
        assert_eq!(decode(&above, &page).expect("whole").edges(b""), edges);
    }

    #[test]
    fn a_node_is_not_taken_for_another() {
        let mut edges = Edges::default();
        edges.push(b"", leaf(1));
        let page = page_of(&IDENTITY, &edges);
        for identity in [
            NodeIdentity { table: TableId(3), ..IDENTITY },
            NodeIdentity { page: 78, ..IDENTITY },
            NodeIdentity { incarnation: 6, ..IDENTITY },
            NodeIdentity { level: 2, ..IDENTITY },
        ] {
            decode(&identity, &page).expect_err("another node");
        }
    }

    #[test]
    fn three_children_with_the_longest_separators_fit() {
        let mut edges = Edges::default();
        edges.push(b"", leaf(1));
        edges.push(&[1; KEY_BYTES_MAX], leaf(2));
        edges.push(&[2; KEY_BYTES_MAX], leaf(3));
        assert!(node_bytes(1, &edges) <= PAGE);
    }

    #[test]
    fn a_hundred_leaves_fit_under_random_keys_of_16_bytes() {
        let mut edges = Edges::default();
        edges.push(b"", leaf(1));
        for index in 0..110_u32 {
            edges.push(&(index * 40_503 + 7).to_be_bytes(), leaf(2));
        }
        assert!(node_bytes(1, &edges) <= PAGE);
    }

    #[test]
    fn every_flipped_byte_is_seen() {
        let mut edges = Edges::default();
        edges.push(b"", leaf(1));
        edges.push(b"m", leaf(2));
        let page = page_of(&IDENTITY, &edges);
        for index in 0..PAGE {
            let mut bad = page.clone();
            bad[index] ^= 0x10;
            decode(&IDENTITY, &bad).expect_err("a flipped byte");
        }
    }

    proptest! {
        #[test]
        fn any_page_is_decoded_without_a_panic(
            body in prop::collection::vec(any::<u8>(), 0..400),
            count in 0..8_u16, used in 36..500_u16, prefix in 0..20_u16, level in 0..3_u8,
        ) {
            let identity = NodeIdentity { level, ..IDENTITY };
            let mut edges = Edges::default();
            edges.push(b"", leaf(1));
            let mut page = page_of(&IDENTITY, &edges);
            page[9] = level;
            page[10..12].copy_from_slice(&count.to_le_bytes());
            page[12..14].copy_from_slice(&used.to_le_bytes());
            page[14..16].copy_from_slice(&prefix.to_le_bytes());
            page[36..36 + body.len()].copy_from_slice(&body);
            let crc = checksum::crc32c(&page[8..]);
            page[4..8].copy_from_slice(&crc.to_le_bytes());
            if let Ok(node) = decode(&identity, &page) {
                let _ = node.search(&body);
                let _ = node.edges(b"");
            }
        }
    }
}
