//! What can go wrong in an index.

use std::fmt::Display;

/// Result of an index operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in an index.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device or file system failed.
    #[error(transparent)]
    Io(#[from] psync::Error),
    /// Space could not be had, or its bookkeeping failed.
    #[error(transparent)]
    Space(#[from] space::Error),
    /// A document could not be read.
    #[error(transparent)]
    Document(#[from] doclog::Error),
    /// More versions of one key have to stay than one leaf can ever hold.
    #[error(
        "a key has {versions} versions that snapshots still see, {bytes} bytes in all, and at most {limit} fit; end some snapshots and try again"
    )]
    TooManyVersions {
        /// Versions of the key.
        versions: usize,
        /// Bytes that they take.
        bytes: usize,
        /// Most bytes that the versions of a key may take.
        limit: usize,
    },
    /// What was read is not what was written.
    #[error(
        "{file} is damaged at byte {offset}: {what}; expected {expected}, found {found}. The rest of the database stays readable; restore this part from a backup"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// Byte offset in it.
        offset: u64,
        /// Which structure does not check.
        what: &'static str,
        /// What a whole one would hold.
        expected: String,
        /// What it holds.
        found: String,
    },
}

/// Bytes of a structure that are not what it would have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset within what was decoded.
    pub offset: usize,
    /// What does not check.
    pub what: &'static str,
    /// What a whole one would hold.
    pub expected: String,
    /// What it holds.
    pub found: String,
}

impl Damage {
    /// At `offset` of what was decoded.
    pub fn new(offset: usize, what: &'static str, expected: impl Display, found: impl Display) -> Self {
        Self { offset, what, expected: expected.to_string(), found: found.to_string() }
    }
}
