//! Positions in the log.

use std::fmt;

/// A byte position in the endless log. Positions are multiples of 8. The first record is not at 0, because every
/// segment begins with a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}
