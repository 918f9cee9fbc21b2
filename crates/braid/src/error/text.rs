//! The messages of errors.

use std::fmt;

use crate::error::Error;

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyLength { table, length, limit } => {
                write!(formatter, "a key of {length} bytes does not fit table {table:?}: keys are 1 to {limit} bytes")
            }
            Self::ValueLength { table, length, limit } => write!(
                formatter,
                "a value of {length} bytes does not fit table {table:?}: values are at most {limit} bytes. Nothing \
                 was written"
            ),
            Self::BatchTooLarge { bytes, limit, inline } => write!(
                formatter,
                "a batch of {bytes} bytes is too large: at most {limit} bytes commit together (values above {inline} \
                 bytes, and others that it brings as documents, count as 28). Nothing was written; split it, or give \
                 the database more memory"
            ),
            Self::RangeBegun => formatter.write_str(
                "a range cannot be reversed after its first pair: call `rev` before, or take pairs from its other \
                 end",
            ),
            Self::TooManyRangeDeletes { table, limit, .. } => write!(
                formatter,
                "table {table:?} would have more than {limit} ranges of deleted keys that are not swept away yet: \
                 those of this commit, and such as snapshots and transactions that are older keep. Nothing was \
                 written; end those, try again later, or delete fewer ranges at a time"
            ),
            Self::TableName { name, limit } => {
                write!(formatter, "{name:?} is not a table name: 1 to {limit} bytes of UTF-8")
            }
            Self::NoSuchTable { name } => {
                write!(formatter, "there is no table {name:?}; `tables` lists those there are, `table` creates one")
            }
            Self::WrongStructure { name, found, wanted } => write!(
                formatter,
                "table {name:?} has structure {found}, not {wanted}; a table keeps the structure it was created with"
            ),
            Self::NotEmpty { name } => write!(
                formatter,
                "table {name:?} is not empty, or a snapshot still sees keys that it had, or what has expired in it \
                 was not removed yet, and only an empty table can be loaded; write to it, or load a new one"
            ),
            Self::LoadOrder { name, pair, key, before } => write!(
                formatter,
                "pair {pair} of the load of table {name:?} is out of order: its key \"{key}\" does not come after \
                 \"{before}\". It was not taken; keys have to rise, none twice"
            ),
            Self::NoSuchState { name, seq, retained } => {
                write!(formatter, "no state of table {name:?} at seq {seq} is retained; {}", shown_seqs(retained))
            }
            Self::Loading { name } => write!(
                formatter,
                "table {name:?} is being loaded or rolled back, and nothing else can change it until that has ended. \
                 Nothing was written"
            ),
            Self::ForeignTable { name } => write!(
                formatter,
                "table {name:?} belongs to another open database; batches, snapshots and transactions are of one. \
                 Nothing was written"
            ),
            Self::Conflict { table, what, key } => write!(
                formatter,
                "the transaction is in conflict: {what} of table {table:?} was changed by another commit since it \
                 began{key}. Nothing was written; run it again, as `Database::run` does"
            ),
            Self::Deadlock { table, key } => write!(
                formatter,
                "key \"{key}\" of table {table:?} is locked by a transaction that waits for this one. Nothing was \
                 written; roll back and run it again"
            ),
            Self::LockTimeout { table, key, waited } => write!(
                formatter,
                "key \"{key}\" of table {table:?} stayed locked by another transaction for {waited:?}. Nothing was \
                 written; try again, or allow a longer wait"
            ),
            Self::TransactionTooLarge { bytes, own, held, limit } => write!(
                formatter,
                "{bytes} bytes more do not fit: this transaction holds {own} bytes of writes and reads, and all that \
                 are open {held}, of {limit} that they may hold together. Commit in smaller parts, try again when \
                 others have ended, or give the database more memory"
            ),
            Self::NoSavepoint => formatter.write_str(
                "there is no such savepoint any more: the transaction was rolled back to an earlier one, or it is \
                 another's",
            ),
            Self::ReadOnlyTransaction => {
                formatter.write_str("the transaction was begun read-only; nothing was written")
            }
            Self::Option { option, problem } => write!(formatter, "option {option}: {problem}"),
            Self::NoDatabase { path } => write!(formatter, "there is no database at {}", path.display()),
            Self::ForeignFile { path, reason } => write!(
                formatter,
                "{} is not a Braid database: {reason}. Nothing in it was changed; give an empty or new directory",
                path.display()
            ),
            Self::NewerVersion { path, found, supported } => write!(
                formatter,
                "{} has format version {found}, this build reads up to {supported}; open it with a newer Braid",
                path.display()
            ),
            Self::MissingFeature { path, offset, feature } => write!(
                formatter,
                "the value at byte {offset} of {} is compressed with {feature}, which this build does not have: build \
                 with feature `{feature}` of crate `braid`. Other values stay readable",
                path.display()
            ),
            Self::Locked { path, holder } => {
                write!(formatter, "{} is open already, by process {holder}; close it there first", path.display())
            }
            Self::Corrupt { file, offset, what, expected, found } => write!(
                formatter,
                "{file} is damaged at byte {offset}: {what}; expected {expected}, found {found}. What does not depend \
                 on it stays readable"
            ),
            Self::ChangesGone { after, oldest } => write!(
                formatter,
                "the changes after seq {after} are gone: the log begins with seq {oldest}. Copy the tables anew, and \
                 keep more of the log (`retain_log_bytes`)"
            ),
            Self::ChangesAhead { after, newest } => write!(
                formatter,
                "there is no seq {after}: the newest is {newest}. Whoever saw it has what this database lost, or what \
                 another one has; copy the tables anew"
            ),
            Self::BackupGap { after, oldest } => write!(
                formatter,
                "the log begins with seq {oldest}, so what changed since the backup of seq {after} is not known any \
                 more. Make a full backup, and keep more of the log between backups (`retain_log_bytes`)"
            ),
            Self::BackupChain { file, problem } => write!(
                formatter,
                "{file} does not continue what is before it: {problem}. A chain is a full backup and then its \
                 incremental ones, in their order; begin a new one with a full backup"
            ),
            Self::NoBackup { path } => {
                write!(formatter, "there is no full backup in {}; make one first", path.display())
            }
            Self::ForeignBackup { file, reason } => write!(formatter, "{file} is not a Braid backup: {reason}"),
            Self::Occupied { path, found } => write!(
                formatter,
                "{} holds {found}; give a new or empty directory. Nothing in it was changed",
                path.display()
            ),
            Self::Stopped { what } => {
                write!(formatter, "{what} was stopped before it was whole; nothing of it is kept")
            }
            Self::ReadOnly => formatter.write_str("the database is open read-only; nothing was written"),
            Self::Closed => formatter
                .write_str("the database was closed through another handle; nothing was written. Open it again"),
            Self::DiskFull { path, problem } => write!(
                formatter,
                "no space is left on the device of {}: {problem}. Nothing of this call was written; free space or \
                 delete keys and try again",
                path.display()
            ),
            Self::Failed { cause } => write!(
                formatter,
                "the database is read-only since a write failed: {cause}. Reads go on; a commit that was under way \
                 then has an unknown outcome. Mend the device and open again"
            ),
            Self::OutcomeUnknown { cause } => write!(
                formatter,
                "the outcome of this commit is unknown, since its flush failed: {cause}. The database is read-only \
                 now; open it again to see"
            ),
            Self::Io(error) => error.fmt(formatter),
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

/// The seqs of the retained states, in words.
fn shown_seqs(seqs: &[u64]) -> String {
    if seqs.is_empty() {
        return "none is".into();
    }
    let seqs: Vec<_> = seqs.iter().map(u64::to_string).collect();
    format!("there are those at {}", seqs.join(", "))
}
