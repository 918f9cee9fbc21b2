//! The byte format of backups. A backup is a header and blocks; its last block has type end. A chain is a sequence of
//! backups, one directly behind the other.
//!
//! All numbers are little-endian. A header defends against four faults:
//!
//! - foreign files: magic;
//! - newer software: version;
//! - bit rot: CRC;
//! - a backup that does not continue the one before: database, continued id and continued seq.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `BRAIDBAK` |
//! | 8 | 4 | version |
//! | 12 | 4 | CRC-32C of the header with this field zero |
//! | 16 | 16 | uuid of the database |
//! | 32 | 16 | id of this backup, random |
//! | 48 | 16 | id of the continued backup; zero for a full backup |
//! | 64 | 8 | seq of the continued backup |
//! | 72 | 8 | seq: the last commit in this backup |
//!
//! The CRC of a block continues the CRC of the block before, or of the header. So blocks that are missing, out of order
//! or from another backup fail the check. A backup without a block of type end is cut off.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of the bytes of the block behind this field |
//! | 4 | 4 | bytes of the payload, at most 262,144 |
//! | 8 | 1 | type ([`kind`]) |
//! | 9 | 3 | zero |
//! | 12 | | payload |
//!
//! The type of a block determines its payload: [`Pair`], [`Change`], [`Counts`], or a piece of a value, which is plain
//! bytes. Blocks that begin or drop a table have the payloads of the log's records for the same
//! ([`crate::format::CreateTable`]). The settings of their structures are 0 when the database no longer knows them.

use codec::Fields;
use index::{Expiry, Seq, TableId};

/// Version of a backup.
pub(crate) const VERSION: u32 = 1;
/// First bytes of a backup.
pub(crate) const MAGIC: [u8; 8] = *b"BRAIDBAK";
/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 80;
/// Bytes of a block before its payload.
pub(crate) const BLOCK_HEADER_BYTES: usize = 12;
/// Most bytes of a payload. A payload of this size stays in a processor's cache while being encoded, checksummed and
/// copied.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Bytes of a pair before its key.
pub(crate) const PAIR_HEADER_BYTES: usize = 7;
/// Bytes of a change before its pair.
const CHANGE_HEADER_BYTES: usize = 5;
/// Flag of a pair: the value is in blocks of type value behind this block.
const LONG: u8 = 1;
/// Flag of a pair: the value expires.
const EXPIRES: u8 = 2;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;
const CRC_AT: usize = 12;

const _: () = assert!(CHANGE_HEADER_BYTES + PAIR_HEADER_BYTES + Expiry::BYTES + u16::MAX as usize <= PAYLOAD_BYTES_MAX);

/// Types of blocks.
pub(crate) mod kind {
    /// A table begins, empty. An earlier table of the same id is gone.
    pub(crate) const TABLE: u8 = 1;
    /// Pairs of the table that began last, in rising order of keys. Pairs whose values were documents come behind
    /// these, as changes.
    pub(crate) const PAIRS: u8 = 2;
    /// A piece of the long value of the pair or change before. All pieces but the last have the most bytes of a
    /// payload.
    pub(crate) const VALUE: u8 = 3;
    /// Changes, in the order of commits; or puts of pairs of the table that began last.
    pub(crate) const CHANGES: u8 = 4;
    /// A table is gone.
    pub(crate) const DROPPED: u8 = 5;
    /// The end.
    pub(crate) const END: u8 = 6;
}

/// The header of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Identity of the database.
    pub(crate) database: [u8; 16],
    /// Identity of the backup.
    pub(crate) id: [u8; 16],
    /// Id and seq of the continued backup; none for a full backup.
    pub(crate) continues: Option<([u8; 16], Seq)>,
    /// The last commit in the backup.
    pub(crate) seq: Seq,
}

/// Why a header does not decode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The bytes are not a backup.
    Magic,
    /// Another version of the format.
    Version(u32),
    /// Checksum mismatch: (stored, computed).
    Checksum(u32, u32),
}

