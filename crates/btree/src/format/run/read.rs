//! Reading runs: their headers, and their entries by number.
//!
//! Invariants:
//!
//! - A decoded header could be that of a run of its length. The entries of a uniform run fill the run exactly, and
//!   their key length and word are possible ones.
//! - The content of a general run is checked as its entries are read.
//! - So no input causes a panic, and every returned range lies within the run.

use std::ops::Range;

use codec::{u16_at, u32_at, u64_at};
use index::{Expiry, Seq, Update};

use super::{
    ENTRY_BYTES_MIN, ENTRY_FIXED, EntryWord, Identity, RUN_HEADER, SHAPE, SLOT, Shape, TYPE_GENERAL, TYPE_UNIFORM,
    UNIFORM_HEADER,
};
use crate::format::{Damage, KEY_BYTES_MAX};

/// The fields of a run's header. `decode` checks the shape, and `check` checks the CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunHeader {
    pub(crate) length: u16,
    pub(crate) crc: u32,
    pub(crate) width: u8,
    pub(crate) count: u16,
    pub(crate) base: u64,
    /// The shape of all entries, in a uniform run.
    shape: Option<Shape>,
}

impl RunHeader {
    /// Decodes the header at the start of `bytes`, which end where the run must end at the latest. None where there is
    /// no run. The run's shape is checked, its CRC is not.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, Damage> {
        let missing = || Damage::new(0, "run header", "a whole header", "the end of the page");
        let length = u16_at(bytes, 0).ok_or_else(missing)?;
        if length == 0 {
            return Ok(None);
        }
        let shape = match bytes.get(6) {
            None => return Err(missing()),
            Some(&TYPE_GENERAL) => None,
            Some(&TYPE_UNIFORM) => Some(Shape::decode(bytes, RUN_HEADER).ok_or_else(missing)?),
            Some(other) => {
                let expected = format!("{TYPE_GENERAL} or {TYPE_UNIFORM}");
                return Err(Damage::new(6, "type of a run", expected, other));
            }
        };
        let header = Self {
            length,
            crc: u32_at(bytes, 2).ok_or_else(missing)?,
            width: *bytes.get(7).ok_or_else(missing)?,
            count: u16_at(bytes, 8).ok_or_else(missing)?,
            base: u64_at(bytes, 10).ok_or_else(missing)?,
            shape,
        };
        if usize::from(length) > bytes.len() {
            return Err(Damage::new(0, "length of a run", format!("at most {}", bytes.len()), length));
        }
        if header.width > 8 {
            return Err(Damage::new(7, "seq width of a run", "at most 8", header.width));
        }
        match shape {
            None => header.check_general()?,
            Some(shape) => header.check_uniform(shape)?,
        }
        Ok(Some(header))
    }

    fn check_general(&self) -> Result<(), Damage> {
        let (length, count) = (usize::from(self.length), usize::from(self.count));
        if count == 0 || RUN_HEADER + count * ENTRY_FIXED > length {
            let expected = format!("1 to {}", length / ENTRY_FIXED);
            return Err(Damage::new(8, "entries of a run", expected, count));
        }
        Ok(())
    }

    fn check_uniform(&self, shape: Shape) -> Result<(), Damage> {
        let key_length = usize::from(shape.key_length);
        if key_length > KEY_BYTES_MAX {
            return Err(Damage::new(RUN_HEADER, "key length of a run", format!("at most {KEY_BYTES_MAX}"), key_length));
        }
        if !shape.is_plausible() {
            let (expected, found) = ("a kind, and a length that its values have", format!("{:04x}", shape.word.0));
            return Err(Damage::new(RUN_HEADER + 2, "word of a run", expected, found));
        }
        if !shape.is_long_enough() {
            let expected = format!("at least {ENTRY_BYTES_MIN} bytes");
            return Err(Damage::new(RUN_HEADER, "key and value in a uniform run", expected, shape.bytes()));
        }
        let bytes = UNIFORM_HEADER + usize::from(self.count) * (usize::from(self.width) + shape.bytes());
        if self.count == 0 || bytes != usize::from(self.length) {
            let expected = format!("entries that fill {} bytes", self.length);
            return Err(Damage::new(8, "entries of a run", expected, format!("{} in {bytes}", self.count)));
        }
        Ok(())
    }

    /// Checks the CRC of `run`, which is exactly the run.
    pub(crate) fn check(&self, run: &[u8], identity: &Identity, position: u32, previous: u32) -> Result<(), Damage> {
        let crc = identity.crc(position, previous, run);
        if crc == self.crc || seeded::on(seeded::Bug::RunChecksumSkipped) {
            return Ok(());
        }
        let (expected, found) = (format!("{:08x}", self.crc), format!("{crc:08x}"));
        Err(Damage::new(2, "CRC of a run", expected, found))
    }
}

