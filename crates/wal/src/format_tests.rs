//! Golden bytes, damage and nonsense.

use proptest::prelude::*;

use crate::Lsn;
use crate::format::{
    BadSegment, GROUP_HEADER, GroupHeader, GroupType, SEGMENT_HEADER, SegmentHeader, hex, push_record, record_space,
};

const DATABASE: [u8; 16] = *b"0123456789abcdef";
const GOLDEN: &str = include_str!("../tests/golden/format-1.hex");

fn segment_header() -> SegmentHeader {
    SegmentHeader { database: DATABASE, number: 3, segment_bytes: 65536, epoch: 7 }
}

fn group_at(lsn: Lsn) -> Vec<u8> {
    let mut bytes = vec![0; GROUP_HEADER];
    push_record(&mut bytes, 1, Some(0), [&b"bra"[..], b"id"], 5);
    push_record(&mut bytes, 200, None, [], 0);
    push_record(&mut bytes, 2, Some(1), [&b"flash"[..]], 5);
    let header = GroupHeader {
        kind: GroupType::Records,
        length: u32::try_from(bytes.len()).expect("small"),
        records: 3,
        lsn,
        epoch: 7,
        durable: Lsn(4096),
        first_seq: 41,
    };
    header.seal(&DATABASE, &mut bytes);
    bytes
}

fn empty_group(kind: GroupType, lsn: Lsn) -> Vec<u8> {
    let mut bytes = vec![0; GROUP_HEADER];
    let header = GroupHeader { kind, length: 56, records: 0, lsn, epoch: 7, durable: Lsn(0), first_seq: 43 };
    header.seal(&DATABASE, &mut bytes);
    bytes
}

#[test]
fn bytes_are_the_golden_ones() {
    let lsn = Lsn(3 * 65536 + 4096);
    let header = segment_header().encode();
    assert!(header[68..].iter().all(|byte| *byte == 0));
    let lines = [
        ("segment", hex(&header[..68])),
        ("records", hex(&group_at(lsn))),
        ("pad", hex(&empty_group(GroupType::Pad, lsn))),
        ("opening", hex(&empty_group(GroupType::Opening, lsn))),
        ("closing", hex(&empty_group(GroupType::Closing, lsn))),
    ];
    let found: String = lines.map(|(name, bytes)| format!("{name} {bytes}\n")).concat();
    assert_eq!(found, GOLDEN, "the format changed: that needs a new version");
}

#[test]
fn headers_come_back() {
    let block = segment_header().encode();
    assert_eq!(SegmentHeader::decode(&block), Ok(segment_header()));
    let lsn = Lsn(3 * 65536 + 4096);
    let bytes = [group_at(lsn), vec![9; 100]].concat();
    let group = GroupHeader::open(&DATABASE, lsn, &bytes).expect("whole");
    assert_eq!((group.header.epoch, group.header.durable, group.next_seq), (7, Lsn(4096), 43));
    let records: Vec<_> = group.records.clone().collect();
    let shown: Vec<_> = records.iter().map(|record| (record.kind, record.seq, record.payload)).collect();
    assert_eq!(shown, [(1, 41, &b"braid"[..]), (200, 0, b""), (2, 42, b"flash")]);
    let first = Lsn(lsn.0 + GROUP_HEADER as u64);
    let second = Lsn(first.0 + record_space(5) as u64);
    assert_eq!((records[0].lsn, records[1].lsn), (first, second));
    let mut late = group.records;
    late.skip_before(Lsn(first.0 + 1));
    assert_eq!(late.next().map(|record| record.lsn), Some(second));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let lsn = Lsn(4096);
    let whole = group_at(lsn);
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(GroupHeader::open(&DATABASE, lsn, &bytes).is_err(), "bit {bit}");
    }
    let whole = segment_header().encode();
    for bit in 0..68 * 8 {
        let mut block = whole;
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(SegmentHeader::decode(&block), Err(BadSegment::Flaw(_))), "bit {bit}");
    }
}

#[test]
fn a_group_counts_only_where_and_for_whom_it_was_written() {
    let bytes = group_at(Lsn(8192));
    assert!(GroupHeader::open(&DATABASE, Lsn(8192), &bytes).is_ok());
    let moved = GroupHeader::open(&DATABASE, Lsn(8200), &bytes).expect_err("elsewhere");
    assert_eq!(moved.what, "group position");
    let foreign = GroupHeader::open(b"another database", Lsn(8192), &bytes).expect_err("foreign");
    assert_eq!(foreign.what, "group header checksum");
    let cut = GroupHeader::open(&DATABASE, Lsn(8192), &bytes[..bytes.len() - 8]).expect_err("cut");
    assert_eq!(cut.what, "group length");
}

#[test]
fn a_newer_segment_is_called_newer() {
    let mut block = segment_header().encode();
    block[10] = 9;
    let crc = checksum::crc32c(&block[..64]);
    block[64..68].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&block), Err(BadSegment::Newer(9)));
}

proptest! {
    /// Nonsense with good checksums, which only a bug or malice could write, is refused or walked without a panic.
    #[test]
    fn sealed_nonsense_does_not_panic(
        content in proptest::collection::vec(prop_oneof![3 => Just(0u8), 2 => 0u8..20, 1 => any::<u8>()], 0..120),
        records in 0u32..4,
        first_seq in prop_oneof![any::<u64>(), Just(u64::MAX)],
    ) {
        let mut bytes = vec![0; GROUP_HEADER];
        bytes.extend_from_slice(&content);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let length = u32::try_from(bytes.len()).expect("small");
        let header = GroupHeader {
            kind: GroupType::Records, length, records, lsn: Lsn(4096), epoch: 1, durable: Lsn(0), first_seq,
        };
        header.seal(&DATABASE, &mut bytes);
        if let Ok(group) = GroupHeader::open(&DATABASE, Lsn(4096), &bytes) {
            let count = group.records.clone().count();
            prop_assert_eq!(count, records as usize);
            let space: usize = group.records.map(|record| record_space(record.payload.len())).sum();
            prop_assert_eq!(space, bytes.len() - GROUP_HEADER);
        }
    }

    /// Arbitrary bytes do not cause a panic.
    #[test]
    fn any_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2 * SEGMENT_HEADER)) {
        let _ = SegmentHeader::decode(&bytes);
        prop_assert!(GroupHeader::open(&DATABASE, Lsn(4096), &bytes).is_err());
    }

    /// Pushed records come back.
    #[test]
    fn records_come_back(payloads in proptest::collection::vec((1u8.., any::<bool>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..10)) {
        let mut bytes = vec![0; GROUP_HEADER];
        let mut sequenced = 0;
        for (kind, has_seq, payload) in &payloads {
            let length = u32::try_from(payload.len()).expect("small");
            push_record(&mut bytes, *kind, has_seq.then_some(sequenced), [payload.as_slice()], length);
            sequenced += u32::from(*has_seq);
        }
        let length = u32::try_from(bytes.len()).expect("small");
        let records = u32::try_from(payloads.len()).expect("small");
        let header = GroupHeader {
            kind: GroupType::Records, length, records, lsn: Lsn(4096), epoch: 1, durable: Lsn(0), first_seq: 1,
        };
        header.seal(&DATABASE, &mut bytes);
        let group = GroupHeader::open(&DATABASE, Lsn(4096), &bytes).expect("whole");
        prop_assert_eq!(group.next_seq, 1 + u64::from(sequenced));
        let shown: Vec<_> = group.records.map(|record| (record.kind, record.seq != 0, record.payload.to_vec())).collect();
        prop_assert_eq!(shown, payloads);
    }
}
