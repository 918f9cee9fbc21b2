//! Sorting operations by key, and operations of one key by age.
//!
//! Keys are read in the order in which they lie in memory. The first eight bytes behind the common prefix of all keys
//! are compared as numbers.

use std::ops::Range;

use index::{common_prefix, head};
use mapped::{List, Mapped};

use super::sequence::Sequence;

/// Fewer keys than this are compared as a whole.
const SORTED_WHOLE: usize = 16;
/// The number of times that equal keys are sorted again by their next bytes.
const SORT_DEPTH: u8 = 8;

/// A stretch of the operations, by key and then by age.
pub(super) fn sorted_stretch(operations: &Sequence, stretch: Range<usize>) -> List<u32> {
    let index = |position| u32::try_from(position).expect("bounded by append");
    sorted(operations, index(stretch.start)..index(stretch.end))
}

/// The operations of `indexes`, which come by age, sorted by key and then by age.
pub(super) fn sorted(operations: &Sequence, indexes: impl Iterator<Item = u32>) -> List<u32> {
    let mut keyed = List::with_capacity_in(indexes.size_hint().0, Mapped);
    keyed.extend(indexes.map(|index| (0, index)));
    sort(operations, &mut keyed, 0, SORT_DEPTH);
    // The result is copied to memory of its own, which is no larger than it has to be.
    let mut sorted = List::with_capacity_in(keyed.len(), Mapped);
    sorted.extend(keyed.into_iter().map(|(_, index)| index));
    sorted
}

/// Sorts entries, which come by age, by key and then by age. Keys are compared by the eight bytes behind their common
/// prefix. Keys that are still equal are sorted by their next bytes, at most `depth` times. Keys with fewer than
/// `known` bytes in common are compared as a whole.
fn sort(operations: &Sequence, keyed: &mut [(u64, u32)], known: usize, depth: u8) {
    let Some(&(_, first)) = keyed.first() else { return };
    let first = operations.key(first);
    let common =
        keyed.iter().fold(first.len(), |common, &(_, index)| common_prefix(&first[..common], operations.key(index)));
    if keyed.len() < SORTED_WHOLE || depth == 0 || common < known {
        return keyed.sort_by(|&(_, left), &(_, right)| operations.key(left).cmp(operations.key(right)));
    }
    keyed.iter_mut().for_each(|(number, index)| *number = head(&operations.key(*index)[common..]));
    keyed.sort_unstable();
    for alike in keyed.chunk_by_mut(|(one, _), (other, _)| one == other).filter(|alike| alike.len() > 1) {
        sort(operations, alike, common + 1, depth - 1);
    }
}