/// Where an entry is in its run. Key and value lie within the run, and the word is a valid one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace {
    pub(crate) seq: u64,
    pub(crate) key_at: u16,
    pub(crate) key_length: u16,
    /// Kind and length of the value, which follows the key.
    pub(crate) word: EntryWord,
}

/// Some entries of a uniform run, one behind the other.
pub(crate) struct Strip<'a> {
    /// Offset of the first entry's key in the run.
    pub(crate) key_at: usize,
    /// Distance from one entry to the next.
    pub(crate) stride: usize,
    pub(crate) key_length: u16,
    /// Kind and length of each value, which follows the key.
    pub(crate) word: EntryWord,
    /// Bytes of the entries, each from eight bytes before the key on.
    bytes: &'a [u8],
    prefix: usize,
    base: u64,
    /// How many bits of the eight bytes before a key are not of its seq.
    others: u32,
}

impl Strip<'_> {
    /// The seq of each entry, and the eight bytes of its key behind the prefix.
    #[inline]
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        let Self { prefix, base, others, .. } = *self;
        self.bytes.chunks_exact(self.stride).map(move |entry| {
            let eight = |at: usize| entry[at..].first_chunk::<8>().expect("an entry of a strip is that long");
            let delta = u64::from_le_bytes(*eight(0)).checked_shr(others).unwrap_or(0);
            (base.wrapping_add(delta), u64::from_be_bytes(*eight(8 + prefix)))
        })
    }
}

/// The first eight bytes of each key of a uniform run, as numbers ([`index::head`]).
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a> {
    /// Bytes from the first key on.
    keys: &'a [u8],
    /// Distance from one key to the next.
    stride: usize,
}

impl Heads<'_> {
    /// The head of the entry at `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> u64 {
        let key = self.keys.get(index * self.stride..).and_then(<[u8]>::first_chunk);
        key.copied().map_or(0, u64::from_be_bytes)
    }
}

/// A run of a leaf in memory.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    bytes: &'a [u8],
    count: usize,
    width: usize,
    base: u64,
    /// The shape of all entries, in a uniform run.
    shape: Option<Shape>,
}

impl<'a> Run<'a> {
    /// `bytes` is exactly the run, `header` its header.
    pub(crate) fn new(bytes: &'a [u8], header: &RunHeader) -> Self {
        Self {
            bytes,
            count: usize::from(header.count),
            width: usize::from(header.width),
            base: header.base,
            shape: header.shape,
        }
    }

    /// Number of entries.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// The bytes of the run.
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Key and seq of the entry at `index`; none where the run is malformed.
    #[inline]
    pub(crate) fn key(&self, index: usize) -> Option<(&'a [u8], Seq)> {
        let key_at = self.key_at(index)?;
        Some((self.bytes.get(key_at.clone())?, Seq(self.seq_before(key_at.start)?)))
    }

    /// The first and the last key; none where the run is malformed.
    #[inline]
    pub(crate) fn ends(&self) -> Option<(&'a [u8], &'a [u8])> {
        Some((self.bytes.get(self.key_at(0)?)?, self.bytes.get(self.key_at(self.count - 1)?)?))
    }

    /// Where the key of the entry at `index` should be.
    #[inline]
    fn key_at(&self, index: usize) -> Option<Range<usize>> {
        let (key_at, key_length) = match self.shape {
            Some(shape) => (self.uniform_key_at(index, shape), shape.key_length),
            None => {
                let at = self.slot(index)?;
                (at + SHAPE + self.width, u16_at(self.bytes, at)?)
            }
        };
        Some(key_at..key_at + usize::from(key_length))
    }

