//! When a commit counts as done.

use std::{fmt, time::Duration};

/// When a commit counts as done.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("data");
/// use std::time::Duration;
///
/// use braid::{Durability, Options};
///
/// let db = Options::new().durability(Durability::Lazy(Duration::from_millis(50))).open(&path)?; // for all writes
/// let events = db.table("events", braid::Structure::BTree)?;
/// events.put("1", "seen")?;
/// events.put_with("2", "paid", Durability::Sync)?; // for one; makes those before durable too
/// assert_eq!("lazy:50".parse::<Durability>()?, Durability::Lazy(Duration::from_millis(50)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// On stable storage when the call returns.
    #[default]
    Sync,
    /// Handed to the operating system when the call returns: survives a killed process, not a power cut.
    Os,
    /// In memory when the call returns. The flush that makes the commit durable begins at most this much later; with
    /// an interval of zero, at once, though nobody waits for it.
    Lazy(Duration),
}

impl fmt::Display for Durability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => formatter.write_str("sync"),
            Self::Os => formatter.write_str("os"),
            Self::Lazy(interval) => {
                let (millis, nanos) = (interval.as_millis(), interval.subsec_nanos() % 1_000_000);
                write!(formatter, "lazy:{millis}")?;
                if nanos == 0 { Ok(()) } else { formatter.write_str(format!(".{nanos:06}").trim_end_matches('0')) }
            }
        }
    }
}