impl Header {
    /// The bytes of the header.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let (continued, seq) = self.continues.unwrap_or(([0; 16], Seq(0)));
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        [self.database, self.id, continued].iter().for_each(|id| bytes.extend_from_slice(id));
        bytes.extend_from_slice(&seq.0.to_le_bytes());
        bytes.extend_from_slice(&self.seq.0.to_le_bytes());
        let mut header: [u8; HEADER_BYTES] = bytes.try_into().expect("the fields above are as long as a header");
        let crc = header_crc(&header);
        header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Decodes and checks a header.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        if bytes[..8] != MAGIC {
            return Err(HeaderError::Magic);
        }
        let mut fields = Fields(&bytes[8..]);
        let number = |field: Option<u32>| field.expect("a header has all its fields");
        let (version, stored) = (number(fields.u32()), number(fields.u32()));
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let computed = header_crc(bytes);
        if stored != computed {
            return Err(HeaderError::Checksum(stored, computed));
        }
        let mut id = || fields.array::<16>().expect("a header has all its fields");
        let (database, id, continued) = (id(), id(), id());
        let mut seq = || Seq(fields.u64().expect("a header has all its fields"));
        let (continued_seq, seq) = (seq(), seq());
        let continues = (continued != [0; 16]).then_some((continued, continued_seq));
        Ok(Self { database, id, continues, seq })
    }
}

/// CRC-32C of a header with the CRC field zero. The CRC of the first block continues this one.
pub(crate) fn header_crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    checksum::crc32c_blanked(bytes, CRC_AT)
}

