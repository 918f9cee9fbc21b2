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
//! Invariants: the durable position only follows a successful flush that began when everything below it was written; every
//! request is completed, by its own flush, by another's, or by the failure; a flush that failed is not tried again.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::failure::Sticky;
use crate::stats::{Counters, add};
use crate::{Lsn, Result};

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

/// The queues of flush requests, and how far the log is durable.
#[derive(Debug)]
pub(crate) struct Flusher {
    failure: Arc<Sticky>,
    counters: Arc<Counters>,
    queues: Mutex<Queues>,
    durable: AtomicU64,
}

impl Flusher {
    pub(crate) fn new(failure: Arc<Sticky>, counters: Arc<Counters>, durable: Lsn) -> Self {
        Self { failure, counters, queues: Mutex::default(), durable: AtomicU64::new(durable.0) }
    }

    /// Everything below is on stable storage.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns when everything below `lsn`, which is written, is on stable storage. `flush` flushes all that was written before
    /// it is called, and keeps its failure.
    pub(crate) fn flush_through(&self, lsn: Lsn, flush: impl Fn() -> Result<()>) -> Result<()> {
        self.failure.check()?;
        if self.durable() >= lsn {
            return Ok(());
        }
        let request = Arc::new(Request { lsn, state: Mutex::new(State::Waiting), changed: Condvar::new() });
        let wins = {
            let mut queues = self.queues.lock();
            queues.primary.push(Arc::clone(&request));
            !mem::replace(&mut queues.led, true)
        };
        if !wins && let Some(result) = request.wait() {
            return result;
        }
        self.lead(flush)
    }

    /// Serves all queued requests, with the sync lock held; the caller's own is one of them.
    fn lead(&self, flush: impl Fn() -> Result<()>) -> Result<()> {
        let mut served = {
            let mut queues = self.queues.lock();
            let secondary = mem::take(&mut queues.secondary);
            mem::replace(&mut queues.primary, secondary)
        };
        let last = served.iter().map(|request| request.lsn).max().expect("the leader's own request is queued");
        let result = self.failure.check().and_then(|()| {
            if self.durable() < last {
                flush()?;
                add(&self.counters.flushes, 1);
                add(&self.counters.flush_requests, served.len() as u64);
                self.counters.flush_requests_max.fetch_max(served.len() as u64, Ordering::Relaxed);
                self.durable.store(last.0, Ordering::Release);
            }
            Ok(())
        });
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

    fn flusher(failure: &Arc<Sticky>) -> Flusher {
        Flusher::new(Arc::clone(failure), Arc::default(), Lsn(0))
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
            scope.spawn(|| flusher.flush_through(Lsn(8), slow).expect("it flushes"));
            while flushes.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for lsn in 2..9 {
                let flusher = &flusher;
                scope.spawn(move || flusher.flush_through(Lsn(8 * lsn), slow).expect("it flushes"));
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
            scope.spawn(|| assert!(flusher.flush_through(Lsn(8), broken).is_err()));
            while flushes.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for lsn in 2..6 {
                let flusher = &flusher;
                scope.spawn(move || assert!(flusher.flush_through(Lsn(8 * lsn), broken).is_err()));
            }
            while flusher.queues.lock().primary.len() < 4 {
                thread::yield_now();
            }
            open.store(true, Ordering::SeqCst);
        });
        assert_eq!(flushes.into_inner(), 1, "a failed flush is not tried again");
        assert_eq!(flusher.durable(), Lsn(0));
        assert!(flusher.flush_through(Lsn(8), || Ok(())).is_err());
    }
}
