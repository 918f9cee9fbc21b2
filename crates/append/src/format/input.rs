//! Reads the bytes that [`super`] writes.

use doclog::{DocLength, DocPointer, SegmentId};
use index::due::{Due, UNITS_LIMIT};
use index::{Expiry, Operation, Payload, Seq};

use super::{
    ALIGNMENT, Checked, DOCUMENT, DOCUMENT_EXPIRING, Damage, FILTER_BYTES_MAX, INLINE_BYTES_MAX, KIND_BITS, TOMBSTONE,
    VALUE, VALUE_EXPIRING,
};

/// Bytes, and how many of them are read.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    #[cold]
    #[inline(never)]
    fn damage<T>(
        &self, what: &'static str, expected: impl std::fmt::Display, found: impl std::fmt::Display,
    ) -> Checked<T> {
        Err(Damage::new(self.at, what, expected, found))
    }

    /// The next `count` bytes.
    // This and what reads numbers is inlined, because a search reads the bytes of many entries: a call for each took
    // longer than the comparison.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: usize) -> Checked<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..count) else {
            return self.damage("end", format_args!("{count} more bytes"), rest.len());
        };
        self.at += count;
        Ok(taken)
    }

    /// A number.
    #[inline(always)]
    pub(crate) fn number(&mut self) -> Checked<u64> {
        let Some((number, length)) = codec::number(&self.bytes[self.at..]) else {
            return self.damage("number", "one of 64 bits in its shortest form", "another");
        };
        self.at += length;
        Ok(number)
    }

    /// A count of bytes, or of things of at least a byte each; an error if fewer bytes follow.
    #[inline(always)]
    pub(crate) fn count(&mut self) -> Checked<usize> {
        let begin = self.at;
        let count = self.number()?;
        let left = self.bytes.len() - self.at;
        match usize::try_from(count) {
            Ok(count) if count <= left => Ok(count),
            _ => Self { at: begin, ..*self }.damage("count", format_args!("at most {left}"), count),
        }
    }

    /// Bytes behind their number.
    #[inline(always)]
    pub(crate) fn bytes(&mut self) -> Checked<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    /// A pointer.
    pub(crate) fn pointer(&mut self) -> Checked<DocPointer> {
        let begin = self.at;
        let (segment, offset, length) =
            (SegmentId(self.number()?), self.number()?, DocLength::from_bits(self.number()?));
        let crc = self.take(4)?;
        let Some(offset) = offset.checked_mul(ALIGNMENT) else {
            return Err(Damage::new(begin, "offset in a pointer", "one of 64 bits", offset));
        };
        Ok(DocPointer { segment, offset, length, crc: u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]]) })
    }

    /// The parts of a link.
    pub(crate) fn link(&mut self) -> Checked<(DocPointer, Option<Due>, &'a [u8])> {
        let pointer = self.pointer()?;
        let begin = self.at;
        let units = self.number()?;
        if units >= UNITS_LIMIT {
            return Err(Damage::new(begin, "time when a node is due", format!("less than {UNITS_LIMIT}"), units));
        }
        let (begin, filter) = (self.at, self.bytes()?);
        if filter.len() > FILTER_BYTES_MAX {
            let expected = format!("at most {} bytes", FILTER_BYTES_MAX);
            return Err(Damage::new(begin, "filter of a node", expected, filter.len()));
        }
        Ok((pointer, Due::from_units(units), filter))
    }

    /// A version.
    pub(crate) fn version(&mut self) -> Checked<(Seq, Operation<'a>)> {
        let seq = Seq(self.number()?);
        let begin = self.at;
        let word = self.number()?;
        let (kind, length) = (word & ((1 << KIND_BITS) - 1), word >> KIND_BITS);
        let expiry = match kind {
            VALUE_EXPIRING | DOCUMENT_EXPIRING => {
                let millis = self.number()?;
                let zero = || Damage::new(begin, "expiry of a version", "more than 0", millis);
                Some(Expiry::at(millis).ok_or_else(zero)?)
            }
            _ => None,
        };
        let operation = match (kind, usize::try_from(length)) {
            (VALUE | VALUE_EXPIRING, Ok(length)) if length <= INLINE_BYTES_MAX => {
                Operation::Put(Payload::Inline(self.take(length)?), expiry)
            }
            (TOMBSTONE, Ok(0)) => Operation::Delete,
            (DOCUMENT | DOCUMENT_EXPIRING, Ok(0)) => Operation::Put(Payload::Document(self.pointer()?), expiry),
            _ => return Err(Damage::new(begin, "kind of a version", "a value, a tombstone or a document", word)),
        };
        Ok((seq, operation))
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Checked<()> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            more => self.damage("end", "no more bytes", more),
        }
    }
}
