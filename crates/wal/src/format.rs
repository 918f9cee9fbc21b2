//! The on-disk format of the log: all bytes that reach a disk.
//!
//! Integers are little-endian and of fixed width. Zero is never a valid type or kind.
//!
//! A segment file begins with a header block. The size of the block, the magic, the version and the place of the
//! checksum are the same in every version.
//!
//! ```text
//! segment header, 4096 bytes
//!   0   8  magic "BRAIDWAL"
//!   8   2  type: 1
//!  10   2  version: 1
//!  12   4  zero
//!  16  16  uuid of the database
//!  32   8  number of the segment
//!  40   8  LSN of its first byte = number * size
//!  48   8  size of a segment, bytes
//!  56   8  epoch that made it
//!  64   4  CRC-32C of bytes 0..64
//!  68      zero
//! ```
//!
//! Groups follow the header block without a gap, each at a multiple of 8. At the end of a segment, a rest shorter than
//! a group header is unused. Any longer rest is a pad group: a header alone, whose successor is the next segment.
//!
//! ```text
//! group header, 56 bytes
//!   0   4  magic B7 57 47 52
//!   4   1  type: 1 records, 2 pad, 3 opening of the log, 4 close of the log,
//!            5 first part of a record, 6 further part, 7 last part
//!   5   1  version: 1
//!   6   2  zero
//!   8   4  length of header and records, bytes, a multiple of 8
//!  12   4  number of records
//!  16   8  LSN of this group
//!  24   8  epoch that wrote it
//!  32   8  LSN up to which the log was durable when it was written
//!  40   8  seq that the first sequenced record has, or would have
//!  48   4  CRC-32C of uuid, LSN, epoch and all records
//!  52   4  CRC-32C of uuid and bytes 0..52
//!
//! record, at a multiple of 8, padded with zeros to one
//!   0   4  length of the payload, bytes
//!   4   4  seq less the group's first seq; 0 where it has none
//!   8   1  kind, the caller's, not 0
//!   9   1  1 if it has a seq, else 0
//!  10   2  zero
//!  12      payload
//! ```
//!
//! A record that is longer than a segment is cut into parts. Each part is a record of the same kind in a group of its
//! own, and these groups follow one another. Only the last part has a seq.

use std::fmt::{self, Display};
use std::path::PathBuf;

use checksum::{crc32c, crc32c_append, crc32c_append_all};
use codec::sized::{array, u16_at, u32_at, u64_at};
use space::FileDamage;

use crate::{Error, Lsn};

/// Size of the header block of a segment, and offset of the first group.
pub(crate) const SEGMENT_HEADER: usize = 4096;
/// Bytes of a group header.
pub(crate) const GROUP_HEADER: usize = 56;
/// Bytes of a record before its payload.
pub(crate) const RECORD_HEADER: usize = 12;
/// The version that this code writes, and the newest version that it reads.
pub(crate) const VERSION: u16 = 1;
/// Groups and records begin at multiples of this number of bytes.
pub(crate) const ALIGNMENT: usize = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"BRAIDWAL";
const SEGMENT_TYPE: u16 = 1;
/// The first bytes of a group.
pub(crate) const GROUP_MAGIC: [u8; 4] = [0xB7, b'W', b'G', b'R'];
const GROUP_VERSION: u8 = 1;

const _: () = assert!(GROUP_HEADER.is_multiple_of(ALIGNMENT) && SEGMENT_HEADER.is_multiple_of(ALIGNMENT));

/// The next multiple of 8.
pub(crate) const fn align(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

/// Log space of a record, bytes.
pub(crate) const fn record_space(payload: usize) -> usize {
    align(RECORD_HEADER + payload)
}

/// A failed check of bytes of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) what: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Flaw {
    pub(crate) fn new(what: &'static str, expected: impl Display, found: impl Display) -> Self {
        Self { what, expected: expected.to_string(), found: found.to_string() }
    }

    /// The error for this flaw at an offset of a file.
    pub(crate) fn at(self, file: PathBuf, offset: u64) -> Error {
        Error::Corrupt(FileDamage::new(file, offset, self.what, self.expected, self.found))
    }
}

