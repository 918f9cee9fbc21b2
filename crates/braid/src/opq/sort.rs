//! Sorting operations by key, those of one key by age.
//!
//! Keys are read in the order in which they lie in memory, and their first eight bytes behind what all have in common are compared as numbers.

use std::ops::Range;

use index::{common_prefix, head};
use mapped::{List, Mapped};

use super::sequence::Sequence;

/// Fewer keys are compared as a whole.
const SORTED_WHOLE: usize = 16;
/// So often keys that are alike are told apart by what comes next.
const SORT_DEPTH: u8 = 8;

/// A stretch of the operations, by key and then by age.
pub(super) fn sorted_stretch(operations: &Sequence, stretch: Range<usize>) -> List<u32> {
    let index = |position| u32::try_from(position).expect("bounded by append");
    sorted(operations, index(stretch.start)..index(stretch.end))
}

/// Those of the operations, which come by age, by key and then by age.
pub(super) fn sorted(operations: &Sequence, indexes: impl Iterator<Item = u32>) -> List<u32> {
    let mut keyed = List::with_capacity_in(indexes.size_hint().0, Mapped);
    keyed.extend(indexes.map(|index| (0, index)));
    sort(operations, &mut keyed, 0, SORT_DEPTH);
    // In memory of its own, which is no more than it needs.
    let mut sorted = List::with_capacity_in(keyed.len(), Mapped);
    sorted.extend(keyed.into_iter().map(|(_, index)| index));
    sorted
}

/// Sorts entries, which come in order of age, by key and then by age: by the eight bytes behind what all have in common, and those that are still
/// alike by what comes behind those, `depth` times at most. All have at least the first `known` bytes in common, or else they are compared as a whole.
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
