//! The threads of a writable database. Each starts with its first work, so a small database has one thread.
//!
//! 1. The worker starts with the database.
//! 2. The thread that flushes lazy commits starts with the first lazy commit. Where the thread can't be started, each
//!    lazy commit is flushed at once.
//! 3. The thread that prepares log segments starts once more than [`SMALL_LOG`] was ever logged. Where the thread can't
//!    be started, an append makes its segments itself.
//!
//! Invariant: no thread starts once the database closes.

use std::{
    sync::{Arc, OnceLock, Weak},
    thread::JoinHandle,
};

use parking_lot::Mutex;
use wal::Lsn;

use crate::{
    engine::{Engine, keeper},
    error::{Error, Result},
};

/// Up to this position the log makes room for itself as the log grows.
const SMALL_LOG: Lsn = Lsn(32 << 10);

#[derive(Clone, Copy)]
enum Thread {
    Worker,
    Log,
    Segments,
}

impl Thread {
    const fn name(self) -> &'static str {
        match self {
            Self::Worker => "braid-worker",
            Self::Log => "braid-log",
            Self::Segments => "braid-segments",
        }
    }

    fn run(self, engine: &Arc<Engine>, worker: fn(&Arc<Engine>)) {
        match self {
            Self::Worker => worker(engine),
            Self::Log => keeper::flush_in_time(engine),
            Self::Segments => keeper::prepare_ahead(engine),
        }
    }
}

/// The threads of one database. None starts before [`Threads::open`].
pub(crate) struct Threads {
    worker: fn(&Arc<Engine>),
    running: Mutex<Option<Running>>,
    /// False where the thread for lazy commits could not be started; unset before the first lazy commit.
    log: OnceLock<bool>,
    /// The same for the thread that prepares log segments.
    segments: OnceLock<bool>,
}

struct Running {
    engine: Weak<Engine>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Threads with this worker.
    pub(crate) const fn new(worker: fn(&Arc<Engine>)) -> Self {
        Self { worker, running: Mutex::new(None), log: OnceLock::new(), segments: OnceLock::new() }
    }

    /// Starts the worker, and allows the others.
    pub(crate) fn open(&self, engine: &Arc<Engine>) -> Result<()> {
        let worker = spawn(Thread::Worker, Arc::clone(engine), self.worker)?;
        *self.running.lock() = Some(Running { engine: Arc::downgrade(engine), handles: vec![worker] });
        self.note_log(engine.wal.end());
        Ok(())
    }

    /// Notes a lazy commit. False where the thread that would flush the commit could not be started.
    pub(crate) fn note_lazy(&self) -> bool {
        *self.log.get_or_init(|| self.start(Thread::Log))
    }

    /// Notes that the log ends here.
    pub(crate) fn note_log(&self, end: Lsn) {
        if end > SMALL_LOG {
            self.segments.get_or_init(|| self.start(Thread::Segments));
        }
    }

    /// The running threads, for the caller to join. None starts from now on.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        self.running.lock().take().map_or_else(Vec::new, |running| running.handles)
    }

    /// Starts a thread, if threads may be started. False where the start failed.
    fn start(&self, thread: Thread) -> bool {
        let mut running = self.running.lock();
        let Some(running) = &mut *running else { return true };
        let Some(engine) = running.engine.upgrade() else { return true };
        let started = spawn(thread, engine, self.worker).map(|handle| running.handles.push(handle));
        started
            .inspect_err(|error| tracing::warn!(%error, thread = thread.name(), "the database goes on without it"))
            .is_ok()
    }
}

fn spawn(thread: Thread, engine: Arc<Engine>, worker: fn(&Arc<Engine>)) -> Result<JoinHandle<()>> {
    let refused = |error| Error::Option {
        option: "threads",
        problem: format!("a background thread could not be started: {error}"),
    };
    #[cfg(test)]
    if tests::REFUSED.get() {
        return Err(refused(std::io::Error::from_raw_os_error(11)));
    }
    let guarded = move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| thread.run(&engine, worker)));
        if let Err(panic) = outcome {
            engine.fail("a background thread panicked");
            std::panic::resume_unwind(panic);
        }
    };
    std::thread::Builder::new().name(thread.name().into()).spawn(guarded).map_err(refused)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, path::Path, time::Duration};

    use psync::sim::SimDisk;

    use crate::{
        handles::database::Database,
        options::Options,
        words::{durability::Durability, structure::Structure},
    };

    thread_local! {
        /// This thread can start no other.
        pub(super) static REFUSED: Cell<bool> = const { Cell::new(false) };
    }

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
    fn none_starts_without_background_threads() {
        let disk = SimDisk::new(1);
        let options = Options::new().cache_bytes(1 << 20).background(false);
        let database = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = database.table("t", Structure::BTree).expect("a table");
        let lazily = Durability::Lazy(Duration::from_secs(1));
        (0..40).for_each(|_| table.put_with(b"1", [1; 1000], lazily).expect("puts"));
        assert_eq!(names(&database), [""; 0]);
    }

    #[test]
    fn none_starts_once_the_database_closes() {
        let disk = SimDisk::new(1);
        let database = Options::new().cache_bytes(1 << 20).open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = database.table("t", Structure::BTree).expect("a table");
        database.clone().close().expect("closes");
        assert!(table.engine().threads.note_lazy());
        table.engine().threads.note_log(wal::Lsn(1 << 20));
        assert_eq!(names(&database), [""; 0]);
    }

    #[test]
    fn without_its_threads_a_database_goes_on_and_without_its_worker_it_does_not_open() {
        let disk = SimDisk::new(1);
        let open = || Options::new().cache_bytes(1 << 20).open_on(disk.psync(), Path::new("/db"));
        let database = open().expect("opens");
        let table = database.table("t", Structure::BTree).expect("a table");
        REFUSED.set(true);
        let lazily = Durability::Lazy(Duration::from_secs(1000));
        for key in 0..200_u8 {
            let before = table.engine().wal.durable();
            table.put_with([key], [key; 1000], lazily).expect("puts");
            assert!(table.engine().wal.durable() > before, "it is flushed at once");
        }
        assert_eq!(names(&database), ["braid-worker"]);
        drop((table, database));
        let error = open().expect_err("it has no worker");
        assert!(error.to_string().contains("could not be started"), "{error}");
        REFUSED.set(false);
        let table = open().expect("opens").open_table("t").expect("it is there");
        assert_eq!(table.iter().count(), 200);
    }
}
