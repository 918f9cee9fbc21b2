//! Fuzz targets. For tests of the workspace alone.
//!
//! Each target takes the bytes of a mutated encoding, corrects their checksums, and decodes them. The decoded content
//! must come back when the target encodes and decodes it again.

use std::path::Path;
use std::sync::Arc;

use checksum::{crc32c, crc32c_append};
use psync::sim::SimDisk;
use psync::{Buffer, Request};
use space::{FileStore, StreamKind};

use crate::format::{
    ALIGNMENT, GROUP_HEADER, GroupHeader, GroupType, SEGMENT_HEADER, SegmentHeader, content_crc, push_record,
    record_space,
};
use crate::{Alone, Error, Lsn, Options, Verdict, Wal};

/// A name, the function under test, and the encodings that the fuzzer begins with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// A target for each format of the log that is read from a disk.
pub const TARGETS: &[Target] = &[
    ("wal_segment_header", segment_header, segment_headers),
    ("wal_group", group, groups),
    ("wal_segment", segment, segments),
];

const DATABASE: [u8; 16] = *b"sixteen bytes id";
const SEGMENT_BYTES: u64 = 16 << 10;

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().map_or(0, u64::from_le_bytes)
}

fn segment_header(bytes: &[u8]) {
    let _ = SegmentHeader::decode(bytes);
    let mut block = bytes.to_vec();
    block.resize(SEGMENT_HEADER, 0);
    put(&mut block, 0, b"BRAIDWAL");
    let crc = crc32c(&block[..64]);
    put(&mut block, 64, &crc.to_le_bytes());
    if let Ok(header) = SegmentHeader::decode(&block) {
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }
}

fn segment_headers() -> Vec<Vec<u8>> {
    let header = |number, epoch| SegmentHeader { database: DATABASE, number, segment_bytes: SEGMENT_BYTES, epoch };
    [header(0, 1), header(77, 5), header(1 << 40, u64::MAX)].map(|header| header.encode()[..80].to_vec()).to_vec()
}

/// Corrects the checksums of the group at the beginning; returns the length of the group, if within bounds.
fn sign(bytes: &mut [u8], lsn: u64) -> Option<usize> {
    if bytes.len() < GROUP_HEADER {
        return None;
    }
    put(bytes, 0, &[0xB7, b'W', b'G', b'R']);
    put(bytes, 16, &lsn.to_le_bytes());
    let length = usize::try_from(u64_at(bytes, 8) & u64::from(u32::MAX)).ok()?;
    let length = Some(length).filter(|length| (GROUP_HEADER..=bytes.len()).contains(length));
    if let Some(length) = length {
        let crc = content_crc(crc32c(&DATABASE), bytes, &bytes[GROUP_HEADER..length]);
        put(bytes, 48, &crc.to_le_bytes());
    }
    let crc = crc32c_append(crc32c(&DATABASE), &bytes[..52]);
    put(bytes, 52, &crc.to_le_bytes());
    length
}

fn group(bytes: &[u8]) {
    let _ = GroupHeader::open(&DATABASE, Lsn(0), bytes);
    let mut rest = bytes.to_vec();
    let lsn = u64_at(bytes, 16) % (1 << 62) / ALIGNMENT as u64 * ALIGNMENT as u64;
    sign(&mut rest, lsn);
    let whole = match GroupHeader::open(&DATABASE, Lsn(lsn), &rest) {
        Ok(whole) => whole,
        Err(flaw) => {
            assert!(!flaw.to_string().is_empty());
            return;
        }
    };
    let records: Vec<_> = whole.records.clone().collect();
    let mut again = vec![0; GROUP_HEADER];
    // Only the header of a record tells whether a record with seq 0 has a seq.
    let mut sequenced = 0;
    let flags = rest[GROUP_HEADER..].to_vec();
    let mut at = 0;
    for record in &records {
        let delta = (flags[at + 9] == 1).then_some(sequenced);
        sequenced += u32::from(delta.is_some());
        let length = u32::try_from(record.payload.len()).expect("a record is shorter than its group");
        push_record(&mut again, record.kind, delta, [record.payload], length);
        at += record_space(record.payload.len());
    }
    whole.header.seal(&DATABASE, &mut again);
    let reread = GroupHeader::open(&DATABASE, Lsn(lsn), &again).expect("what was written is whole");
    assert_eq!((reread.header, reread.next_seq), (whole.header, whole.next_seq));
    assert!(reread.records.eq(records));
}

