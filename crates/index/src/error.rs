//! Errors of an index.

use std::fmt::{self, Display};

use crate::TableId;

/// Result of an index operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Errors of an index.
#[derive(Debug)]
pub enum Error {
    /// The device or file system failed.
    Io(psync::Error),
    /// Space was not available, or its bookkeeping failed.
    Space(space::Error),
    /// A document could not be read.
    Document(doclog::Error),
    /// More versions of one key have to stay than one leaf can ever hold.
    TooManyVersions {
        /// Versions of the key.
        versions: usize,
        /// Bytes that they take.
        bytes: usize,
        /// Most bytes that the versions of a key may take.
        limit: usize,
    },
    /// The caller did not let the operation go on ([`crate::Ready`]).
    Refused,
    /// Bytes on storage differ from the bytes that were written.
    Corrupt {
        /// The file.
        file: String,
        /// Byte offset in the file.
        offset: u64,
        /// The structure that does not check.
        what: &'static str,
        /// The content of an intact structure.
        expected: String,
        /// The content that was found.
        found: String,
    },
}

impl Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(formatter),
            Self::Space(error) => error.fmt(formatter),
            Self::Document(error) => error.fmt(formatter),
            Self::TooManyVersions { versions, bytes, limit } => write!(
                formatter,
                "a key has {versions} versions that snapshots still see, {bytes} bytes in all, and at most {limit} \
                 fit; end some snapshots and try again"
            ),
            Self::Refused => formatter.write_str("refused by the caller"),
            Self::Corrupt { file, offset, what, expected, found } => write!(
                formatter,
                "{file} is damaged at byte {offset}: {what}; expected {expected}, found {found}. The rest of the \
                 database stays readable; restore this part from a backup"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => error.source(),
            Self::Space(error) => error.source(),
            Self::Document(error) => error.source(),
            _ => None,
        }
    }
}

impl From<psync::Error> for Error {
    fn from(error: psync::Error) -> Self {
        Self::Io(error)
    }
}

impl From<space::Error> for Error {
    fn from(error: space::Error) -> Self {
        Self::Space(error)
    }
}

impl From<doclog::Error> for Error {
    fn from(error: doclog::Error) -> Self {
        Self::Document(error)
    }
}

/// A structure whose bytes are not those that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset within the decoded bytes.
    pub offset: usize,
    /// The part that does not check.
    pub what: &'static str,
    /// The content of an intact structure.
    pub expected: String,
    /// The content that was found.
    pub found: String,
}

impl Damage {
    /// Damage at `offset` of the decoded bytes.
    pub fn new(offset: usize, what: &'static str, expected: impl Display, found: impl Display) -> Self {
        Self { offset, what, expected: expected.to_string(), found: found.to_string() }
    }

    /// A checksum at `offset` of the decoded bytes that is not that of the bytes.
    pub fn of_checksum(offset: usize, what: &'static str, expected: u32, found: u32) -> Self {
        Self::new(offset, what, format_args!("{expected:#010x}"), format_args!("{found:#010x}"))
    }

    /// The error of damage in bytes that were decoded from `offset` of `file` on.
    #[must_use]
    pub fn at(self, file: impl Display, offset: u64) -> Error {
        let Self { offset: within, what, expected, found } = self;
        Error::Corrupt { file: file.to_string(), offset: offset.saturating_add(within as u64), what, expected, found }
    }

    /// The error of a damaged record of a table; `record` names the record.
    #[must_use]
    pub fn in_record(self, record: &str, table: TableId) -> Error {
        self.at(format_args!("{record} of table {}", table.0), 0)
    }
}
