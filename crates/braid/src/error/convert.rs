//! Errors of the layers below, as a user of the database meets them.

use std::path::{Path, PathBuf};

use space::FileDamage;

use crate::error::Error;

fn corrupt(file: &Path, offset: u64, what: &str, expected: String, found: String) -> Error {
    Error::Corrupt { file: file.display().to_string(), offset, what: what.to_owned(), expected, found }
}

/// The error for a malformed log record of the database in `path`.
pub(crate) fn malformed_record(path: &Path, lsn: wal::Lsn, expected: String, found: String) -> Error {
    let what = "a log record (the offset is its position in the log)";
    corrupt(&path.join("wal"), lsn.0, what, expected, found)
}

impl From<FileDamage> for Error {
    fn from(damage: FileDamage) -> Self {
        let FileDamage { file, offset, what, expected, found } = damage;
        corrupt(&file, offset, what, expected, found)
    }
}

impl From<space::Error> for Error {
    fn from(error: space::Error) -> Self {
        match error {
            space::Error::Io(error) => Self::Io(error),
            space::Error::Corrupt(damage) => damage.into(),
            space::Error::State { file, operation, extent, expected, found } => corrupt(
                &file,
                extent.page.0 * space::PAGE as u64,
                &format!("cannot {operation} {extent}"),
                expected.to_owned(),
                found.to_owned(),
            ),
            space::Error::NewerVersion { file, found, known } => {
                Self::NewerVersion { path: file, found, supported: known }
            }
            space::Error::ReadOnly { .. } => Self::ReadOnly,
            full @ (space::Error::Full { .. } | space::Error::Lent { .. }) => {
                let path = match &full {
                    space::Error::Full { file, .. } | space::Error::Lent { file } => file.clone(),
                    _ => PathBuf::new(),
                };
                Self::DiskFull { path, problem: full.to_string() }
            }
            other @ (space::Error::Name { .. } | space::Error::Size { .. }) => {
                Self::Option { option: "space", problem: other.to_string() }
            }
        }
    }
}

impl From<doclog::Error> for Error {
    fn from(error: doclog::Error) -> Self {
        match error {
            doclog::Error::Io(error) => Self::Io(error),
            doclog::Error::Space(error) => error.into(),
            doclog::Error::Corrupt(damage) => damage.into(),
            doclog::Error::NewerVersion { file, found, known, .. } => {
                Self::NewerVersion { path: file, found, supported: known }
            }
            doclog::Error::NotBuilt { file, offset, compression } => {
                Self::MissingFeature { path: file, offset, feature: compression.to_string() }
            }
            doclog::Error::TooLarge { length } => {
                Self::ValueLength { table: String::new(), length, limit: doclog::DOCUMENT_BYTES_MAX }
            }
        }
    }
}

/// Turns a full disk into an error that can be retried, because an append without space leaves nothing behind.
fn full_disk(error: Error) -> Error {
    if !error.is_no_space() {
        return error;
    }
    let path = match &error {
        Error::Io(psync::Error::Io { path, .. } | psync::Error::Path { path, .. }) => path.clone(),
        _ => PathBuf::new(),
    };
    Error::DiskFull { path, problem: error.to_string() }
}

impl From<index::Error> for Error {
    fn from(error: index::Error) -> Self {
        match error {
            index::Error::Io(error) => Self::Io(error),
            index::Error::Space(error) => full_disk(error.into()),
            index::Error::Document(error) => full_disk(error.into()),
            other @ (index::Error::TooManyVersions { .. } | index::Error::Refused) => {
                Self::Failed { cause: other.to_string() }
            }
            index::Error::Corrupt { file, offset, what, expected, found } => {
                corrupt(Path::new(&file), offset, what, expected, found)
            }
        }
    }
}

impl From<wal::Error> for Error {
    fn from(error: wal::Error) -> Self {
        match error {
            wal::Error::Io(error) => Self::Io(error),
            wal::Error::Space(error) => error.into(),
            wal::Error::Full { ref directory, .. } => {
                Self::DiskFull { path: directory.clone(), problem: error.to_string() }
            }
            wal::Error::Failed(failure) => Self::Failed { cause: failure.to_string() },
            wal::Error::Corrupt(damage) => damage.into(),
            wal::Error::Foreign { file, expected, found } => {
                Self::ForeignFile { path: file, reason: format!("it belongs to database {found}, not to {expected}") }
            }
            wal::Error::NewerVersion { file, found, supported } => {
                Self::NewerVersion { path: file, found: found.into(), supported: supported.into() }
            }
            wal::Error::SegmentSize { file, expected, found } => {
                corrupt(&file, 0, "size of a log segment", expected.to_string(), found.to_string())
            }
            wal::Error::EpochUsed { file, epoch, found } => {
                corrupt(&file, 0, "epoch of the log", format!("below {epoch}"), found.to_string())
            }
            wal::Error::Trimmed { seq, oldest } => Self::ChangesGone { after: seq.saturating_sub(1), oldest },
            wal::Error::RecordTooLarge { bytes, max } => {
                Self::BatchTooLarge { bytes, limit: max, inline: btree::INLINE_BYTES_MAX }
            }
            wal::Error::ReadOnly => Self::ReadOnly,
            wal::Error::Closed => Self::Closed,
            other @ wal::Error::InvalidOptions(_) => Self::Option { option: "log", problem: other.to_string() },
        }
    }
}