fn groups() -> Vec<Vec<u8>> {
    let whole = |kind, payloads: &[(u8, bool, usize)]| {
        let (mut bytes, mut sequenced) = (vec![0; GROUP_HEADER], 0);
        for (kind, has_seq, length) in payloads {
            let payload = vec![*kind; *length];
            let delta = has_seq.then_some(sequenced);
            sequenced += u32::from(*has_seq);
            let length = u32::try_from(*length).expect("small");
            push_record(&mut bytes, *kind, delta, [payload.as_slice()], length);
        }
        let header = GroupHeader {
            kind,
            length: u32::try_from(bytes.len()).expect("small"),
            records: u32::try_from(payloads.len()).expect("few"),
            lsn: Lsn(SEGMENT_HEADER as u64),
            epoch: 1,
            durable: Lsn(0),
            first_seq: 5,
        };
        header.seal(&DATABASE, &mut bytes);
        bytes
    };
    vec![
        whole(GroupType::Records, &[(1, true, 0)]),
        whole(GroupType::Records, &[(1, true, 40), (2, false, 9), (1, true, 3), (7, true, 200)]),
        whole(GroupType::Records, &[(3, false, 1000)]),
        whole(GroupType::Pad, &[]),
        whole(GroupType::Opening, &[]),
        whole(GroupType::Closing, &[]),
        whole(GroupType::FirstPart, &[(1, false, 300)]),
        whole(GroupType::FurtherPart, &[(1, false, 5)]),
        whole(GroupType::LastPart, &[(1, true, 77)]),
    ]
}

/// Opens a log of one segment with these groups, one behind the other by the lengths that they state.
fn segment(bytes: &[u8]) {
    let mut content =
        SegmentHeader { database: DATABASE, number: 0, segment_bytes: SEGMENT_BYTES, epoch: 1 }.encode().to_vec();
    content.extend_from_slice(&bytes[..bytes.len().min(12 << 10)]);
    content.resize(content.len().next_multiple_of(ALIGNMENT), 0);
    let mut at = SEGMENT_HEADER;
    while at < content.len() {
        let lsn = at as u64;
        match sign(&mut content[at..], lsn) {
            Some(length) => at += length.next_multiple_of(ALIGNMENT),
            None => break,
        }
    }
    let disk = SimDisk::new(1);
    let store = FileStore::open(disk.psync(), Path::new("/db"), false).expect("a new directory");
    let file = store.create(StreamKind::Wal, "wal/0.log", false).expect("a new file");
    let write = Request::write(&file, 0, Buffer::from_slice(&content), 0);
    store.psync().run_all(vec![write]).expect("it is written");
    let options = Options { segment_bytes: SEGMENT_BYTES, read_only: true, ..Options::new(DATABASE, 2) };
    let mut shown = 0;
    let opened = Wal::open(&store, &options, Arc::new(Alone), &mut |group| {
        shown += group.records().map(|record| record.payload.len()).sum::<usize>();
        Ok::<_, Error>(Verdict::Accept)
    });
    match opened {
        Ok((_, replayed)) => assert_eq!(replayed.bytes, shown as u64),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(shown <= content.len());
}

fn segments() -> Vec<Vec<u8>> {
    let groups = groups();
    let chain: Vec<_> = groups.iter().filter(|group| group[4] != GroupType::Pad as u8).cloned().collect();
    let parts = groups[6..].concat();
    vec![groups[0].clone(), chain.concat(), [&chain[1..].concat()[..], &groups[3]].concat(), parts]
}