impl Display for Flaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: expected {}, found {}", self.what, self.expected, self.found)
    }
}

/// Returns a [`Flaw`] unless `good`. The texts are built only for a flaw, because a log has millions of things to
/// check.
macro_rules! ensure {
    ($good:expr, $what:expr, $expected:expr, $found:expr $(,)?) => {
        if !$good {
            return Err(Flaw::new($what, $expected, $found));
        }
    };
}

/// Header of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) database: [u8; 16],
    pub(crate) number: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) epoch: u64,
}

/// Why a header block is not the header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadSegment {
    /// The block is no segment header: zero, torn, or other bytes.
    Flaw(Flaw),
    /// The block is a whole header of a version that this code does not know.
    Newer(u16),
}

impl SegmentHeader {
    /// The header block.
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut block = [0; SEGMENT_HEADER];
        block[0..8].copy_from_slice(&SEGMENT_MAGIC);
        block[8..10].copy_from_slice(&SEGMENT_TYPE.to_le_bytes());
        block[10..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..32].copy_from_slice(&self.database);
        block[32..40].copy_from_slice(&self.number.to_le_bytes());
        block[40..48].copy_from_slice(&(self.number * self.segment_bytes).to_le_bytes());
        block[48..56].copy_from_slice(&self.segment_bytes.to_le_bytes());
        block[56..64].copy_from_slice(&self.epoch.to_le_bytes());
        let crc = crc32c(&block[..64]);
        block[64..68].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Decodes a header block; a block that is cut short is a flaw.
    pub(crate) fn decode(block: &[u8]) -> Result<Self, BadSegment> {
        let flaw =
            |what, expected: &dyn Display, found: &dyn Display| BadSegment::Flaw(Flaw::new(what, expected, found));
        if block.len() < SEGMENT_HEADER {
            return Err(flaw("segment header cut short", &SEGMENT_HEADER, &block.len()));
        }
        if block[0..8] != SEGMENT_MAGIC {
            return Err(flaw("segment magic", &hex(&SEGMENT_MAGIC), &hex(&block[0..8])));
        }
        let crc = crc32c(&block[..64]);
        if crc != u32_at(block, 64) {
            return Err(flaw("segment header checksum", &hex32(crc), &hex32(u32_at(block, 64))));
        }
        let version = u16_at(block, 10);
        if version > VERSION {
            return Err(BadSegment::Newer(version));
        }
        let header = Self {
            database: array(block, 16),
            number: u64_at(block, 32),
            segment_bytes: u64_at(block, 48),
            epoch: u64_at(block, 56),
        };
        if u16_at(block, 8) != SEGMENT_TYPE || version == 0 {
            return Err(flaw("segment type", &SEGMENT_TYPE, &u16_at(block, 8)));
        }
        if header.number.checked_mul(header.segment_bytes) != Some(u64_at(block, 40)) {
            return Err(flaw("segment base", &"number * size", &u64_at(block, 40)));
        }
        Ok(header)
    }
}

/// The purpose of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum GroupType {
    /// The group holds records.
    Records = 1,
    /// The rest of the segment is unused.
    Pad = 2,
    /// The log was opened here: groups of an earlier epoch behind this position are dead.
    Opening = 3,
    /// The log was closed here, and nothing was written behind this position. The group is no part of the log, so the
    /// next opening writes over the group.
    Closing = 4,
    /// The group holds the first part of a record that is longer than a segment.
    FirstPart = 5,
    /// The group holds a part between the first and the last.
    FurtherPart = 6,
    /// The group holds the last part.
    LastPart = 7,
}

impl GroupType {
    fn from_byte(byte: u8) -> Option<Self> {
        use GroupType::*;
        let all = [Records, Pad, Opening, Closing, FirstPart, FurtherPart, LastPart];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether the group holds a part of a record, and nothing else.
    pub(crate) const fn is_part(self) -> bool {
        matches!(self, Self::FirstPart | Self::FurtherPart | Self::LastPart)
    }
}

/// Header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    pub(crate) kind: GroupType,
    pub(crate) length: u32,
    pub(crate) records: u32,
    pub(crate) lsn: Lsn,
    pub(crate) epoch: u64,
    pub(crate) durable: Lsn,
    pub(crate) first_seq: u64,
}

