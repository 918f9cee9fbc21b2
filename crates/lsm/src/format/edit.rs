//! What a change of a tree is: files that come, and files that go. A **root record**, which a checkpoint keeps, has all
//! files of a tree; a **redo**, which a flush-end carries, has those of one change.
//!
//! ```text
//!  0  magic     4 bytes  "BLSR" or "BLSD"
//!  4  CRC-32C   u32      of the record without these four bytes
//!  8  table     u32
//! 12  next      u64      the lowest number that no file had
//! 20  removed   u32      files that go, and the number of each: u64
//!  .  added     u32      files that come, each:
//!       level u8, bytes of the file u64, its first and last key (each behind its length, u32), and its footer
//! ```

use checksum::crc32c_around;
use codec::{Fields, sized};
use index::{Damage, TableId};

use super::footer::{Footer, Written};
use super::{Checked, KEY_BYTES_MAX};

const ROOT_MAGIC: &[u8; 4] = b"BLSR";
const REDO_MAGIC: &[u8; 4] = b"BLSD";
const CRC_AT: usize = 4;
const TABLE_AT: usize = 8;
const NEXT_AT: usize = 12;
const LISTS_AT: usize = 20;

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
    /// Numbers of files that go.
    pub(crate) removed: Vec<u64>,
    /// Files that come, each with its level.
    pub(crate) added: Vec<(usize, Written)>,
}

impl Edit {
    pub(crate) fn encode(&self, record: Record) -> Vec<u8> {
        let mut out = record.magic().to_vec();
        out.extend_from_slice(&[0; size_of::<u32>()]);
        out.extend_from_slice(&self.table.0.to_le_bytes());
        out.extend_from_slice(&self.next.to_le_bytes());
        put_length(&mut out, self.removed.len());
        self.removed.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        put_length(&mut out, self.added.len());
        for (level, Written { bytes, low, high, footer }) in &self.added {
            out.push(u8::try_from(*level).expect("there are few levels"));
            out.extend_from_slice(&bytes.to_le_bytes());
            for key in [low, high] {
                put_length(&mut out, key.len());
                out.extend_from_slice(key);
            }
            out.extend_from_slice(&footer.encode());
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
        let mut fields = Fields(&bytes[LISTS_AT..]);
        let lists = read_lists(&mut fields, table).filter(|_| fields.end());
        let Some((removed, added)) = lists else {
            let at = bytes.len() - fields.0.len();
            return Err(Damage::new(at, "files of a record", "lists of files, and no more", "other bytes"));
        };
        Ok(Self { table, next: sized::u64_at(bytes, NEXT_AT), removed, added })
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

type Lists = (Vec<u64>, Vec<(usize, Written)>);

fn read_lists(fields: &mut Fields<'_>, table: TableId) -> Option<Lists> {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    for _ in 0..fields.u32()? {
        removed.push(fields.u64()?);
    }
    for _ in 0..fields.u32()? {
        let level = usize::from(fields.u8()?);
        let bytes = fields.u64()?;
        let [low, high] = [fields.block()?, fields.block()?];
        let footer = Footer::decode(&fields.array()?).ok().filter(|footer| footer.table == table)?;
        let is_sound = level < LEVELS && low <= high && low.len().max(high.len()) <= KEY_BYTES_MAX;
        let written = Written { bytes, low: low.to_vec(), high: high.to_vec(), footer };
        added.push(is_sound.then_some((level, written))?);
    }
    Some((removed, added))
}

#[cfg(test)]
mod tests {
    use index::Seq;

    use super::*;
    use crate::format::Place;

    const TABLE: TableId = TableId(3);

    fn written(number: u64, low: &[u8], high: &[u8]) -> Written {
        let top = Place { offset: 4096, bytes: 200, crc: 7 };
        let (oldest, newest) = (Seq(number), Seq(number + 9));
        let footer = Footer { table: TABLE, number, top, entries: 50, tombstones: 3, oldest, newest };
        Written { bytes: 8192, low: low.to_vec(), high: high.to_vec(), footer }
    }

    #[test]
    fn a_record_is_read_as_written_and_as_no_other_kind_or_table() {
        let added = vec![(0, written(7, b"a", b"k")), (6, written(8, b"", b"")), (1, written(9, b"m", &[b'x'; 8192]))];
        let edits = [
            Edit { table: TABLE, next: 10, removed: vec![1, 1 << 40], added },
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
