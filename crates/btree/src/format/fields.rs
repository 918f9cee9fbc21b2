//! Little-endian numbers in bytes; none where the bytes end before.

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

pub(super) fn u24(bytes: &[u8], at: usize) -> Option<u32> {
    let [a, b, c] = array(bytes, at)?;
    Some(u32::from_le_bytes([a, b, c, 0]))
}

pub(crate) fn u40(bytes: &[u8], at: usize) -> Option<u64> {
    let [a, b, c, d, e] = array(bytes, at)?;
    Some(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
}

pub(crate) fn u48(bytes: &[u8], at: usize) -> Option<u64> {
    let [a, b, c, d, e, f] = array(bytes, at)?;
    Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
}
