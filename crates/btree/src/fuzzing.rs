//! The entry points of a fuzzer. For tests of the workspace alone.
//!
//! Each target takes bytes that were an encoding before something changed them, and
//!
//! 1. puts right checksums on them;
//! 2. reads them;
//! 3. searches the result of the read;
//! 4. writes that result again, which must read back as the same.

use std::sync::Arc;

use codec::{u32_at, u64_at};
use doclog::{DocLength, DocPointer, SegmentId};
use index::bloom::Hash;
use index::{Expiry, Operation, Payload, Seq, TableId, Update};
use space::{Extent, PAGE, PageId};

use crate::filter::{Filter, Link, Maker, Shape};
use crate::format::node::{NodeIdentity, decode, encode, node_bytes};
use crate::format::root::{REDO_HEADER, ROOT_BYTES, Redo, Root, sign as sign_record};
use crate::format::run::{Identity, Plan, RUN_HEADER, Run, RunHeader, sign as sign_run};
use crate::format::{LEAF_PAGES_MAX, LEAF_POINTER, Pointer};
use crate::leaf::{Leaf, Visible, check_tail};
use crate::node::{Edges, Keys};
use index::due::Due;

/// A name, the function that takes bytes, and the encodings to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// Everything of trees that is read from a disk.
pub const TARGETS: &[Target] = &[
    ("btree_node", node, nodes),
    ("btree_leaf", leaf, leaves),
    ("btree_root", root, roots),
    ("btree_redo", redo, redos),
];

const TABLE: TableId = TableId(3);
/// A fuzzer learns nothing from longer leaves.
const LEAF_BYTES_MAX: usize = 16 * PAGE;

fn node(bytes: &[u8]) {
    let mut page = bytes.to_vec();
    page.resize(PAGE, 0);
    page[..4].copy_from_slice(b"BtNd");
    page[8] = 1;
    sign_record(&mut page);
    let identity = NodeIdentity {
        table: TableId(u32_at(&page, 32).unwrap_or(0)),
        page: u64_at(&page, 16).unwrap_or(0),
        incarnation: u64_at(&page, 24).unwrap_or(0),
        level: page[9],
    };
    let Ok(node) = decode(&identity, &page) else { return };
    let edges = node.edges(b"");
    assert_eq!((edges.len(), node.pointers().len()), (node.len(), node.len()));
    let bounds = (1..edges.bounds()).map(|bound| edges.bound(bound).to_vec());
    let probes = bounds.chain([Vec::new(), vec![0xff; 1024], page[40..60].to_vec(), page[200..201].to_vec()]);
    for probe in probes {
        let place = node.find(&probe);
        assert!(place.child < node.len() && node.search_below(&probe) <= place.child);
        if identity.level == 1 {
            let pointer = node.pointer(place.child);
            assert!(place.part < pointer.parts());
            let filter = Filter::new(&pointer, node.filter(place.child));
            let mut block = None;
            while let Some(next) = filter.next(Hash::of(&probe), place.part, block).filter(|_| pointer.is_filtered()) {
                assert!(next < pointer.blocks() && filter.link(next).end.is_none_or(|_| next + 1 < pointer.blocks()));
                block = Some(next);
            }
        }
        assert!(node.below_part_end(place, &probe) && node.below_end(place.child, &probe));
    }
    // The node may take more bytes when written anew, because heads are chosen for searches, too.
    if node_bytes(identity.level, &edges) <= PAGE {
        let mut again = vec![0; PAGE];
        encode(&identity, &edges, &mut again);
        let reread = decode(&identity, &again).expect("what was written is whole");
        assert_eq!(reread.edges(b""), edges);
    }
}

fn nodes() -> Vec<Vec<u8>> {
    let page = |level, edges: &Edges| {
        let mut page = vec![0; PAGE];
        encode(&NodeIdentity { table: TABLE, page: 77, incarnation: 5, level }, edges, &mut page);
        let used = page.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        page.truncate(used);
        page
    };
    let leaf = |page: u64| Pointer { length: 50, chain: 7, entries: 2, ..Pointer::to_node(page, page) };
    let keys = |list: &[&[u8]]| {
        let mut keys = Keys::default();
        list.iter().for_each(|key| keys.push(key));
        keys
    };
    let mut fenced = Edges::default();
    fenced.push(b"", leaf(1));
    let parts = Pointer { pages: 4, sorted: 2, length: 8000, keys_min: 2, ..leaf(300) };
    fenced.push_fenced(b"user/m", &keys(&[b"user/mo"]), parts);
    fenced.push(b"user/n-long-one", leaf(3));
    let filtered = Pointer { pages: 3, appended: true, filter: Shape::new(3, 1, 2, 400), ..leaf(400) };
    let mut filter = Maker::new(filtered.filter, 3, 1);
    filter.add_sorted(Hash::of(b"user/o"));
    filter.end(0, 7);
    fenced.push_leaf(b"user/o", &Keys::default(), &filter.finish(), Pointer { length: 5000, ..filtered });
    let (mut many, mut above) = (Edges::default(), Edges::default());
    for index in 0..60_u32 {
        let mixed = index.wrapping_mul(2_654_435_769);
        let due = Due::from_units(u64::from(mixed % 3) * 1_000_000_007);
        let length = 1 + mixed % 16_384;
        let pointer = Pointer { pages: 4, length, chain: mixed, appended: true, due, ..leaf(index.into()) };
        many.push(&(index * 40_503).to_be_bytes(), pointer);
        above.push(format!("a key of node {index:04}").as_bytes(), Pointer::to_node(mixed.into(), index.into()));
    }
    vec![page(1, &fenced), page(1, &many), page(2, &above)]
}

