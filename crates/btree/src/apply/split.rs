//! Which child of a node each update of a batch goes to.

use std::ops::Range;

use index::Batch;

use crate::node::Node;

/// Assigns a node's updates to its children.
pub(super) fn split(batch: &dyn Batch, node: &Node, updates: Range<usize>) -> Vec<(usize, Range<usize>)> {
    let mut out = Vec::new();
    let mut start = updates.start;
    while start < updates.end {
        let child = node.search(batch.get(start).key);
        let end = end_of(start, updates.end, |index| node.below_end(child, batch.get(index).key));
        out.push((child, start..end));
        start = end;
    }
    out
}

/// The first index above `start` that is not `within`, or `end`. The steps double, then halve.
fn end_of(start: usize, end: usize, within: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (start + 1, 1);
    while low + step <= end && within(low + step - 1) {
        low += step;
        step *= 2;
    }
    let mut high = (low + step - 1).min(end);
    while low < high {
        let middle = low + (high - low) / 2;
        if within(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::end_of;

    #[test]
    fn the_end_is_found_from_any_distance() {
        for end in 1..70 {
            for boundary in 1..=end {
                assert_eq!(end_of(0, end, |index| index < boundary), boundary);
            }
        }
    }
}
