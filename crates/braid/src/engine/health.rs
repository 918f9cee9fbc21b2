//! Whether the database still writes: the first failed write or flush is remembered and ends all writing.

use std::sync::OnceLock;

use crate::error::{Error, Result};

/// The first failure, if there was one.
#[derive(Default)]
pub(crate) struct Health {
    cause: OnceLock<String>,
}

impl Health {
    /// Remembers a failure; the first one stays.
    pub(crate) fn fail(&self, cause: impl ToString) {
        let cause = self.cause.get_or_init(|| cause.to_string());
        events::error!(%cause, "the database is read-only now");
    }

    /// Fails when anything failed before.
    pub(crate) fn check(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(Error::Failed { cause: cause.clone() }))
    }

    /// The first failure.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.cause.get().map(String::as_str)
    }
}
