//! What the threads of a database run.

use std::{sync::Arc, thread::JoinHandle};

use crate::{
    engine::{
        Engine, log_ahead,
        threads::{self, Thread},
    },
    error::{Error, Result},
};

impl Engine {
    /// Starts the worker, and allows the others.
    pub(crate) fn start_threads(self: &Arc<Self>) -> Result<()> {
        let engine = Arc::downgrade(self);
        let start = move |thread| engine.upgrade().map(|engine| spawn(thread, engine));
        self.threads.open(Box::new(start), self.wal.end())
    }

    fn run(self: &Arc<Self>, thread: Thread) {
        match thread {
            Thread::Worker => (self.work.run)(self),
            Thread::Log => log_ahead::flush_in_time(self),
            Thread::Segments => log_ahead::prepare_ahead(self),
            Thread::Lookups => (self.work.look_up)(self),
        }
    }
}

fn spawn(thread: Thread, engine: Arc<Engine>) -> Result<JoinHandle<()>> {
    let refused = |error| Error::Option {
        option: "threads",
        problem: format!("a background thread could not be started: {error}"),
    };
    #[cfg(test)]
    if tests::REFUSED.get() {
        return Err(refused(std::io::Error::from_raw_os_error(11)));
    }
    let guarded = move || {
        threads::note_own();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.run(thread)));
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
        (0..2).for_each(|_| table.put_with(b"2", b"second", lazily).map(drop).expect("puts"));
        assert_eq!(names(&database), ["braid-worker", "braid-log"]);
        let end = table.engine().wal.end();
        while table.engine().wal.durable() < end {
            std::thread::yield_now();
        }
        (0..40).for_each(|_| table.put(b"3", [3; 1000]).map(drop).expect("puts"));
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
        (0..40).for_each(|_| table.put_with(b"1", [1; 1000], lazily).map(drop).expect("puts"));
        assert_eq!(names(&database), [""; 0]);
    }

    #[test]
    fn none_starts_once_the_database_closes() {
        let disk = SimDisk::new(1);
        let database = Options::new().cache_bytes(1 << 20).open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = database.table("t", Structure::BTree).expect("a table");
        database.clone().close().expect("closes");
        assert!(table.engine().threads.note_unawaited());
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