impl GroupHeader {
    /// Writes the header, with both checksums, in front of the records; `group` holds them from byte [`GROUP_HEADER`]
    /// on.
    pub(crate) fn seal(&self, database: &[u8; 16], group: &mut [u8]) {
        assert_eq!(group.len(), self.length as usize, "a group is sealed whole");
        let database = crc32c(database);
        let (header, content) = group.split_at_mut(GROUP_HEADER);
        header.fill(0);
        header[0..4].copy_from_slice(&GROUP_MAGIC);
        header[4] = self.kind as u8;
        header[5] = GROUP_VERSION;
        header[8..12].copy_from_slice(&self.length.to_le_bytes());
        header[12..16].copy_from_slice(&self.records.to_le_bytes());
        header[16..24].copy_from_slice(&self.lsn.0.to_le_bytes());
        header[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        header[32..40].copy_from_slice(&self.durable.0.to_le_bytes());
        header[40..48].copy_from_slice(&self.first_seq.to_le_bytes());
        let crc = content_crc(database, header, content);
        header[48..52].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c_append(database, &header[..52]);
        header[52..56].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes and checks the group that is expected at `lsn`; `rest` is the segment from there to its end.
    pub(crate) fn open<'a>(database: &[u8; 16], lsn: Lsn, rest: &'a [u8]) -> Result<WholeGroup<'a>, Flaw> {
        Self::open_of(crc32c(database), lsn, rest)
    }

