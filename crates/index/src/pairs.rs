//! Pairs in one piece of memory, handed over together.
//!
//! A structure lists the positions of its pairs, and hands the list over with the memory. The reader looks at them in a
//! loop of its own, so there is no call between two pairs.

use doclog::DocPointer;

use crate::{Direction, Expiry, PairRef, Payload, Seq};

/// The position of a pair in a piece of memory. The value is right behind the key, and the expiry, if there is one, is
/// right behind the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairAt {
    seq: Seq,
    key_at: u32,
    /// Bytes of the key, and two flags: the value is a document pointer, and the value expires.
    key: u16,
    value_length: u16,
}

/// Flag beside a key's length: the value is a document pointer.
const DOCUMENT: u16 = 1 << 15;
/// Flag beside a key's length: an expiry is behind the value.
const EXPIRES: u16 = 1 << 14;
const LENGTH: u16 = EXPIRES - 1;

impl PairAt {
    /// A pair whose key begins at `key_at`, and has below 16 KiB. For a document the bytes of the value are those of a
    /// [`DocPointer`].
    #[must_use]
    #[inline]
    pub const fn new(
        seq: Seq, key_at: u32, key_length: u16, value_length: u16, is_document: bool, expires: bool,
    ) -> Self {
        debug_assert!(key_length <= LENGTH, "a key in an index is short");
        let flags = if is_document { DOCUMENT } else { 0 } | if expires { EXPIRES } else { 0 };
        Self { seq, key_at, key: key_length | flags, value_length }
    }

    /// The pair whose key is in `bytes` from `key_at` to their end. Its value and its expiry are put behind the key.
    ///
    /// # Panics
    /// When the key or the value is too long for an index, or `key_at` beyond 4 GiB.
    #[must_use]
    pub fn put(bytes: &mut Vec<u8>, key_at: usize, seq: Seq, value: Payload<'_>, expiry: Option<Expiry>) -> Self {
        let value_at = bytes.len();
        let is_document = match value {
            Payload::Inline(value) => {
                bytes.extend_from_slice(value);
                false
            }
            Payload::Document(document) => {
                bytes.extend_from_slice(&document.encode());
                true
            }
        };
        let short = |length| u16::try_from(length).expect("keys and inline values are short");
        let (key_length, value_length) = (short(value_at - key_at), short(bytes.len() - value_at));
        bytes.extend(expiry.iter().flat_map(|expiry| expiry.encode()));
        let key_at = u32::try_from(key_at).expect("pairs that are taken together are few");
        Self::new(seq, key_at, key_length, value_length, is_document, expiry.is_some())
    }

    /// The commit that made the pair, and the position of its key.
    #[must_use]
    #[inline]
    pub const fn version(&self) -> (Seq, u32) {
        (self.seq, self.key_at)
    }

    /// The key of the pair.
    ///
    /// # Panics
    /// When `bytes` are not the memory of the pair.
    #[must_use]
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let at = self.key_at as usize;
        &bytes[at..at + usize::from(self.key & LENGTH)]
    }

    /// The pair.
    ///
    /// # Panics
    /// When `bytes` are not the memory of the pair.
    #[must_use]
    #[inline]
    pub fn pair<'a>(&self, bytes: &'a [u8]) -> PairRef<'a> {
        let (at, key_length) = (self.key_at as usize, usize::from(self.key & LENGTH));
        let length = key_length + usize::from(self.value_length);
        let (key, value) = bytes[at..at + length].split_at(key_length);
        let value = if self.key & DOCUMENT == 0 {
            Payload::Inline(value)
        } else {
            Payload::Document(DocPointer::decode(value.try_into().expect("a document pointer has its length")))
        };
        let expires = self.key & EXPIRES != 0;
        let expiry = if expires { bytes.get(at + length..).and_then(Expiry::decode) } else { None };
        PairRef { key, seq: self.seq, value, expiry }
    }
}

/// Pairs in the order in which a cursor meets them.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    places: std::slice::Iter<'a, PairAt>,
    bytes: &'a [u8],
    direction: Direction,
}

impl<'a> Pairs<'a> {
    /// The pairs at `places` of `bytes`, to be met in that direction. `places` rise by key.
    #[must_use]
    pub fn new(places: &'a [PairAt], bytes: &'a [u8], direction: Direction) -> Self {
        Self { places: places.iter(), bytes, direction }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = PairRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<PairRef<'a>> {
        let place = match self.direction {
            Direction::Forward => self.places.next(),
            Direction::Backward => self.places.next_back(),
        }?;
        Some(place.pair(self.bytes))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.places.size_hint()
    }
}

impl ExactSizeIterator for Pairs<'_> {}

#[cfg(test)]
mod tests {
    use doclog::{DocLength, SegmentId};

    use super::*;

    #[test]
    fn pairs_come_in_their_direction_with_what_their_values_are() {
        let document = DocPointer { segment: SegmentId(3), offset: 4096, length: DocLength::plain(70_000), crc: 9 };
        let expiry = Expiry::at(9).expect("not 0");
        let bytes = [b"--a1b", &document.encode()[..], b"c", &expiry.encode()].concat();
        let length = u16::try_from(DocPointer::BYTES).expect("short");
        let places = [
            PairAt::new(Seq(7), 2, 1, 1, false, false),
            PairAt::new(Seq(5), 4, 1, length, true, false),
            PairAt::new(Seq(6), 5 + u32::from(length), 1, 0, false, true),
        ];
        let pair = |key, seq, value, expiry| PairRef { key, seq: Seq(seq), value, expiry };
        let mut expected = vec![
            pair(&b"a"[..], 7, Payload::Inline(b"1"), None),
            pair(b"b", 5, Payload::Document(document), None),
            pair(b"c", 6, Payload::Inline(b""), Some(expiry)),
        ];
        let all = |direction| Pairs::new(&places, &bytes, direction).collect::<Vec<_>>();
        assert_eq!(all(Direction::Forward), expected);
        expected.reverse();
        assert_eq!(all(Direction::Backward), expected);
        assert_eq!(Pairs::new(&places[1..], &bytes, Direction::Forward).len(), 2);
    }
}
