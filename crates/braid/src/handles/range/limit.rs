//! Where the two ends of a range meet.

use std::ops::Bound;

use index::{Bounds, Direction};

/// Where a range stops on its way to the other end: before the last key that was shown there, or behind the key that
/// was sought there. If the other end was through, nothing is left.
#[derive(Clone, Debug, Default)]
pub(crate) enum Limit {
    #[default]
    None,
    Before(Vec<u8>),
    Behind(Vec<u8>),
    Through,
}

impl Limit {
    /// The limit for the other end of a walk within `bounds` that has shown nothing yet.
    pub(crate) fn at_begin(bounds: &Bounds, direction: Direction) -> Self {
        let begin = match direction {
            Direction::Forward => &bounds.lower,
            Direction::Backward => &bounds.upper,
        };
        if let Bound::Included(key) = begin { Self::Behind(key.clone()) } else { Self::None }
    }

    /// Whether `key` is too far in this direction.
    pub(crate) fn excludes(&self, key: &[u8], direction: Direction) -> bool {
        match self {
            Self::None => false,
            Self::Before(shown) => direction.order(key, shown).is_ge(),
            Self::Behind(sought) => direction.order(key, sought).is_gt(),
            Self::Through => true,
        }
    }
}

/// The part of a range within `whole` from `key` on.
pub(crate) fn from_key(whole: &Bounds, key: &[u8], direction: Direction) -> Bounds {
    let mut bounds = whole.clone();
    match direction {
        Direction::Forward if bounds.above_lower(key) => bounds.lower = Bound::Included(key.to_vec()),
        Direction::Backward if bounds.below_upper(key) => bounds.upper = Bound::Included(key.to_vec()),
        _ => {}
    }
    bounds
}
