//! What the formats are made of: little-endian fields, and numbers of variable length.
//!
//! 1. A field at an offset: [`u32_at`] and its like, for bytes of any length; [`sized`], for bytes whose length was
//!    checked.
//! 2. Fields one behind the other: [`Fields`].
//! 3. Numbers of variable length: [`put_number`], [`number`].
//!
//! Left to others: layouts, checksums, and what a field that is not there means.

mod fields;
mod number;
pub mod sized;

pub use fields::Fields;
pub use number::{number, put_number};

/// `N` bytes from `at` on; none where the bytes end before.
#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The two bytes at `at` as a number; none where the bytes end before.
#[must_use]
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

/// As [`u16_at`], of three bytes.
#[must_use]
#[inline]
pub fn u24_at(bytes: &[u8], at: usize) -> Option<u32> {
    let [a, b, c] = array(bytes, at)?;
    Some(u32::from_le_bytes([a, b, c, 0]))
}

/// As [`u16_at`], of four bytes.
#[must_use]
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

/// As [`u16_at`], of five bytes.
#[must_use]
#[inline]
pub fn u40_at(bytes: &[u8], at: usize) -> Option<u64> {
    let [a, b, c, d, e] = array(bytes, at)?;
    Some(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
}

/// As [`u16_at`], of six bytes.
#[must_use]
#[inline]
pub fn u48_at(bytes: &[u8], at: usize) -> Option<u64> {
    let [a, b, c, d, e, f] = array(bytes, at)?;
    Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
}

/// As [`u16_at`], of eight bytes.
#[must_use]
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_little_endian_and_within_the_bytes() {
        let bytes: Vec<u8> = (1..=9).collect();
        assert_eq!(u16_at(&bytes, 1), Some(0x0302));
        assert_eq!(u24_at(&bytes, 1), Some(0x04_0302));
        assert_eq!(u32_at(&bytes, 1), Some(0x0504_0302));
        assert_eq!(u40_at(&bytes, 1), Some(0x06_0504_0302));
        assert_eq!(u48_at(&bytes, 1), Some(0x0706_0504_0302));
        assert_eq!(u64_at(&bytes, 1), Some(0x0908_0706_0504_0302));
        assert_eq!((u16_at(&bytes, 8), u24_at(&bytes, 7), u32_at(&bytes, 6)), (None, None, None));
        assert_eq!((u40_at(&bytes, 5), u48_at(&bytes, 4), u64_at(&bytes, 2)), (None, None, None));
        assert_eq!(u64_at(&bytes, usize::MAX), None);
        assert_eq!(sized::u16_at(&bytes, 7), 0x0908);
        assert_eq!((sized::u32_at(&bytes, 5), sized::u64_at(&bytes, 1)), (0x0908_0706, 0x0908_0706_0504_0302));
    }
}
