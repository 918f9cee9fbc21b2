//! The sizes that memory has.

/// The unit in which the system maps memory, in bytes.
pub const PAGE: usize = 4 << 10;

/// Number of sizes up to each power of two; half of them are at or below half of that power. Few sizes make it likely
/// that kept memory fits the next allocation.
const SIZES: usize = 8;

/// Bytes that memory for `len` bytes takes: a multiple of [`PAGE`], and at most a quarter more than `len` needs.
///
/// # Panics
/// When no object may be that large.
#[must_use]
pub fn capacity(len: usize) -> usize {
    assert!(len <= isize::MAX as usize / 2, "{len} bytes of memory cannot exist");
    let exact = len.max(1).next_multiple_of(PAGE);
    exact.next_multiple_of((exact.next_power_of_two() / SIZES).max(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_few_and_little_is_wasted() {
        let mut sizes = Vec::new();
        for len in (0..8 << 20).step_by(1000) {
            let capacity = capacity(len);
            assert!(capacity >= len && capacity.is_multiple_of(PAGE));
            assert!(capacity <= (len + PAGE) * 5 / 4, "{capacity} for {len}");
            sizes.push(capacity);
        }
        sizes.dedup();
        assert!(sizes.len() < 50, "{}", sizes.len());
    }
}
