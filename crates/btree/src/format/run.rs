//! Runs: sorted entries, appended to a leaf in one piece.
//!
//! ```text
//! run                                              general run: behind the header
//!   0  length  u16  header and all; 0: go to the     .  slots  u16 × count: where each entry begins in the run
//!                   next page                        .  entries
//!   2  crc     u32                                 its entry
//!   6  type    u8   1: general, 2: uniform           0  key length  u16
//!   7  width   u8   bytes of a seq, 0 to 8           2  kind << 12 | value length  u16
//!   8  count   u16  entries, at least 1              4  seq - base  in `width` bytes
//!  10  base    u64  least seq                        .  key
//!   .  behind it: what the type says                 .  value: its bytes, or a document pointer
//!                                                    .  expiry u64  of kinds that say so: ms since 1970
//!
//! uniform run: behind the header                   its entry
//!   0  key length  u16                               0  seq - base  in `width` bytes
//!   2  kind << 12 | value length  u16                .  key
//!   4  entries                                       .  value
//!                                                    .  expiry
//! ```
//!
//! Kinds: 1 a value, 2 a tombstone, 3 a document pointer, 4 a value that expires, 5 a document pointer that
//! expires; 6 to 15 are free.
//!
//! Entries stand by key, then by seq. A run is **uniform** where all its entries have keys of one length and the same
//! word (kind and value length). Most runs of fixed-size records are uniform. A uniform run stores both once and needs
//! no slots, because entry `i` begins at a multiple of the entry size. A uniform run is always shorter than the general
//! run of the same entries, so every run that can be uniform is. The exception is a key and value of together fewer
//! than [`ENTRY_BYTES_MIN`] bytes, because a leaf could hold more such entries than its pointer can count.
//!
//! The CRC covers {incarnation u64, table u32, position of the run in the leaf u32, CRC of the run before it u32 (0 for
//! the first), length u16} and then the run from its type on. So the CRC of the last run vouches for the whole leaf:
//! the runs, their order and their places.
//!
//! A run never crosses a page. The rest of a page after its last run is zero, so a reader finds a length of zero there.
//! Where not even a header fits, the reader moves on without looking.

mod one_seq;
mod plan;
mod read;
#[cfg(test)]
mod tests;

use codec::u16_at;
use doclog::DocPointer;
use index::{Expiry, Operation, PairAt, Payload, Seq, TableId, Update};
use space::PAGE;

pub(crate) use one_seq::OneSeqRun;
pub(crate) use plan::{Plan, RunSize};
pub(crate) use read::{EntryPlace, Heads, Run, RunHeader};

use super::{INLINE_BYTES_MAX, KEY_BYTES_MAX, LEAF_PAGES_MAX};

/// Bytes of the header of every run.
pub(crate) const RUN_HEADER: usize = 18;

/// Bytes of an entry of a general run besides seq, key and value, its slot included.
pub(crate) const ENTRY_FIXED: usize = SLOT + SHAPE;

/// The smallest entry, which is in a uniform run.
pub(crate) const ENTRY_BYTES_MIN: usize = 4;

/// An upper bound of the entries on a page.
pub(crate) const PAGE_ENTRIES_MAX: usize = (PAGE - RUN_HEADER) / ENTRY_BYTES_MIN;

/// Bytes of a slot: the offset of an entry.
const SLOT: usize = 2;

/// Bytes of key length and word, of one entry or of all.
const SHAPE: usize = 4;

/// Bytes of a uniform run before its entries.
const UNIFORM_HEADER: usize = RUN_HEADER + SHAPE;

/// Bytes of an encoded document pointer.
const DOCUMENT_BYTES: usize = DocPointer::BYTES;

/// Bytes of the expiry behind a value.
pub(crate) const EXPIRY_BYTES: usize = Expiry::BYTES;

const TYPE_GENERAL: u8 = 1;
const TYPE_UNIFORM: u8 = 2;
const CRC_FROM: usize = 6;

const KIND_INLINE: u16 = 1;
const KIND_TOMBSTONE: u16 = 2;
const KIND_DOCUMENT: u16 = 3;
const KIND_INLINE_EXPIRING: u16 = 4;
const KIND_DOCUMENT_EXPIRING: u16 = 5;
const LENGTH_BITS: u32 = 12;
const VALUE_LENGTH: u16 = (1 << LENGTH_BITS) - 1;

const _: () = assert!(INLINE_BYTES_MAX <= VALUE_LENGTH as usize);
const _: () = assert!(ENTRY_BYTES_MIN <= ENTRY_FIXED);
const _: () = assert!(LEAF_PAGES_MAX as usize * PAGE_ENTRIES_MAX < 1 << 24);
const _: () = assert!(RUN_HEADER + ENTRY_FIXED + 8 + KEY_BYTES_MAX + INLINE_BYTES_MAX + EXPIRY_BYTES <= PAGE);
// A uniform run of one entry is shorter than the general one, and so is a uniform run of more entries.
const _: () = assert!(UNIFORM_HEADER < RUN_HEADER + ENTRY_FIXED);

/// The seed of a run's CRC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) incarnation: u64,
    pub(crate) table: TableId,
}

