//! The errors of a measurement.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Result of this crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// An error of a measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A store refused or failed; the text is the store's own.
    #[error("{0}")]
    Store(String),
    /// A store answered wrongly.
    #[error("wrong answer: {0}")]
    Wrong(String),
    /// An operation on a file or directory outside the stores failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The measurement cannot be made as asked.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// A store's own error.
    pub(crate) fn store(error: impl Display) -> Self {
        Self::Store(error.to_string())
    }

    /// For `map_err` on a file operation.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl From<bench::Error> for Error {
    fn from(error: bench::Error) -> Self {
        Self::Invalid(error.to_string())
    }
}
