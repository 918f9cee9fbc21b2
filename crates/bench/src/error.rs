//! What can go wrong in a measurement.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database refused or failed.
    #[error(transparent)]
    Database(#[from] braid::Error),
    /// The device refused or failed: while its limits were measured, or under a tree that Braid is compared with.
    #[error(transparent)]
    Device(#[from] psync::Error),
    /// A file or directory outside the database.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The measurement cannot be made as asked.
    #[error("{0}")]
    Invalid(String),
    /// It was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A read returned something else than what was written.
    #[error(
        "record {index} of table `{table}` has a value that no workload wrote ({bytes} bytes): run `braid verify` on the database"
    )]
    WrongValue {
        /// The table.
        table: String,
        /// Which record.
        index: u64,
        /// Length of the value found.
        bytes: usize,
    },
    /// A record of YCSB is not what it must be.
    #[error("record `{key}` of table `{table}` {problem}: run `braid verify` on the database")]
    WrongRecord {
        /// The table.
        table: String,
        /// Its key.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The table that workloads use holds something else.
    #[error(
        "table `{table}` holds records that `braid bench` did not write with {made_with}; fills replace this table, so they stop here: \
         delete the database, or use another one"
    )]
    ForeignTable {
        /// The table.
        table: String,
        /// The options that say how the records that are asked for look.
        made_with: String,
    },
    /// A scan showed a record that should have come earlier, or that had come before.
    #[error(
        "a scan of table `{table}` showed record {index} where record {expected} or a later one was due: run `braid verify`"
    )]
    Disorder {
        /// The table.
        table: String,
        /// The record that was shown.
        index: u64,
        /// The first one that could have come.
        expected: u64,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
