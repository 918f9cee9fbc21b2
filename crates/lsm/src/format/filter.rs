//! Filters: which keys a partition cannot have (Bloom, CACM 13(7), 1970), in lines of 64 bytes (Putze, Sanders and
//! Singler, ACM JEA 14, 2010). All bits of a key are in one line, so a look at a filter costs one miss of the
//! processor's cache.
//!
//! ```text
//! 0  1       bits that a key sets, at least 1
//! 1  64 × n  lines
//! ```
//!
//! The hash of a key is XXH3, 64 bits. Its upper half chooses the line. Its lower half, multiplied by the golden ratio
//! before each bit, gives the nine bits of a position in the line.
//!
//! Invariant: a key that was added may be there.

use index::Damage;
use xxhash_rust::xxh3::xxh3_64;

use super::{BLOCK_BYTES_MAX, Checked};

const LINE: usize = 64;
const LINE_BITS: u32 = LINE.trailing_zeros() + 3;
/// Most bits that a key sets.
const PROBES_MAX: u8 = 16;
/// 2^32 over the golden ratio.
const GOLDEN: u32 = 0x9E37_79B9;

/// A key's hash, the form in which filters know the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(u64);

impl Hash {
    #[must_use]
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }

    /// The line of the key, among so many.
    const fn line(self, lines: usize) -> usize {
        (((self.0 >> u32::BITS) * lines as u64) >> u32::BITS) as usize
    }

    /// The positions of the key's bits in its line.
    fn positions(self, probes: u8) -> impl Iterator<Item = usize> {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        let first = u32::from_le_bytes([a, b, c, d]);
        (0..probes).scan(first, |hash, _| {
            *hash = hash.wrapping_mul(GOLDEN);
            Some((*hash >> (u32::BITS - LINE_BITS)) as usize)
        })
    }
}

/// Bits that a key sets where there are so many tenths of a bit for each key. Fewer than in a filter without lines,
/// because a full line misleads more than an empty one saves.
const fn probes(tenths: u32) -> u8 {
    match tenths {
        ..30 => 1,
        30..45 => 2,
        45..60 => 3,
        60..75 => 4,
        75..95 => 5,
        95..130 => 6,
        130..170 => 8,
        _ => 10,
    }
}

/// A filter of these keys with so many tenths of a bit for each; empty where there are none to spend. A filter that
/// would be longer than a block has fewer.
pub(crate) fn encode(keys: &[Hash], tenths: u32) -> Vec<u8> {
    let lines = (keys.len() * tenths as usize).div_ceil(10 * LINE * 8).min((BLOCK_BYTES_MAX - 1) / LINE);
    if lines == 0 {
        return Vec::new();
    }
    let given = u32::try_from(lines * LINE * 8 * 10 / keys.len()).unwrap_or(u32::MAX).min(tenths.max(10));
    let probes = probes(given);
    let mut bytes = vec![0; 1 + lines * LINE];
    bytes[0] = probes;
    for key in keys {
        let line = &mut bytes[1 + key.line(lines) * LINE..][..LINE];
        key.positions(probes).for_each(|bit| line[bit / 8] |= 1 << (bit % 8));
    }
    bytes
}

/// A checked filter.
#[derive(Clone, Copy)]
pub(crate) struct Filter<'a> {
    probes: u8,
    lines: &'a [u8],
}

impl<'a> Filter<'a> {
    /// Checks a filter.
    pub(crate) fn decode(bytes: &'a [u8]) -> Checked<Self> {
        match bytes.split_first() {
            Some((probes, lines)) if !lines.is_empty() && lines.len().is_multiple_of(LINE) => {
                if !(1..=PROBES_MAX).contains(probes) {
                    return Err(Damage::new(0, "bits of a key in a filter", format!("1 to {PROBES_MAX}"), probes));
                }
                Ok(Self { probes: *probes, lines })
            }
            _ => Err(Damage::new(0, "bytes of a filter", format!("1, and whole lines of {LINE}"), bytes.len())),
        }
    }

    /// Whether a key may have been added.
    #[inline]
    pub(crate) fn may_have(&self, key: Hash) -> bool {
        let line = &self.lines[key.line(self.lines.len() / LINE) * LINE..][..LINE];
        key.positions(self.probes).all(|bit| line[bit / 8] & 1 << (bit % 8) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> Hash {
        Hash::of(&number.to_be_bytes())
    }

    /// Of 100,000 other keys, those that the filter of so many keys does not exclude.
    fn misled(keys: u32, tenths: u32) -> usize {
        let keys: Vec<Hash> = (0..keys).map(hash).collect();
        let bytes = encode(&keys, tenths);
        let filter = Filter::decode(&bytes).expect("a filter");
        assert!(keys.iter().all(|key| filter.may_have(*key)));
        (1_000_000..1_100_000).filter(|number| filter.may_have(hash(*number))).count()
    }

    #[test]
    fn every_key_that_was_added_may_be_there_and_few_others() {
        // Bits for a key, and the share of other keys that a filter in lines is known to let pass, in hundred
        // thousandths, with a fifth more for chance.
        for (bits, most) in [(4, 18_500), (6, 7_500), (8, 3_000), (10, 1_400), (14, 480), (16, 300), (20, 130)] {
            let misled = misled(20_000, 10 * bits);
            assert!(misled < most, "{misled} of 100,000 with {bits} bits a key");
        }
        assert!(misled(1, 100) < 100);
    }

    #[test]
    fn more_bits_mislead_less() {
        let misled = |tenths| misled(20_000, tenths);
        let all: Vec<usize> = (2..=20).map(|bits| misled(10 * bits)).collect();
        assert!(all.is_sorted_by(|one, next| *next <= one + one / 10 + 20), "{all:?}");
    }

    #[test]
    fn a_filter_is_no_longer_than_a_block_and_may_be_none() {
        let keys: Vec<Hash> = (0..100_000).map(hash).collect();
        assert!(encode(&keys, 100).len() <= BLOCK_BYTES_MAX);
        assert_eq!((encode(&keys, 0).len(), encode(&[], 100).len()), (0, 0));
        for bytes in [&[][..], &[6], &[6; 64], &[0; 65], &[17; 65]] {
            assert!(Filter::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
