//! CRC-32C (Castagnoli, also called CRC-32/ISCSI): the checksum of all that Braid stores.
//!
//! This crate owns the choice of the library. Leaves are checked whenever they are read, and the checksum was the
//! largest part of the processor time of a cold lookup. The chosen library therefore uses carry-less multiplication in
//! the widest registers of the processor.
//!
//! Invariant: the checksums are those of RFC 3720, appendix B.4, on every machine.
//!
//! Left to others: the bytes that a checksum covers, and the seeds that tie a checksum to its place.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32C of some bytes followed by `bytes`; `crc` is the CRC-32C of the former.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c_append_all(crc, [bytes])
}

/// As [`crc32c_append`] for one part after the other. For short parts this takes less time than a call for each.
#[must_use]
pub fn crc32c_append_all<const N: usize>(crc: u32, parts: [&[u8]; N]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    parts.into_iter().for_each(|part| digest.update(part));
    low(digest.finalize())
}

/// The CRC-32C of two byte strings, one behind the other: `first` is the CRC-32C of the first string, `second` that of
/// the second, which has `second_bytes` bytes.
#[must_use]
pub fn crc32c_combine(first: u32, second: u32, second_bytes: usize) -> u32 {
    low(crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, first.into(), second.into(), second_bytes as u64))
}

/// The CRC-32C of a record that holds its own checksum in the four bytes at `at`: of all other bytes.
///
/// # Panics
/// If the record ends before.
#[must_use]
pub fn crc32c_around(record: &[u8], at: usize) -> u32 {
    crc32c_append_all(0, [&record[..at], &record[at + 4..]])
}

/// As [`crc32c_around`], with zeros in place of the four bytes.
///
/// # Panics
/// If the record ends before.
#[must_use]
pub fn crc32c_blanked(record: &[u8], at: usize) -> u32 {
    crc32c_append_all(0, [&record[..at], &[0; 4], &record[at + 4..]])
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
            prop_assert_eq!(crc32c_append_all(crc32c(&[]), [first, &[], second]), whole);
            prop_assert_eq!(crc32c_combine(crc32c(first), crc32c(second), second.len()), whole);
            prop_assert_eq!(crc32c_append(seed, &bytes), ::crc32c::crc32c_append(seed, &bytes));
        }

        #[test]
        fn a_field_for_the_checksum_is_left_out(first: Vec<u8>, field: [u8; 4], rest: Vec<u8>) {
            let record = [&first[..], &field, &rest].concat();
            prop_assert_eq!(crc32c_around(&record, first.len()), crc32c(&[&first[..], &rest].concat()));
            prop_assert_eq!(crc32c_blanked(&record, first.len()), crc32c(&[&first[..], &[0; 4], &rest].concat()));
        }
    }
}
