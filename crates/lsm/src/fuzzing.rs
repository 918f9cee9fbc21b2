//! Targets for a fuzzer. For tests of the workspace alone.
//!
//! Each target takes bytes that were an encoding before something changed them. The target (1) puts right checksums on
//! them, where they have any, (2) reads them, (3) searches the result, and (4) writes the result again, if that gives
//! the same bytes by its nature.

use doclog::{Compression, DocLength, DocPointer, SegmentId};
use index::{Expiry, Operation, Payload, Seq, TableId, Update};

use crate::format::block::{self, Block, Builder};
use crate::format::edit::{self, Edit, Entry, Record};
use crate::format::fences::{self, Fences, Maker, Tombstones};
use crate::format::filter::{self, Filter, Hash};
use crate::format::footer::Footer;
use crate::format::{Place, stored};

/// A name, the function that takes bytes, and the encodings to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All encodings of a file that are read from a disk.
pub const TARGETS: &[Target] = &[
    ("lsm_block", block, blocks),
    ("lsm_fences", fences, all_fences),
    ("lsm_filter", filter, filters),
    ("lsm_footer", footer, footers),
    ("lsm_record", record, records),
    ("lsm_stored", stored, all_stored),
];

const PROBES: [&[u8]; 5] = [b"", b"key", b"key 7", b"m", &[0xff; 40]];

fn block(bytes: &[u8]) {
    let Ok(shape) = block::Shape::of(bytes) else { return };
    let block = Block::new(bytes, shape);
    let keys: Vec<Vec<u8>> = (0..block.len()).map(|index| [block.shared(), block.rest(index)].concat()).collect();
    let is_behind = |one: usize| {
        let rises = keys[one] < keys[one + 1];
        rises || (keys[one] == keys[one + 1] && block.seq(one) > block.seq(one + 1))
    };
    let mut builder = Builder::new();
    let is_in_order = (1..block.len()).all(|index| is_behind(index - 1));
    for (index, key) in keys.iter().enumerate() {
        let update = Update { key, seq: block.seq(index), operation: block.operation(index) };
        if is_in_order && builder.bytes_with(&update).is_some() {
            assert!(block.find(key, update.seq) == Some(index) && block.is_of(index, key));
            builder.push(&update);
        }
    }
    for probe in PROBES {
        assert!(block.seek(probe) <= block.seek_behind(probe) && block.seek_behind(probe) <= block.len());
        assert!(block.find(probe, Seq::MAX).is_none_or(|index| keys[index] == probe));
    }
    if is_in_order {
        let mut out = Vec::new();
        builder.finish(&mut out);
        assert!(out.len() <= bytes.len(), "no block is shorter than that of the writer");
    }
}

fn blocks() -> Vec<Vec<u8>> {
    let put = |value| Operation::Put(Payload::Inline(value), None);
    let pointer = DocPointer { segment: SegmentId(7), offset: 4096, length: DocLength::plain(5000), crc: 0x0102_0304 };
    let version = |key, seq, operation| Update { key, seq: Seq(seq), operation };
    let of = |versions: &[Update<'_>]| {
        let (mut builder, mut out) = (Builder::new(), Vec::new());
        versions.iter().for_each(|version| builder.push(version));
        builder.finish(&mut out);
        out
    };
    let plain: Vec<_> = [&b"key 1"[..], b"key 2", b"key 7"].map(|key| version(key, 9, put(b"value"))).into();
    let mixed = [
        version(b"a", 1 << 40, Operation::Delete),
        version(b"a", 3, Operation::Put(Payload::Inline(b"soon"), Expiry::at(1 << 41))),
        version(b"ab", 7, Operation::Put(Payload::Document(pointer), None)),
        version(b"b", 8, Operation::Put(Payload::Document(pointer), Expiry::at(5))),
        version(b"c", u64::MAX, put(b"")),
    ];
    vec![of(&plain), of(&mixed)]
}

