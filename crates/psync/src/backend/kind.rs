//! The backends, and their names in options and reports.

use std::fmt;
use std::str::FromStr;

/// A way to hand requests to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum BackendKind {
    /// One ring per thread: a whole batch is one system call.
    IoUring,
    /// Linux native asynchronous I/O: a submission and a reaping call per batch. Asynchronous with direct I/O only.
    Libaio,
    /// A pool of threads that make plain calls. Works everywhere.
    Threads,
    /// One plain call at a time: the baseline for comparisons with batches.
    Sync,
}

impl BackendKind {
    /// All backends, best first.
    pub const ALL: [Self; 4] = [Self::IoUring, Self::Libaio, Self::Threads, Self::Sync];

    /// The backend's name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Libaio => "libaio",
            Self::Threads => "threads",
            Self::Sync => "sync",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for BackendKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("unknown backend {text:?}: use one of io_uring, libaio, threads, sync"))
    }
}
