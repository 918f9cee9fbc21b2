use codec::Fields;
use doclog::{DocLength, Retained, SegmentId};
use index::{DocPointer, Expiry, Operation, Payload, Seq, TableId, Time, Update};
use proptest::prelude::*;
use space::{Extent, PageId};
use wal::Lsn;

use super::{
    blocks::{applied, put_applied},
    samples::{self, a_table, applied_through, tombstones},
    *,
};

use crate::words::applied::AppliedThrough;

fn superblock() -> Superblock {
    let extent = Extent { page: PageId(7), pages: 2 };
    Superblock {
        database: *b"0123456789abcdef",
        generation: 3,
        epoch: 4,
        segment_bytes: 16 << 20,
        image: Some(ImagePlace { extent, length: 5000, crc: 0xdead_beef }),
        clean_end: Some(Lsn(0x0506)),
    }
}

#[test]
fn superblock_bytes_are_those_of_version_1() {
    let slot = superblock().encode();
    let mut golden = b"BRAIDSUP".to_vec();
    golden.extend_from_slice(&[1, 0, 0, 0]);
    golden.extend_from_slice(&slot[12..16]);
    golden.extend_from_slice(b"0123456789abcdef");
    golden.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    golden.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0x88, 0x13, 0, 0, 0xef, 0xbe, 0xad, 0xde]);
    golden.extend_from_slice(&[6, 5, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&slot[..golden.len()], golden);
    assert!(slot[golden.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(Superblock::decode(&slot), Ok(superblock()));
}

#[test]
fn any_flipped_bit_of_a_slot_is_noticed() {
    let slot = superblock().encode();
    for bit in 0..88 * 8 {
        let mut damaged = slot;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn applied_bytes_are_those_of_version_1() {
    let mut bytes = Vec::new();
    put_applied(&mut bytes, &applied_through());
    let steps: [&[u8]; 3] = [
        &[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[11, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'k'],
        &[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'm'],
    ];
    assert_eq!(bytes, [&[38, 0, 0, 0], &steps.concat()[..]].concat());
    assert_eq!(applied(&mut Fields(&bytes)), Some(applied_through()));
    assert_eq!(applied(&mut Fields(&[0; 4])), None);
}

#[test]
fn image_survives_encoding() {
    let dropped = TableImage { dropped: Seq(11), ..samples::table_image(6) };
    let image = samples::image((1..5).map(samples::table_image).collect(), vec![dropped]);
    let bytes = image.encode();
    assert_eq!(Image::decode(&bytes), Some(image));
    for length in 0..bytes.len() {
        assert_eq!(Image::decode(&bytes[..length]), None);
    }
}

#[test]
fn settings_of_a_structure_stand_as_pages_of_a_leaf_did_or_behind_their_length() {
    for (settings, bytes) in [
        (vec![], vec![0, 0, 0, 0]),
        (vec![16, 0, 0, 0], vec![16, 0, 0, 0]),
        (vec![255, 255, 255, 127], vec![255, 255, 255, 127]),
        (vec![0, 0, 0, 0], vec![4, 0, 0, 128, 0, 0, 0, 0]),
        (vec![0, 0, 0, 128], vec![4, 0, 0, 128, 0, 0, 0, 128]),
        (vec![7], vec![1, 0, 0, 128, 7]),
        (vec![7; 5], vec![5, 0, 0, 128, 7, 7, 7, 7, 7]),
    ] {
        let record = a_table(5, settings);
        let encoded = record.encode();
        let name_at = encoded.len() - "a table".len() - 4;
        assert_eq!(encoded[name_at - bytes.len()..name_at], bytes);
        assert_eq!(CreateTable::decode(&encoded), Some(record));
    }
    // Each has one way to be written.
    let encoded = a_table(5, vec![7]).encode();
    let at = encoded.len() - "a table".len() - 4 - 5;
    for others in [&[0, 0, 0, 128][..], &[4, 0, 0, 128, 16, 0, 0, 0], &[255, 255, 255, 255, 7]] {
        let bytes = [&encoded[..at], others, &encoded[at + 5..]].concat();
        assert_eq!(CreateTable::decode(&bytes), None, "{others:?}");
    }
}

#[test]
fn the_last_id_and_the_last_seq_are_none() {
    let create = |id| a_table(id, vec![1, 0, 0, 0]);
    assert!(CreateTable::decode(&create(u32::MAX - 1).encode()).is_some());
    assert_eq!(CreateTable::decode(&create(u32::MAX).encode()), None);
    let image = |visible| Image { visible: Seq(visible), ..samples::image(vec![], vec![]) };
    assert!(Image::decode(&image(u64::MAX - 1).encode()).is_some());
    assert_eq!(Image::decode(&image(u64::MAX).encode()), None);
    let longer = [&image(1).encode()[..], &[0]].concat();
    assert_eq!(Image::decode(&longer), None);
}

#[test]
fn a_flush_end_survives_encoding_in_any_number_of_pieces() {
    let document = DocPointer { segment: SegmentId(4), offset: 8, length: DocLength::plain(70_000), crc: 5 };
    let retained = Retained { segment: SegmentId(6), bytes: 70_024, end: 90_000 };
    let record = FlushEnd {
        table: TableId(7),
        time: Time(1_800_000_000_000),
        applied: applied_through(),
        redo: vec![3; 100],
        dropped: vec![document; 5],
        retained: vec![retained; 3],
        restored: Some(Restored { dropped: vec![(SegmentId(2), 88)], tombstones: tombstones() }),
    };
    for most in [9, 20, 100, 10_000] {
        let payloads = record.encode(most);
        let mut body = Vec::new();
        for (payload, number) in payloads.iter().zip(0..) {
            assert!(payload.len() <= most);
            let piece = FlushEndPiece::decode(payload).expect("decodes");
            assert_eq!((piece.table, piece.number), (TableId(7), number));
            body.extend_from_slice(piece.bytes);
        }
        assert_eq!(FlushEnd::decode(TableId(7), &body), Some(record.clone()));
    }
}

#[test]
fn flush_end_bytes_are_those_of_version_1() {
    let document = DocPointer { segment: SegmentId(4), offset: 8, length: DocLength::plain(70_000), crc: 5 };
    let record = FlushEnd {
        table: TableId(7),
        time: Time(0x0102_0304_0506),
        applied: AppliedThrough::new(Seq(9)),
        redo: vec![3, 4],
        dropped: vec![document],
        retained: vec![Retained { segment: SegmentId(6), bytes: 10, end: 11 }],
        restored: None,
    };
    let fields: [&[u8]; 10] = [
        &[7, 0, 0, 0, 0, 0, 0, 0],
        &[6, 5, 4, 3, 2, 1, 0, 0],
        &[12, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0, 3, 4],
        &[1, 0, 0, 0, 1, 0, 0, 0],
        &document.encode(),
        &[6, 0, 0, 0, 0, 0, 0, 0],
        &[10, 0, 0, 0, 0, 0, 0, 0],
        &[11, 0, 0, 0, 0, 0, 0, 0],
        &[0],
    ];
    assert_eq!(record.encode(1000), [fields.concat()]);
}

#[test]
fn a_commit_says_when_it_was_made_before_its_operations() {
    let mut payload = Vec::new();
    put_commit_time(&mut payload, Time(0x0102_0304_0506));
    assert_eq!(payload, [7, 6, 5, 4, 3, 2, 1, 0, 0]);
    put_operation(&mut payload, TableId(2), b"key", Operation::Delete);
    let mut read = Operations::new(&payload, Seq(6));
    assert_eq!(read.time, Time(0x0102_0304_0506));
    let update = Update { key: b"key", seq: Seq(6), operation: Operation::Delete };
    assert_eq!(read.next(), Some(Some((TableId(2), Logged::Update(update)))));
    assert_eq!(read.next(), None);
    // A part of a time is no time, and a commit has at most one.
    assert_eq!(Operations::new(&payload[..8], Seq(6)).next(), Some(None));
    assert_eq!(Operations::new(&[&payload[..9], &payload[..9]].concat(), Seq(6)).next(), Some(None));
}

#[test]
fn commit_operations_survive_encoding() {
    let document = DocPointer { segment: SegmentId(4), offset: 8, length: DocLength::plain(70_000), crc: 5 };
    let operations = [None, Expiry::at(0x0102_0304_0506)].map(|expiry| {
        [
            Operation::Put(Payload::Inline(b"v"), expiry),
            Operation::Put(Payload::Document(document), expiry),
            Operation::Delete,
        ]
    });
    let operations = operations.concat();
    let mut payload = Vec::new();
    put_delete_range(&mut payload, TableId(2), b"k", Some(b"l"));
    for operation in &operations {
        put_operation(&mut payload, TableId(2), b"key", *operation);
    }
    let mut read = Operations::new(&payload, Seq(6)).map(|item| item.expect("decodes"));
    let range = Logged::DeleteRange { low: b"k", high: Some(b"l") };
    assert_eq!(read.next(), Some((TableId(2), range)));
    for operation in operations {
        let update = Update { key: b"key", seq: Seq(6), operation };
        assert_eq!(read.next(), Some((TableId(2), Logged::Update(update))));
    }
    assert_eq!(read.next(), None);
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Image::decode(&bytes);
        let _ = FlushEnd::decode(TableId(1), &bytes);
        let _ = CreateTable::decode(&bytes);
        prop_assert!(Operations::new(&bytes, Seq(1)).count() <= bytes.len());
    }
}
