//! The errors of the log.

use std::path::PathBuf;
use std::sync::Arc;

use space::FileDamage;

/// Result of an operation on the log.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the log. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The device or file system failed; the log itself has not.
    #[error(transparent)]
    Io(#[from] psync::Error),
    /// The database directory failed; the log itself has not.
    #[error(transparent)]
    Space(#[from] space::Error),
    /// The disk is full: no further segment could be made. Nothing was written; try again after freeing space.
    #[error(
        "the disk is full: the log needs a segment of {segment_bytes} bytes; free some space and try again ({cause})"
    )]
    Full {
        /// The directory of the database.
        directory: PathBuf,
        /// Size of a segment.
        segment_bytes: u64,
        /// The message of the system.
        cause: String,
    },
    /// A write or flush failed before, and the log takes nothing any more.
    ///
    /// Records that were not acknowledged have an unknown outcome.
    #[error("{0}")]
    Failed(Arc<Failure>),
    /// The log is damaged in a place that was known to be durable.
    #[error("{0}. A crash does not explain this: restore the log from a backup")]
    Corrupt(FileDamage),
    /// A file belongs to another database.
    #[error("{} belongs to database {found}, not to {expected}: move it away", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// This database.
        expected: String,
        /// The file's database.
        found: String,
    },
    /// A file was written by a newer version.
    #[error("{} has log format {found}; this version knows formats up to {supported}: open it with a newer version", file.display())]
    NewerVersion {
        /// The file.
        file: PathBuf,
        /// The file's format version.
        found: u16,
        /// The newest version that this code knows.
        supported: u16,
    },
    /// A segment has another size than the options state.
    #[error("{} has segments of {found} bytes, not {expected}: open the log with the size it was made with", file.display())]
    SegmentSize {
        /// The file.
        file: PathBuf,
        /// Size in the options.
        expected: u64,
        /// Size in the file.
        found: u64,
    },
    /// The log holds groups of this epoch or a later one.
    #[error("{} was written in epoch {found}, and epoch {epoch} is to be new: the superblock is older than the log", file.display())]
    EpochUsed {
        /// The file.
        file: PathBuf,
        /// Epoch in the options.
        epoch: u64,
        /// Epoch in the log.
        found: u64,
    },
    /// The log was trimmed, and no longer holds a record that a reader needs.
    #[error("the log no longer holds the record of seq {seq}: it begins with seq {oldest}")]
    Trimmed {
        /// The seq that the reader needs next.
        seq: u64,
        /// The first seq that the log holds, or will hold.
        oldest: u64,
    },
    /// The record does not fit into a segment. Nothing was written.
    #[error("a log record of {bytes} bytes is over the limit of {max}")]
    RecordTooLarge {
        /// Bytes of its payload.
        bytes: u64,
        /// Most bytes a payload may have.
        max: u64,
    },
    /// The log was closed ([`crate::Wal::close`]).
    #[error("the log was closed; open it again to append")]
    Closed,
    /// The log was opened read-only.
    #[error("the log is open read-only")]
    ReadOnly,
    /// The options contradict the limits of the log.
    #[error("the log cannot be opened: {0}")]
    InvalidOptions(String),
}

/// The reason that the log takes nothing any more.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the log failed and takes no more: {operation}: {cause}. Close the database and open it again; commits that were not acknowledged may or may not be there"
)]
pub struct Failure {
    /// The failed operation: a write or a flush; after a panic also an append or an announcement.
    pub operation: &'static str,
    /// The error of the device.
    pub cause: psync::Error,
}
