//! The sorts of errors.

/// The sort of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is outside the limits or does not fit.
    InvalidInput,
    /// Another transaction is in the way; retryable.
    Conflict,
    /// No such table, database, retained state or backup, or changes that the log does not hold any more.
    NotFound,
    /// Open elsewhere, or a table that is being loaded or rolled back.
    Locked,
    /// Damage.
    Corrupt,
    /// Not a Braid database or backup.
    ForeignFile,
    /// Written by newer software.
    NewerVersion,
    /// Written with a feature that this build does not have.
    MissingFeature,
    /// No space; retryable.
    DiskFull,
    /// Opened read-only, closed, or in a directory without permission to write.
    ReadOnly,
    /// A write failed; the database only reads.
    Failed,
    /// The caller stopped the operation.
    Stopped,
    /// Any other failure of device or file system.
    Io,
}

/// Sorts a device or file system error.
pub(crate) fn io_kind(error: &psync::Error) -> ErrorKind {
    if matches!(error, psync::Error::Locked { .. }) {
        return ErrorKind::Locked;
    }
    match error.io().map(std::io::Error::kind) {
        Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => ErrorKind::DiskFull,
        Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) => ErrorKind::ReadOnly,
        Some(std::io::ErrorKind::NotFound) => ErrorKind::NotFound,
        _ => ErrorKind::Io,
    }
}
