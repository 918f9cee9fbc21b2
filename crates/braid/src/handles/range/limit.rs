//! Where the two ends of a range meet.

use index::Direction;

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
