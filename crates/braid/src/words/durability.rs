//! When a commit counts as done.

use std::{fmt, time::Duration};

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// On stable storage when the call returns.
    #[default]
    Sync,
    /// Handed to the operating system when the call returns: survives a killed process, not a power cut.
    Os,
    /// In memory when the call returns. The flush that makes the commit durable begins at most this much later.
    Lazy(Duration),
}

impl fmt::Display for Durability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => formatter.write_str("sync"),
            Self::Os => formatter.write_str("os"),
            Self::Lazy(interval) => write!(formatter, "lazy:{}", interval.as_millis()),
        }
    }
}