    /// As `open`, for a database whose uuid has the CRC `database`.
    pub(crate) fn open_of(database: u32, lsn: Lsn, rest: &[u8]) -> Result<WholeGroup<'_>, Flaw> {
        ensure!(rest.len() >= GROUP_HEADER, "group header cut short", GROUP_HEADER, rest.len());
        let header = Self::decode(database, &rest[..GROUP_HEADER])?;
        ensure!(header.lsn == lsn, "group position", lsn, header.lsn);
        ensure!(header.durable <= lsn, "group durable position", format!("at most {lsn}"), header.durable);
        let length = header.length as usize;
        ensure!(
            (GROUP_HEADER..=rest.len()).contains(&length) && length.is_multiple_of(ALIGNMENT),
            "group length",
            format!("a multiple of 8 from {GROUP_HEADER} to {}", rest.len()),
            length,
        );
        let content = &rest[GROUP_HEADER..length];
        let crc = content_crc(database, rest, content);
        let stored = u32_at(rest, 48);
        ensure!(crc == stored, "group checksum", hex32(crc), hex32(stored));
        let records = header.records(content);
        let (next_seq, payload_bytes) = header.check_records(&records)?;
        Ok(WholeGroup { header, records, next_seq, payload_bytes })
    }

    /// The records in `content`, the bytes of the group behind its header.
    pub(crate) const fn records<'a>(&self, content: &'a [u8]) -> Records<'a> {
        Records { bytes: content, lsn: Lsn(self.lsn.0 + GROUP_HEADER as u64), first_seq: self.first_seq }
    }

    /// `database` is the CRC of the uuid.
    fn decode(database: u32, bytes: &[u8]) -> Result<Self, Flaw> {
        ensure!(bytes.starts_with(&GROUP_MAGIC), "group magic", hex(&GROUP_MAGIC), hex(&bytes[0..4]));
        let crc = crc32c_append(database, &bytes[..52]);
        ensure!(crc == u32_at(bytes, 52), "group header checksum", hex32(crc), hex32(u32_at(bytes, 52)));
        ensure!(bytes[5] == GROUP_VERSION, "group version", GROUP_VERSION, bytes[5]);
        Self::fields(bytes).ok_or_else(|| Flaw::new("group type", "1 to 7", bytes[4]))
    }

    /// The fields of a group header; none for an unknown type. Nothing else is checked.
    fn fields(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: GroupType::from_byte(bytes[4])?,
            length: u32_at(bytes, 8),
            records: u32_at(bytes, 12),
            lsn: Lsn(u64_at(bytes, 16)),
            epoch: u64_at(bytes, 24),
            durable: Lsn(u64_at(bytes, 32)),
            first_seq: u64_at(bytes, 40),
        })
    }

    /// The header of the group at `lsn`, checked without the records; `bytes` may end behind the header.
    pub(crate) fn peek(database: &[u8; 16], lsn: Lsn, bytes: &[u8]) -> Option<Self> {
        let header = Self::decode(crc32c(database), bytes.get(..GROUP_HEADER)?).ok()?;
        (header.lsn == lsn).then_some(header)
    }

    /// Fails where the group cannot follow groups of `epoch` whose seqs are below `next_seq`. In a chain, epochs do not
    /// fall, and seqs rise.
    pub(crate) fn follows(&self, epoch: u64, next_seq: u64) -> Result<(), Flaw> {
        ensure!(self.epoch >= epoch, "group epoch", format!("at least {epoch}"), self.epoch);
        ensure!(self.first_seq >= next_seq, "group first seq", format!("at least {next_seq}"), self.first_seq);
        Ok(())
    }

    /// The first seq whose record is whole in a chain that begins with this group.
    pub(crate) const fn first_whole_seq(&self) -> u64 {
        let is_amid = matches!(self.kind, GroupType::FurtherPart | GroupType::LastPart);
        self.first_seq.saturating_add(is_amid as u64)
    }

    /// Whether `bytes`, a group header or more, may begin the group at `lsn`. A cheap test for a scan.
    pub(crate) fn is_candidate(lsn: Lsn, bytes: &[u8]) -> bool {
        Self::claimed_lsn(bytes) == Some(lsn)
    }

    /// The position that a possible group header at the beginning of `bytes` claims; only the length of `bytes` and the
    /// magic are checked.
    pub(crate) fn claimed_lsn(bytes: &[u8]) -> Option<Lsn> {
        (bytes.len() >= GROUP_HEADER && bytes.starts_with(&GROUP_MAGIC)).then(|| Lsn(u64_at(bytes, 16)))
    }

    /// The length that a possible group header claims; `bytes` is a group header or more, and nothing is checked.
    pub(crate) fn claimed_length(bytes: &[u8]) -> usize {
        u32_at(bytes, 8) as usize
    }

    /// Checks that the records fill the content exactly, so that walking them later cannot fail. Returns the seq behind
    /// the last record, and the bytes of all payloads.
    fn check_records(&self, records: &Records<'_>) -> Result<(u64, u32), Flaw> {
        let mut rest = records.bytes;
        let (mut count, mut sequenced, mut payload_bytes) = (0u32, 0u32, 0u32);
        while !rest.is_empty() {
            ensure!(rest.len() >= RECORD_HEADER, "record header cut short", RECORD_HEADER, rest.len());
            let space =
                (u32_at(rest, 0) as usize).checked_add(RECORD_HEADER + ALIGNMENT - 1).map(|end| end & !(ALIGNMENT - 1));
            let space = space.filter(|space| *space <= rest.len());
            let space =
                space.ok_or_else(|| Flaw::new("record length", format!("below {}", rest.len()), u32_at(rest, 0)))?;
            ensure!(
                rest[8] != 0 && rest[9] <= 1,
                "record kind",
                "kind above 0, flag 0 or 1",
                format!("{} {}", rest[8], rest[9]),
            );
            let delta = if rest[9] == 1 { sequenced } else { 0 };
            ensure!(u32_at(rest, 4) == delta, "record seq", delta, u32_at(rest, 4));
            sequenced += u32::from(rest[9]);
            count += 1;
            payload_bytes += u32_at(rest, 0);
            rest = &rest[space..];
        }
        ensure!(count == self.records, "number of records", self.records, count);
        if self.kind.is_part() {
            let has_seq = u32::from(self.kind == GroupType::LastPart);
            ensure!(count == 1, "records in the group of a part", 1, count);
            ensure!(sequenced == has_seq, "seqs in the group of a part", has_seq, sequenced);
        } else {
            ensure!(self.kind == GroupType::Records || count == 0, "records in an empty group", 0, count);
        }
        let next_seq = self.first_seq.checked_add(u64::from(sequenced)).ok_or_else(|| {
            Flaw::new("group first seq", format!("at most {}", u64::MAX - u64::from(sequenced)), self.first_seq)
        })?;
        Ok((next_seq, payload_bytes))
    }
}

