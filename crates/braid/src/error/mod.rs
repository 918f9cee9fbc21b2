//! The errors of every call.

pub(crate) mod convert;
mod kind;
mod text;

use std::{path::PathBuf, time::Duration};

use crate::words::structure::Structure;

pub use kind::ErrorKind;
pub(crate) use kind::io_kind;

/// Result of a database call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of every call.
///
/// Each says what, where, and what to do. A program decides by [`Error::kind`], and by [`Error::is_retryable`]:
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::{Error, ErrorKind, Structure};
///
/// let users = db.table("users", Structure::BTree)?;
/// let error = users.put("", "no name").expect_err("an empty key");
/// assert!(matches!(error, Error::KeyLength { length: 0, .. }));
/// assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::InvalidInput, false));
/// println!("{error}"); // says what, where, and what to do
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A key is empty or too long for the table's structure.
    KeyLength {
        /// Table name.
        table: String,
        /// Bytes of the key.
        length: usize,
        /// Most bytes of a key.
        limit: usize,
    },
    /// A value is too long.
    ValueLength {
        /// Table name.
        table: String,
        /// Bytes of the value.
        length: u64,
        /// Most bytes of a value.
        limit: u64,
    },
    /// A batch or transaction is larger than memory allows.
    BatchTooLarge {
        /// Bytes of the batch in the log.
        bytes: u64,
        /// Most bytes in the log of a batch with as many operations, each of which takes memory too; never above 1 GiB.
        limit: u64,
        /// Values above this length, in bytes, go to the document log.
        inline: usize,
    },
    /// A range was reversed after its first pair.
    RangeBegun,
    /// A table would have too many range deletes that are not swept away yet.
    TooManyRangeDeletes {
        /// Table name.
        table: String,
        /// Ranges of the commit itself.
        own: usize,
        /// Most ranges of a table.
        limit: usize,
    },
    /// A table name is empty or too long.
    TableName {
        /// The refused name.
        name: String,
        /// Most bytes of a name.
        limit: usize,
    },
    /// There is no table of that name.
    NoSuchTable {
        /// The name.
        name: String,
    },
    /// A table has another structure.
    WrongStructure {
        /// The name.
        name: String,
        /// The structure that the table was created with.
        found: Structure,
        /// The structure that the caller asked for.
        wanted: Structure,
    },
    /// The table of a load is not empty.
    NotEmpty {
        /// The name.
        name: String,
    },
    /// The keys of a load do not rise.
    LoadOrder {
        /// Table name.
        name: String,
        /// Number of the pair in the input, counted from 1.
        pair: u64,
        /// Key of the pair, escaped and cut.
        key: String,
        /// The key before that one, escaped and cut.
        before: String,
    },
    /// The table retains no state of that seq.
    NoSuchState {
        /// The name of the table.
        name: String,
        /// The seq that was asked for.
        seq: u64,
        /// The seqs of the retained states.
        retained: Vec<u64>,
    },
    /// A table is being loaded or rolled back.
    Loading {
        /// The name.
        name: String,
    },
    /// A batch, a snapshot or a transaction was given a table of another database.
    ForeignTable {
        /// The name.
        name: String,
    },
    /// Another commit was in the way of a transaction.
    Conflict {
        /// Table name.
        table: String,
        /// The changed part: a key, a range, or the whole table.
        what: &'static str,
        /// The key, escaped and cut, with the words before it in the message.
        key: String,
    },
    /// Two transactions wait for each other's locks.
    Deadlock {
        /// Table name.
        table: String,
        /// The key, escaped and cut.
        key: String,
    },
    /// Another transaction held a lock for too long.
    LockTimeout {
        /// Table name.
        table: String,
        /// The key, escaped and cut.
        key: String,
        /// Time that the caller waited.
        waited: Duration,
    },
    /// Open transactions hold all the memory that they may hold.
    TransactionTooLarge {
        /// Bytes of the refused write or read.
        bytes: u64,
        /// Bytes that this transaction holds.
        own: u64,
        /// Bytes that all open transactions hold.
        held: u64,
        /// Most bytes that all open transactions may hold together.
        limit: u64,
    },
    /// The savepoint is gone, because the transaction was rolled back to an earlier one, or the savepoint is another
    /// transaction's.
    NoSavepoint,
    /// A read-only transaction was asked to write.
    ReadOnlyTransaction,
    /// An option has a value that can't work.
    Option {
        /// Name of the option.
        option: &'static str,
        /// The problem with the value.
        problem: String,
    },
    /// The directory does not exist and creating was not asked for.
    NoDatabase {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds something other than a Braid database.
    ForeignFile {
        /// The directory or file.
        path: PathBuf,
        /// The evidence.
        reason: String,
    },
    /// The file was written by newer software.
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: u32,
        /// The newest version that this build knows.
        supported: u32,
    },
    /// A value is stored in a way that this build cannot read, because a feature of the crate is off. Keys, and values
    /// that are stored otherwise, stay readable.
    MissingFeature {
        /// The file.
        path: PathBuf,
        /// Byte offset.
        offset: u64,
        /// The feature to build with.
        feature: String,
    },
    /// Another process, or another handle of this process, has the database open.
    Locked {
        /// The directory.
        path: PathBuf,
        /// The holder of the lock, as far as known.
        holder: String,
    },
    /// The bytes that were read differ from those that were written.
    Corrupt {
        /// The file.
        file: String,
        /// Byte offset.
        offset: u64,
        /// The part that does not check.
        what: String,
        /// The contents of an undamaged part.
        expected: String,
        /// The contents found.
        found: String,
    },
    /// The log does not hold the requested changes any more.
    ChangesGone {
        /// The requested seq.
        after: u64,
        /// The oldest seq in the log.
        oldest: u64,
    },
    /// The requested changes are after a commit that this database does not have.
    ChangesAhead {
        /// The requested seq.
        after: u64,
        /// The newest seq.
        newest: u64,
    },
    /// The log does not hold all changes that an incremental backup needs.
    BackupGap {
        /// The seq of the backup that was to be continued.
        after: u64,
        /// The oldest seq in the log.
        oldest: u64,
    },
    /// A backup does not continue the one before.
    BackupChain {
        /// The backup.
        file: String,
        /// The evidence.
        problem: String,
    },
    /// There is no full backup in the directory.
    NoBackup {
        /// The directory.
        path: PathBuf,
    },
    /// A file or stream is no backup.
    ForeignBackup {
        /// The file or stream.
        file: String,
        /// The evidence.
        reason: String,
    },
    /// The place of a new database or backup is occupied.
    Occupied {
        /// The directory.
        path: PathBuf,
        /// The contents of the directory.
        found: String,
    },
    /// The caller ended a backup or a restore.
    Stopped {
        /// The stopped operation.
        what: &'static str,
    },
    /// The database was opened for reading.
    ReadOnly,
    /// Another handle closed the database.
    Closed,
    /// No space is left. Deletes still work, and so does trying again later.
    DiskFull {
        /// The database directory.
        path: PathBuf,
        /// The space that could not be had.
        problem: String,
    },
    /// A write or flush failed earlier. The database only reads until the next opening.
    Failed {
        /// The first failure.
        cause: String,
    },
    /// The flush of this very commit failed.
    OutcomeUnknown {
        /// The failure.
        cause: String,
    },
    /// The device or file system failed while reading or opening.
    Io(psync::Error),
}

