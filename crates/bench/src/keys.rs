//! Keys as a function of an index.
//!
//! 1. The key of record `i` is `i` as 8 bytes big-endian, then filler that depends on `i` alone. Keys therefore sort as
//!    their indexes do, have one size, and give their index back.
//! 2. A random order of all indexes is a [`Permutation`]: a four-round Feistel network over the next even power of two,
//!    walked along its cycle until it lands below the count (Black and Rogaway, "Ciphers with arbitrary finite
//!    domains", 2002). A permutation needs no memory and gives each index exactly once.

use std::ops::Range;

/// Bytes of the index at the start of a key.
const INDEX_BYTES: usize = 8;

/// A bijection of 64-bit words that leaves no pattern (`SplitMix64`'s finalizer).
#[must_use]
#[inline]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The difference between consecutive words of a stream: odd, and without a pattern in its bytes.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Writes the stream that belongs to `seed` into `out`, eight bytes at a time, from numbers that rise by [`STEP`].
///
/// The work per word is minimal, and a processor does several words at once, so a workload measures the database and
/// not its own check. The stream suffices: another seed has another number at every position, and hardly four of the
/// bytes repeat, so the stream does not compress.
pub(crate) fn stream(seed: u64, out: &mut [u8]) {
    let mut state = seed;
    for chunk in out.chunks_mut(8) {
        state = state.wrapping_add(STEP);
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

/// Whether `bytes` are the stream that belongs to `seed`. Every byte is compared.
#[inline]
pub(crate) fn is_stream(seed: u64, bytes: &[u8]) -> bool {
    let (mut next, mut difference) = (seed.wrapping_add(STEP), 0);
    let mut compare = |words: &[u8]| {
        for word in words.as_chunks::<8>().0 {
            difference |= u64::from_le_bytes(*word) ^ next;
            next = next.wrapping_add(STEP);
        }
    };
    // With a number of words known at compile time, no loop remains.
    let (blocks, mut rest) = bytes.as_chunks::<32>();
    blocks.iter().for_each(|block| compare(block));
    if let Some((words, behind)) = rest.split_first_chunk::<16>() {
        compare(words);
        rest = behind;
    }
    if let Some((word, behind)) = rest.split_first_chunk::<8>() {
        compare(word);
        rest = behind;
    }
    if !rest.is_empty() {
        let Some(last) = bytes.last_chunk::<8>() else { return rest == &next.to_le_bytes()[..rest.len()] };
        // The remaining bytes, compared together with the end of the word before: byte by byte would take longer.
        let bits = 8 * rest.len();
        difference |= u64::from_le_bytes(*last) ^ (next.wrapping_sub(STEP) >> bits | next << (64 - bits));
    }
    difference == 0
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

/// The index of a key, or none when [`write()`] did not make the key.
#[must_use]
#[inline]
pub fn index(key: &[u8]) -> Option<u64> {
    let (index, rest) = key.split_first_chunk()?;
    let index = u64::from_be_bytes(*index);
    let is_right = match <[u8; 8]>::try_from(rest) {
        // The usual size.
        Ok(word) => u64::from_le_bytes(word) == mix(index).wrapping_add(STEP),
        Err(_) => is_stream(mix(index), rest),
    };
    is_right.then_some(index)
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

    /// The index at `position`, which is below the count.
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
    use std::collections::HashSet;

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

    proptest! {
        #[test]
        fn a_stream_is_that_of_its_seed_in_every_byte(
            seed: u64, other: u64, size in 0usize..300, byte: prop::sample::Index, bit in 0..8_u32,
        ) {
            let mut bytes = vec![0; size];
            stream(seed, &mut bytes);
            prop_assert!(is_stream(seed, &bytes));
            prop_assert_eq!(is_stream(other, &bytes), other == seed || size < 8 && {
                let mut others = vec![0; size];
                stream(other, &mut others);
                others == bytes
            });
            if size > 0 {
                bytes[byte.index(size)] ^= 1 << bit;
                prop_assert!(!is_stream(seed, &bytes));
            }
        }
    }

    #[test]
    fn hardly_four_bytes_of_a_stream_come_again() {
        for seed in [0, 1, mix(7), u64::MAX] {
            let mut bytes = vec![0; 4096];
            stream(seed, &mut bytes);
            let windows: HashSet<_> = bytes.windows(4).collect();
            assert!(windows.len() > 4050, "seed {seed}: {} of 4093", windows.len());
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