/// Fills in the header of a block, whose bytes begin with room for a header. Returns the CRC of the block.
pub(crate) fn seal_block(block: &mut [u8], kind: u8, before: u32) -> u32 {
    let length = u32::try_from(block.len() - BLOCK_HEADER_BYTES).expect("payloads are at most 256 KiB");
    block[4..8].copy_from_slice(&length.to_le_bytes());
    block[8..BLOCK_HEADER_BYTES].copy_from_slice(&[kind, 0, 0, 0]);
    let crc = checksum::crc32c_append(before, &block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Decodes the header of a block: CRC, length of the payload, type. None when the type is unknown, the zero bytes are
/// not zero, or the length exceeds the maximum.
pub(crate) fn decode_block_header(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<(u32, usize, u8)> {
    let mut fields = Fields(bytes);
    let (crc, length, kind) = (fields.u32()?, usize::try_from(fields.u32()?).ok()?, fields.u8()?);
    let known = (kind::TABLE..=kind::END).contains(&kind) && fields.bytes(3)? == [0; 3];
    (known && length <= PAYLOAD_BYTES_MAX).then_some((crc, length, kind))
}

/// A key and its value, encoded in this order:
///
/// | bytes | field |
/// |---|---|
/// | 1 | flags; 1: the value is in the blocks behind, 2: the value expires |
/// | 2 | bytes of the key |
/// | 4 | bytes of the value |
/// | | key |
/// | 8 | expiry, if the value expires |
/// | | value, unless the value is in the blocks behind |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair<'a> {
    /// The key.
    pub(crate) key: &'a [u8],
    /// The value; none when the blocks behind have the value.
    pub(crate) value: Option<&'a [u8]>,
    /// Bytes of the value.
    pub(crate) value_bytes: u32,
    /// Expiry of the value, if any.
    pub(crate) expiry: Option<Expiry>,
}

impl<'a> Pair<'a> {
    /// A pair with its value.
    pub(crate) fn whole(key: &'a [u8], value: &'a [u8]) -> Self {
        Self { key, value: Some(value), value_bytes: value_length(value), expiry: None }
    }

    /// A pair whose value follows in separate blocks.
    pub(crate) fn long(key: &'a [u8], value: &[u8]) -> Self {
        Self { key, value: None, value_bytes: value_length(value), expiry: None }
    }

    /// The same pair with this expiry.
    pub(crate) const fn until(self, expiry: Option<Expiry>) -> Self {
        Self { expiry, ..self }
    }

    /// Bytes of the encoding.
    pub(crate) fn bytes(&self) -> usize {
        let expiry = if self.expiry.is_some() { Expiry::BYTES } else { 0 };
        PAIR_HEADER_BYTES + self.key.len() + expiry + self.value.map_or(0, <[u8]>::len)
    }

    /// Appends the encoding.
    #[inline]
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let key_bytes = u16::try_from(self.key.len()).expect("keys are at most 8 KiB");
        let long = if self.value.is_some() { 0 } else { LONG };
        into.push(long | if self.expiry.is_some() { EXPIRES } else { 0 });
        into.extend_from_slice(&key_bytes.to_le_bytes());
        into.extend_from_slice(&self.value_bytes.to_le_bytes());
        into.extend_from_slice(self.key);
        if let Some(expiry) = self.expiry {
            into.extend_from_slice(&expiry.encode());
        }
        into.extend_from_slice(self.value.unwrap_or_default());
    }

    /// Decodes the next pair. A pair with a long value must be the last of its payload.
    pub(crate) fn decode(fields: &mut Fields<'a>) -> Option<Self> {
        let (flags, key_bytes, value_bytes) = (fields.u8()?, fields.u16()?, fields.u32()?);
        let key = fields.bytes(usize::from(key_bytes))?;
        let expiry = if flags & EXPIRES != 0 { Some(Expiry::at(fields.u64()?)?) } else { None };
        let value = match flags & !EXPIRES {
            0 => Some(fields.bytes(usize::try_from(value_bytes).ok()?)?),
            LONG if fields.end() => None,
            _ => return None,
        };
        Some(Self { key, value, value_bytes, expiry })
    }
}

fn value_length(value: &[u8]) -> u32 {
    u32::try_from(value.len()).expect("values are at most 512 MiB")
}

/// The effect of a commit on a key or a range. Encoding: code (1 byte; 1: put, 2: delete, 3: delete of a range), table
/// (4 bytes), then a pair.
///
/// A delete has an empty value. A delete of a range has the lower bound for a key and the upper bound for a value; the
/// value is empty when there is no upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// The key has this value from now on.
    Put(TableId, Pair<'a>),
    /// The key is deleted.
    Delete(TableId, &'a [u8]),
    /// All keys from the first bound, inclusive, to the second, exclusive, are deleted. No second bound: all keys to
    /// the end.
    DeleteRange(TableId, &'a [u8], Option<&'a [u8]>),
}

impl<'a> Change<'a> {
    /// Bytes of the encoding.
    pub(crate) fn bytes(&self) -> usize {
        CHANGE_HEADER_BYTES
            + match self {
                Self::Put(_, pair) => pair.bytes(),
                Self::Delete(_, key) => PAIR_HEADER_BYTES + key.len(),
                Self::DeleteRange(_, low, high) => PAIR_HEADER_BYTES + low.len() + high.map_or(0, <[u8]>::len),
            }
    }

    /// Appends the encoding.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let (code, table, pair) = match self {
            Self::Put(table, pair) => (PUT, table, *pair),
            Self::Delete(table, key) => (DELETE, table, Pair::whole(key, &[])),
            Self::DeleteRange(table, low, high) => (DELETE_RANGE, table, Pair::whole(low, high.unwrap_or_default())),
        };
        into.push(code);
        into.extend_from_slice(&table.0.to_le_bytes());
        pair.encode(into);
    }

    /// Decodes the next change.
    pub(crate) fn decode(fields: &mut Fields<'a>) -> Option<Self> {
        let (code, table) = (fields.u8()?, TableId(fields.u32()?));
        match (code, Pair::decode(fields)?) {
            (PUT, pair) => Some(Self::Put(table, pair)),
            (DELETE, Pair { key, value: Some([]), expiry: None, .. }) => Some(Self::Delete(table, key)),
            (DELETE_RANGE, Pair { key, value: Some(high), expiry: None, .. }) => {
                let high = Some(high).filter(|high| !high.is_empty());
                index::is_below(key, high).then_some(Self::DeleteRange(table, key, high))
            }
            _ => None,
        }
    }
}

/// Counts of a backup: tables, pairs, changes; 8 bytes each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tables that begin in the backup.
    pub(crate) tables: u64,
    /// Pairs.
    pub(crate) pairs: u64,
    /// Changes, including drops of tables.
    pub(crate) changes: u64,
}

