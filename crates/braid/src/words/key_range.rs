//! Ranges of keys: as users give them, and from one key to below another, as range deletes take them.

use std::ops::{Bound, RangeBounds};

use index::Bounds;

use crate::words::structure::KEY_BYTES_MAX;

/// Keys from `low` to below `high`, or to the end. The range is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
}

impl KeyRange {
    /// The keys within `bounds`, if there can be any. Ends are at most a byte longer than the longest key.
    pub(crate) fn of(bounds: &Bounds) -> Option<Self> {
        let low = match &bounds.lower {
            Bound::Included(key) => at(key),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Vec::new(),
        };
        let high = match &bounds.upper {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(at(key)),
            Bound::Unbounded => None,
        };
        index::is_below(&low, high.as_deref()).then_some(Self { low, high })
    }

    /// The same keys as bounds.
    pub(crate) fn to_bounds(&self) -> Bounds {
        let lower = if self.low.is_empty() { Bound::Unbounded } else { Bound::Included(self.low.clone()) };
        Bounds { lower, upper: self.high.clone().map_or(Bound::Unbounded, Bound::Excluded) }
    }
}

/// The keys within `range`.
pub(crate) fn range_bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Bounds {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    Bounds { lower: owned(range.start_bound()), upper: owned(range.end_bound()) }
}

/// The keys that begin with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> Bounds {
    let upper = successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    Bounds { lower: Bound::Included(prefix.to_vec()), upper }
}

/// The least key above every key that begins with `prefix`.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor)
}

/// Where the keys at or above `key` begin.
fn at(key: &[u8]) -> Vec<u8> {
    if key.len() > KEY_BYTES_MAX { behind(key) } else { key.to_vec() }
}

/// Where the keys above `key` begin. A `key` longer than the longest possible key is cut to that length first.
pub(crate) fn behind(key: &[u8]) -> Vec<u8> {
    [&key[..key.len().min(KEY_BYTES_MAX)], &[0]].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ends_that_are_too_long_for_keys_are_cut_where_no_key_is() {
        let long = vec![7; KEY_BYTES_MAX + 5];
        let bounds = Bounds { lower: Bound::Included(long.clone()), upper: Bound::Unbounded };
        let range = KeyRange::of(&bounds).expect("not empty");
        assert!(!range.to_bounds().contains(&long[..KEY_BYTES_MAX]));
        let next = [&long[..KEY_BYTES_MAX - 1], &[8]].concat();
        assert!(range.to_bounds().contains(&next) && range.low.len() == KEY_BYTES_MAX + 1);
        let none = Bounds { lower: Bound::Excluded(long.clone()), upper: Bound::Included(long) };
        assert_eq!(KeyRange::of(&none), None);
    }

    #[test]
    fn the_successor_of_a_prefix_is_the_next_that_does_not_begin_with_it() {
        assert_eq!(successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(successor(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(successor(&[255]), None);
        assert_eq!(successor(&[]), None);
    }

    proptest! {
        #[test]
        fn it_holds_the_keys_within_its_bounds(
            lower in 0..3_u8, low in prop::collection::vec(0..3_u8, 0..3), upper in 0..3_u8,
            high in prop::collection::vec(0..3_u8, 0..3), key in prop::collection::vec(0..3_u8, 1..4),
        ) {
            let bound = |kind, key| match kind {
                0 => Bound::Included(key),
                1 => Bound::Excluded(key),
                _ => Bound::Unbounded,
            };
            let bounds = Bounds { lower: bound(lower, low), upper: bound(upper, high) };
            let contains = KeyRange::of(&bounds).is_some_and(|range| range.to_bounds().contains(&key));
            prop_assert_eq!(contains, bounds.contains(&key));
        }
    }
}
