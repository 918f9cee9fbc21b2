//! The ways to hand requests to storage, behind one small interface.
//!
//! 1. A [`Backend`] performs single attempts as plain calls, and gives out [`Lane`]s.
//! 2. A [`Lane`] is a queue owned by one batch or stream: attempts go in, outcomes come out. Lanes share no lock with
//!    one another (but for the worker pool of `threads`). A lane of [`Backend::roaming_lane`] may go to another thread
//!    between calls; a lane of [`Backend::lane`] may not.
//! 3. An attempt is one transfer tried once. Its outcome is a byte count or a negative `errno`, as the kernel reports
//!    it.
//!
//! Left to others: continuing short transfers, retrying, ordering flushes and owning buffers, which `queue` does the
//! same way for all backends.

mod aio;
mod call;
mod idle;
mod threads;
mod uring;

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use call::{CallLane, System};
use serde::{Deserialize, Serialize};

use crate::file::FileInner;
use crate::{Error, Result};

/// A way to hand requests to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("unknown backend {text:?}: use one of io_uring, libaio, threads, sync"))
    }
}

/// The transfer of one attempt. The submitter of the attempt owns the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transfer {
    Read {
        memory: *mut u8,
        length: usize,
    },
    /// With `durable`, the bytes transferred are on stable storage when the outcome is reported, with the metadata
    /// needed to read them.
    Write {
        memory: *const u8,
        length: usize,
        durable: bool,
    },
    Flush,
}

#[expect(unsafe_code, reason = "an attempt may be made by another thread than the one that asks for it")]
// SAFETY: a transfer is an address and a length; the user of the address answers for it. The memory stays valid and is
// used by nobody else until the outcome is reported, on whatever thread, as `Lane::push` demands.
unsafe impl Send for Transfer {}

/// Most bytes of one attempt, which every system takes at once. Longer transfers are continued.
pub(crate) const ATTEMPT_BYTES_MAX: usize = 1 << 30;

/// A completed attempt: bytes transferred, or a negative `errno`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) slot: u32,
    pub(crate) outcome: i64,
}

/// A way to reach storage.
pub(crate) trait Backend: Send + Sync {
    fn kind(&self) -> BackendKind;

    /// Performs one attempt now.
    ///
    /// # Safety
    /// The transfer's memory is valid for its length during the call.
    #[expect(unsafe_code, reason = "transfers into memory given by address")]
    unsafe fn call(&self, file: &FileInner, offset: u64, transfer: Transfer) -> i64;

    /// The clock of requests; none where the backend says nothing of a device.
    fn now(&self) -> Option<Instant> {
        Some(Instant::now())
    }

    /// A queue for the calling thread.
    fn lane(&self) -> io::Result<Box<dyn Lane>>;

    /// A queue that any thread may use, one after another.
    fn roaming_lane(&self) -> io::Result<Box<dyn Lane>> {
        self.lane()
    }

    /// Takes back a lane on which nothing is in flight.
    fn give_back(&self, lane: Box<dyn Lane>) {
        drop(lane);
    }
}

/// A queue of attempts, owned by one batch or stream.
pub(crate) trait Lane: Send {
    /// Most attempts in flight.
    fn capacity(&self) -> usize;

    /// Takes one attempt, to be started by `reap` at the latest. The caller keeps at most `capacity` in flight.
    ///
    /// # Safety
    /// The transfer's memory and the file stay valid until `reap` reports the slot, and the memory is used by nobody
    /// else.
    #[expect(unsafe_code, reason = "transfers into memory given by address")]
    unsafe fn push(&mut self, slot: u32, file: &FileInner, offset: u64, transfer: Transfer);

    /// Starts all pushed attempts, waits until at least `wait` of them are complete, and reports those that are. `wait`
    /// is at most the number of attempts pushed and not reported; with 0 the lane need not report anything.
    ///
    /// # Errors
    /// When the queue itself fails; attempts in flight are then in an unknown state.
    fn reap(&mut self, wait: usize, done: &mut Vec<Done>) -> io::Result<()>;
}

/// Opens a backend, after a trial on this thread.
pub(crate) fn open(kind: BackendKind) -> Result<Arc<dyn Backend>> {
    let unsupported = |reason: String| Error::Unsupported { backend: kind, reason };
    let backend: Arc<dyn Backend> = match kind {
        BackendKind::IoUring => Arc::new(uring::Uring),
        BackendKind::Libaio => Arc::new(aio::Aio),
        BackendKind::Threads => Arc::new(threads::Threads::new()),
        BackendKind::Sync => Arc::new(System),
    };
    let lane = backend.lane().map_err(|error| unsupported(error.to_string()))?;
    backend.give_back(lane);
    Ok(backend)
}

/// The outcome of a call that returned a count, or -1 with `errno` set.
pub(crate) fn outcome(returned: libc::ssize_t) -> i64 {
    if returned >= 0 {
        returned as i64
    } else {
        -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}
