//! Filters of the keys that something may have (Bloom, CACM 13(7), 1970).
//!
//! A key sets [`PROBES`] of the bits. If one of a key's bits is not set, the key was never added.

/// Bits that a key sets.
pub const PROBES: u32 = 4;

/// A key's hash, the form in which filters know the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(u64);

impl Hash {
    /// The hash of a key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let (words, rest) = key.as_chunks::<8>();
        let hash = words.iter().fold(key.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        Self(mix(hash, crate::head(rest)))
    }

    /// The hash of the key together with a number.
    #[must_use]
    pub fn with(self, number: u64) -> Self {
        Self(mix(self.0, number))
    }

    /// The hash as a number.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// One of 64 bits, chosen by the key.
    #[must_use]
    pub const fn mark(self) -> u64 {
        1 << (self.0 >> 58)
    }

    /// The positions of the key's bits in `bytes` bytes.
    fn probes(self, bytes: usize) -> impl Iterator<Item = usize> {
        let bits = bytes as u64 * 8;
        // The halves are two numbers from which the probes are made (Kirsch and Mitzenmacher, ESA 2006).
        let [a, b, c, d, e, f, g, h] = self.0.to_le_bytes();
        let (one, other) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) | 1);
        // The product of a number of 32 bits and a few thousand, without its lower half, is a bit position.
        (0..PROBES).map(move |probe| {
            let number = one.wrapping_add(probe.wrapping_mul(other));
            ((u64::from(number) * bits) >> 32) as usize
        })
    }
}

/// Folds a word into a hash by the halves of a product of 128 bits, so that each bit of both inputs affects all bits of
/// the result.
#[expect(clippy::cast_possible_truncation, reason = "the halves of the product are what is wanted")]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ 0x9E37_79B9_7F4A_7C15) * u128::from(word ^ 0xD1B5_4A32_D192_ED03);
    (product as u64) ^ (product >> 64) as u64
}

/// Adds a key to bits, of which there is at least a byte.
pub fn add(bits: &mut [u8], hash: Hash) {
    hash.probes(bits.len()).for_each(|bit| bits[bit / 8] |= 1 << (bit % 8));
}

/// Whether a key may have been added to bits, of which there is at least a byte.
#[must_use]
pub fn may_have(bits: &[u8], hash: Hash) -> bool {
    hash.probes(bits.len()).all(|bit| bits[bit / 8] & 1 << (bit % 8) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_in_their_length_alone_differ() {
        let hashes: Vec<_> = (0..40).map(|length| Hash::of(&vec![0; length])).collect();
        assert!((1..40).all(|index| !hashes[..index].contains(&hashes[index])));
    }

    #[test]
    fn every_key_that_was_added_may_be_there_and_few_others() {
        let hash = |number: u32| Hash::of(&number.to_be_bytes());
        for keys in [1, 7, 30, 300_u32] {
            let mut bits = vec![0; (keys as usize * 10).div_ceil(8)];
            (0..keys).for_each(|number| add(&mut bits, hash(number)));
            assert!((0..keys).all(|number| may_have(&bits, hash(number))));
            let misled = (1000..11_000).filter(|number| may_have(&bits, hash(*number))).count();
            assert!(misled < 250, "{misled} of 10,000 other keys with {keys} in it");
        }
    }
}
