use proptest::prelude::*;

use super::super::tests::hex;
use super::*;
use index::bloom::Hash;
use index::due::Due;

use crate::filter::{Maker, Shape};
use crate::node::Keys;

const IDENTITY: NodeIdentity = NodeIdentity { table: TableId(2), page: 77, incarnation: 5, level: 1 };

fn leaf(page: u64) -> Pointer {
    Pointer { incarnation: page, length: 50, chain: 1, entries: 2, ..Pointer::to_node(page, page) }
}

fn page_of(identity: &NodeIdentity, edges: &Edges) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    encode(identity, edges, &mut page);
    page
}

fn keys(list: &[&[u8]]) -> Keys {
    let mut keys = Keys::default();
    list.iter().for_each(|key| keys.push(key));
    keys
}

#[test]
fn a_node_is_golden() {
    let mut edges = Edges::default();
    let fenced = Pointer {
        pages: 4,
        sorted: 2,
        length: 8000,
        chain: 0x0102_0304,
        keys_min: 2,
        due: Due::from_units(258),
        ..leaf(300)
    };
    edges.push(b"ignored: the parent's bound", leaf(1));
    edges.push_fenced(b"user/m", &keys(&[b"user/mo"]), fenced);
    edges.push(b"user/n-long-one", leaf(3));
    let page = page_of(&IDENTITY, &edges);
    let expected = [
        "02010300ce000500",         // version, level, children, used, prefix
        "4d00000000000000",         // page
        "0500000000000000",         // incarnation
        "02000000",                 // table
        "04000201",                 // bounds, head bytes, length width
        "010000000000000002",       // page: least, width
        "010000000000000002",       // incarnation
        "000000000000000002",       // due
        "020020000000000003",       // shape
        "320000000000000002",       // length
        "010000000000000004",       // chain
        "020000000000000000",       // entries
        "000000000000000001",       // dead
        "000000000000000000",       // newest
        "000000000000000000",       // filter
        "00002b010200",             // pages
        "00002b010200",             // incarnations
        "000002010000",             // dues
        "000000020060000000",       // shapes
        "00000e1f0000",             // lengths
        "000000000303020100000000", // chains
        "020002",                   // dead
        "000001000300",             // firsts
        "01020a",                   // lengths of separators
        "757365722f",               // prefix
        "6d006d6f6e2d",             // heads
        "6c6f6e672d6f6e65",         // rests
    ];
    let expected = expected.concat();
    assert_eq!(hex(&page[8..8 + expected.len() / 2]), expected);
    assert!(page[8 + expected.len() / 2..].iter().all(|byte| *byte == 0));
    let node = decode(&IDENTITY, &page).expect("whole");
    assert_eq!(node.edges(b"ignored: the parent's bound"), edges);
    let above = NodeIdentity { level: 2, ..IDENTITY };
    let mut edges = Edges::default();
    edges.push(b"", Pointer { due: Due::from_units(10), ..Pointer::to_node(8, 9) });
    let page = page_of(&above, &edges);
    assert_eq!(hex(&page[36..67]), "010008010800000000000000000900000000000000000a0000000000000000");
    assert_eq!(decode(&above, &page).expect("whole").edges(b""), edges);
}

