//! Columns: numbers of one kind, side by side. Each is stored as its distance from the least of them, in as few bytes
//! as the greatest distance needs.
//!
//! Neighbours in a tree are alike: their pages lie together, and their incarnations were given in a row. A column costs
//! [`DESCRIPTOR`] bytes (the least number, and the bytes of a distance) and is read in place.

use codec::u64_at;

/// Bytes of a column's descriptor.
pub(crate) const DESCRIPTOR: usize = 9;

/// Bytes behind the last column that a read may touch.
pub(crate) const SLACK: usize = 8;

/// The least and the greatest of some numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    least: u64,
    most: u64,
}

impl Span {
    /// The span of no numbers.
    pub(crate) const NONE: Self = Self { least: u64::MAX, most: 0 };

    pub(crate) fn add(&mut self, number: u64) {
        self.least = self.least.min(number);
        self.most = self.most.max(number);
    }

    /// Bytes of each number in the column.
    pub(crate) const fn width(&self) -> usize {
        (64 - self.most.saturating_sub(self.least).leading_zeros() as usize).div_ceil(8)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.least.to_le_bytes());
        out.push(self.width().to_le_bytes()[0]);
    }

    pub(crate) fn encode_number(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&(number - self.least).to_le_bytes()[..self.width()]);
    }
}

/// Bytes of each number of the column whose descriptor is at `at`; none where the descriptor is impossible.
pub(crate) fn width(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at + 8).map(|width| usize::from(*width)).filter(|width| *width <= 8)
}

/// Number `index` of the column with a descriptor at `descriptor`, whose numbers begin at `at`. `bytes` continue for
/// [`SLACK`] bytes behind the numbers.
#[inline]
pub(crate) fn number(bytes: &[u8], descriptor: usize, at: usize, index: usize) -> Option<u64> {
    let [least @ .., width] = bytes.get(descriptor..)?.first_chunk::<DESCRIPTOR>()?;
    let (least, width) = (u64::from_le_bytes(*least), u32::from(*width));
    let eight = u64_at(bytes, at + index * width as usize)?;
    // A shift by 64 bits overflows, so `checked_shl` is needed.
    let distance = eight & !u64::MAX.checked_shl(8 * width).unwrap_or(0);
    least.checked_add(distance)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec(any::<u64>(), 1..20), shift in 0..64_u32) {
            let numbers: Vec<_> = numbers.iter().map(|number| number >> shift).collect();
            let mut span = Span::NONE;
            numbers.iter().for_each(|number| span.add(*number));
            let mut bytes = Vec::new();
            span.encode(&mut bytes);
            numbers.iter().for_each(|number| span.encode_number(*number, &mut bytes));
            prop_assert_eq!(bytes.len(), DESCRIPTOR + numbers.len() * span.width());
            prop_assert_eq!(width(&bytes, 0), Some(span.width()));
            bytes.resize(bytes.len() + SLACK, 0xa5);
            for (index, expected) in numbers.iter().enumerate() {
                prop_assert_eq!(number(&bytes, 0, DESCRIPTOR, index), Some(*expected));
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..40), at in 0..60_usize, index in 0..60_usize,
        ) {
            let _ = (width(&bytes, at), number(&bytes, 0, at, index));
        }
    }
}
