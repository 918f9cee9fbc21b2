//! Errors of documents.

use std::fmt;
use std::path::{Path, PathBuf};

use space::FileDamage;

use crate::Compression;
use crate::limits::DOCUMENT_BYTES_MAX;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation.
#[derive(Clone, Debug)]
pub enum Error {
    /// The device or file system failed.
    Io(psync::Error),
    /// A file could not be made, opened or removed.
    Space(space::Error),
    /// A document is larger than the maximum.
    TooLarge {
        /// Size of the document, in bytes.
        length: u64,
    },
    /// Stored bytes, or a pointer to them, do not check.
    Corrupt(FileDamage),
    /// Compressed in a way that this build does not have.
    NotBuilt {
        /// The file.
        file: PathBuf,
        /// Byte offset of the document in the file.
        offset: u64,
        /// The compression, whose name is that of the feature to build with.
        compression: Compression,
    },
    /// Written by a newer version of this program.
    NewerVersion {
        /// The file, or the structure where the bytes are part of something larger.
        file: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// The version found.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(formatter),
            Self::Space(error) => error.fmt(formatter),
            Self::TooLarge { length } => write!(
                formatter,
                "a document of {length} bytes is too large: at most {DOCUMENT_BYTES_MAX} bytes are possible"
            ),
            Self::Corrupt(damage) => {
                write!(formatter, "{damage}. The other documents stay readable; restore this one from a backup")
            }
            Self::NotBuilt { file, offset, compression } => write!(
                formatter,
                "the document at byte {offset} of {} is compressed with {compression}, which this build does not have: \
                 build with feature `{compression}`",
                file.display()
            ),
            Self::NewerVersion { file, offset, found, known } => write!(
                formatter,
                "{} has format version {found} at byte {offset}, this program knows up to {known}: use a newer program",
                file.display()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => error.source(),
            Self::Space(error) => error.source(),
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

impl Error {
    pub(crate) fn corrupt(
        file: &Path, offset: u64, what: &'static str, expected: impl ToString, found: impl ToString,
    ) -> Self {
        Self::Corrupt(FileDamage::new(file, offset, what, expected, found))
    }

    /// Whether the bytes are at fault, not the device or the request: another read would give the same answer.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::NewerVersion { .. })
    }

    /// Whether the disk is full: retry after space was made.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Io(error) => error.is_disk_full(),
            Self::Space(error) => error.is_disk_full(),
            _ => false,
        }
    }

    /// Whether a file or directory could not be flushed. Another flush would not tell which of its bytes are durable.
    #[must_use]
    pub fn is_flush_failure(&self) -> bool {
        match self {
            Self::Io(error) => error.is_flush_failure(),
            Self::Space(error) => error.is_flush_failure(),
            _ => false,
        }
    }

    /// Whether the limit of open files is reached: retry after some were closed.
    pub(crate) fn is_too_many_open_files(&self) -> bool {
        matches!(self, Self::Space(error) if error.is_too_many_open_files())
    }
}
