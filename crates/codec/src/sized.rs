//! Fields of bytes that are long enough, as their reader has checked.

/// The `N` bytes at `at`.
///
/// # Panics
/// If the bytes end before.
#[must_use]
#[inline]
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// The two bytes at `at` as a number.
///
/// # Panics
/// If the bytes end before.
#[must_use]
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// As [`u16_at`], of four bytes.
///
/// # Panics
/// If the bytes end before.
#[must_use]
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// As [`u16_at`], of eight bytes.
///
/// # Panics
/// If the bytes end before.
#[must_use]
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}
