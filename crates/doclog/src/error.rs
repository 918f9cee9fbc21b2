//! Errors of documents.

use std::path::{Path, PathBuf};

use space::FileDamage;

use crate::limits::DOCUMENT_BYTES_MAX;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The device or file system failed.
    #[error(transparent)]
    Io(#[from] psync::Error),
    /// A file could not be made, opened or removed.
    #[error(transparent)]
    Space(#[from] space::Error),
    /// A document is larger than the maximum.
    #[error("a document of {length} bytes is too large: at most {DOCUMENT_BYTES_MAX} bytes are possible")]
    TooLarge {
        /// Size of the document, in bytes.
        length: u64,
    },
    /// Stored bytes, or a pointer to them, do not check.
    #[error("{0}. The other documents stay readable; restore this one from a backup")]
    Corrupt(FileDamage),
    /// Written by a newer version of this program.
    #[error("{} has format version {found} at byte {offset}, this program knows up to {known}: use a newer program", file.display())]
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
