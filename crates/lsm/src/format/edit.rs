//! What a change of a tree is: slices of files that come, and files that go. A **root record**, which a checkpoint
//! keeps, has all slices of a tree; a **redo**, which a flush-end carries, has those of one change.
//!
//! ```text
//!  0  magic     4 bytes  "BLSR" or "BLSD"
//!  4  CRC-32C   u32      of the record without these four bytes
//!  8  table     u32
//! 12  next      u64      the lowest number that no file had
//! 20  expires   u8       1: a value with an expiry was put since the tree last had no keys
//! 21  removed   u32      files that go with all their slices, and the number of each: u64
//!  .  added     u32      slices that come, each:
//!       level u8, age u64, where it begins and ends in the file (u32 each, about), versions in it u64, its first and
//!       last key (each behind its length, u32), bytes of the file u64, and its footer
//! ```

use std::ops::Range;

use checksum::crc32c_around;
use codec::{Fields, sized};
use index::{Damage, TableId};

use super::footer::Footer;
use super::{Checked, KEY_BYTES_MAX};

const ROOT_MAGIC: &[u8; 4] = b"BLSR";
const REDO_MAGIC: &[u8; 4] = b"BLSD";
const CRC_AT: usize = 4;
const TABLE_AT: usize = 8;
const NEXT_AT: usize = 12;
const EXPIRES_AT: usize = 20;
const LISTS_AT: usize = 21;

/// Levels of a tree. The first has the newest files, which overlap.
pub(crate) const LEVELS: usize = 7;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Root,
    Redo,
}

impl Record {
    const fn magic(self) -> &'static [u8; 4] {
        match self {
            Self::Root => ROOT_MAGIC,
            Self::Redo => REDO_MAGIC,
        }
    }
}

/// Files that come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) table: TableId,
    /// The lowest number that no file had.
    pub(crate) next: u64,
    /// Whether a value with an expiry was put since the tree last had no keys.
    pub(crate) expires: bool,
    /// Numbers of files that go, with all their slices.
    pub(crate) removed: Vec<u64>,
    /// Slices that come.
    pub(crate) added: Vec<Entry>,
}

/// A slice of a file: those of its keys that a version refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) level: usize,
    /// Of two slices of level 0, the one with the greater age is the newer one.
    pub(crate) age: u64,
    /// Where it is in the file, about.
    pub(crate) part: Range<u32>,
    /// Versions in it: exact in the sum over the slices of a file.
    pub(crate) entries: u64,
    /// The first and the last key.
    pub(crate) low: Vec<u8>,
    pub(crate) high: Vec<u8>,
    /// The file.
    pub(crate) file_bytes: u64,
    pub(crate) footer: Footer,
}

impl Edit {
    pub(crate) fn encode(&self, record: Record) -> Vec<u8> {
        let mut out = record.magic().to_vec();
        out.extend_from_slice(&[0; size_of::<u32>()]);
        out.extend_from_slice(&self.table.0.to_le_bytes());
        out.extend_from_slice(&self.next.to_le_bytes());
        out.push(u8::from(self.expires));
        put_length(&mut out, self.removed.len());
        self.removed.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        put_length(&mut out, self.added.len());
        for entry in &self.added {
            out.push(u8::try_from(entry.level).expect("there are few levels"));
            out.extend_from_slice(&entry.age.to_le_bytes());
            [entry.part.start, entry.part.end].iter().for_each(|at| out.extend_from_slice(&at.to_le_bytes()));
            out.extend_from_slice(&entry.entries.to_le_bytes());
            for key in [&entry.low, &entry.high] {
                put_length(&mut out, key.len());
                out.extend_from_slice(key);
            }
            out.extend_from_slice(&entry.file_bytes.to_le_bytes());
            out.extend_from_slice(&entry.footer.encode());
        }
        sign(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8], record: Record, table: TableId) -> Checked<Self> {
        if bytes.len() < LISTS_AT || bytes[..CRC_AT] != *record.magic() {
            let found = bytes[..bytes.len().min(CRC_AT)].escape_ascii();
            return Err(Damage::new(0, "magic of a record", record.magic().escape_ascii(), found));
        }
        let (expected, found) = (sized::u32_at(bytes, CRC_AT), crc32c_around(bytes, CRC_AT));
        if expected != found {
            return Err(Damage::of_checksum(CRC_AT, "checksum of a record", expected, found));
        }
        let of = TableId(sized::u32_at(bytes, TABLE_AT));
        if of != table {
            return Err(Damage::new(TABLE_AT, "table of a record", table.0, of.0));
        }
        let expires = bytes[EXPIRES_AT];
        if expires > 1 {
            return Err(Damage::new(EXPIRES_AT, "flag of a record", "0 or 1", expires));
        }
        let mut fields = Fields(&bytes[LISTS_AT..]);
        let lists = read_lists(&mut fields, table).filter(|_| fields.end());
        let Some((removed, added)) = lists else {
            let at = bytes.len() - fields.0.len();
            return Err(Damage::new(at, "files of a record", "lists of files, and no more", "other bytes"));
        };
        Ok(Self { table, next: sized::u64_at(bytes, NEXT_AT), expires: expires == 1, removed, added })
    }
}

