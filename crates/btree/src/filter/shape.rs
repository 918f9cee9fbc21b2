//! The size and content of a leaf's filter.

use index::bloom::PROBES;

/// Most bytes of a filter: three leaves with the longest bounds and filters fit in a node.
pub(crate) const BYTES_MAX: usize = 328;

/// Bits for each entry that a leaf has room for. Leaves are seven tenths full on average, so an entry has eleven, and
/// one lookup in a hundred is misled.
pub(crate) const ENTRY_BITS: usize = 8;

/// Bytes of an end.
pub(super) const END: usize = 4;

/// Bytes of a word.
const WORD: usize = 8;

const _: () = assert!(BYTES_MAX / WORD <= u8::MAX as usize);

/// The size and content of a leaf's filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Words of bits; none where the leaf has no filter.
    words: u8,
    /// Whether the keys that the leaf was made with are in the filter.
    covers_sorted: bool,
}

impl Shape {
    /// No filter: every block that may hold a key has to be read.
    pub(crate) const NONE: Self = Self { words: 0, covers_sorted: false };

    /// The shape for a leaf of `pages` that was made of so many entries in `length` bytes, on `sorted` sorted pages.
    pub(crate) fn new(pages: u32, sorted: u32, entries: usize, length: usize) -> Self {
        let room = BYTES_MAX.saturating_sub((pages - sorted) as usize * END) / WORD;
        let words = |bytes: usize| (bytes * entries).div_ceil(length.max(1)).saturating_mul(ENTRY_BITS).div_ceil(64);
        let capacity = pages as usize * space::PAGE;
        let (all, appended) = (words(capacity), words(capacity.saturating_sub(length)));
        let (words, covers_sorted) = if all <= room { (all, true) } else { (appended.min(room), false) };
        Self { words: u8::try_from(words).expect("at most BYTES_MAX"), covers_sorted }.sound()
    }

    /// A shape without bits is no filter.
    const fn sound(self) -> Self {
        if self.words == 0 { Self::NONE } else { self }
    }

    pub(crate) const fn is_none(self) -> bool {
        self.words == 0
    }

    /// The probability that a filter of so many entries says that an absent key may be on a page, because other keys
    /// have set all bits of the absent one.
    pub(crate) fn mistaken(self, entries: f64) -> f64 {
        let (bits, probes) = (f64::from(self.words) * 64.0, f64::from(PROBES));
        if self.is_none() { 1.0 } else { (1.0 - (-probes * entries / bits).exp()).powf(probes) }
    }

    /// Whether the keys that the leaf was made with are in the filter.
    pub(crate) const fn covers_sorted(self) -> bool {
        self.covers_sorted
    }

    /// As a field of a pointer.
    pub(crate) const fn field(self) -> u64 {
        (self.words as u64) << 1 | self.covers_sorted as u64
    }

    /// The shape with this field, in a leaf of `pages` of which `sorted` are sorted. None where such a shape cannot be.
    pub(crate) fn of_field(field: u64, pages: u32, sorted: u32) -> Option<Self> {
        let shape = Self { words: u8::try_from(field >> 1).ok()?, covers_sorted: field & 1 == 1 };
        let is_possible = shape == shape.sound() && sorted <= pages && shape.bytes(pages - sorted) <= BYTES_MAX;
        is_possible.then_some(shape)
    }

    /// Bytes of such a filter with so many ends.
    pub(crate) const fn bytes(self, ends: u32) -> usize {
        if self.is_none() { 0 } else { ends as usize * END + self.words as usize * WORD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_eight_bits_as_far_as_a_node_has_room() {
        assert_eq!(Shape::new(2, 1, 34, 4080), Shape { words: 9, covers_sorted: true });
        let large = Shape::new(16, 8, 34 * 8, 8 * 4096);
        assert_eq!(large, Shape { words: 34, covers_sorted: false });
        assert_eq!(Shape::new(64, 32, 34 * 32, 32 * 4096), Shape { words: 25, covers_sorted: false });
        assert_eq!(Shape::new(400, 100, 34, 4096), Shape::NONE);
        for (pages, sorted, entries, length) in [(1, 1, 1, 40), (4, 1, 900, 4000), (64, 60, 2000, 245_000)] {
            let shape = Shape::new(pages, sorted, entries, length);
            assert!(shape.bytes(pages - sorted) <= BYTES_MAX);
            assert_eq!(Shape::of_field(shape.field(), pages, sorted), Some(shape));
        }
        assert_eq!(Shape::of_field(1, 2, 1), None, "a filter without bits is none");
        assert_eq!(Shape::of_field(42 << 1, 2, 1), None, "too long");
        assert_eq!(Shape::of_field(400 << 1, 2, 1), None);
    }
}
