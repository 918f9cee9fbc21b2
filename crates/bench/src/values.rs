//! Values that can be checked.
//!
//! 1. A value of 16 bytes or more begins with a nonce of 8 bytes. The rest is the stream named by the record's index,
//!    the nonce and the length of the value. So two writes of a record differ, and each value differs from those of
//!    every other record, and from its own prefixes.
//! 2. A shorter value is the stream of the index and the length alone.
//!
//! The bytes do not compress. A benchmark's values may end with zeros, which do.

use crate::keys::{is_stream, mix, stream};

const NONCE_BYTES: usize = 8;
/// Shortest value with a nonce.
const NONCED_MIN: usize = 16;

/// Keeps the stream of a value apart from that of its key.
const NOT_OF_KEYS: u64 = 0x6A09_E667_F3BC_C909;

/// Writes the value of record `index` that `nonce` names into `value`.
pub fn write(index: u64, nonce: u64, value: &mut [u8]) {
    let length = value.len();
    if length < NONCED_MIN {
        return stream(seed(index, 0, length), value);
    }
    let (head, body) = value.split_at_mut(NONCE_BYTES);
    head.copy_from_slice(&nonce.to_le_bytes());
    stream(seed(index, nonce, length), body);
}

/// Whether `value` is one that [`write()`] makes for record `index`. Every byte behind the nonce is compared. An empty
/// value is right for every record.
#[must_use]
#[inline]
pub fn is_right(index: u64, value: &[u8]) -> bool {
    match value.split_first_chunk::<NONCE_BYTES>() {
        Some((head, body)) if value.len() >= NONCED_MIN => {
            is_stream(seed(index, u64::from_le_bytes(*head), value.len()), body)
        }
        _ => is_stream(seed(index, 0, value.len()), value),
    }
}

/// Values with a tail of zeros, whose share of each value is from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    pub(crate) zeros: f64,
}

impl Values {
    /// Writes the value of record `index` that `nonce` names into `value`.
    pub(crate) fn write(self, index: u64, nonce: u64, value: &mut [u8]) {
        let (own, zeros) = value.split_at_mut(self.own_bytes(value.len()));
        write(index, nonce, own);
        zeros.fill(0);
    }

    /// Whether `value` is one of record `index`.
    #[inline]
    pub(crate) fn is_right(self, index: u64, value: &[u8]) -> bool {
        let (own, zeros) = value.split_at(self.own_bytes(value.len()));
        is_right(index, own) && zeros.iter().all(|byte| *byte == 0)
    }

    #[inline]
    fn own_bytes(self, bytes: usize) -> usize {
        if self.zeros <= 0.0 {
            return bytes;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a number is a number like it"
        )]
        let zeros = (bytes as f64 * self.zeros) as usize;
        bytes.saturating_sub(zeros)
    }
}

/// Two records with the same nonce have different seeds, and so have two nonces of a record, and two lengths.
#[inline]
const fn seed(index: u64, nonce: u64, length: usize) -> u64 {
    mix(index) ^ nonce.rotate_left(32) ^ (length as u64).rotate_left(24) ^ NOT_OF_KEYS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_is_right_for_its_record_alone(index: u64, nonce: u64, size in 8usize..3000, byte: prop::sample::Index) {
            let mut value = vec![0; size];
            write(index, nonce, &mut value);
            prop_assert!(is_right(index, &value));
            prop_assert!(!is_right(index.wrapping_add(1), &value));
            prop_assert!(!is_right(index, &value[..size - 1]), "cut short");
            value[byte.index(size)] ^= 1;
            prop_assert!(!is_right(index, &value));
        }

        #[test]
        fn so_much_of_a_value_is_zeros(index: u64, nonce: u64, size in 0usize..3000, zeros in 0.0..=1.0, byte: prop::sample::Index) {
            let (values, mut value) = (Values { zeros }, vec![7; size]);
            values.write(index, nonce, &mut value);
            prop_assert!(values.is_right(index, &value));
            let end = value.iter().rev().take_while(|byte| **byte == 0).count();
            prop_assert!(end as f64 + 1.0 >= size as f64 * zeros);
            if size > 0 {
                value[byte.index(size)] ^= 1;
                prop_assert!(!values.is_right(index, &value));
            }
        }
    }

    #[test]
    fn nonces_make_different_values() {
        let (mut first, mut second) = ([0; 100], [0; 100]);
        write(1, 1, &mut first);
        write(1, 2, &mut second);
        assert_ne!(first, second);
        assert!(is_right(1, &first) && is_right(1, &second));
    }

    #[test]
    fn no_bytes_are_a_right_value() {
        assert!(is_right(9, b""));
    }
}
