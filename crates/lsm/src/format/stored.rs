//! A block as it is stored.
//!
//! ```text
//! 0  how     u8   1: as it is; 2: compressed with LZ4, 3: with Zstandard
//! 1  length  u16  of the block, if it is compressed
//! .  the block
//! ```
//!
//! The CRC in the block's [`Place`](super::Place) covers table, number of the file, offset, and all of this.

use std::borrow::Cow;

use checksum::{crc32c_append, crc32c_append_all};
use codec::u16_at;
use doclog::{Compression, Flaw};
use index::{Damage, TableId};

use super::{BLOCK_BYTES_MAX, Place};

/// The codes of [`Compression::ALL`].
const CODES: [u8; Compression::ALL.len()] = [1, 2, 3];
/// Bytes before a block that is stored as it is.
pub(crate) const HEAD: usize = 1;
const LENGTH_AT: usize = HEAD;
const COMPRESSED_AT: usize = 3;
/// A compressed block is stored as such if that saves one part in so many.
const SAVES_PART: usize = 8;

/// The file of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) table: TableId,
    pub(crate) number: u64,
}

impl Identity {
    /// The CRC of a stored block at `offset`.
    fn crc(self, offset: u32, bytes: &[u8]) -> u32 {
        let before = [&self.table.0.to_le_bytes()[..], &self.number.to_le_bytes(), &offset.to_le_bytes()];
        crc32c_append(crc32c_append_all(0, before), bytes)
    }

    /// The place of a stored block at `offset`.
    pub(crate) fn place(self, offset: usize, bytes: &[u8]) -> Place {
        let (offset, length) = (u32::try_from(offset), u16::try_from(bytes.len()));
        let (offset, length) = (offset.expect("a file is not that long"), length.expect("nor is a block"));
        Place { offset, bytes: length, crc: self.crc(offset, bytes) }
    }

    /// Checks the stored bytes that were read from a place.
    pub(crate) fn check(self, place: Place, bytes: &[u8]) -> Result<(), Damage> {
        let found = self.crc(place.offset, bytes);
        if found == place.crc { Ok(()) } else { Err(Damage::of_checksum(0, "checksum of a block", place.crc, found)) }
    }
}

/// Writes a block behind `out` as it is stored.
pub(crate) fn put(out: &mut Vec<u8>, block: &[u8], compression: Compression) {
    let most = block.len() - block.len() / SAVES_PART;
    let length = u16::try_from(block.len()).expect("a block is not that long");
    match compression.compress(block, most) {
        Some(compressed) => {
            out.push(CODES[compression as usize]);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&compressed);
        }
        None => {
            out.push(CODES[Compression::None as usize]);
            out.extend_from_slice(block);
        }
    }
}

/// The block that is stored in these bytes.
///
/// # Errors
/// What is wrong with them, or that this build cannot decompress them.
pub(crate) fn get(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Flaw> {
    let damage = |what: &str| Err(Flaw::Damage(what.to_owned()));
    let Some(code) = bytes.first() else { return damage("no bytes") };
    let compression = Compression::ALL.into_iter().zip(CODES).find(|(_, known)| known == code);
    match compression {
        None => damage("bytes that are compressed in an unknown way"),
        Some((Compression::None, _)) => Ok(Cow::Borrowed(&bytes[HEAD..])),
        Some((compression, _)) => match u16_at(bytes, LENGTH_AT) {
            Some(length) if usize::from(length) <= BLOCK_BYTES_MAX => {
                Ok(compression.decompress(bytes[COMPRESSED_AT..].to_vec(), length.into())?.into())
            }
            _ => damage("no length of the block"),
        },
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    const IDENTITY: Identity = Identity { table: TableId(3), number: 5 };

    #[test]
    fn a_block_comes_back_as_it_was_however_it_is_stored() {
        let noise: Vec<u8> = (0..5000_u32).map(|number| xxh3_64(&number.to_le_bytes()).to_le_bytes()[0]).collect();
        for (block, is_shorter) in [(vec![7; 5000], true), (noise, false), (vec![1], false)] {
            for compression in Compression::ALL {
                let mut bytes = Vec::new();
                put(&mut bytes, &block, compression);
                assert_eq!(
                    bytes.len() < block.len(),
                    is_shorter && compression != Compression::None && compression.is_built()
                );
                assert_eq!(get(&bytes).expect("a block"), block);
            }
        }
    }

    #[test]
    fn a_block_of_another_file_or_place_does_not_check() {
        let bytes = [1, 2, 3];
        let place = IDENTITY.place(4096, &bytes);
        assert!(IDENTITY.check(place, &bytes).is_ok());
        assert!(IDENTITY.check(place, &[1, 2, 4]).is_err());
        assert!(IDENTITY.check(Place { offset: 8192, ..place }, &bytes).is_err());
        assert!(Identity { number: 6, ..IDENTITY }.check(place, &bytes).is_err());
        assert!(Identity { table: TableId(4), ..IDENTITY }.check(place, &bytes).is_err());
    }

    #[test]
    fn bytes_that_are_no_block_are_refused() {
        for bytes in [&[][..], &[0], &[4, 1], &[2], &[2, 1], &[3, 1, 0], &[2, 255, 255, 0], &[3, 9, 0, 1, 2, 3]] {
            assert!(get(bytes).is_err(), "{bytes:?}");
        }
    }
}
