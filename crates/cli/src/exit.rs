//! The end of a command: one error type, and the exit code of each error.
//!
//! The codes are part of the command's interface: `braid --help` lists the codes ([`HELP`]), and a test compares that
//! list with this file.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use braid::ErrorKind;

/// Result of a command.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The exit codes as `braid --help` shows them.
pub(crate) const HELP: &str = "\
Exit codes:
    0  it worked
    1  it failed: the message says what, where and what to do
    2  wrong usage or input: an argument, a line of input, a key over the limit
    3  not found: no such key, table or database
    4  locked: another process has the database open
    5  damaged, not a Braid database, or written by a newer Braid
    6  the disk is full
    7  read-only, or no permission
  130  interrupted by Ctrl-C or a termination signal; what was committed is kept";

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Ok = 0,
    Failure = 1,
    Usage = 2,
    NotFound = 3,
    Locked = 4,
    Corrupt = 5,
    DiskFull = 6,
    ReadOnly = 7,
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Database(#[from] braid::Error),
    #[error(transparent)]
    Bench(#[from] bench::Error),
    #[error("{0}")]
    Device(#[from] psync::Error),
    #[error("{action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A write to standard output.
    #[error("writing the output: {0}")]
    Output(#[from] io::Error),
    #[error("{0}")]
    Usage(String),
    /// A line of input that cannot be loaded.
    #[error(
        "{source_name}:{line}: {problem}. Nothing of this line or after it was loaded; records loaded before it, and kept: {loaded}"
    )]
    Line { source_name: String, line: u64, problem: String, loaded: u64 },
    /// An error after part of the input was committed.
    #[error("{error}\nRecords loaded before that, and kept: {loaded}")]
    Partly { error: Box<Error>, loaded: u64 },
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Damaged(String),
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Interrupted(String),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// The code to exit with.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Database(error) | Self::Bench(bench::Error::Database(error)) => of_kind(error.kind()),
            Self::Device(error) | Self::Bench(bench::Error::Device(error)) => of_device(error),
            Self::Io { source, .. } | Self::Bench(bench::Error::Io { source, .. }) => of_io(source),
            Self::Usage(_) | Self::Line { .. } => Exit::Usage,
            Self::Bench(bench::Error::Invalid(_) | bench::Error::ForeignTable { .. }) => Exit::Usage,
            Self::Bench(
                bench::Error::WrongValue { .. } | bench::Error::Disorder { .. } | bench::Error::WrongRecord { .. },
            )
            | Self::Damaged(_) => Exit::Corrupt,
            Self::Partly { error, .. } => error.exit(),
            Self::NotFound(_) => Exit::NotFound,
            Self::Interrupted(_) | Self::Bench(bench::Error::Interrupted) => Exit::Interrupted,
            // A closed pipe (`braid scan … | head`) is no failure, because its reader wanted no more.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Output(error) => of_io(error),
            Self::Failed(_) => Exit::Failure,
        }
    }

    /// Whether there is nothing to report.
    pub(crate) fn is_silent(&self) -> bool {
        self.exit() == Exit::Ok
    }
}

fn of_kind(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::InvalidInput => Exit::Usage,
        ErrorKind::NotFound => Exit::NotFound,
        ErrorKind::Locked => Exit::Locked,
        ErrorKind::Corrupt | ErrorKind::ForeignFile | ErrorKind::NewerVersion => Exit::Corrupt,
        ErrorKind::DiskFull => Exit::DiskFull,
        ErrorKind::ReadOnly => Exit::ReadOnly,
        ErrorKind::Stopped => Exit::Interrupted,
        _ => Exit::Failure,
    }
}

fn of_device(error: &psync::Error) -> Exit {
    match error {
        psync::Error::Locked { .. } => Exit::Locked,
        error if error.is_disk_full() => Exit::DiskFull,
        error => error.io().map_or(Exit::Failure, of_io),
    }
}

fn of_io(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::DiskFull,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::ReadOnly,
        _ => Exit::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_code() {
        let all = [
            Exit::Ok,
            Exit::Failure,
            Exit::Usage,
            Exit::NotFound,
            Exit::Locked,
            Exit::Corrupt,
            Exit::DiskFull,
            Exit::ReadOnly,
            Exit::Interrupted,
        ];
        let listed: Vec<u8> = HELP.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        assert_eq!(listed, all.map(|exit| exit as u8));
    }

    #[test]
    fn what_a_file_holds_decides_between_damage_and_failure() {
        let path = PathBuf::from("db/superblock");
        let newer = braid::Error::NewerVersion { path: path.clone(), found: 9, supported: 1 };
        let foreign = braid::Error::ForeignFile { path: path.clone(), reason: "other magic".into() };
        let full = braid::Error::DiskFull { path, problem: "4096 bytes".into() };
        let failed = braid::Error::Failed { cause: "write".into() };
        let codes = [newer, foreign, full, failed].map(|error| Error::Database(error).exit());
        assert_eq!(codes, [Exit::Corrupt, Exit::Corrupt, Exit::DiskFull, Exit::Failure]);
    }

    #[test]
    fn errors_keep_their_code_when_wrapped() {
        let error = Error::Partly { error: Box::new(Error::Database(braid::Error::ReadOnly)), loaded: 3 };
        assert_eq!(error.exit(), Exit::ReadOnly);
        assert!(error.to_string().ends_with("kept: 3"));
        let pipe = Error::Output(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(pipe.is_silent());
        assert!(!Error::Output(io::Error::from(io::ErrorKind::StorageFull)).is_silent());
    }
}
