//! Every byte that the LSM tree puts on storage.
//!
//! All integers are little-endian. A **file** is written once, from its beginning to its end:
//!
//! ```text
//! .  data blocks ([`block`]), in key order
//! .  behind the data blocks of each partition: the partition ([`fences`]), and its filter ([`filter`])
//! .  the top ([`fences`])
//! .  the footer ([`footer`])
//! ```
//!
//! What refers to a block has its [`Place`]: offset, bytes and CRC-32C. The CRC begins with the identity of the block:
//! table, number of the file, and offset. A stored block has a byte before it that says how it is compressed.

pub(crate) mod block;
pub(crate) mod edit;
pub(crate) mod fences;
pub(crate) mod filter;
pub(crate) mod footer;
mod keys;
pub(crate) mod stored;

pub(crate) use index::Damage;

use codec::sized;

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 8 << 10;

/// Most bytes of a value that is not a document.
pub const INLINE_BYTES_MAX: usize = 32 << 10;

/// Most bytes of a block: ends in it are numbers of 16 bits, and a stored block has a byte before it.
pub(crate) const BLOCK_BYTES_MAX: usize = u16::MAX as usize - 1;

const _: () = assert!(KEY_BYTES_MAX + INLINE_BYTES_MAX + 64 <= BLOCK_BYTES_MAX);

/// A decoded value, or the reason why the bytes do not check.
pub(crate) type Checked<T> = Result<T, Damage>;

/// Where a block is in its file, and its checksum. A place of no bytes is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u32,
    pub(crate) bytes: u16,
    pub(crate) crc: u32,
}

impl Place {
    /// Bytes of an encoded place.
    pub(crate) const BYTES: usize = 10;

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[6..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// The place that is encoded at `at`.
    pub(crate) fn decode(bytes: &[u8], at: usize) -> Self {
        let (offset, crc) = (sized::u32_at(bytes, at), sized::u32_at(bytes, at + 6));
        Self { offset, bytes: sized::u16_at(bytes, at + 4), crc }
    }
}