/// A pointer, and the pages of its leaf.
fn leaf(bytes: &[u8]) {
    let Some((head, pages)) = bytes.split_at_checked(LEAF_POINTER) else { return };
    let Some(mut pointer) = Pointer::decode_leaf(head) else { return };
    if pointer.published_bytes() > LEAF_BYTES_MAX {
        return;
    }
    let mut pages = pages.to_vec();
    pages.resize(pointer.published_bytes(), 0);
    let _ = Leaf::parse(&pages, &pointer, pointer.all(), Link::default(), TABLE);
    sign_leaf(&mut pages, &mut pointer);
    let mut encoded = Vec::new();
    pointer.encode_leaf(&mut encoded);
    // Signing has moved the end of the runs, and the runs of such a leaf may not be allowed to end there.
    if Pointer::decode_leaf(&encoded) != Some(pointer) {
        return;
    }
    let pages = &pages[..pointer.published_bytes()];
    let _ = check_tail(&pages[pages.len() - PAGE..], &pointer, TABLE);
    let Ok(whole) = Leaf::parse(pages, &pointer, pointer.all(), Link::default(), TABLE) else {
        let _ = blocks(pages, &pointer, |_| Link::default());
        return;
    };
    let visible = whole.visible(&pointer).expect("it ends as its pointer says");
    look(&visible, &pointer);
    visible.runs().for_each(|(_, _, run)| write_again(&run));
    let same = |joined: &Leaf, pointer: &Pointer| {
        let seen = joined.visible(pointer).expect("the blocks are all of it");
        assert!(seen.runs().map(|(at, ..)| at).eq(visible.runs().map(|(at, ..)| at)));
    };
    if let Ok(blocks) = blocks(pages, &pointer, |_| Link::default()) {
        same(&Leaf::joined(&blocks, &pointer).expect("whole blocks"), &pointer);
    }
    filtered(pages, &pointer, &visible, same);
}

/// The blocks of a leaf, each parsed by itself.
fn blocks(
    pages: &[u8], pointer: &Pointer, link: impl Fn(usize) -> Link,
) -> Result<Vec<Arc<Leaf>>, crate::format::Damage> {
    let block = |block| {
        let (of, link) = (pointer.block(block), link(block));
        let parsed = Leaf::parse(&pages[of.clone()], pointer, of, link, TABLE)?;
        if let Some(seen) = parsed.seen(pointer, block, link.end) {
            look(&seen, pointer);
        }
        Ok(Arc::new(parsed))
    };
    (0..pointer.blocks()).map(block).collect()
}

/// The same leaf with a filter: its blocks are the same, and every key is found in them.
fn filtered(pages: &[u8], pointer: &Pointer, whole: &Visible<'_>, same: impl Fn(&Leaf, &Pointer)) {
    let entries = pointer.entries as usize;
    let pointer = Pointer { filter: Shape::new(pointer.pages, pointer.sorted, entries, pages.len()), ..*pointer };
    let mut maker = Maker::new(pointer.filter, pointer.pages, pointer.sorted);
    let mut last: Option<(u32, u32)> = None;
    for (start, _, run) in whole.runs() {
        let page = u32::try_from(start / PAGE).expect("short");
        if let Some((before, crc)) = last.filter(|(before, _)| *before != page) {
            if page > before + 1 {
                return;
            }
            page.checked_sub(pointer.sorted).into_iter().for_each(|place| maker.end(place as usize, crc));
        }
        last = RunHeader::decode(&pages[start..]).ok().flatten().map(|header| (page, header.crc));
        for key in (0..run.count()).filter_map(|index| run.key(index)).map(|(key, _)| Hash::of(key)) {
            if pointer.begins_page(start) { maker.add_sorted(key) } else { maker.add_appended(key, page) }
        }
    }
    if pointer.filter.is_none() || whole.check_order().is_err() {
        return;
    }
    let bytes = maker.finish();
    let filter = Filter::new(&pointer, &bytes);
    whole.check_filter(&pointer, &filter).expect("every key is in it");
    let blocks = blocks(pages, &pointer, |block| filter.link(block)).expect("every block is whole");
    same(&Leaf::joined(&blocks, &pointer).expect("whole blocks"), &pointer);
}