impl Identity {
    fn crc(&self, position: u32, previous: u32, run: &[u8]) -> u32 {
        let mut seed = [0; 22];
        let incarnation = if seeded::on(seeded::Bug::IncarnationReused) { 1 } else { self.incarnation };
        seed[..8].copy_from_slice(&incarnation.to_le_bytes());
        seed[8..12].copy_from_slice(&self.table.0.to_le_bytes());
        seed[12..16].copy_from_slice(&position.to_le_bytes());
        seed[16..20].copy_from_slice(&previous.to_le_bytes());
        seed[20..].copy_from_slice(&run[..2]);
        checksum::crc32c_append(checksum::crc32c(&seed), &run[CRC_FROM..])
    }
}

/// Kind and length of a value, as encoded in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryWord(u16);

impl EntryWord {
    #[inline]
    fn of(operation: &Operation<'_>) -> Self {
        let (kind, length) = match operation {
            Operation::Put(Payload::Inline(value), None) => (KIND_INLINE, value.len()),
            Operation::Put(Payload::Inline(value), Some(_)) => (KIND_INLINE_EXPIRING, value.len()),
            Operation::Put(Payload::Document(_), None) => (KIND_DOCUMENT, DOCUMENT_BYTES),
            Operation::Put(Payload::Document(_), Some(_)) => (KIND_DOCUMENT_EXPIRING, DOCUMENT_BYTES),
            Operation::Delete => (KIND_TOMBSTONE, 0),
        };
        Self(kind << LENGTH_BITS | short(length))
    }

    const fn kind(self) -> u16 {
        self.0 >> LENGTH_BITS
    }

    /// Bytes of the value.
    #[inline]
    pub(crate) const fn value_length(self) -> usize {
        (self.0 & VALUE_LENGTH) as usize
    }

    #[inline]
    pub(crate) const fn is_tombstone(self) -> bool {
        self.kind() == KIND_TOMBSTONE
    }

    /// Whether an expiry is behind the value.
    #[inline]
    pub(crate) const fn expires(self) -> bool {
        self.kind() >= KIND_INLINE_EXPIRING
    }

    /// Bytes of the value and of its expiry.
    #[inline]
    pub(crate) const fn bytes(self) -> usize {
        self.value_length() + if self.expires() { EXPIRY_BYTES } else { 0 }
    }

    #[inline]
    const fn is_plausible(self) -> bool {
        match self.kind() {
            KIND_INLINE | KIND_INLINE_EXPIRING => self.value_length() <= INLINE_BYTES_MAX,
            KIND_TOMBSTONE => self.value_length() == 0,
            KIND_DOCUMENT | KIND_DOCUMENT_EXPIRING => self.value_length() == DOCUMENT_BYTES,
            _ => false,
        }
    }

    /// The operation of an entry whose value and expiry are at the beginning of `bytes`; none where they are malformed.
    #[inline]
    pub(crate) fn operation(self, bytes: &[u8]) -> Option<Operation<'_>> {
        let (value, rest) = bytes.split_at_checked(self.value_length())?;
        let expiry = if self.expires() { Some(Expiry::decode(rest)?) } else { None };
        Some(match self.kind() {
            KIND_TOMBSTONE => Operation::Delete,
            KIND_DOCUMENT | KIND_DOCUMENT_EXPIRING => {
                Operation::Put(Payload::Document(DocPointer::decode(value.try_into().ok()?)), expiry)
            }
            _ => Operation::Put(Payload::Inline(value), expiry),
        })
    }

    /// Where the pair of a put is. For a tombstone: its key with a value of no bytes.
    #[inline]
    pub(crate) const fn pair_at(self, seq: Seq, key_at: u32, key_length: u16) -> PairAt {
        let is_document = matches!(self.kind(), KIND_DOCUMENT | KIND_DOCUMENT_EXPIRING);
        PairAt::new(seq, key_at, key_length, self.0 & VALUE_LENGTH, is_document, self.expires())
    }
}

/// The properties shared by all entries of a uniform run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    key_length: u16,
    word: EntryWord,
}

impl Shape {
    #[inline]
    fn of(update: &Update<'_>) -> Self {
        Self { key_length: short(update.key.len()), word: EntryWord::of(&update.operation) }
    }

    /// Bytes of key, value and expiry.
    #[inline]
    const fn bytes(self) -> usize {
        self.key_length as usize + self.word.bytes()
    }

    /// Whether a run of any type may have this shape.
    #[inline]
    const fn is_plausible(self) -> bool {
        self.key_length as usize <= KEY_BYTES_MAX && self.word.is_plausible()
    }

    /// Whether a uniform run may have this shape.
    #[inline]
    const fn is_long_enough(self) -> bool {
        self.bytes() >= ENTRY_BYTES_MIN
    }

    #[inline]
    fn encode(self) -> [u8; SHAPE] {
        let ([a, b], [c, d]) = (self.key_length.to_le_bytes(), self.word.0.to_le_bytes());
        [a, b, c, d]
    }

    /// None where bytes are missing.
    #[inline]
    fn decode(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self { key_length: u16_at(bytes, at)?, word: EntryWord(u16_at(bytes, at + 2)?) })
    }
}

/// A length within a page.
fn short(length: usize) -> u16 {
    u16::try_from(length).expect("nothing in a run is longer than a page")
}

/// Sets the CRC of a changed run.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn sign(run: &mut [u8], identity: &Identity, position: u32, previous: u32) -> u32 {
    let crc = identity.crc(position, previous, run);
    run[2..6].copy_from_slice(&crc.to_le_bytes());
    crc
}
