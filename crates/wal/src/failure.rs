//! The sticky failure of the log.
//!
//! After a failed write or flush nobody knows what is on the device, and a second fsync may report success for pages that the
//! first one lost. So the first failure is kept and is the answer to everything from then on.

use std::sync::{Arc, OnceLock};

use crate::{Error, Result};

/// Why the log takes nothing any more.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the log failed and takes no more: {operation}: {cause}. Close the database and open it again; commits that were not acknowledged may or may not be there"
)]
pub struct Failure {
    /// What failed: the write or the flush of a group.
    pub operation: &'static str,
    /// What the device said.
    pub cause: psync::Error,
}

/// Set once, never cleared.
#[derive(Debug, Default)]
pub(crate) struct Sticky(OnceLock<Arc<Failure>>);

impl Sticky {
    /// The failure, if there was one.
    pub(crate) fn get(&self) -> Option<Error> {
        self.0.get().map(|failure| Error::Failed(Arc::clone(failure)))
    }

    /// An error if there was a failure.
    pub(crate) fn check(&self) -> Result<()> {
        self.get().map_or(Ok(()), Err)
    }

    /// Keeps the first failure, and returns the one that was kept.
    pub(crate) fn set(&self, operation: &'static str, cause: psync::Error) -> Error {
        let failure = self.0.get_or_init(|| {
            tracing::error!(operation, %cause, "the log failed");
            Arc::new(Failure { operation, cause })
        });
        Error::Failed(Arc::clone(failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_stays() {
        let cause = |got| psync::Error::ShortRead { path: "wal/0.log".into(), offset: 0, wanted: 1, got };
        let sticky = Sticky::default();
        assert!(sticky.check().is_ok());
        sticky.set("flush", cause(1));
        sticky.set("write", cause(2));
        let text = sticky.check().expect_err("it failed").to_string();
        assert!(text.contains("flush") && text.contains("found 1") && !text.contains("found 2"), "{text}");
    }
}
