//! A binary search without a branch to guess.

/// How many of `count` elements are `before` a point. These are the first ones.
#[inline]
pub(crate) fn partition_point(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut size) = (0, count);
    while size > 0 {
        let half = size / 2;
        // The update has no branch that a processor would have to guess.
        let is_before = before(low + half);
        low = if is_before { low + half + 1 } else { low };
        size = if is_before { size - half - 1 } else { half };
    }
    low
}
