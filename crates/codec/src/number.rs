//! Numbers of variable length: seven bits a byte, the lowest first, and the eighth bit of all bytes but the last
//! (LEB128).

/// Appends a number in its shortest form: 1 to 10 bytes.
#[inline]
pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// The number that `bytes` begin with, and how many bytes it takes. Only the shortest form of a number is one, so that
/// content has one encoding. None where the bytes end before, or begin with something else.
#[must_use]
#[inline]
pub fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    // Most numbers take one byte.
    match bytes.first() {
        Some(byte) if *byte < 0x80 => Some((u64::from(*byte), 1)),
        _ => long_number(bytes),
    }
}

fn long_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        let (bits, shift) = (u64::from(byte & 0x7f), 7 * at);
        let fits = bits << shift >> shift == bits;
        let is_last = byte & 0x80 == 0;
        if !fits || (is_last && bits == 0 && at > 0) {
            return None;
        }
        number |= bits << shift;
        if is_last {
            return Some((number, at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_number(&mut bytes, value);
        bytes
    }

    #[test]
    fn only_the_shortest_form_is_a_number() {
        assert_eq!(put(0), [0]);
        assert_eq!(put(u64::MAX).len(), 10);
        for wrong in [&[][..], &[0x80], &[0x80, 0], &[0xff, 0x80, 0], &[0xff; 11]] {
            assert_eq!(number(wrong), None, "{wrong:?}");
        }
        // The tenth byte has room for one bit.
        let mut over = put(u64::MAX);
        over[9] = 2;
        assert_eq!(number(&over), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn numbers_survive(value: u64, shift in 0..64, rest: Vec<u8>) {
            let bytes = put(value >> shift);
            prop_assert_eq!(number(&[&bytes[..], &rest].concat()), Some((value >> shift, bytes.len())));
            prop_assert_eq!(number(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn what_is_a_number_is_written_so(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            if let Some((value, length)) = number(&bytes) {
                prop_assert_eq!(&put(value)[..], &bytes[..length]);
            }
        }
    }
}
