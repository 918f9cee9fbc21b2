//! CRC-32C (Castagnoli, also called CRC-32/ISCSI): the checksum of all that Braid stores.
//!
//! Owns which library computes it. Leaves are checked whenever they are read, so of all that a processor does for a cold lookup this was the
//! most: the library that is taken multiplies without carries in the widest registers that there are.
//!
//! Invariant: the figures are those of RFC 3720, appendix B.4, on every machine.
//!
//! Left to others: what is covered, and the seeds that say where it belongs.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32C of what `crc` is of, followed by `bytes`.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    low(digest.finalize())
}

/// The CRC-32C of what `first` is of, followed by the `second_bytes` bytes that `second` is of.
#[must_use]
pub fn crc32c_combine(first: u32, second: u32, second_bytes: usize) -> u32 {
    low(crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, first.into(), second.into(), second_bytes as u64))
}

fn low(crc: u64) -> u32 {
    u32::try_from(crc).expect("a CRC of 32 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn figures_are_those_of_the_standard() {
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[]), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn parts_make_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..20_000), at: proptest::sample::Index, seed: u32) {
            let (first, second) = bytes.split_at(at.index(bytes.len() + 1));
            let whole = crc32c(&bytes);
            prop_assert_eq!(whole, ::crc32c::crc32c(&bytes));
            prop_assert_eq!(crc32c_append(crc32c(first), second), whole);
            prop_assert_eq!(crc32c_combine(crc32c(first), crc32c(second), second.len()), whole);
            prop_assert_eq!(crc32c_append(seed, &bytes), ::crc32c::crc32c_append(seed, &bytes));
        }
    }
}
