//! Keys as a function of an index.
//!
//! 1. The key of record `i` is `i` as 8 bytes big-endian, then filler that depends on `i` alone: keys sort as their indexes do, have one
//!    size, and their index can be read back.
//! 2. A random order of all of them is a [`Permutation`]: a four-round Feistel network over the next even power of two, walked along its
//!    cycle until it lands below the count (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). It needs no memory and gives each index exactly once.

use std::ops::Range;

/// Bytes of the index at the start of a key.
const INDEX_BYTES: usize = 8;

/// A bijection of 64-bit words that leaves no pattern (`SplitMix64`'s finalizer).
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The stream of bytes that belongs to `seed`, into `out`.
pub(crate) fn stream(seed: u64, out: &mut [u8]) {
    let mut state = seed;
    for chunk in out.chunks_mut(8) {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        chunk.copy_from_slice(&mix(state).to_le_bytes()[..chunk.len()]);
    }
}

/// Whether `bytes` are the stream that belongs to `seed`.
pub(crate) fn is_stream(seed: u64, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let (mut state, mut difference) = (seed, 0);
    for word in words {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        difference |= u64::from_le_bytes(*word) ^ mix(state);
    }
    let last = mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15)).to_le_bytes();
    // A comparison of slices would be a call for a few bytes.
    difference == 0 && rest.iter().zip(last).all(|(byte, expected)| *byte == expected)
}

/// Writes the key of record `index` into `key`, which has the size of all keys.
///
/// # Panics
/// When `key` is shorter than 8 bytes.
pub fn write(index: u64, key: &mut [u8]) {
    assert!(key.len() >= INDEX_BYTES, "a key has room for its index");
    key[..INDEX_BYTES].copy_from_slice(&index.to_be_bytes());
    stream(mix(index), &mut key[INDEX_BYTES..]);
}

/// The key of record `index`.
///
/// # Panics
/// When `size` is below 8.
#[must_use]
pub fn key(index: u64, size: usize) -> Vec<u8> {
    let mut key = vec![0; size];
    write(index, &mut key);
    key
}

/// The index of a key, or none when [`write()`] did not make it.
#[must_use]
pub fn index(key: &[u8]) -> Option<u64> {
    let (index, rest) = key.split_first_chunk()?;
    let index = u64::from_be_bytes(*index);
    is_stream(mix(index), rest).then_some(index)
}

/// A random order of `0..count`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// The order that `seed` names.
    #[must_use]
    pub const fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let half_bits = if bits < 2 { 1 } else { bits.div_ceil(2) };
        Self { count, half_bits, seed }
    }

    /// What stands at `position`, below the count.
    #[must_use]
    pub fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.count, "a position is below the count");
        let mut value = self.rounds(position);
        while value >= self.count {
            value = self.rounds(value);
        }
        value
    }

    fn rounds(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4 {
            let scrambled = mix(right ^ mix(self.seed.wrapping_add(round)));
            (left, right) = (right, left ^ (scrambled & mask));
        }
        left << self.half_bits | right
    }
}

/// The share of `0..count` that belongs to `part` of `parts`.
#[must_use]
pub fn share(count: u64, part: usize, parts: usize) -> Range<u64> {
    let edge = |part: usize| {
        let edge = u128::from(count) * part as u128 / parts as u128;
        u64::try_from(edge).expect("at most the count, since part is at most parts")
    };
    edge(part)..edge(part + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_permutation_gives_each_index_once(count in 1u64..3000, seed: u64) {
            let order = Permutation::new(count, seed);
            let mut seen = vec![false; usize::try_from(count).expect("small")];
            for position in 0..count {
                let index = usize::try_from(order.at(position)).expect("small");
                prop_assert!(!std::mem::replace(&mut seen[index], true));
            }
        }

        #[test]
        fn keys_sort_as_their_indexes(left: u64, right: u64, size in 8usize..40) {
            prop_assert_eq!(left.cmp(&right), key(left, size).cmp(&key(right, size)));
            prop_assert_eq!(index(&key(left, size)), Some(left));
        }

        #[test]
        fn shares_cover_everything_once(count: u64, parts in 1usize..9) {
            let mut next = 0;
            for part in 0..parts {
                let share = share(count, part, parts);
                prop_assert_eq!(share.start, next);
                next = share.end;
            }
            prop_assert_eq!(next, count);
        }
    }

    #[test]
    fn a_permutation_is_not_the_key_order() {
        let order = Permutation::new(1_000_000, 7);
        let rising = (0..999).filter(|&position| order.at(position) < order.at(position + 1)).count();
        assert!((400..600).contains(&rising), "{rising} of 999 neighbours rise");
    }

    #[test]
    fn a_foreign_key_has_no_index() {
        assert_eq!(index(b"src/main.rs-and-more"), None);
        assert_eq!(index(b"short"), None);
    }
}
