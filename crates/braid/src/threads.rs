//! The threads of a database that writes. Each starts when it has something to do, so that a small database has one.
//!
//! 1. The worker starts with the database.
//! 2. The one that flushes lazy commits starts with the first of them. Where it can't be started, the commit is flushed at once.
//! 3. The one that keeps log segments ready starts once the log is longer than [`SMALL_LOG`]. Where it can't be started, an append makes what it needs.
//!
//! Invariant: none starts once the database closes.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use parking_lot::Mutex;
use wal::Lsn;

use crate::{Error, Result, engine::Engine, keeper, worker};

/// Up to here the log makes room for itself as it grows.
const SMALL_LOG: Lsn = Lsn(32 << 10);

#[derive(Clone, Copy)]
enum Thread {
    Worker,
    Log,
    Segments,
}

impl Thread {
    const ALL: [Self; 3] = [Self::Worker, Self::Log, Self::Segments];

    const fn name(self) -> &'static str {
        match self {
            Self::Worker => "braid-worker",
            Self::Log => "braid-log",
            Self::Segments => "braid-segments",
        }
    }

    fn run(self, engine: &Arc<Engine>) {
        match self {
            Self::Worker => worker::run(engine),
            Self::Log => keeper::flush_in_time(engine),
            Self::Segments => keeper::prepare_ahead(engine),
        }
    }
}

/// Those of one database. None starts before [`Threads::open`].
#[derive(Default)]
pub(crate) struct Threads {
    started: [AtomicBool; Thread::ALL.len()],
    running: Mutex<Option<Running>>,
}

struct Running {
    engine: Weak<Engine>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts the worker, and allows the others.
    pub(crate) fn open(&self, engine: &Arc<Engine>) -> Result<()> {
        *self.running.lock() = Some(Running { engine: Arc::downgrade(engine), handles: Vec::new() });
        self.start(Thread::Worker)?;
        self.note_log(engine.wal.end());
        Ok(())
    }

    /// There is a lazy commit.
    pub(crate) fn note_lazy(&self) -> Result<()> {
        self.start(Thread::Log)
    }

    /// The log ends here.
    pub(crate) fn note_log(&self, end: Lsn) {
        if end <= SMALL_LOG {
            return;
        }
        if let Err(error) = self.start(Thread::Segments) {
            tracing::debug!(%error, "log segments are made when they are needed");
        }
    }

    /// Those that run, for the caller to wait for. None starts from now on.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        self.running.lock().take().map_or_else(Vec::new, |running| running.handles)
    }

    /// Starts a thread once, where threads may be started.
    fn start(&self, thread: Thread) -> Result<()> {
        let started = &self.started[thread as usize];
        if started.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut running = self.running.lock();
        let Some(running) = running.as_mut().filter(|_| !started.load(Ordering::Relaxed)) else { return Ok(()) };
        let Some(engine) = running.engine.upgrade() else { return Ok(()) };
        running.handles.push(spawn(thread, engine)?);
        started.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn spawn(thread: Thread, engine: Arc<Engine>) -> Result<JoinHandle<()>> {
    let guarded = move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| thread.run(&engine)));
        if let Err(panic) = outcome {
            engine.fail("a background thread panicked");
            std::panic::resume_unwind(panic);
        }
    };
    std::thread::Builder::new().name(thread.name().into()).spawn(guarded).map_err(|error| Error::Option {
        option: "threads",
        problem: format!("a background thread could not be started: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use psync::sim::SimDisk;

    use crate::{Database, Durability, Options, Structure};

    fn names(database: &Database) -> Vec<String> {
        let running = database.engine().threads.running.lock();
        let handles = running.iter().flat_map(|running| &running.handles);
        handles.map(|handle| handle.thread().name().expect("it has one").to_owned()).collect()
    }

    #[test]
    fn each_starts_when_it_has_something_to_do() {
        let disk = SimDisk::new(1);
        let open = || Options::new().cache_bytes(1 << 20).open_on(disk.psync(), Path::new("/db")).expect("opens");
        let database = open();
        let table = database.table("t", Structure::BTree).expect("a table");
        table.put(b"1", b"first").expect("puts");
        assert_eq!(names(&database), ["braid-worker"]);
        let lazily = Durability::Lazy(Duration::from_millis(1));
        (0..2).for_each(|_| table.put_with(b"2", b"second", lazily).expect("puts"));
        assert_eq!(names(&database), ["braid-worker", "braid-log"]);
        let end = table.engine().wal.end();
        while table.engine().wal.durable() < end {
            std::thread::yield_now();
        }
        (0..40).for_each(|_| table.put(b"3", [3; 1000]).expect("puts"));
        assert_eq!(names(&database), ["braid-worker", "braid-log", "braid-segments"]);
        drop(table);
        database.close().expect("closes");
        assert_eq!(names(&open()), ["braid-worker", "braid-segments"], "its log is no small one");
    }

    #[test]
    fn none_starts_without_background_threads_or_once_the_database_closes() {
        let disk = SimDisk::new(1);
        let options = Options::new().cache_bytes(1 << 20).background(false);
        let database = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = database.table("t", Structure::BTree).expect("a table");
        let lazily = Durability::Lazy(Duration::from_secs(1));
        (0..40).for_each(|_| table.put_with(b"1", [1; 1000], lazily).expect("puts"));
        assert_eq!(names(&database), [""; 0]);
        let threads = &table.engine().threads;
        threads.close();
        threads.note_log(table.engine().wal.end());
        threads.note_lazy().expect("nothing to start");
        assert_eq!(names(&database), [""; 0]);
    }
}
