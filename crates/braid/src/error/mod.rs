//! The errors of every call.

pub(crate) mod convert;
mod kind;

use std::{path::PathBuf, time::Duration};

use crate::words::structure::Structure;

pub use kind::ErrorKind;
pub(crate) use kind::io_kind;

/// Result of a database call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of every call. [`Error::kind`] sorts them for programs.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key is empty or too long for the table's structure.
    #[error("a key of {length} bytes does not fit table {table:?}: keys are 1 to {limit} bytes")]
    KeyLength {
        /// Table name.
        table: String,
        /// Bytes of the key.
        length: usize,
        /// Most bytes of a key.
        limit: usize,
    },
    /// A value is too long.
    #[error(
        "a value of {length} bytes does not fit table {table:?}: values are at most {limit} bytes. Nothing was written"
    )]
    ValueLength {
        /// Table name.
        table: String,
        /// Bytes of the value.
        length: u64,
        /// Most bytes of a value.
        limit: u64,
    },
    /// A batch or transaction is larger than memory allows.
    #[error(
        "a batch of {bytes} bytes is too large: at most {limit} bytes commit together (values above {inline} bytes, and others that it brings as documents, count as 28). Nothing was written; split it, or give the database more memory"
    )]
    BatchTooLarge {
        /// Bytes of the batch in the log.
        bytes: u64,
        /// Most bytes of a batch in the log.
        limit: u64,
        /// Values above this length, in bytes, go to the document log.
        inline: usize,
    },
    /// A range was reversed after its first pair.
    #[error("a range cannot be reversed after its first pair: call `rev` before, or take pairs from its other end")]
    RangeBegun,
    /// A table would have too many range deletes that are not swept away yet.
    #[error(
        "table {table:?} would have more than {limit} ranges of deleted keys that are not swept away yet: those of this commit, and such as snapshots and transactions that are older keep. Nothing was written; end those, try again later, or delete fewer ranges at a time"
    )]
    TooManyRangeDeletes {
        /// Table name.
        table: String,
        /// Ranges of the commit itself.
        own: usize,
        /// Most ranges of a table.
        limit: usize,
    },
    /// A table name is empty or too long.
    #[error("{name:?} is not a table name: 1 to {limit} bytes of UTF-8")]
    TableName {
        /// The refused name.
        name: String,
        /// Most bytes of a name.
        limit: usize,
    },
    /// There is no table of that name.
    #[error("there is no table {name:?}; `tables` lists those there are, `table` creates one")]
    NoSuchTable {
        /// The name.
        name: String,
    },
    /// A table has another structure.
    #[error("table {name:?} has structure {found}, not {wanted}; a table keeps the structure it was created with")]
    WrongStructure {
        /// The name.
        name: String,
        /// The structure that the table was created with.
        found: Structure,
        /// The structure that the caller asked for.
        wanted: Structure,
    },
    /// The table of a load is not empty.
    #[error(
        "table {name:?} is not empty, or a snapshot still sees keys that it had, or what has expired in it was not removed yet, and only an empty table can be loaded; write to it, or load a new one"
    )]
    NotEmpty {
        /// The name.
        name: String,
    },
    /// The keys of a load do not rise.
    #[error(
        "pair {pair} of the load of table {name:?} is out of order: its key \"{key}\" does not come after \"{before}\". It was not taken; keys have to rise, none twice"
    )]
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
    #[error("no state of table {name:?} at seq {seq} is retained; {}", shown_seqs(retained))]
    NoSuchState {
        /// The name of the table.
        name: String,
        /// The seq that was asked for.
        seq: u64,
        /// The seqs of the retained states.
        retained: Vec<u64>,
    },
    /// A table is being loaded or rolled back.
    #[error(
        "table {name:?} is being loaded or rolled back, and nothing else can change it until that has ended. Nothing was written"
    )]
    Loading {
        /// The name.
        name: String,
    },
    /// A batch, a snapshot or a transaction was given a table of another database.
    #[error(
        "table {name:?} belongs to another open database; batches, snapshots and transactions are of one. Nothing was written"
    )]
    ForeignTable {
        /// The name.
        name: String,
    },
    /// Another commit was in the way of a transaction.
    #[error(
        "the transaction is in conflict: {what} of table {table:?} was changed by another commit since it began{key}. Nothing was written; run it again, as `Database::run` does"
    )]
    Conflict {
        /// Table name.
        table: String,
        /// The changed part: a key, a range, or the whole table.
        what: &'static str,
        /// The key, escaped and cut, with the words before it in the message.
        key: String,
    },
    /// Two transactions wait for each other's locks.
    #[error(
        "key \"{key}\" of table {table:?} is locked by a transaction that waits for this one. Nothing was written; roll back and run it again"
    )]
    Deadlock {
        /// Table name.
        table: String,
        /// The key, escaped and cut.
        key: String,
    },
    /// Another transaction held a lock for too long.
    #[error(
        "key \"{key}\" of table {table:?} stayed locked by another transaction for {waited:?}. Nothing was written; try again, or allow a longer wait"
    )]
    LockTimeout {
        /// Table name.
        table: String,
        /// The key, escaped and cut.
        key: String,
        /// Time that the caller waited.
        waited: Duration,
    },
    /// Open transactions hold all the memory that they may hold.
    #[error(
        "{bytes} bytes more do not fit: this transaction holds {own} bytes of writes and reads, and all that are open {held}, of {limit} that they may hold together. Commit in smaller parts, try again when others have ended, or give the database more memory"
    )]
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
    #[error(
        "there is no such savepoint any more: the transaction was rolled back to an earlier one, or it is another's"
    )]
    NoSavepoint,
    /// A read-only transaction was asked to write.
    #[error("the transaction was begun read-only; nothing was written")]
    ReadOnlyTransaction,
    /// An option has a value that can't work.
    #[error("option {option}: {problem}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The problem with the value.
        problem: String,
    },
    /// The directory does not exist and creating was not asked for.
    #[error("there is no database at {}", path.display())]
    NoDatabase {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds something other than a Braid database.
    #[error("{} is not a Braid database: {reason}. Nothing in it was changed; give an empty or new directory", path.display())]
    ForeignFile {
        /// The directory or file.
        path: PathBuf,
        /// The evidence.
        reason: String,
    },
    /// The file was written by newer software.
    #[error("{} has format version {found}, this build reads up to {supported}; open it with a newer Braid", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: u32,
        /// The newest version that this build knows.
        supported: u32,
    },
    /// Another process, or another handle of this process, has the database open.
    #[error("{} is open already, by process {holder}; close it there first", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The holder of the lock, as far as known.
        holder: String,
    },
    /// The bytes that were read differ from those that were written.
    #[error(
        "{file} is damaged at byte {offset}: {what}; expected {expected}, found {found}. What does not depend on it stays readable"
    )]
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
    #[error(
        "the changes after seq {after} are gone: the log begins with seq {oldest}. Copy the tables anew, and keep more of the log (`retain_log_bytes`)"
    )]
    ChangesGone {
        /// The requested seq.
        after: u64,
        /// The oldest seq in the log.
        oldest: u64,
    },
    /// The requested changes are after a commit that this database does not have.
    #[error(
        "there is no seq {after}: the newest is {newest}. Whoever saw it has what this database lost, or what another one has; copy the tables anew"
    )]
    ChangesAhead {
        /// The requested seq.
        after: u64,
        /// The newest seq.
        newest: u64,
    },
    /// The log does not hold all changes that an incremental backup needs.
    #[error(
        "the log begins with seq {oldest}, so what changed since the backup of seq {after} is not known any more. Make a full backup, and keep more of the log between backups (`retain_log_bytes`)"
    )]
    BackupGap {
        /// The seq of the backup that was to be continued.
        after: u64,
        /// The oldest seq in the log.
        oldest: u64,
    },
    /// A backup does not continue the one before.
    #[error(
        "{file} does not continue what is before it: {problem}. A chain is a full backup and then its incremental ones, in their order; begin a new one with a full backup"
    )]
    BackupChain {
        /// The backup.
        file: String,
        /// The evidence.
        problem: String,
    },
    /// There is no full backup in the directory.
    #[error("there is no full backup in {}; make one first", path.display())]
    NoBackup {
        /// The directory.
        path: PathBuf,
    },
    /// A file or stream is no backup.
    #[error("{file} is not a Braid backup: {reason}")]
    ForeignBackup {
        /// The file or stream.
        file: String,
        /// The evidence.
        reason: String,
    },
    /// The place of a new database or backup is occupied.
    #[error("{} holds {found}; give a new or empty directory. Nothing in it was changed", path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
        /// The contents of the directory.
        found: String,
    },
    /// The caller ended a backup or a restore.
    #[error("{what} was stopped before it was whole; nothing of it is kept")]
    Stopped {
        /// The stopped operation.
        what: &'static str,
    },
    /// The database was opened for reading.
    #[error("the database is open read-only; nothing was written")]
    ReadOnly,
    /// Another handle closed the database.
    #[error("the database was closed through another handle; nothing was written. Open it again")]
    Closed,
    /// No space is left. Deletes still work, and so does trying again later.
    #[error("no space is left on the device of {}: {problem}. Nothing of this call was written; free space or delete keys and try again", path.display())]
    DiskFull {
        /// The database directory.
        path: PathBuf,
        /// The space that could not be had.
        problem: String,
    },
    /// A write or flush failed earlier. The database only reads until the next opening.
    #[error(
        "the database is read-only since a write failed: {cause}. Reads go on; a commit that was under way then has an unknown outcome. Mend the device and open again"
    )]
    Failed {
        /// The first failure.
        cause: String,
    },
    /// The flush of this very commit failed.
    #[error(
        "the outcome of this commit is unknown, since its flush failed: {cause}. The database is read-only now; open it again to see"
    )]
    OutcomeUnknown {
        /// The failure.
        cause: String,
    },
    /// The device or file system failed while reading or opening.
    #[error(transparent)]
    Io(#[from] psync::Error),
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
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let is_out_of_files =
            matches!(self, Self::Io(error) if error.is_too_many_open_files()) && !self.is_write_failure();
        is_out_of_files || matches!(self.kind(), ErrorKind::DiskFull | ErrorKind::Locked | ErrorKind::Conflict)
    }
}

/// Bytes of a key that an error shows.
const SHOWN_BYTES: usize = 40;

/// A key as errors show keys: escaped, and cut where the key is long.
pub(crate) fn shown(key: &[u8]) -> String {
    key[..key.len().min(SHOWN_BYTES)].escape_ascii().to_string()
}
/// The seqs of the retained states, in words.
fn shown_seqs(seqs: &[u64]) -> String {
    if seqs.is_empty() {
        return "none is".into();
    }
    let seqs: Vec<_> = seqs.iter().map(u64::to_string).collect();
    format!("there are those at {}", seqs.join(", "))
}