impl Error {
    /// The sort of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::KeyLength { .. }
            | Self::RangeBegun
            | Self::ValueLength { .. }
            | Self::BatchTooLarge { .. }
            | Self::TableName { .. }
            | Self::WrongStructure { .. }
            | Self::NotEmpty { .. }
            | Self::LoadOrder { .. }
            | Self::ForeignTable { .. }
            | Self::NoSavepoint
            | Self::ReadOnlyTransaction
            | Self::ChangesAhead { .. }
            | Self::BackupChain { .. }
            | Self::Occupied { .. }
            | Self::Option { .. } => ErrorKind::InvalidInput,
            Self::TransactionTooLarge { bytes, own, limit, .. } if own + bytes > *limit => ErrorKind::InvalidInput,
            Self::TooManyRangeDeletes { own, limit, .. } if own > limit => ErrorKind::InvalidInput,
            // Other transactions or commits hold the room.
            Self::TransactionTooLarge { .. } | Self::TooManyRangeDeletes { .. } => ErrorKind::Conflict,
            Self::Conflict { .. } | Self::Deadlock { .. } | Self::LockTimeout { .. } => ErrorKind::Conflict,
            Self::NoSuchTable { .. }
            | Self::NoSuchState { .. }
            | Self::NoDatabase { .. }
            | Self::ChangesGone { .. }
            | Self::BackupGap { .. }
            | Self::NoBackup { .. } => ErrorKind::NotFound,
            Self::Stopped { .. } => ErrorKind::Stopped,
            Self::ForeignFile { .. } | Self::ForeignBackup { .. } => ErrorKind::ForeignFile,
            Self::NewerVersion { .. } => ErrorKind::NewerVersion,
            Self::MissingFeature { .. } => ErrorKind::MissingFeature,
            Self::Locked { .. } | Self::Loading { .. } => ErrorKind::Locked,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::ReadOnly | Self::Closed => ErrorKind::ReadOnly,
            Self::DiskFull { .. } => ErrorKind::DiskFull,
            Self::Failed { .. } | Self::OutcomeUnknown { .. } => ErrorKind::Failed,
            Self::Io(error) => io_kind(error),
        }
    }

    /// The conflict of a transaction over `key`, or over `what` of the table where no key is known.
    pub(crate) fn conflict(table: &str, what: &'static str, key: Option<&[u8]>) -> Self {
        let key = key.map(|key| format!(", at key \"{}\"", shown(key))).unwrap_or_default();
        Self::Conflict { table: table.to_owned(), what, key }
    }

    /// The cause, without the sentence around it, for a message that says the same around its own cause.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Failed { cause } | Self::OutcomeUnknown { cause } => cause.clone(),
            Self::DiskFull { problem, .. } => problem.clone(),
            other => other.to_string(),
        }
    }

    /// Whether a read failed. Trying again then harms nothing.
    pub(crate) fn is_read_failure(&self) -> bool {
        self.failed_operation() == Some("read")
    }

    /// Whether there was no space, and nothing else failed. Then nothing was written that counts, and trying again once
    /// there is space is safe.
    pub(crate) fn is_no_space(&self) -> bool {
        self.kind() == ErrorKind::DiskFull && !self.is_flush_failure()
    }

    /// Whether a flush failed.
    pub(crate) fn is_flush_failure(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_flush_failure())
    }

    /// Whether a write or a flush failed. The bytes covered are then in an unknown state, and trying again would not
    /// tell.
    pub(crate) fn is_write_failure(&self) -> bool {
        let is_write = |operation: &str| operation.starts_with("write");
        let failed = self.failed_operation().is_some_and(is_write) || self.is_flush_failure();
        failed || matches!(self, Self::Failed { .. })
    }

    /// The operation of the device or file system that failed.
    fn failed_operation(&self) -> Option<&'static str> {
        match self {
            Self::Io(psync::Error::Io { operation, .. } | psync::Error::Path { operation, .. }) => Some(operation),
            _ => None,
        }
    }

    /// Whether the same call can succeed later without opening the database anew. So after a conflict, on a full disk,
    /// and where the process or the system has too many open files.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # let users = db.table("users", braid::Structure::BTree)?;
    /// let mut tx = db.begin()?;
    /// tx.put(&users, "ada", "1815")?;
    /// users.put("ada", "1816")?;
    /// let conflict = tx.commit().expect_err("another commit was first");
    /// assert_eq!((conflict.kind(), conflict.is_retryable()), (braid::ErrorKind::Conflict, true));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let is_out_of_files =
            matches!(self, Self::Io(error) if error.is_too_many_open_files()) && !self.is_write_failure();
        is_out_of_files || matches!(self.kind(), ErrorKind::DiskFull | ErrorKind::Locked | ErrorKind::Conflict)
    }
}

impl From<psync::Error> for Error {
    fn from(error: psync::Error) -> Self {
        Self::Io(error)
    }
}

/// Bytes of a key that an error shows.
const SHOWN_BYTES: usize = 40;

/// A key as errors show keys: escaped, and cut where the key is long.
pub(crate) fn shown(key: &[u8]) -> String {
    key[..key.len().min(SHOWN_BYTES)].escape_ascii().to_string()
}
