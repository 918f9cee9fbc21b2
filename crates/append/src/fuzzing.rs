//! Targets for a fuzzer. For tests of the workspace alone.
//!
//! Each target takes bytes that were an encoding before something changed them. The target (1) puts right checksums on
//! them, (2) reads them, (3) searches the result, and (4) writes the result again, which must give the same bytes.

use doclog::{DocImage, DocLength, DocPointer, Retained, SegmentId};
use index::due::Due;
use index::{Expiry, Operation, Payload, Seq, TableId, Time, Update};

use crate::format::Link;
use crate::format::node::{Group, Node, encode, put_child, put_keys, put_tree};
use crate::format::record::{Commit, Header, Redo, Root, Shape, sign};

/// A name, the function that takes bytes, and the encodings to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All encodings of tries that are read from a disk.
pub const TARGETS: &[Target] = &[("append_node", node, nodes), ("append_record", record, records)];

const TABLE: TableId = TableId(3);

fn pointer(number: u64) -> DocPointer {
    DocPointer {
        segment: SegmentId(1 + number % 3),
        offset: 4096 * number,
        length: DocLength::from_bits(4000 + number),
        crc: 0x0102_0304,
    }
}

fn link(number: u64) -> Link {
    let filter: Box<[u8]> = if number.is_multiple_of(3) { Box::default() } else { [1, 2].into() };
    Link { pointer: pointer(number), due: Due::from_units(number % 2 * (1 << 30)), filter }
}

/// The length of chunks, and a node.
fn node(bytes: &[u8]) {
    let Some((chunk_bytes, bytes)) = bytes.split_first() else { return };
    let chunk_bytes = usize::from(*chunk_bytes).max(1);
    let Ok(node) = Node::decode(bytes, chunk_bytes) else { return };
    let mut entries = Vec::new();
    for index in 0..node.len() {
        let (begin, bound) = (entries.len(), node.bound(index));
        if node.level() > 0 {
            assert_eq!(node.child_of(bound), index);
            put_child(&mut entries, bound, &node.link(index).expect("a child"));
        } else {
            assert_eq!(node.group_of(bound), Some(index));
            put_group(&mut entries, bound, &node, index);
        }
        assert_eq!(entries[begin..], *node.entry(index), "an entry has one encoding");
    }
    for probe in [&b""[..], b"m", &[0xff; 40]] {
        assert!(node.level() == 0 || node.child_of(probe) < node.len());
        assert!(node.group_of(probe).is_none_or(|index| node.bound(index) == probe));
    }
    assert!(node.counts().1 <= node.counts().0);
    assert!(node.due(Time(0)) <= node.own_due(Time(0)) || node.own_due(Time(0)).is_none());
    assert_eq!(encode(node.level(), node.skip(), node.len(), &entries), bytes, "a node has one encoding");
}

fn put_group(out: &mut Vec<u8>, chunk: &[u8], node: &Node, index: usize) {
    let keys = match node.group(index) {
        Group::Tree(_) => return put_tree(out, chunk, &node.link(index).expect("a tree")),
        Group::Keys(keys) => keys,
    };
    let mut versions = Vec::new();
    for (rest, of_key) in keys.iter() {
        let first = versions.len();
        versions.extend(of_key.map(|(seq, operation)| Update { key: rest, seq, operation }));
        versions[first..].reverse();
        assert!(keys.find(rest).is_some_and(|found| found.count() == versions.len() - first));
    }
    put_keys(out, chunk, &versions);
}

fn nodes() -> Vec<Vec<u8>> {
    let mut children = Vec::new();
    for number in 0..40_u64 {
        put_child(&mut children, format!("{number:02}").as_bytes(), &link(number));
    }
    let put = |value| Operation::Put(Payload::Inline(value), None);
    let version = |key, seq, operation| Update { key, seq: Seq(seq), operation };
    let mut groups = Vec::new();
    put_keys(&mut groups, b"abcd", &[version(b"", 7, put(b"1")), version(b"", 300, Operation::Delete)]);
    let document = Operation::Put(Payload::Document(pointer(9)), None);
    put_keys(&mut groups, b"abce", &[version(b"f", 1 << 40, put(&[5; 100])), version(b"fg", 6, document)]);
    put_tree(&mut groups, b"abcf", &link(77));
    let expiring = Operation::Put(Payload::Inline(b"soon"), Expiry::at(1 << 40));
    put_keys(&mut groups, b"x", &[version(b"", 8, put(b"")), version(b"", 9, expiring)]);
    let with = |chunk_bytes: u8, node: Vec<u8>| [&[chunk_bytes][..], &node].concat();
    vec![with(8, encode(2, b"12345678", 40, &children)), with(4, encode(0, b"", 4, &groups))]
}

/// A root record or a redo.
fn record(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() < 8 {
        return;
    }
    sign(&mut bytes);
    if let Ok(root) = Root::decode(&bytes, TABLE) {
        assert_eq!(root.encode(), bytes, "a root record has one encoding");
    }
    if let Ok(redo) = Redo::decode(&bytes, TABLE) {
        assert_eq!(redo.encode(), bytes, "a redo has one encoding");
    }
}

fn records() -> Vec<Vec<u8>> {
    let empty = Header::empty(TABLE, 8);
    let shape = Shape { leaves: 5, leaf_bytes: 600, versions: 70, keys: 60, ..Shape::default() };
    let before = Some(pointer(4));
    let header =
        Header { number: 6, through: Seq(90), shape, live_bytes: 9000, root: Some(pointer(5)), before, ..empty };
    let commit = Commit { place: Some(pointer(6)), header };
    let retained = |number| Retained { segment: SegmentId(number), bytes: 64, end: 4096 };
    let redo = Redo {
        commit,
        made: vec![retained(1), retained(2)],
        dropped: vec![(SegmentId(1), 8000)],
        documents: vec![retained(3)],
    };
    let new = Root { commit: Commit { place: None, header: empty }, nodes: DocImage::default() };
    vec![new.encode(), Root { commit, nodes: DocImage::default() }.encode(), redo.encode()]
}
