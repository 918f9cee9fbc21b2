//! Random numbers that a seed determines.
//!
//! [`Random`] is xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021). Its state
//! is made of the seed with SplitMix64, as its authors advise.
//!
//! Invariant: a seed gives the same numbers in every version, because tests find known bugs with certain seeds. They
//! are those of `SmallRng` of crate `rand` 0.9 on a processor of 64 bits.
//!
//! Left to others: where a seed comes from. Not for secrets.

/// Numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The numbers of this seed.
    #[must_use]
    pub fn from_seed(mut seed: u64) -> Self {
        let state = std::array::from_fn(|_| {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Self { state }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// The upper half of a number, because the lowest bits are the least random.
    fn half(&mut self) -> u32 {
        let [.., a, b, c, d] = self.number().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.half().to_le_bytes()[0]
    }

    /// `true` every other time.
    pub fn coin(&mut self) -> bool {
        self.half() >> 31 == 1
    }

    /// `true` with this probability, 0 to 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 2^64, which saturates")]
        let share = (probability * 2.0_f64.powi(64)) as u64;
        share == u64::MAX || self.number() < share
    }

    /// A number below `bound`. Each is equally likely, but for a bias of less than 2^-64.
    ///
    /// # Panics
    /// If there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        let product = |random: u64| u128::from(random) * u128::from(bound);
        let halves = |wide: u128| {
            let low = u64::try_from(wide & u128::from(u64::MAX)).expect("masked");
            (u64::try_from(wide >> 64).expect("the upper half"), low)
        };
        let (high, low) = halves(product(self.number()));
        let carries = low > bound.wrapping_neg() && low.checked_add(halves(product(self.number())).0).is_none();
        high + u64::from(carries)
    }

    /// An index of `count` ones.
    ///
    /// # Panics
    /// If there is none.
    pub fn index(&mut self, count: usize) -> usize {
        let Ok(bound) = u32::try_from(count) else {
            return usize::try_from(self.below(count as u64)).expect("below a usize");
        };
        assert!(bound > 0, "there is no index");
        let halves = |wide: u64| {
            let low = u32::try_from(wide & u64::from(u32::MAX)).expect("masked");
            (u32::try_from(wide >> 32).expect("the upper half"), low)
        };
        let mut product = || halves(u64::from(self.half()) * u64::from(bound));
        let (high, low) = product();
        let carries = low > bound.wrapping_neg() && low.checked_add(product().0).is_none();
        (high + u32::from(carries)) as usize
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = if chunk.len() > 4 { self.number() } else { self.half().into() };
            chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn numbers_are_those_of_the_other_library(
            seed: u64,
            steps in proptest::collection::vec((0..7, 1_u64.., 1_usize.., 0.0..=1.0), 1..100),
        ) {
            let (mut random, mut other) = (Random::from_seed(seed), SmallRng::seed_from_u64(seed));
            for (step, bound, count, probability) in steps {
                match step {
                    0 => prop_assert_eq!(random.number(), other.random::<u64>()),
                    1 => prop_assert_eq!(random.coin(), other.random::<bool>()),
                    2 => prop_assert_eq!(random.byte(), other.random::<u8>()),
                    3 => prop_assert_eq!(random.chance(probability), other.random_bool(probability)),
                    4 => {
                        prop_assert_eq!(random.below(bound), other.random_range(0..bound));
                        prop_assert_eq!(random.below(bound >> 40 | 1), other.random_range(0..bound >> 40 | 1));
                    }
                    5 => {
                        prop_assert_eq!(random.index(count), other.random_range(0..count));
                        // Bounds close to all that a half can be carry most often.
                        let count = u32::try_from(count & 0xffff_ffff).expect("masked") as usize | 0x8000_0000;
                        prop_assert_eq!(random.index(count), other.random_range(0..count));
                        prop_assert_eq!(random.index(count % 100 + 1), other.random_range(0..=count % 100));
                    }
                    _ => {
                        let mut bytes = [vec![0; count % 30], vec![0; count % 30]];
                        random.fill(&mut bytes[0]);
                        other.fill(&mut bytes[1][..]);
                        prop_assert_eq!(&bytes[0], &bytes[1]);
                    }
                }
            }
        }
    }
}