/// The number of places, and fences.
fn fences(bytes: &[u8]) {
    let Some((places, bytes)) = bytes.split_first() else { return };
    let places = usize::from(*places);
    let Ok(shape) = fences::Shape::of(bytes, places) else { return };
    let fences = Fences::new(bytes, shape);
    for index in 0..fences.len() {
        let key = fences.key(index).concat();
        assert!(fences.is_key(index, &key));
        assert!(fences.seek(&key) < fences.len() && fences.seek_last(&key) < fences.len());
        let _ = fences.tombstones(index);
        (0..places).for_each(|which| drop(fences.place(index, which).encode().to_vec()));
    }
    PROBES.iter().for_each(|probe| assert!(fences.seek(probe) <= fences.seek_last(probe)));
}

fn all_fences() -> Vec<Vec<u8>> {
    let place = |number: u32| Place { offset: number * 4096, bytes: 4000, crc: 0x0a0b_0c0d };
    let none = Tombstones { count: 0, is_bare: false, newest: Seq(4) };
    let some = Tombstones { count: 70, is_bare: true, newest: Seq(1 << 33) };
    let (mut partition, mut top, mut out) = (Maker::<1>::new(), Maker::<2>::new(), [vec![1], vec![2]]);
    for (number, key) in (0..).zip([&b""[..], b"key 3", b"key 5", b"key 5", b"kez"]) {
        partition.push(key, [place(number)], none);
        top.push(key, [place(number), place(number + 9)], if number == 2 { some } else { none });
    }
    partition.finish(&mut out[0]);
    top.finish(&mut out[1]);
    out.into()
}

fn filter(bytes: &[u8]) {
    let Ok(filter) = Filter::decode(bytes) else { return };
    for probe in PROBES {
        let _ = filter.may_have(Hash::of(probe));
    }
}

fn filters() -> Vec<Vec<u8>> {
    let keys: Vec<_> = (0..200_u32).map(|number| Hash::of(&number.to_be_bytes())).collect();
    [20, 100, 200].into_iter().map(|tenths| filter::encode(&keys, tenths)).collect()
}

fn footer(bytes: &[u8]) {
    let Ok(mut bytes) = <[u8; Footer::BYTES]>::try_from(bytes) else { return };
    Footer::sign(&mut bytes);
    if let Ok(footer) = Footer::decode(&bytes) {
        assert_eq!(footer.encode(), bytes, "a footer has one encoding");
    }
}

const TABLE: TableId = TableId(3);
const FOOTER: Footer = Footer {
    table: TABLE,
    number: 70_000,
    top: Place { offset: 77_000, bytes: 500, crc: 5 },
    entries: 1000,
    tombstones: 10,
    documents: 2,
    blocks: 9,
    oldest: Seq(4),
    newest: Seq(1 << 40),
    due: None,
};

fn footers() -> Vec<Vec<u8>> {
    vec![FOOTER.encode().to_vec()]
}

/// A root record or a redo.
fn record(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() < 8 {
        return;
    }
    edit::sign(&mut bytes);
    for record in [Record::Root, Record::Redo] {
        if let Ok(edit) = Edit::decode(&bytes, record, TABLE) {
            assert_eq!(edit.encode(record), bytes, "a record has one encoding");
        }
    }
}

fn records() -> Vec<Vec<u8>> {
    let entry = |level, number: u64, low: &[u8], high: &[u8]| {
        let (low, high, footer) = (low.to_vec(), high.to_vec(), Footer { number, ..FOOTER });
        Entry { level, age: number, part: 0..70_000, entries: 77, low, high, file_bytes: 81_920, footer }
    };
    let added = vec![entry(0, 4, b"a", b"k"), entry(0, 5, b"c", b"c"), entry(6, 2, b"b", b"x")];
    let root = Edit { table: TABLE, next: 6, expires: true, removed: Vec::new(), added };
    vec![root.encode(Record::Root), Edit { removed: vec![1, 3], ..root }.encode(Record::Redo)]
}

fn stored(bytes: &[u8]) {
    if let Ok(block) = stored::get(bytes) {
        let mut again = Vec::new();
        stored::put(&mut again, &block, Compression::None);
        assert_eq!(stored::get(&again).ok().as_deref(), Some(&*block));
    }
}

fn all_stored() -> Vec<Vec<u8>> {
    let of = |compression| {
        let mut out = Vec::new();
        stored::put(&mut out, &[7; 2000], compression);
        out
    };
    Compression::ALL.into_iter().map(of).collect()
}