/// Puts the right checksum on a record of at least eight bytes.
pub(crate) fn sign(bytes: &mut [u8]) {
    let crc = crc32c_around(bytes, CRC_AT);
    bytes[CRC_AT..TABLE_AT].copy_from_slice(&crc.to_le_bytes());
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).expect("a record is not that long").to_le_bytes());
}

type Lists = (Vec<u64>, Vec<Entry>);

fn read_lists(fields: &mut Fields<'_>, table: TableId) -> Option<Lists> {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    for _ in 0..fields.u32()? {
        removed.push(fields.u64()?);
    }
    for _ in 0..fields.u32()? {
        let level = usize::from(fields.u8()?);
        let (age, part, entries) = (fields.u64()?, fields.u32()?..fields.u32()?, fields.u64()?);
        let [low, high] = [fields.block()?, fields.block()?];
        let file_bytes = fields.u64()?;
        let footer = Footer::decode(&fields.array()?).ok().filter(|footer| footer.table == table)?;
        let is_sound = level < LEVELS
            && low <= high
            && low.len().max(high.len()) <= KEY_BYTES_MAX
            && file_bytes <= u64::from(u32::MAX)
            && part.start <= part.end
            && u64::from(part.end) <= file_bytes;
        let (low, high) = (low.to_vec(), high.to_vec());
        added.push(is_sound.then_some(Entry { level, age, part, entries, low, high, file_bytes, footer })?);
    }
    Some((removed, added))
}

#[cfg(test)]
mod tests {
    use index::Seq;

    use super::*;
    use crate::format::Place;

    const TABLE: TableId = TableId(3);

    fn entry(level: usize, number: u64, low: &[u8], high: &[u8]) -> Entry {
        let top = Place { offset: 4096, bytes: 200, crc: 7 };
        let (oldest, newest) = (Seq(number), Seq(number + 9));
        let footer = Footer {
            table: TABLE,
            number,
            top,
            entries: 50,
            tombstones: 3,
            documents: 1,
            blocks: 2,
            oldest,
            newest,
            due: None,
        };
        let (low, high) = (low.to_vec(), high.to_vec());
        Entry { level, age: number + 3, part: 77..5000, entries: 40, low, high, file_bytes: 8192, footer }
    }

    #[test]
    fn a_record_is_read_as_written_and_as_no_other_kind_or_table() {
        let added = vec![entry(0, 7, b"a", b"k"), entry(6, 8, b"", b""), entry(1, 9, b"m", &[b'x'; 8192])];
        let edits = [
            Edit { table: TABLE, next: 10, expires: true, removed: vec![1, 1 << 40], added },
            Edit { table: TABLE, ..Edit::default() },
        ];
        for edit in edits {
            for (record, other) in [(Record::Root, Record::Redo), (Record::Redo, Record::Root)] {
                let bytes = edit.encode(record);
                assert!(Edit::decode(&bytes, record, TABLE).as_ref() == Ok(&edit));
                assert!(Edit::decode(&bytes, other, TABLE).is_err());
                assert!(Edit::decode(&bytes, record, TableId(4)).is_err());
                for at in 0..bytes.len() {
                    let mut changed = bytes.clone();
                    changed[at] ^= 1;
                    assert!(Edit::decode(&changed, record, TABLE).is_err(), "byte {at}");
                    assert!(Edit::decode(&bytes[..at], record, TABLE).is_err(), "{at} bytes");
                }
            }
        }
    }
}
