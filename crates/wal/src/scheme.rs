//! Which flushes serve which calls.

use std::fmt;
use std::str::FromStr;

/// How calls that wait for a flush share flushes. The default, [`FlushScheme::Aggregated`], is the good one; the others
/// are for comparison (Son, Yeom and Han, "Design and implementation of an efficient flushing scheme for cloud
/// key-value storage", 2017). All keep the same promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushScheme {
    /// Every call flushes, one after another, even if earlier flushes covered its records.
    PerCommit,
    /// A call that has the sync lock returns if the synced position covers its end. Otherwise the call flushes, and
    /// moves the synced position to its own end, although more was written (section 2.2).
    Existing,
    /// The same, but the synced position moves to the end of all that was written when the flush began.
    ExistingAll,
    /// Calls queue requests; one call flushes for all queued ones, and completes them without the lock (section 3.1).
    #[default]
    Aggregated,
}

impl FlushScheme {
    /// Every scheme, the least sharing one first.
    pub const ALL: [Self; 4] = [Self::PerCommit, Self::Existing, Self::ExistingAll, Self::Aggregated];

    const fn name(self) -> &'static str {
        match self {
            Self::PerCommit => "per-commit",
            Self::Existing => "existing",
            Self::ExistingAll => "existing-all",
            Self::Aggregated => "aggregated",
        }
    }
}

impl fmt::Display for FlushScheme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Error: a text names no flush scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFlushScheme(String);

impl fmt::Display for UnknownFlushScheme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is none of per-commit, existing, existing-all, aggregated", self.0)
    }
}

impl std::error::Error for UnknownFlushScheme {}

impl FromStr for FlushScheme {
    type Err = UnknownFlushScheme;

    fn from_str(text: &str) -> Result<Self, UnknownFlushScheme> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == text).ok_or_else(|| UnknownFlushScheme(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_read_what_they_print() {
        for scheme in FlushScheme::ALL {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
        let error = "never".parse::<FlushScheme>().expect_err("no scheme");
        assert!(error.to_string().contains("\"never\" is none of per-commit"), "{error}");
        assert_eq!(FlushScheme::default(), FlushScheme::Aggregated);
    }
}