#[test]
fn filters_are_golden() {
    let filtered = |page, length, shape| Pointer { pages: 2, length, appended: true, filter: shape, ..leaf(page) };
    let shape = Shape::new(2, 1, 8, 1024);
    let mut edges = Edges::default();
    for (page, low) in [(1, &b""[..]), (2, b"m")] {
        let mut filter = Maker::new(shape, 2, 1);
        filter.add_sorted(Hash::of(b"user"));
        filter.add_appended(Hash::of(b"user"), 1);
        filter.end(0, 0x0102_0304);
        edges.push_leaf(low, &Keys::default(), &filter.finish(), filtered(page, 5000, shape));
    }
    let page = page_of(&IDENTITY, &edges);
    // Eight words of bits and one end; sorted keys are in the filter too.
    let filter = [
        "04030201",
        "0000040000000000",
        "0000000000000000",
        "0000000820000200",
        "0040000000000000",
        "0000000000000000",
        "0000800000000000",
        "0000004000080000",
        "0000000000000000",
    ];
    let filter = filter.concat();
    assert_eq!(hex(&page[121..138]), "1100000000000000000001000104030201", "field, pages, incarnations, an end");
    assert_eq!(hex(&page[134..270]), filter.repeat(2));
    let node = decode(&IDENTITY, &page).expect("whole");
    assert_eq!(node.edges(b""), edges);
    assert_eq!(node.filter(1), edges.filter(1));
    // A filter of another length, and a leaf without a filter.
    edges.push(b"n", leaf(3));
    let small = Shape::new(2, 2, 1, 4096);
    edges.push_leaf(b"o", &Keys::default(), &Maker::new(small, 2, 2).finish(), {
        Pointer { sorted: 2, part_log: 1, ..filtered(4, 8000, small) }
    });
    let page = page_of(&IDENTITY, &edges);
    let node = decode(&IDENTITY, &page).expect("whole");
    assert_eq!(node.edges(b""), edges);
    assert_eq!(node.filter(2), b"");
    assert_eq!(node.filter(3), [0; 8]);
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
    let fence = |first: u8| [vec![first; 100], vec![first + 1]].concat();
    let parts = Pointer { pages: 5, sorted: 5, length: 5 * 4096, ..leaf(u64::MAX >> 16) };
    edges.push_fenced(b"", &keys(&[&fence(0), &fence(1), &fence(2), &fence(3)]), parts);
    edges.push(&[5; KEY_BYTES_MAX], leaf(2));
    edges.push(&[6; KEY_BYTES_MAX], leaf(3));
    assert!(node_bytes(1, &edges) <= PAGE);
}

#[test]
fn a_hundred_and_ninety_leaves_fit_under_random_keys_of_16_bytes() {
    let mut edges = Edges::default();
    for index in 0..190_u32 {
        // Leaves with random appends: hardly any fields are alike.
        let mixed = index.wrapping_mul(2_654_435_769);
        let (length, entries) = (1 + mixed % 16_384, 1 + mixed % 700);
        let pointer = Pointer {
            pages: 4,
            length,
            chain: mixed,
            entries,
            keys_min: entries / 2,
            appended: true,
            ..Pointer::to_node(u64::from(mixed >> 8), u64::from(mixed))
        };
        edges.push(&(index * 40_503 + 7).to_be_bytes(), pointer);
    }
    assert!(node_bytes(1, &edges) <= PAGE, "{}", node_bytes(1, &edges));
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

#[test]
fn a_short_separator_has_zeros_in_its_head() {
    let mut edges = Edges::default();
    for bound in [&b""[..], b"abcd", b"bcde", b"cdef", b"defg", b"efgh", b"fghi", b"z"] {
        edges.push(bound, leaf(7));
    }
    let mut page = page_of(&IDENTITY, &edges);
    assert_eq!(page[38], 4, "bytes of a head");
    let last = page.windows(4).position(|head| head == b"z\0\0\0").expect("the last head");
    // Searches would follow a wrong separator, and no other check would notice.
    page[last + 1] = 7;
    let crc = checksum::crc32c(&page[8..]);
    page[4..8].copy_from_slice(&crc.to_le_bytes());
    decode(&IDENTITY, &page).expect_err("a head that is not its separator's");
}

proptest! {
    #[test]
    fn any_page_is_decoded_without_a_panic(
        body in prop::collection::vec(any::<u8>(), 0..400), widths in prop::collection::vec(0..9_u8, 7),
        bounds in 0..12_u16, head in 0..9_u8, length_width in 0..3_u8,
        count in 0..8_u16, used in 40..500_u16, prefix in 0..20_u16, level in 0..3_u8,
    ) {
        let identity = NodeIdentity { level, ..IDENTITY };
        let mut edges = Edges::default();
        edges.push(b"", leaf(1));
        let mut page = page_of(&IDENTITY, &edges);
        page[9] = level;
        page[10..12].copy_from_slice(&count.to_le_bytes());
        page[12..14].copy_from_slice(&used.to_le_bytes());
        page[14..16].copy_from_slice(&prefix.to_le_bytes());
        page[36..38].copy_from_slice(&bounds.to_le_bytes());
        page[38..40].copy_from_slice(&[head, length_width]);
        page[40..40 + body.len()].copy_from_slice(&body);
        for (column, width) in widths.iter().enumerate() {
            page[40 + 9 * column + 8] = *width;
        }
        let crc = checksum::crc32c(&page[8..]);
        page[4..8].copy_from_slice(&crc.to_le_bytes());
        if let Ok(node) = decode(&identity, &page) {
            let _ = node.find(&body);
            let _ = node.search_below(&body);
            let _ = node.edges(b"");
        }
    }
}
