//! Lists cut into portions that are handled together.

/// The first portion of `items`: as many as have at most `bytes_max` bytes together, and one in any case. Empty if
/// there are no items.
pub(crate) fn first_portion<T>(items: &[T], bytes_max: u64, bytes_of: impl Fn(&T) -> u64) -> &[T] {
    let mut bytes = 0_u64;
    let fits = |item: &&T| {
        bytes = bytes.saturating_add(bytes_of(item));
        bytes <= bytes_max
    };
    let count = items.iter().take_while(fits).count();
    &items[..count.max(1).min(items.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portion_has_what_fits_and_one_in_any_case() {
        let portion = |items: &[u64], most| first_portion(items, most, |bytes| *bytes).len();
        assert_eq!(portion(&[], 5), 0);
        assert_eq!(portion(&[9, 1], 5), 1);
        assert_eq!(portion(&[2, 3, 1], 5), 2);
        assert_eq!(portion(&[2, 3, 0, 1], 5), 3);
        assert_eq!(portion(&[2, u64::MAX], 5), 1);
        assert_eq!(portion(&[0, 0], 0), 2);
    }
}