/// The checksum of a group's records. Position and epoch are those that the header stores; `database` is the CRC of
/// the uuid.
pub(crate) fn content_crc(database: u32, header: &[u8], content: &[u8]) -> u32 {
    crc32c_append_all(database, [&header[16..32], content])
}

/// A group that passed every check.
#[derive(Clone, Debug)]
pub(crate) struct WholeGroup<'a> {
    pub(crate) header: GroupHeader,
    pub(crate) records: Records<'a>,
    /// The seq that follows the last sequenced record.
    pub(crate) next_seq: u64,
    /// Payload bytes of all records.
    pub(crate) payload_bytes: u32,
}

/// The header of a record. `delta` is the record's seq less the first seq of the group, or none without a seq.
pub(crate) fn record_header(kind: u8, delta: Option<u32>, payload_len: u32) -> [u8; RECORD_HEADER] {
    let mut header = [0; RECORD_HEADER];
    header[0..4].copy_from_slice(&payload_len.to_le_bytes());
    header[4..8].copy_from_slice(&delta.unwrap_or(0).to_le_bytes());
    header[8] = kind;
    header[9] = u8::from(delta.is_some());
    header
}

/// Appends a record to a group's bytes. `payload` has `payload_len` bytes.
pub(crate) fn push_record<'a>(
    bytes: &mut Vec<u8>, kind: u8, delta: Option<u32>, payload: impl IntoIterator<Item = &'a [u8]>, payload_len: u32,
) {
    let begin = bytes.len();
    bytes.extend_from_slice(&record_header(kind, delta, payload_len));
    for part in payload {
        bytes.extend_from_slice(part);
    }
    bytes.resize(begin + record_space(payload_len as usize), 0);
}

/// A record, as replay shows it to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Position of its first byte.
    pub lsn: Lsn,
    /// The kind that the caller gave at the append.
    pub kind: u8,
    /// The sequence number; 0 for a record without one.
    pub seq: u64,
    /// The payload.
    pub payload: &'a [u8],
}

/// The records of a whole group, in order.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    lsn: Lsn,
    first_seq: u64,
}

impl<'a> Records<'a> {
    /// No records.
    pub(crate) const NONE: Self = Self { bytes: &[], lsn: Lsn(0), first_seq: 0 };

    /// A record put together from its parts: `bytes` are those that the record would have in a group.
    pub(crate) const fn of_parts(bytes: &'a [u8], lsn: Lsn, seq: u64) -> Self {
        Self { bytes, lsn, first_seq: seq }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Skips the records that begin before `start`.
    pub(crate) fn skip_before(&mut self, start: Lsn) {
        while self.lsn < start && self.next().is_some() {}
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let bytes = self.bytes;
        if bytes.is_empty() {
            return None;
        }
        // `GroupHeader::check_records` has checked the bounds of lengths and seqs.
        let length = u32_at(bytes, 0) as usize;
        let record = Record {
            lsn: self.lsn,
            kind: bytes[8],
            seq: if bytes[9] == 1 { self.first_seq + u64::from(u32_at(bytes, 4)) } else { 0 },
            payload: &bytes[RECORD_HEADER..RECORD_HEADER + length],
        };
        let space = record_space(length);
        self.bytes = &bytes[space..];
        self.lsn = Lsn(self.lsn.0 + space as u64);
        Some(record)
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex32(value: u32) -> String {
    format!("{value:08x}")
}
