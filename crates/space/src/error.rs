//! Errors of files and pages.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Extent, FileDamage};

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation, which changed nothing.
#[derive(Clone, Debug)]
pub enum Error {
    /// The device or file system failed.
    Io(psync::Error),
    /// The disk is full, and the state is as before. Make space (delete, or free the disk) and try again.
    Full {
        /// The file that cannot grow.
        file: PathBuf,
        /// Pages asked for.
        pages: u64,
        /// Pages free when the request was refused.
        free_pages: u64,
        /// Number of free pages that this class of request must leave alone.
        reserve_pages: u64,
    },
    /// The disk is full, and its reserve is in use to give space back.
    Lent {
        /// The reserve file.
        file: PathBuf,
    },
    /// The store is open for reading only.
    ReadOnly {
        /// The refused operation.
        operation: &'static str,
        /// The file or directory of the operation.
        path: PathBuf,
    },
    /// A name that would lead out of the directory, or names nothing.
    Name {
        /// The name.
        name: String,
    },
    /// More pages than a file may have, or none.
    Size {
        /// The file.
        file: PathBuf,
        /// Extents asked for.
        count: usize,
        /// Pages of each.
        pages: u32,
    },
    /// Pages are not in the state from which the operation starts. A pointer, log record or image is damaged, or pages
    /// were given back twice.
    State {
        /// The file.
        file: PathBuf,
        /// The refused operation.
        operation: &'static str,
        /// The pages of the operation.
        extent: Extent,
        /// The state that all of the pages had to be in.
        expected: &'static str,
        /// The actual state of some of them.
        found: &'static str,
    },
    /// Stored bytes do not check.
    Corrupt(FileDamage),
    /// Written by a newer version of this program.
    NewerVersion {
        /// The file, or the structure where the bytes are part of something larger.
        file: PathBuf,
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
            Self::Full { file, pages, free_pages, reserve_pages } => write!(
                formatter,
                "no space for {pages} pages in {}: {free_pages} are free, of which {reserve_pages} are kept for \
                 deletes, and the file cannot grow; delete data or free disk space, then try again",
                file.display()
            ),
            Self::Lent { file } => write!(
                formatter,
                "no space: what {} keeps of the disk is in use to give space back; try again, or delete data or free \
                 disk space",
                file.display()
            ),
            Self::ReadOnly { operation, path } => {
                write!(formatter, "cannot {operation} {}: the database is open for reading only", path.display())
            }
            Self::Name { name } => write!(formatter, "{name:?} does not name a file inside the database directory"),
            Self::Size { file, count, pages } => {
                write!(formatter, "{count} extents of {pages} pages cannot be allocated in {}", file.display())
            }
            Self::State { file, operation, extent, expected, found } => write!(
                formatter,
                "{} is damaged: cannot {operation} {extent}: expected it {expected}, found {found}; verify the \
                 database and restore it from a backup",
                file.display()
            ),
            Self::Corrupt(damage) => write!(formatter, "{damage}. Restore it from a backup"),
            Self::NewerVersion { file, found, known } => write!(
                formatter,
                "{} has format version {found}, this program knows up to {known}: use a newer program",
                file.display()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => error.source(),
            _ => None,
        }
    }
}

impl From<psync::Error> for Error {
    fn from(error: psync::Error) -> Self {
        Self::Io(error)
    }
}

impl Error {
    pub(crate) fn corrupt(
        file: &Path, offset: u64, what: &'static str, expected: impl ToString, found: impl ToString,
    ) -> Self {
        Self::Corrupt(FileDamage::new(file, offset, what, expected, found))
    }

    /// Whether the disk, the quota or the file is full: retry after space was made.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Lent { .. } => true,
            Self::Io(error) => error.is_disk_full(),
            _ => false,
        }
    }

    /// Whether a file or directory could not be flushed. Another flush would not tell which of its bytes are durable.
    #[must_use]
    pub fn is_flush_failure(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_flush_failure())
    }

    /// Whether the limit of open files is reached: retry after some were closed.
    #[must_use]
    pub fn is_too_many_open_files(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_too_many_open_files())
    }
}
