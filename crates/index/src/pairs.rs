//! Pairs that lie in one piece of memory, handed over together.
//!
//! A structure lists where its pairs are, and hands the list over with the memory. Whoever looks at them does so in a loop of its own: there is
//! no call between two of them.

use doclog::DocPointer;

use crate::{Direction, PairRef, Payload, Seq};

/// Where a pair is in a piece of memory: its key, and right behind it its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairAt {
    seq: Seq,
    key_at: u32,
    key_length: u16,
    /// Bytes of the value, and whether they are a document pointer.
    value: u16,
}

/// Beside a value's length: it is a document pointer.
const DOCUMENT: u16 = 1 << 15;

impl PairAt {
    /// A pair whose key begins at `key_at` and whose value has `value_length` bytes, below 32 KiB: those of a [`DocPointer`] where it is one.
    #[must_use]
    #[inline]
    pub const fn new(seq: Seq, key_at: u32, key_length: u16, value_length: u16, is_document: bool) -> Self {
        debug_assert!(value_length < DOCUMENT, "a value in an index is short");
        Self { seq, key_at, key_length, value: if is_document { value_length | DOCUMENT } else { value_length } }
    }

    /// The commit that made it, and where its key begins.
    #[must_use]
    #[inline]
    pub const fn version(&self) -> (Seq, u32) {
        (self.seq, self.key_at)
    }

    /// Its key.
    ///
    /// # Panics
    /// When `bytes` are not the memory that it is in.
    #[must_use]
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let at = self.key_at as usize;
        &bytes[at..at + usize::from(self.key_length)]
    }

    /// The pair.
    ///
    /// # Panics
    /// When `bytes` are not the memory that it is in.
    #[must_use]
    #[inline]
    pub fn pair<'a>(&self, bytes: &'a [u8]) -> PairRef<'a> {
        let (at, key_length) = (self.key_at as usize, usize::from(self.key_length));
        let length = key_length + usize::from(self.value & !DOCUMENT);
        let (key, value) = bytes[at..at + length].split_at(key_length);
        let value = if self.value & DOCUMENT == 0 {
            Payload::Inline(value)
        } else {
            Payload::Document(DocPointer::decode(value.try_into().expect("a document pointer has its length")))
        };
        PairRef { key, seq: self.seq, value }
    }
}

/// Pairs in the order in which a cursor comes to them.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    places: std::slice::Iter<'a, PairAt>,
    bytes: &'a [u8],
    direction: Direction,
}

impl<'a> Pairs<'a> {
    /// The pairs at `places` of `bytes`, which rise by key, in that direction.
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
    use doclog::SegmentId;

    use super::*;

    #[test]
    fn pairs_come_in_their_direction_with_what_their_values_are() {
        let document = DocPointer { segment: SegmentId(3), offset: 4096, length: 70_000, crc: 9 };
        let bytes = [b"--a1b", &document.encode()[..], b"c"].concat();
        let length = u16::try_from(DocPointer::BYTES).expect("short");
        let places = [
            PairAt::new(Seq(7), 2, 1, 1, false),
            PairAt::new(Seq(5), 4, 1, length, true),
            PairAt::new(Seq(6), 5 + u32::from(length), 1, 0, false),
        ];
        let pair = |key, seq, value| PairRef { key, seq: Seq(seq), value };
        let mut expected = vec![
            pair(&b"a"[..], 7, Payload::Inline(b"1")),
            pair(b"b", 5, Payload::Document(document)),
            pair(b"c", 6, Payload::Inline(b"")),
        ];
        let all = |direction| Pairs::new(&places, &bytes, direction).collect::<Vec<_>>();
        assert_eq!(all(Direction::Forward), expected);
        expected.reverse();
        assert_eq!(all(Direction::Backward), expected);
        assert_eq!(Pairs::new(&places[1..], &bytes, Direction::Forward).len(), 2);
    }
}