impl Counts {
    /// Adds other counts.
    pub(crate) const fn add(&mut self, more: &Self) {
        self.tables += more.tables;
        self.pairs += more.pairs;
        self.changes += more.changes;
    }

    /// Appends the encoding.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        [self.tables, self.pairs, self.changes].iter().for_each(|count| into.extend_from_slice(&count.to_le_bytes()));
    }

    /// Decodes a whole payload.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let counts = Self { tables: fields.u64()?, pairs: fields.u64()?, changes: fields.u64()? };
        fields.end().then_some(counts)
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::ControlFlow, path::Path};

    use psync::sim::SimDisk;

    use super::{
        super::{encoder::run, sink::ToStream},
        *,
    };
    use crate::{
        format::{CreateTable, TableSettings},
        options::Options,
        words::structure::Structure,
    };

    #[test]
    fn a_backup_has_the_bytes_of_version_1() {
        let continues = Some(([3; 16], Seq(0x0102)));
        let header = Header { database: *b"0123456789abcdef", id: [2; 16], continues, seq: Seq(0x0304) };
        let table = CreateTable {
            id: TableId(5),
            structure: Structure::BTree,
            settings: TableSettings::default(),
            structure_settings: vec![4, 0, 0, 0],
            name: "t".into(),
        };
        let mut stream = Vec::new();
        let long = vec![9; PAYLOAD_BYTES_MAX];
        let (counts, bytes, ()) =
            run(&header, ToStream(&mut stream), None, &mut |_| ControlFlow::Continue(()), |encoder, _| {
                encoder.table(&table)?;
                encoder.pair(b"k", b"value", None)?;
                encoder.pair(b"long", &long, None)?;
                encoder.change(&Change::Put(TableId(5), Pair::whole(b"k", b"")))?;
                encoder.change(&Change::Delete(TableId(5), b"k"))?;
                encoder.dropped(TableId(5))
            })
            .expect("a vector takes all of it");
        assert_eq!(counts, Counts { tables: 1, pairs: 2, changes: 3 });
        assert_eq!(bytes, stream.len() as u64);

        let mut golden = b"BRAIDBAK\x01\0\0\0".to_vec();
        golden.extend_from_slice(&0x4598_20c4_u32.to_le_bytes());
        golden.extend_from_slice(b"0123456789abcdef");
        golden.extend_from_slice(&[[2; 16], [3; 16]].concat());
        golden.extend_from_slice(&[2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
        let mut block = |crc: u32, kind: u8, payload: &[u8]| {
            golden.extend_from_slice(&crc.to_le_bytes());
            golden.extend_from_slice(&u32::try_from(payload.len()).expect("short").to_le_bytes());
            golden.extend_from_slice(&[kind, 0, 0, 0]);
            golden.extend_from_slice(payload);
        };
        block(0xbf57_fa57, 1, b"\x05\0\0\0\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\x01\0\0\0t");
        block(0x7222_6a6a, 2, b"\0\x01\0\x05\0\0\0kvalue\x01\x04\0\0\0\x04\0long");
        block(0xf914_6bd2, 3, &long);
        block(0x496e_d4ea, 4, b"\x01\x05\0\0\0\0\x01\0\0\0\0\0k\x02\x05\0\0\0\0\x01\0\0\0\0\0k");
        block(0x8456_8934, 5, b"\x05\0\0\0");
        block(0x9fa5_4cec, 6, &[[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(stream.len(), golden.len());
        let differs = |at: &usize| stream[*at] != golden[*at];
        let differs: Vec<usize> = (0..stream.len()).filter(differs).collect();
        assert_eq!(differs, [0; 0], "{:x?}", differs.iter().map(|&at| stream[at]).collect::<Vec<_>>());
    }

    #[test]
    fn settings_that_a_structure_cannot_have_are_refused_and_named() {
        let header = Header { database: [1; 16], id: [2; 16], continues: None, seq: Seq(1) };
        let restored = |structure: Structure, structure_settings: &[u8]| {
            let (settings, mut stream) = (TableSettings::default(), Vec::new());
            let structure_settings = structure_settings.to_vec();
            let table = CreateTable { id: TableId(1), structure, settings, structure_settings, name: "t".into() };
            run(&header, ToStream(&mut stream), None, &mut |_| ControlFlow::Continue(()), |encoder, _| {
                encoder.table(&table)
            })
            .expect("a vector takes all of it");
            let options = Options::new().background(false).cache_bytes(1 << 20);
            options.restore_on(SimDisk::new(1).psync(), &stream[..], Path::new("/db")).map(drop)
        };
        for (structure, settings) in [
            (Structure::BTree, &[][..]),
            (Structure::BTree, &[0, 64, 0, 0]),
            (Structure::Append, &[]),
            (Structure::Append, &[1, 0, 0, 0]),
        ] {
            restored(structure, settings).expect("settings that it can have, or had");
        }
        for (structure, settings) in
            [(Structure::BTree, &[1, 64, 0, 0][..]), (Structure::BTree, &[1]), (Structure::Append, &[7; 100])]
        {
            let error = restored(structure, settings).expect_err("settings that it cannot have").to_string();
            assert!(error.contains("settings of a structure") && error.contains("byte 80"), "{error}");
        }
    }

    #[test]
    fn a_range_has_the_bytes_of_version_1() {
        let ranges: [(Option<&[u8]>, &[u8]); 2] =
            [(Some(b"m"), b"\x03\x05\0\0\0\0\x01\0\x01\0\0\0km"), (None, b"\x03\x05\0\0\0\0\x01\0\0\0\0\0k")];
        for (high, golden) in ranges {
            let (range, mut bytes) = (Change::DeleteRange(TableId(5), b"k", high), Vec::new());
            range.encode(&mut bytes);
            assert_eq!((bytes.as_slice(), bytes.len()), (golden, range.bytes()));
            assert_eq!(Change::decode(&mut Fields(&bytes)), Some(range));
        }
        let backwards = b"\x03\x05\0\0\0\0\x01\0\x01\0\0\0kk";
        assert_eq!(Change::decode(&mut Fields(backwards)), None);
    }

    #[test]
    fn lengths_and_types_that_nothing_writes_are_refused() {
        let block = |length: u32, rest: [u8; 4]| {
            let mut bytes = [0; BLOCK_HEADER_BYTES];
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
            bytes[8..].copy_from_slice(&rest);
            decode_block_header(&bytes).map(|(_, length, kind)| (length, kind))
        };
        assert_eq!(block(262_144, [6, 0, 0, 0]), Some((262_144, 6)));
        for (length, rest) in [(262_145, [6, 0, 0, 0]), (0, [0; 4]), (0, [7, 0, 0, 0]), (0, [1, 0, 0, 1])] {
            assert_eq!(block(length, rest), None, "{length} {rest:?}");
        }
        let pair = |bytes: &[u8]| Pair::decode(&mut Fields(bytes)).is_some();
        let expiring = Pair::whole(b"k", b"v").until(Expiry::at(0x0102));
        let mut bytes = Vec::new();
        expiring.encode(&mut bytes);
        assert_eq!((bytes.as_slice(), expiring.bytes()), (&b"\x02\x01\0\x01\0\0\0k\x02\x01\0\0\0\0\0\0v"[..], 17));
        assert_eq!(Pair::decode(&mut Fields(&bytes)), Some(expiring));
        assert!(!pair(b"\x02\x01\0\x01\0\0\0k\0\0\0\0\0\0\0\0v"), "an expiry of 0");
        assert!(pair(b"\0\x01\0\x01\0\0\0kv") && pair(b"\x01\x01\0\x01\0\0\0k"));
        for wrong in [&b"\0\x01\0\x02\0\0\0kv"[..], b"\x04\x01\0\x01\0\0\0kv", b"\x01\x01\0\x01\0\0\0kv"] {
            assert!(!pair(wrong), "{wrong:?}");
        }
        let change = |bytes: &[u8]| Change::decode(&mut Fields(bytes)).is_some();
        assert!(change(b"\x02\x05\0\0\0\0\x01\0\0\0\0\0k"));
        assert!(!change(b"\x04\x05\0\0\0\0\x01\0\0\0\0\0k"));
        assert!(!change(b"\x02\x05\0\0\0\0\x01\0\x01\0\0\0kv"));
    }
}
