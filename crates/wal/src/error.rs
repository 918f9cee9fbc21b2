//! The errors of the log.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use space::FileDamage;

/// Result of an operation on the log.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the log. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Error {
    /// The device or file system failed; the log itself has not.
    Io(psync::Error),
    /// The database directory failed; the log itself has not.
    Space(space::Error),
    /// The disk is full: no further segment could be made. Nothing was written; try again after freeing space.
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
    Failed(Arc<Failure>),
    /// The log is damaged in a place that was known to be durable.
    Corrupt(FileDamage),
    /// A file belongs to another database.
    Foreign {
        /// The file.
        file: PathBuf,
        /// This database.
        expected: String,
        /// The file's database.
        found: String,
    },
    /// A file was written by a newer version.
    NewerVersion {
        /// The file.
        file: PathBuf,
        /// The file's format version.
        found: u16,
        /// The newest version that this code knows.
        supported: u16,
    },
    /// A segment has another size than the options state.
    SegmentSize {
        /// The file.
        file: PathBuf,
        /// Size in the options.
        expected: u64,
        /// Size in the file.
        found: u64,
    },
    /// The log holds groups of this epoch or a later one.
    EpochUsed {
        /// The file.
        file: PathBuf,
        /// Epoch in the options.
        epoch: u64,
        /// Epoch in the log.
        found: u64,
    },
    /// The log was trimmed, and no longer holds a record that a reader needs.
    Trimmed {
        /// The seq that the reader needs next.
        seq: u64,
        /// The first seq that the log holds, or will hold.
        oldest: u64,
    },
    /// The record does not fit into a segment. Nothing was written.
    RecordTooLarge {
        /// Bytes of its payload.
        bytes: u64,
        /// Most bytes a payload may have.
        max: u64,
    },
    /// The log was closed ([`crate::Wal::close`]).
    Closed,
    /// The log was opened read-only.
    ReadOnly,
    /// The options contradict the limits of the log.
    InvalidOptions(String),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(formatter),
            Self::Space(error) => error.fmt(formatter),
            Self::Full { segment_bytes, cause, .. } => write!(
                formatter,
                "the disk is full: the log needs a segment of {segment_bytes} bytes; free some space and try again \
                 ({cause})"
            ),
            Self::Failed(failure) => write!(formatter, "{failure}"),
            Self::Corrupt(damage) => {
                write!(formatter, "{damage}. A crash does not explain this: restore the log from a backup")
            }
            Self::Foreign { file, expected, found } => {
                write!(formatter, "{} belongs to database {found}, not to {expected}: move it away", file.display())
            }
            Self::NewerVersion { file, found, supported } => write!(
                formatter,
                "{} has log format {found}; this version knows formats up to {supported}: open it with a newer version",
                file.display()
            ),
            Self::SegmentSize { file, expected, found } => write!(
                formatter,
                "{} has segments of {found} bytes, not {expected}: open the log with the size it was made with",
                file.display()
            ),
            Self::EpochUsed { file, epoch, found } => write!(
                formatter,
                "{} was written in epoch {found}, and epoch {epoch} is to be new: the superblock is older than the log",
                file.display()
            ),
            Self::Trimmed { seq, oldest } => {
                write!(formatter, "the log no longer holds the record of seq {seq}: it begins with seq {oldest}")
            }
            Self::RecordTooLarge { bytes, max } => {
                write!(formatter, "a log record of {bytes} bytes is over the limit of {max}")
            }
            Self::Closed => formatter.write_str("the log was closed; open it again to append"),
            Self::ReadOnly => formatter.write_str("the log is open read-only"),
            Self::InvalidOptions(problem) => write!(formatter, "the log cannot be opened: {problem}"),
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

/// The reason that the log takes nothing any more.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The failed operation: a write or a flush; after a panic also an append or an announcement.
    pub operation: &'static str,
    /// The error of the device.
    pub cause: psync::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, cause } = self;
        write!(
            formatter,
            "the log failed and takes no more: {operation}: {cause}. Close the database and open it again; commits \
             that were not acknowledged may or may not be there"
        )
    }
}

impl std::error::Error for Failure {}
