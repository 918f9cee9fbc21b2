//! Aggregated flush requests (Son, Yeom and Han, "Design and implementation of an efficient flushing scheme for cloud key-value
//! storage", 2017, section 3.1).
//!
//! 1. A caller whose bytes are written, and all bytes before them, puts a request {LSN, state} into the primary queue.
//! 2. If nobody holds the sync lock it wins it, else it waits for its request.
//! 3. The winner swaps the primary with the empty secondary queue, so that new requests gather apart from those it serves,
//!    takes the largest LSN of its own, and flushes once.
//! 4. After the flush succeeded it hands the sync lock to the first request of the primary queue, if there is one, and
//!    completes all it served. They return without taking the lock and without another flush.
//!
//! The paper sets the completion flags before the flush and lets waiters see them after it; here a request is completed
//! after the flush in one step, which nobody can tell from it except after a failure, when all get that.
//!
//! The other schemes of [`FlushScheme`] are what this one is compared with: there each caller takes the sync lock, a plain mutex, looks
//! at the durable position, and flushes.
//!
//! Invariants: the durable position only follows a successful flush that began when everything below it was written; every
//! request is completed, by its own flush, by another's, or by the failure; a flush that failed is not tried again.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::failure::Sticky;
use crate::stats::{Counters, add, add_time};
use crate::{FlushScheme, Lsn, Result};

/// Where a request is on its way.
#[derive(Debug)]
enum State {
    Waiting,
    /// It holds the sync lock.
    Promoted,
    Complete(Result<()>),
}

#[derive(Debug)]
struct Request {
    lsn: Lsn,
    state: Mutex<State>,
    changed: Condvar,
}

impl Request {
    fn set(&self, state: State) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }

    /// Waits until it is complete; none when it has to lead.
    fn wait(&self) -> Option<Result<()>> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Waiting => self.changed.wait(&mut state),
                State::Promoted => return None,
                State::Complete(result) => return Some(result.clone()),
            }
        }
    }
}

#[derive(Debug, Default)]
struct Queues {
    primary: Vec<Arc<Request>>,
    /// Empty; kept for its memory.
    secondary: Vec<Arc<Request>>,
    /// The sync lock.
    led: bool,
}

/// What a caller wants flushed. All of it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// What it needs: everything below this.
    pub(crate) own: Lsn,
    /// The end of a group at or behind it.
    pub(crate) group: Lsn,
}

/// How far the log is durable, and who flushes when.
#[derive(Debug)]
pub(crate) struct Flusher {
    scheme: FlushScheme,
    failure: Arc<Sticky>,
    counters: Arc<Counters>,
    queues: Mutex<Queues>,
    /// The sync lock of the schemes without queues.
    lock: Mutex<()>,
    durable: AtomicU64,
}

impl Flusher {
    pub(crate) fn new(scheme: FlushScheme, failure: Arc<Sticky>, counters: Arc<Counters>, durable: Lsn) -> Self {
        let (queues, lock, durable) = (Mutex::default(), Mutex::default(), AtomicU64::new(durable.0));
        Self { scheme, failure, counters, queues, lock, durable }
    }

    /// Everything below is on stable storage.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns when what is wished is on stable storage. `flush` flushes all that was written before it is called, and keeps its
    /// failure; `written` says how far that is.
    pub(crate) fn flush_through(
        &self, wish: Wish, written: impl Fn() -> Lsn, flush: impl Fn() -> Result<()>,
    ) -> Result<()> {
        self.failure.check()?;
        match self.scheme {
            FlushScheme::Aggregated if self.durable() >= wish.own => Ok(()),
            FlushScheme::Aggregated => self.aggregate(wish.group, flush),
            FlushScheme::PerCommit => self.lock_and_flush(false, wish.own, || wish.own, flush),
            FlushScheme::Existing => self.lock_and_flush(true, wish.own, || wish.own, flush),
            FlushScheme::ExistingAll => self.lock_and_flush(true, wish.own, written, flush),
        }
    }

    /// The sync lock for each call. With `looks`, one whose LSN is covered goes home; else it flushes, which makes all below
    /// `synced`, read before the flush begins, count as durable.
    fn lock_and_flush(
        &self, looks: bool, lsn: Lsn, synced: impl Fn() -> Lsn, flush: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let begun = Instant::now();
        let _lock = self.lock.lock();
        add(&self.counters.sync_lock_acquisitions, 1);
        add_time(&self.counters.sync_lock_wait_ns, begun);
        add(&self.counters.flush_requests, 1);
        self.failure.check()?;
        if looks && self.durable() >= lsn {
            return Ok(());
        }
        self.flush(synced(), 1, flush)
    }

    /// Flushes for `requests` calls, with the sync lock held; then everything below `synced`, which was written, is durable.
    fn flush(&self, synced: Lsn, requests: usize, flush: impl Fn() -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        flush()?;
        add_time(&self.counters.flush_ns, begun);
        add(&self.counters.flushes, 1);
        self.counters.flush_requests_max.fetch_max(requests as u64, Ordering::Relaxed);
        // A call may flush again what another had flushed further.
        self.durable.fetch_max(synced.0, Ordering::Release);
        Ok(())
    }