    /// The heads of all keys, if the run is uniform and its keys have at least eight bytes.
    #[inline]
    pub(crate) fn heads(&self) -> Option<Heads<'a>> {
        let shape = self.shape.filter(|shape| usize::from(shape.key_length) >= 8)?;
        let keys = self.bytes.get(UNIFORM_HEADER + self.width..)?;
        Some(Heads { keys, stride: self.width + shape.bytes() })
    }

    /// A strip of some entries, at least one. The entries have one shape, and each key has eight bytes behind the first
    /// `prefix`. There is no strip where each entry needs a check of its own: too short entries, seqs so near the
    /// greatest seq that a sum could overflow, or entries that expire.
    #[inline]
    pub(crate) fn strip(&self, entries: Range<usize>, prefix: usize) -> Option<Strip<'a>> {
        let shape = self.shape?;
        let Shape { key_length, word } = shape;
        let (stride, others) = (self.width + shape.bytes(), 64 - 8 * u32::try_from(self.width).ok()?);
        let careful = prefix + 8 > usize::from(key_length) || prefix + 16 > stride || word.expires();
        self.base.checked_add(u64::MAX.checked_shr(others).unwrap_or(0))?;
        let key_at = self.uniform_key_at(entries.start, shape);
        let bytes = self.bytes.get(key_at - 8..key_at - 8 + entries.len() * stride)?;
        (!careful).then_some(Strip { key_at, stride, key_length, word, bytes, prefix, base: self.base, others })
    }

    /// The entry at `index`; none where the run is malformed.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<Update<'a>> {
        let EntryPlace { seq, key_at, key_length, word } = self.place(index)?;
        let (key_at, value_at) = (usize::from(key_at), usize::from(key_at) + usize::from(key_length));
        let key = self.bytes.get(key_at..value_at)?;
        Some(Update { key, seq: Seq(seq), operation: word.operation(self.bytes.get(value_at..)?)? })
    }

    /// The expiry of the entry at `place`, whose word says that there is one; none where the run is malformed.
    #[inline]
    pub(crate) fn expiry(&self, place: &EntryPlace) -> Option<Expiry> {
        let value_at = usize::from(place.key_at) + usize::from(place.key_length);
        self.bytes.get(value_at + place.word.value_length()..).and_then(Expiry::decode)
    }

    /// Where the entry at `index` is; none where the run is malformed.
    // Inlined, because a scan asks for every entry: a call each time took as long as the rest of the scan's loop.
    #[inline(always)]
    pub(crate) fn place(&self, index: usize) -> Option<EntryPlace> {
        let (key_at, shape) = match self.shape {
            Some(shape) => (self.uniform_key_at(index, shape), shape),
            None => {
                let at = self.slot(index)?;
                let shape = Shape::decode(self.bytes, at).filter(|shape| shape.is_plausible())?;
                (at + SHAPE + self.width, shape)
            }
        };
        if key_at + shape.bytes() > self.bytes.len() {
            return None;
        }
        let Shape { key_length, word } = shape;
        Some(EntryPlace { seq: self.seq_before(key_at)?, key_at: u16::try_from(key_at).ok()?, key_length, word })
    }

    /// Where the key of an entry is in a uniform run.
    #[inline]
    fn uniform_key_at(&self, index: usize, shape: Shape) -> usize {
        debug_assert!(index < self.count, "the caller stays within the run");
        UNIFORM_HEADER + index * (self.width + shape.bytes()) + self.width
    }

    /// Where an entry begins in a general run.
    #[inline]
    fn slot(&self, index: usize) -> Option<usize> {
        debug_assert!(index < self.count, "the caller stays within the run");
        u16_at(self.bytes, RUN_HEADER + SLOT * index).map(usize::from)
    }

    /// The seq of the entry whose key begins at `key_at`. The seq ends there.
    #[inline]
    fn seq_before(&self, key_at: usize) -> Option<u64> {
        // The seq is in the last `width` of the eight bytes before the key. Eight bytes exist, because the header is
        // longer.
        let eight = u64_at(self.bytes, key_at.checked_sub(8)?)?;
        let delta = if self.width == 0 { 0 } else { eight >> (64 - 8 * self.width) };
        self.base.checked_add(delta)
    }
}
