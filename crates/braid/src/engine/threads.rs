//! The threads of a writable database. Each starts with its first work, so a small database has one thread.
//!
//! 1. The worker starts with the database.
//! 2. The thread that flushes for lazy and for submitted commits starts with the first of them. Where the thread can't
//!    be started, each of these commits is flushed at once.
//! 3. The thread that prepares log segments starts once more than [`SMALL_LOG`] was ever logged. Where the thread can't
//!    be started, an append makes its segments itself.
//! 4. The threads that answer lookups start with the first one. Where none can be started, a lookup is read where it is
//!    polled.
//!
//! Invariant: no thread starts once the database closes.

use std::{cell::Cell, sync::OnceLock, thread::JoinHandle};

use parking_lot::Mutex;
use wal::Lsn;

use crate::{engine::lookups::READERS, error::Result};

/// Up to this position the log makes room for itself as the log grows.
const SMALL_LOG: Lsn = Lsn(32 << 10);

/// A thread by its work.
#[derive(Clone, Copy)]
pub(super) enum Thread {
    Worker,
    Log,
    Segments,
    Lookups,
}

impl Thread {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Worker => "braid-worker",
            Self::Log => "braid-log",
            Self::Segments => "braid-segments",
            Self::Lookups => "braid-lookups",
        }
    }
}

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether the present thread is one of a database.
pub(super) fn is_own() -> bool {
    IS_OWN.get()
}

/// Notes that the present thread is one of a database.
pub(super) fn note_own() {
    IS_OWN.set(true);
}

/// Starts a thread. None once the database is gone.
type Start = Box<dyn Fn(Thread) -> Option<Result<JoinHandle<()>>> + Send>;

/// The threads of one database. None starts before [`Threads::open`].
#[derive(Default)]
pub(crate) struct Threads {
    pub(super) running: Mutex<Option<Running>>,
    /// False where the thread that flushes could not be started; unset before the first commit for that thread.
    log: OnceLock<bool>,
    /// The same for the thread that prepares log segments.
    segments: OnceLock<bool>,
    /// False where no thread for lookups could be started, or may be; unset before the first lookup.
    lookups: OnceLock<bool>,
}

pub(super) struct Running {
    start: Start,
    pub(super) handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts the worker, and allows the others. The log ends at `end`.
    pub(super) fn open(&self, start: Start, end: Lsn) -> Result<()> {
        let worker = start(Thread::Worker).transpose()?;
        *self.running.lock() = Some(Running { start, handles: worker.into_iter().collect() });
        self.note_log(end);
        Ok(())
    }

    /// Notes a commit that nobody waits for. False where the thread that would flush the commit could not be started.
    pub(crate) fn note_unawaited(&self) -> bool {
        *self.log.get_or_init(|| self.start(Thread::Log))
    }

    /// Notes that the log ends here.
    pub(crate) fn note_log(&self, end: Lsn) {
        if end > SMALL_LOG {
            self.segments.get_or_init(|| self.start(Thread::Segments));
        }
    }

    /// Notes a lookup. False where no thread would answer it.
    pub(crate) fn note_lookup(&self) -> bool {
        let may_start = || self.running.lock().is_some();
        *self.lookups.get_or_init(|| may_start() && (0..READERS).filter(|_| self.start(Thread::Lookups)).count() > 0)
    }

    /// The running threads, for the caller to join. None starts from now on.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        self.running.lock().take().map_or_else(Vec::new, |running| running.handles)
    }

    /// Starts a thread, if threads may be started. False where the start failed.
    fn start(&self, thread: Thread) -> bool {
        let mut running = self.running.lock();
        let Some(running) = &mut *running else { return true };
        let Some(started) = (running.start)(thread) else { return true };
        let started = started.map(|handle| running.handles.push(handle));
        started
            .inspect_err(|error| events::warn!(%error, thread = thread.name(), "the database goes on without it"))
            .is_ok()
    }
}