    /// Queues a request, and waits until it is served or has to serve.
    fn aggregate(&self, lsn: Lsn, flush: impl Fn() -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        let request = Arc::new(Request { lsn, state: Mutex::new(State::Waiting), changed: Condvar::new() });
        let wins = {
            let mut queues = self.queues.lock();
            queues.primary.push(Arc::clone(&request));
            !mem::replace(&mut queues.led, true)
        };
        if !wins && let Some(result) = request.wait() {
            add_time(&self.counters.flush_wait_ns, begun);
            return result;
        }
        add(&self.counters.sync_lock_acquisitions, 1);
        add_time(&self.counters.sync_lock_wait_ns, begun);
        self.lead(flush)
    }

    /// Serves all queued requests, with the sync lock held; the caller's own is one of them.
    fn lead(&self, flush: impl Fn() -> Result<()>) -> Result<()> {
        let mut served = {
            let mut queues = self.queues.lock();
            let secondary = mem::take(&mut queues.secondary);
            mem::replace(&mut queues.primary, secondary)
        };
        add(&self.counters.flush_requests, served.len() as u64);
        let last = served.iter().map(|request| request.lsn).max().expect("the leader's own request is queued");
        let result = self
            .failure
            .check()
            .and_then(|()| if self.durable() < last { self.flush(last, served.len(), flush) } else { Ok(()) });
        self.hand_over();
        for request in served.drain(..) {
            request.set(State::Complete(result.clone()));
        }
        let mut queues = self.queues.lock();
        if queues.secondary.capacity() < served.capacity() {
            queues.secondary = served;
        }
        result
    }

    /// Gives the sync lock to the first that waits, or back.
    fn hand_over(&self) {
        let mut queues = self.queues.lock();
        match queues.primary.first() {
            Some(next) => next.set(State::Promoted),
            None => queues.led = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;

    use super::*;

    fn of(scheme: FlushScheme, failure: &Arc<Sticky>) -> Flusher {
        Flusher::new(scheme, Arc::clone(failure), Arc::default(), Lsn(0))
    }

    fn flusher(failure: &Arc<Sticky>) -> Flusher {
        of(FlushScheme::Aggregated, failure)
    }

    /// A wish whose group ends with it, on a log that is written so far.
    fn wish(flusher: &Flusher, lsn: Lsn, flush: impl Fn() -> Result<()>) -> Result<()> {
        flusher.flush_through(Wish { own: lsn, group: lsn }, || lsn, flush)
    }

    #[test]
    fn schemes_differ_in_what_a_flush_counts_for() {
        // Two commits are written, up to 8 and 16, before the first is flushed.
        for (scheme, after_first, flushes) in
            [(FlushScheme::PerCommit, 8, 3), (FlushScheme::Existing, 8, 2), (FlushScheme::ExistingAll, 16, 1)]
        {
            let flusher = of(scheme, &Arc::default());
            let calls = AtomicUsize::new(0);
            let commit = |lsn| {
                let flush = || {
                    calls.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                };
                flusher.flush_through(Wish { own: Lsn(lsn), group: Lsn(16) }, || Lsn(16), flush).expect("it flushes");
            };
            commit(8);
            assert_eq!(flusher.durable(), Lsn(after_first), "{scheme}");
            commit(16);
            commit(8);
            assert_eq!((flusher.durable(), calls.into_inner()), (Lsn(16), flushes), "{scheme}");
            let stats = flusher.counters.snapshot();
            assert_eq!((stats.sync_lock_acquisitions, stats.flush_requests), (3, 3), "{scheme}");
            assert_eq!(stats.flushes, flushes as u64, "{scheme}");
        }
    }

    #[test]
    fn one_flush_serves_all_that_queued() {
        let flusher = flusher(&Arc::default());
        let (flushes, open) = (AtomicUsize::new(0), AtomicBool::new(false));
        let slow = || {
            flushes.fetch_add(1, Ordering::SeqCst);
            while !open.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            Ok(())
        };
        thread::scope(|scope| {
            scope.spawn(|| wish(&flusher, Lsn(8), slow).expect("it flushes"));
            while flushes.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for lsn in 2..9 {
                let flusher = &flusher;
                scope.spawn(move || wish(flusher, Lsn(8 * lsn), slow).expect("it flushes"));
            }
            while flusher.queues.lock().primary.len() < 7 {
                thread::yield_now();
            }
            open.store(true, Ordering::SeqCst);
        });
        assert_eq!(flushes.into_inner(), 2);
        assert_eq!(flusher.durable(), Lsn(64));
        assert_eq!(flusher.counters.snapshot().flush_requests_max, 7);
    }

    #[test]
    fn a_failed_flush_fails_those_it_served_and_those_behind() {
        let failure = Arc::new(Sticky::default());
        let flusher = flusher(&failure);
        let flushes = AtomicUsize::new(0);
        let open = AtomicBool::new(false);
        let broken = || {
            flushes.fetch_add(1, Ordering::SeqCst);
            while !open.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            let cause = psync::Error::ShortRead { path: "wal/0.log".into(), offset: 0, wanted: 1, got: 0 };
            Err(failure.set("flush", cause))
        };
        thread::scope(|scope| {
            scope.spawn(|| assert!(wish(&flusher, Lsn(8), broken).is_err()));
            while flushes.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for lsn in 2..6 {
                let flusher = &flusher;
                scope.spawn(move || assert!(wish(flusher, Lsn(8 * lsn), broken).is_err()));
            }
            while flusher.queues.lock().primary.len() < 4 {
                thread::yield_now();
            }
            open.store(true, Ordering::SeqCst);
        });
        assert_eq!(flushes.into_inner(), 1, "a failed flush is not tried again");
        assert_eq!(flusher.durable(), Lsn(0));
        assert!(wish(&flusher, Lsn(8), || Ok(())).is_err());
    }
}
