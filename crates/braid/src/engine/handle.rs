//! The handle that keeps a database open, and closes the database.
//!
//! Every handle of a user's holds an `Arc<Handle>`, most of them with their kind ([`Hold`]). So where a database cannot
//! be opened because this process has it open, the error tells what is left of it.

use std::{
    fmt::Write as _,
    ops::Deref,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    engine::{Engine, learned, threads},
    error::Result,
};

/// Keeps a database open: the engine and its background threads. The last handle to go closes the database.
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// Holds by kind.
    held: [AtomicUsize; KINDS.len()],
}

/// The handles of all open databases of the process.
static OPEN: Mutex<Vec<(PathBuf, Weak<Handle>)>> = Mutex::new(Vec::new());

/// A kind of handle that a user has.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Database,
    Pin,
    Changes,
    Ticket,
}

/// What the kinds are called.
const KINDS: [(Kind, &str); 4] = [
    (Kind::Database, "databases"),
    (Kind::Pin, "snapshots and transactions"),
    (Kind::Changes, "readers of changes"),
    (Kind::Ticket, "tickets"),
];

/// A handle that a user has, of a known kind.
pub(crate) struct Hold {
    handle: Arc<Handle>,
    kind: Kind,
}

impl Hold {
    pub(crate) fn new(handle: &Arc<Handle>, kind: Kind) -> Self {
        handle.held[kind as usize].fetch_add(1, Ordering::Relaxed);
        Self { handle: Arc::clone(handle), kind }
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        Self::new(&self.handle, self.kind)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.handle.held[self.kind as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for Hold {
    type Target = Arc<Handle>;

    fn deref(&self) -> &Arc<Handle> {
        &self.handle
    }
}

/// What is left of the database at `path` in this process, in words. None where the process does not have it open.
pub(crate) fn left_of(path: &Path) -> Option<String> {
    let handle = OPEN.lock().iter().find(|(of, handle)| of == path && handle.strong_count() > 0)?.1.upgrade();
    let handle = &handle?;
    let held = KINDS.map(|(kind, name)| (handle.held[kind as usize].load(Ordering::Relaxed), name));
    // Without the one of this function.
    let others = (Arc::strong_count(handle) - 1).saturating_sub(held.iter().map(|(count, _)| count).sum());
    let tables = (others, "tables, or ranges, cursors, lookups and loaders of them");
    let mut left = String::new();
    for (count, name) in std::iter::once(tables).chain(held).filter(|(count, _)| *count > 0) {
        let _ = write!(left, "{}{count} {name}", if left.is_empty() { "" } else { ", " });
    }
    Some(left)
}

impl Handle {
    /// A handle, which the process knows from now on.
    pub(crate) fn new(engine: Arc<Engine>) -> Arc<Self> {
        let handle = Arc::new(Self { engine, held: Default::default() });
        let mut open = OPEN.lock();
        open.retain(|(_, handle)| handle.strong_count() > 0);
        open.push((handle.engine.path.clone(), Arc::downgrade(&handle)));
        handle
    }

    /// Closes the database; only the first call does anything.
    ///
    /// 1. Applies waiting operations and writes a checkpoint, unless the next opening replays them in no time.
    /// 2. Ends the threads.
    /// 3. Makes the log durable.
    pub(crate) fn close(&self) -> Result<()> {
        close(&self.engine)
    }
}

fn close(engine: &Engine) -> Result<()> {
    if engine.options.read_only || !engine.close_doors() {
        return Ok(());
    }
    let ticket = (!engine.is_quick_to_replay()).then(|| engine.signal.post_rest(false));
    engine.signal.stop();
    engine.work_inline();
    engine.keeper.stop();
    engine.lookups.end();
    for thread in engine.threads.close() {
        if thread.join().is_err() {
            engine.fail("a background thread panicked");
        }
    }
    learned::keep(engine);
    // Waiters for changes need not wait any longer.
    engine.publisher.fail();
    let ended = || engine.health.check();
    match ticket {
        Some(ticket) => engine.signal.answer(ticket).or_else(|error| error.map_or_else(ended, Err))?,
        None => ended()?,
    }
    engine.mark_clean()
}

impl Drop for Handle {
    fn drop(&mut self) {
        let engine = Arc::clone(&self.engine);
        let close = move || {
            if let Err(error) = close(&engine) {
                events::warn!(%error, "the database was not closed cleanly; the next open recovers it");
            }
        };
        if !threads::is_own() {
            return close();
        }
        // A task that a thread of the database woke may have had the last handle. That thread cannot wait for itself.
        let closing = std::thread::Builder::new().name("braid-close".into()).spawn(close);
        if let Err(error) = closing {
            self.engine.fail(format!("no thread could be started to close the database: {error}"));
        }
    }
}