/// Makes the checksums of all runs right as far as there are any, and the pointer end with the last of them.
fn sign_leaf(pages: &mut [u8], pointer: &mut Pointer) {
    let identity = Identity { incarnation: pointer.incarnation, table: TABLE };
    let (mut at, mut previous, mut end) = (0, 0, pointer.length as usize);
    while at < end {
        let page_end = (at / PAGE + 1) * PAGE;
        if page_end - at < RUN_HEADER {
            at = page_end;
            continue;
        }
        match RunHeader::decode(&pages[at..page_end]) {
            Ok(Some(header)) => {
                let position = u32::try_from(at).expect("a leaf is shorter than 4 GiB");
                let follows = if pointer.begins_page(at) { 0 } else { previous };
                let run = &mut pages[at..at + usize::from(header.length)];
                previous = sign_run(run, &identity, position, follows);
                at += run.len();
                (pointer.length, pointer.chain) = (u32::try_from(at).expect("the same"), previous);
            }
            Ok(None) => at = page_end,
            Err(_) => end = at,
        }
    }
}

/// Searches a leaf in every way.
fn look(visible: &Visible<'_>, pointer: &Pointer) {
    let (sorted, rises) = (visible.sorted(), visible.check_order().is_ok());
    let mut entries = Vec::new();
    let whole = visible.entries(&mut entries).is_ok();
    assert_eq!(sorted.is_ok(), whole);
    assert!(visible.tail().len() <= PAGE);
    let _ = visible.check_fences(pointer, &[]);
    for update in entries.iter().step_by(1 + entries.len() / 32) {
        let found = visible.find(update.key, Seq::MAX);
        // Searches may miss entries that do not rise.
        assert!(!(whole && rises) || found.is_ok_and(|found| found.is_some_and(|found| found.seq >= update.seq)));
        let mut versions = Vec::new();
        let found = visible.versions(update.key, &mut versions);
        assert!(!(whole && rises) || (found.is_ok() && versions.contains(update)));
        let _ = (visible.is_beyond(update.key, true), visible.is_beyond(update.key, false));
    }
    for key in [&b""[..], b"key", &[0xff; 1024]] {
        let _ = visible.find(key, Seq(5));
    }
    for (_, _, run) in visible.runs() {
        let _ = run.ends();
        for prefix in [0, 1, 8] {
            let strip = run.strip(0..run.count(), prefix);
            assert!(strip.is_none_or(|strip| strip.entries().len() == run.count()));
        }
    }
}

/// The entries of a run, if they are whole, come back from a run that is made of them.
fn write_again(run: &Run<'_>) {
    let Some(updates) = (0..run.count()).map(|index| run.entry(index)).collect::<Option<Vec<Update<'_>>>>() else {
        return;
    };
    // Entries of a damaged run may lie over one another, and then not fit a page.
    let Some(plan) = Plan::fit(updates.iter().copied(), PAGE).filter(|plan| plan.count == updates.len()) else {
        return;
    };
    let mut again = vec![0; plan.bytes];
    plan.encode(updates.iter().copied(), &Identity { incarnation: 1, table: TABLE }, 0, 0, &mut again);
    let header = RunHeader::decode(&again).expect("what was written is whole").expect("a run");
    let again = Run::new(&again, &header);
    assert!((0..again.count()).map(|index| again.entry(index)).eq(updates.into_iter().map(Some)));
}

