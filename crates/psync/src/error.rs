//! The errors of this crate: each says the failed operation, the place and the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::BackendKind;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation. Cheap to clone, so that a failure can be kept and reported again.
#[derive(Clone, Debug)]
pub enum Error {
    /// The system refused or failed a read, write or flush.
    Io {
        /// `read`, `write` or `flush`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Byte offset of the request (0 for a flush).
        offset: u64,
        /// Bytes of the request (0 for a flush).
        length: u64,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The system refused or failed an operation on a file or directory as a whole.
    Path {
        /// The operation: `open`, `remove`, …
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// A read went past the end of the file.
    ShortRead {
        /// The file.
        path: PathBuf,
        /// Byte offset of the request.
        offset: u64,
        /// Bytes wanted.
        wanted: u64,
        /// Bytes found.
        got: u64,
    },
    /// Somebody else holds the lock.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds the lock, where known.
        holder: Option<u32>,
    },
    /// The machine does not offer the requested backend.
    Unsupported {
        /// The requested backend.
        backend: BackendKind,
        /// The reason of its absence.
        reason: String,
    },
    /// A request to a file opened for direct I/O is not a multiple of the file's unit.
    Misaligned {
        /// The file.
        path: PathBuf,
        /// Byte offset of the request.
        offset: u64,
        /// Bytes of the request.
        length: u64,
        /// The unit of offset and length.
        unit: u64,
    },
    /// A device profile with unknown or foreign content, or one that cannot be written.
    Profile {
        /// The profile.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A file of learned request times that is damaged, or of another version, device or backend.
    Learned {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { operation, path, offset, length, source } => write!(
                formatter,
                "cannot {operation} {length} bytes at offset {offset} of {}: {source}",
                path.display()
            ),
            Self::Path { operation, path, source } => {
                write!(formatter, "cannot {operation} {}: {source}", path.display())
            }
            Self::ShortRead { path, offset, wanted, got } => write!(
                formatter,
                "{} ends early: wanted {wanted} bytes at offset {offset}, found {got}",
                path.display()
            ),
            Self::Locked { path, holder } => write!(
                formatter,
                "{} is locked by {}: close the other user first",
                path.display(),
                holder_text(*holder)
            ),
            Self::Unsupported { backend, reason } => write!(
                formatter,
                "backend {backend} is not available: {reason}; choose another backend, or none to have the best one \
                 chosen"
            ),
            Self::Misaligned { path, offset, length, unit } => write!(
                formatter,
                "offset {offset} and length {length} on {} must be multiples of {unit}: the file is open for direct \
                 I/O",
                path.display()
            ),
            Self::Profile { path, reason } => {
                write!(formatter, "cannot use the device profile {}: {reason}", path.display())
            }
            Self::Learned { path, reason } => write!(
                formatter,
                "cannot use what was learned from requests, {}: {reason}; without the file it is learned anew",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Path { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn holder_text(holder: Option<u32>) -> String {
    holder.map_or_else(|| "another user".to_owned(), |pid| format!("process {pid}"))
}

impl Error {
    pub(crate) fn path(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Path { operation, path: path.to_owned(), source: Arc::new(source) }
    }

    /// The system's error behind this one, if any.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } | Self::Path { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Whether the disk or the user's quota is full. Retry after space was made.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.io().and_then(io::Error::raw_os_error), Some(libc::ENOSPC | libc::EDQUOT))
    }

    /// The failure that stands for two of one batch, given in the order of its requests. This is the first one, but a
    /// full disk only where nothing else failed. After a full disk a batch is tried again, and that would hide the
    /// other failure.
    pub fn of_both(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) if first.is_disk_full() && !second.is_disk_full() => Some(second),
            (first, second) => first.or(second),
        }
    }

    /// Whether a flush of a file or directory failed. Nobody knows which of its bytes are durable, and another flush
    /// would not tell.
    pub fn is_flush_failure(&self) -> bool {
        let (Self::Io { operation, .. } | Self::Path { operation, .. }) = self else { return false };
        operation.starts_with("flush")
    }

    /// Whether the named file or directory is not there.
    pub fn is_not_found(&self) -> bool {
        self.io().is_some_and(|source| source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the process or the system has as many files open as allowed. Retry after some were closed.
    pub fn is_too_many_open_files(&self) -> bool {
        matches!(self.io().and_then(io::Error::raw_os_error), Some(libc::EMFILE | libc::ENFILE))
    }

    /// Whether the file to be created exists already.
    pub fn is_already_exists(&self) -> bool {
        self.io().is_some_and(|source| source.kind() == io::ErrorKind::AlreadyExists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_what_and_where() {
        let error = Error::Io {
            operation: "write",
            path: "db/data".into(),
            offset: 8192,
            length: 4096,
            source: Arc::new(io::Error::from_raw_os_error(libc::ENOSPC)),
        };
        assert!(error.is_disk_full());
        assert_eq!(
            error.to_string(),
            "cannot write 4096 bytes at offset 8192 of db/data: No space left on device (os error 28)"
        );
        let locked = Error::Locked { path: "db/LOCK".into(), holder: Some(7) };
        assert_eq!(locked.to_string(), "db/LOCK is locked by process 7: close the other user first");
        assert!(!locked.is_disk_full());
    }
}
