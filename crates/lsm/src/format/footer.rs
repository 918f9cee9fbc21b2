//! The footer: the last bytes of a file, by which the file can be read where nothing else is known of it.
//!
//! ```text
//!  0  magic        8 bytes  "braidsst"
//!  8  version      u32      1
//! 12  table        u32
//! 16  number       u64      of the file
//! 24  top          10 bytes its place
//! 34  entries      u64      versions
//! 42  tombstones   u64      of these
//! 50  documents    u64      bytes of the documents that versions refer to
//! 58  blocks       u64      data blocks
//! 66  oldest       u64      seq
//! 74  newest       u64      seq
//! 82  due          u64      when enough values have expired ([`index::due`]); 0 for never
//! 90  CRC-32C      u32      of all before
//! ```

use checksum::crc32c;
use codec::sized;
use index::due::{Due, UNITS_LIMIT};
use index::{Damage, Seq, TableId};

use super::stored::Identity;
use super::{Checked, Place};

const MAGIC: &[u8; 8] = b"braidsst";
const VERSION: u32 = 1;
const DUE_AT: usize = 82;
const CRC_AT: usize = 90;

/// What a file is, and how much is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) table: TableId,
    pub(crate) number: u64,
    pub(crate) top: Place,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) documents: u64,
    pub(crate) blocks: u64,
    pub(crate) oldest: Seq,
    pub(crate) newest: Seq,
    pub(crate) due: Option<Due>,
}

impl Footer {
    /// Bytes of a footer.
    pub(crate) const BYTES: usize = CRC_AT + 4;

    /// The file whose footer this is.
    pub(crate) const fn identity(&self) -> Identity {
        Identity { table: self.table, number: self.number }
    }

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.table.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..34].copy_from_slice(&self.top.encode());
        let due = Due::to_units(self.due);
        let counts = [self.entries, self.tombstones, self.documents, self.blocks, self.oldest.0, self.newest.0, due];
        bytes[34..CRC_AT].as_chunks_mut().0.iter_mut().zip(counts).for_each(|(out, count)| *out = count.to_le_bytes());
        Self::sign(&mut bytes);
        bytes
    }

    /// Puts the right checksum on a footer.
    pub(crate) fn sign(bytes: &mut [u8; Self::BYTES]) {
        let crc = crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    }

    /// Checks a footer.
    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Checked<Self> {
        if bytes[..8] != *MAGIC {
            return Err(Damage::new(0, "magic of a footer", MAGIC.escape_ascii(), bytes[..8].escape_ascii()));
        }
        let (expected, found) = (sized::u32_at(bytes, CRC_AT), crc32c(&bytes[..CRC_AT]));
        if expected != found {
            return Err(Damage::of_checksum(CRC_AT, "checksum of a footer", expected, found));
        }
        let version = sized::u32_at(bytes, 8);
        if version != VERSION {
            return Err(Damage::new(8, "version of a file", VERSION, version));
        }
        let due = sized::u64_at(bytes, DUE_AT);
        if due >= UNITS_LIMIT {
            return Err(Damage::new(DUE_AT, "due time of a file", format!("below {UNITS_LIMIT}"), due));
        }
        Ok(Self {
            table: TableId(sized::u32_at(bytes, 12)),
            number: sized::u64_at(bytes, 16),
            top: Place::decode(bytes, 24),
            entries: sized::u64_at(bytes, 34),
            tombstones: sized::u64_at(bytes, 42),
            documents: sized::u64_at(bytes, 50),
            blocks: sized::u64_at(bytes, 58),
            oldest: Seq(sized::u64_at(bytes, 66)),
            newest: Seq(sized::u64_at(bytes, 74)),
            due: Due::from_units(due),
        })
    }
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// The first key.
    pub(crate) low: Vec<u8>,
    /// The last key.
    pub(crate) high: Vec<u8>,
    pub(crate) footer: Footer,
}

impl Written {
    /// Number of the file.
    pub(crate) const fn number(&self) -> u64 {
        self.footer.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_is_read_as_written_and_no_changed_byte_passes() {
        let footer = Footer {
            table: TableId(3),
            number: 0x0102_0304_0506_0708,
            top: Place { offset: 77, bytes: 500, crc: 0x0a0b_0c0d },
            entries: 1000,
            tombstones: 10,
            documents: 3,
            blocks: 9,
            oldest: Seq(4),
            newest: Seq(1 << 40),
            due: Due::from_units(77),
        };
        let bytes = footer.encode();
        assert_eq!(Footer::decode(&bytes).ok(), Some(footer));
        for at in 0..bytes.len() {
            let mut changed = bytes;
            changed[at] ^= 0x40;
            assert!(Footer::decode(&changed).is_err(), "byte {at}");
        }
    }
}
