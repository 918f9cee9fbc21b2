//! The errors of a measurement.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database refused or failed.
    #[error(transparent)]
    Database(#[from] braid::Error),
    /// The device refused or failed, during the measurement of its limits or under a tree that Braid is compared with.
    #[error(transparent)]
    Device(#[from] psync::Error),
    /// An operation on a file or directory outside the database failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The measurement cannot be made as asked.
    #[error("{0}")]
    Invalid(String),
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A read returned another value than the one written.
    #[error(
        "record {index} of table `{table}` has a value that no workload wrote ({bytes} bytes): run `braid verify` on the database"
    )]
    WrongValue {
        /// The table.
        table: String,
        /// The record.
        index: u64,
        /// Length of the value found.
        bytes: usize,
    },
    /// A record of YCSB is wrong.
    #[error("record `{key}` of table `{table}` {problem}: run `braid verify` on the database")]
    WrongRecord {
        /// The table.
        table: String,
        /// The key of the record.
        key: String,
        /// The defect.
        problem: &'static str,
    },
    /// The table that workloads use has other contents.
    #[error(
        "table `{table}` holds records that `braid bench` did not write with {made_with}; fills replace this table, so they stop here: \
         delete the database, or use another one"
    )]
    ForeignTable {
        /// The table.
        table: String,
        /// The options that describe the records asked for.
        made_with: String,
    },
    /// A scan showed a record too late or a second time.
    #[error(
        "a scan of table `{table}` showed record {index} where record {expected} or a later one was due: run `braid verify`"
    )]
    Disorder {
        /// The table.
        table: String,
        /// The record that was shown.
        index: u64,
        /// The first record that could have come.
        expected: u64,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// Refuses a value outside its limits.
pub(crate) fn within(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::Invalid(format!("{name} is {value}: must be from {least} to {most}")))
}