/// A leaf of these runs, appended one after the other, behind its pointer.
fn leaf_of(pages: u32, runs: &[Vec<(Vec<u8>, Operation<'_>)>]) -> Vec<u8> {
    let mut bytes = vec![0; pages as usize * PAGE];
    let mut pointer = Pointer { pages, appended: true, ..Pointer::to_node(5, 9) };
    let identity = Identity { incarnation: 9, table: TABLE };
    for (seq, run) in (1..).zip(runs) {
        let updates = || run.iter().map(|(key, operation)| Update { key, seq: Seq(seq), operation: *operation });
        let mut at = pointer.length as usize;
        let plan = Plan::fit(updates(), PAGE).expect("a run");
        if at % PAGE + plan.bytes > PAGE {
            at = at.next_multiple_of(PAGE);
        }
        let number = |value| u32::try_from(value).expect("small");
        let out = &mut bytes[at..at + plan.bytes];
        pointer.chain = plan.encode(updates(), &identity, number(at), pointer.chain, out);
        (pointer.length, pointer.entries) = (number(at + plan.bytes), pointer.entries + number(plan.count));
    }
    let mut encoded = Vec::new();
    pointer.encode_leaf(&mut encoded);
    encoded.extend_from_slice(&bytes[..pointer.length as usize]);
    encoded
}

fn leaves() -> Vec<Vec<u8>> {
    let document = DocPointer { segment: SegmentId(2), offset: 8, length: DocLength::plain(9000), crc: 1 };
    let inline = |value| Operation::Put(Payload::Inline(value), None);
    let expiring = |payload| Operation::Put(payload, Expiry::at(1_800_000_000_000));
    let operations = [
        inline(b"value"),
        inline(b""),
        Operation::Delete,
        Operation::Put(Payload::Document(document), None),
        expiring(Payload::Inline(b"value")),
        expiring(Payload::Document(document)),
    ];
    let mixed = |from: u8| {
        let entry = |key: u8| (vec![b'a' + key; 1 + usize::from(key)], operations[usize::from(key % 6)]);
        (from..from + 9).map(entry).collect::<Vec<_>>()
    };
    let uniform = |from: u64| (from..from + 150).map(|key| (key.to_be_bytes().to_vec(), inline(b"8 bytes."))).collect();
    vec![
        leaf_of(1, &[mixed(0)]),
        leaf_of(1, &[mixed(0), mixed(4), mixed(9)]),
        leaf_of(2, &[uniform(0), uniform(100), mixed(3)]),
        leaf_of(2, &[vec![(vec![7; 1024], inline(&[1; 2048]))], vec![(vec![8; 1024], inline(&[1; 2048]))]]),
    ]
}

fn table_of(bytes: &[u8]) -> TableId {
    TableId(u32_at(bytes, 12).unwrap_or(0))
}

fn root(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() < 9 {
        return;
    }
    let _ = Root::decode(&bytes, table_of(&bytes));
    sign_record(&mut bytes);
    let table = table_of(&bytes);
    if let Ok(root) = Root::decode(&bytes, table) {
        assert_eq!(Root::decode(&root.encode(table), table), Ok(root));
    }
}

fn a_root(height: u8) -> Root {
    let leaf =
        Pointer { length: 100, chain: 3, entries: 2, keys_min: 1, due: Due::from_units(7), ..Pointer::to_node(5, 9) };
    let pointer = match height {
        0 => None,
        1 => Some(leaf),
        _ => Some(Pointer { due: Due::from_units(1 << 30), ..Pointer::to_node(70_000, 1 << 40) }),
    };
    Root { height, pointer, leaf_pages: if height == 2 { LEAF_PAGES_MAX } else { 4 }, expires: height == 1 }
}

fn roots() -> Vec<Vec<u8>> {
    (0..3).map(|height| a_root(height).encode(TABLE)).collect()
}

fn redo(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() < REDO_HEADER + ROOT_BYTES {
        return;
    }
    let table = table_of(&bytes);
    let _ = Redo::decode(&bytes, table);
    // The root in the redo has a checksum and a table of its own.
    bytes.copy_within(12..16, REDO_HEADER + 12);
    sign_record(&mut bytes[REDO_HEADER..REDO_HEADER + ROOT_BYTES]);
    sign_record(&mut bytes);
    if let Ok(redo) = Redo::decode(&bytes, table) {
        let mut expected = redo.clone();
        // An extent of no pages is part of no list.
        for list in [&mut expected.allocated, &mut expected.retired] {
            list.retain(|extent| extent.pages > 0);
        }
        assert_eq!(Redo::decode(&redo.encode(table), table), Ok(expected));
    }
}

/// The redo of a batch that left a tree with this root record as it is.
#[must_use]
pub fn unchanged(root: &[u8], table: TableId) -> Vec<u8> {
    let root = Root::decode(root, table).expect("a root record of that table");
    Redo { root, allocated: vec![], retired: vec![] }.encode(table)
}

fn redos() -> Vec<Vec<u8>> {
    let extents = |list: &[(u64, u32)]| list.iter().map(|(page, pages)| Extent::new(PageId(*page), *pages)).collect();
    let redo = |height, allocated: &[(u64, u32)], retired: &[(u64, u32)]| {
        Redo { root: a_root(height), allocated: extents(allocated), retired: extents(retired) }.encode(TABLE)
    };
    vec![redo(0, &[], &[]), redo(1, &[(5, 2), (70_000, 65_535)], &[(1, 1)]), redo(2, &[(9, 1)], &[(5, 2), (30, 4)])]
}
