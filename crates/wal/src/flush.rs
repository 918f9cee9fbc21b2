//! Aggregated flush requests.
//!
//! Source: Son, Yeom and Han, "Design and implementation of an efficient flushing scheme for cloud key-value storage",
//! 2017, section 3.1.
//!
//! 1. A caller puts a request {LSN, state} into the primary queue. If the sync lock is free, the caller wins the lock
//!    and leads; otherwise the caller waits.
//! 2. The leader swaps the primary queue with an empty one, so that new requests gather apart from those being served.
//!    The leader has the log written up to the largest LSN of the swapped queue, and flushes once.
//! 3. After the flush the leader gives the sync lock back and calls the first request of the primary queue, if there is
//!    one, to try for the lock.
//! 4. The leader announces that the durable position has moved, and then completes all requests of the swapped queue.
//!    Their callers return without taking the lock and without another flush.
//!
//! A [`Queue`] holds only two latches. One wakes the first caller, which may have to lead; the other wakes all callers.
//! The leader needs two numbers beside them: the largest LSN and the number of requests. So **one call of the kernel
//! completes a queue** of any length, and the woken callers take no lock. With a condition variable for each request,
//! 64 threads on 2 cores made 1.1 such calls per commit to wake others; with latches there is one call per flush, which
//! serves 25.
//!
//! The lock is not handed to the called request. The first thread to come wins the lock, and serves the called request
//! with all others, because a sleeping thread needs about as long to wake as a flush takes. A thread that was just
//! served and commits again is there at once. With 4 threads on 2 cores, handing the lock over left the device idle for
//! three quarters of the time.
//!
//! Two differences to the paper:
//!
//! - The paper queues a request when its bytes are written. Here the leader writes for all served requests, so that no
//!   caller waits twice.
//! - The paper sets the completion flags before the flush and shows them to waiters after the flush. Here requests are
//!   completed after the flush in one step. The difference shows only after a failure, when all served requests get the
//!   failure.
//!
//! The other schemes of [`FlushScheme`] exist for comparison. There each caller writes, takes the sync lock (a plain
//! mutex), and flushes. All but `PerCommit` first compare the durable position with the lock held. They also let one
//! thread flush for all records of a slot, up to the end of their group; the other threads of the slot wait without the
//! lock (section 2.1).
//!
//! Measured and not done:
//!
//! - The next leader could write while a flush is under way, so that write and flush overlap. With 8 and 64 threads the
//!   gain was within noise, because waking and publishing for one queue overlap with the flush of the next queue
//!   anyway.
//! - The first caller of a queue could spin for its call before sleeping. With 2 to 8 threads on 2 cores that took
//!   three times the processor time for fewer commits, because a quick leader leads for few; with 64 threads it won
//!   nothing.
//!
//! Invariants:
//!
//! - A queue is taken in the same step as the sync lock.
//! - While the sync lock is free, the first request of the primary queue is called.
//! - The durable position follows only a successful flush that began when everything below the new position was
//!   written.
//! - Every request is completed: by its own flush, by another flush, or by the failure. Completion comes after the new
//!   durable position was published.
//! - A failed flush is not tried again.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use seeded::Bug;

use crate::failure::Sticky;
use crate::stats::{Counters, add, add_time};
use crate::{FlushScheme, Lsn, Result};
use sync::{AtomicU64, Condvar, Latch, Mutex, Ordering};

/// The operations of the log that a flusher needs.
pub(crate) trait Work {
    /// Has everything below `end` written; returns the end of the written part, which is the end of a group.
    fn write(&self, end: Lsn) -> Result<Lsn>;

    /// The end of the written part of the log: everything below is written.
    fn written(&self) -> Lsn;

    /// Makes everything durable that was written before the call; a failure is kept.
    fn flush(&self) -> Result<()>;

    /// Announces that the durable position has moved. The callers that wait for the position are woken next.
    fn moved(&self) -> Result<()>;
}

/// The two latches of a queue, for which its callers wait.
#[derive(Debug, Default)]
struct Queue {
    /// Set to call the first caller, which then tries to win the sync lock.
    called: Latch<()>,
    /// The outcome of the flush that served the queue.
    served: Latch<Result<()>>,
}

/// A queue that takes requests.
#[derive(Debug)]
struct Primary {
    queue: Arc<Queue>,
    /// The largest LSN of the requests.
    last: Lsn,
    requests: usize,
}

#[derive(Debug, Default)]
struct Queues {
    /// None while nothing is queued.
    primary: Option<Primary>,
    /// The sync lock.
    led: bool,
}

/// A caller's place in a queue.
enum Place {
    /// The caller has the sync lock, and serves the queue.
    Leader(Primary),
    /// The caller is called when the sync lock is given back.
    First(Arc<Queue>),
    Behind(Arc<Queue>),
}

/// A record that is to be durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    /// Everything below this.
    Through(Lsn),
    /// The first record of a slot that asks; the group of the slot ends here.
    Group(Lsn),
    /// A later record of such a slot; the record ends here.
    Member(Lsn),
}

/// The durable position of the log, and the order of its flushes.
#[derive(Debug)]
pub(crate) struct Flusher {
    scheme: FlushScheme,
    failure: Arc<Sticky>,
    counters: Arc<Counters>,
    queues: Mutex<Queues>,
    /// The sync lock of the schemes without queues.
    lock: Mutex<()>,
    /// Protects the wait for `moved`: in the schemes without queues, members of a group wait there without the sync
    /// lock.
    members: Mutex<()>,
    moved: Condvar,
    durable: AtomicU64,
}

impl Flusher {
    pub(crate) fn new(scheme: FlushScheme, failure: Arc<Sticky>, counters: Arc<Counters>, durable: Lsn) -> Self {
        Self {
            scheme,
            failure,
            counters,
            queues: Mutex::default(),
            lock: Mutex::default(),
            members: Mutex::default(),
            moved: Condvar::default(),
            durable: AtomicU64::new(durable.0),
        }
    }

    /// Everything below is on stable storage.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns when the wished part of the log is on stable storage; its space is taken already.
    pub(crate) fn flush_through(&self, wish: Wish, work: &impl Work) -> Result<()> {
        let (Wish::Through(lsn) | Wish::Group(lsn) | Wish::Member(lsn)) = wish;
        match (self.scheme, wish) {
            (FlushScheme::Aggregated, _) => {
                self.failure.check()?;
                if self.durable() >= lsn { Ok(()) } else { self.aggregate(lsn, work) }
            }
            (FlushScheme::Existing | FlushScheme::ExistingAll, Wish::Member(_)) => self.await_member(lsn),
            _ => {
                let written = self.failure.check().and_then(|()| work.write(lsn));
                let flushed = written.and_then(|_| self.lock_and_flush(lsn, work));
                // Members of the group learn of success and of failure. The lock is taken so that no member is between
                // its look at the position and its wait.
                drop(self.members.lock());
                self.moved.notify_all();
                flushed
            }
        }
    }

    /// Waits until another thread has flushed the group that a record is in.
    fn await_member(&self, lsn: Lsn) -> Result<()> {
        let begun = Instant::now();
        add(&self.counters.flush_requests, 1);
        let mut members = self.members.lock();
        while self.durable() < lsn {
            self.failure.check()?;
            members = self.moved.wait(members);
        }
        add_time(&self.counters.flush_wait_ns, begun);
        Ok(())
    }

    /// Takes the sync lock for each call. Flushes, unless the scheme compares the durable position first and finds it
    /// sufficient.
    fn lock_and_flush(&self, lsn: Lsn, work: &impl Work) -> Result<()> {
        let begun = Instant::now();
        let _lock = self.lock.lock();
        add(&self.counters.sync_lock_acquisitions, 1);
        add_time(&self.counters.sync_lock_wait_ns, begun);
        add(&self.counters.flush_requests, 1);
        self.failure.check()?;
        if self.scheme != FlushScheme::PerCommit && self.durable() >= lsn {
            return Ok(());
        }
        // The part that was written when the flush began, or only the caller's own part.
        let synced = if self.scheme == FlushScheme::ExistingAll { work.written() } else { lsn };
        self.flush(synced, 1, work)?;
        work.moved()
    }

    /// Flushes for `requests` calls, with the sync lock held. Afterwards everything below `synced` is durable; that
    /// part was written before.
    fn flush(&self, synced: Lsn, requests: usize, work: &impl Work) -> Result<()> {
        let begun = Instant::now();
        work.flush()?;
        add_time(&self.counters.flush_ns, begun);
        add(&self.counters.flushes, 1);
        self.counters.flush_requests_max.fetch_max(requests as u64, Ordering::Relaxed);
        // A call may flush again a part of the log that another call had flushed further.
        self.durable.fetch_max(synced.0, Ordering::Release);
        Ok(())
    }

    /// Queues a request, and waits until the request is served or has to lead.
    fn aggregate(&self, lsn: Lsn, work: &impl Work) -> Result<()> {
        let begun = Instant::now();
        let queue = match self.enqueue(lsn) {
            Place::Leader(primary) => return self.lead(primary, begun, work),
            Place::First(queue) => {
                queue.called.wait();
                if let Some(primary) = self.win(&queue) {
                    return self.lead(primary, begun, work);
                }
                queue
            }
            Place::Behind(queue) => queue,
        };
        let result = queue.served.wait();
        add_time(&self.counters.flush_wait_ns, begun);
        result
    }

    fn enqueue(&self, lsn: Lsn) -> Place {
        let mut queues = self.queues.lock();
        let is_first = queues.primary.is_none();
        let primary = queues.primary.get_or_insert_with(|| Primary { queue: Arc::default(), last: lsn, requests: 0 });
        primary.last = primary.last.max(lsn);
        primary.requests += 1;
        let queue = Arc::clone(&primary.queue);
        if !queues.led
            && let Some(primary) = queues.primary.take()
        {
            queues.led = true;
            return Place::Leader(primary);
        }
        if is_first { Place::First(queue) } else { Place::Behind(queue) }
    }

    /// Wins the sync lock for the first caller of `queue`, unless another thread was faster and serves the queue.
    fn win(&self, queue: &Arc<Queue>) -> Option<Primary> {
        let mut queues = self.queues.lock();
        let primary = queues.primary.take_if(|primary| Arc::ptr_eq(&primary.queue, queue))?;
        assert!(!mem::replace(&mut queues.led, true), "who wins the sync lock takes the queue");
        Some(primary)
    }

    /// Serves a swapped queue, with the sync lock held; the caller's own request is in that queue.
    fn lead(&self, served: Primary, begun: Instant, work: &impl Work) -> Result<()> {
        add(&self.counters.sync_lock_acquisitions, 1);
        add_time(&self.counters.sync_lock_wait_ns, begun);
        let Primary { queue, last, requests } = served;
        add(&self.counters.flush_requests, requests as u64);
        if seeded::on(Bug::CompletedBeforeFlush) {
            queue.served.set(Ok(()));
        }
        let result = self.failure.check().and_then(|()| {
            if self.durable() < last {
                let group = work.write(last)?;
                self.flush(group, requests, work)?;
            }
            Ok(())
        });
        self.unlock();
        if seeded::on(Bug::WokenBeforePublished) {
            queue.served.set(result.clone());
        }
        let result = result.and_then(|()| work.moved());
        queue.served.set(result.clone());
        // The first caller may still wait for its call.
        queue.called.set(());
        result
    }

    /// Gives the sync lock back, and calls the first waiting request.
    fn unlock(&self) {
        let waiting = {
            let mut queues = self.queues.lock();
            queues.led = false;
            queues.primary.as_ref().map(|primary| Arc::clone(&primary.queue))
        };
        if let Some(queue) = waiting.filter(|_| !seeded::on(Bug::CallDropped)) {
            queue.called.set(());
        }
    }
}

/// Models of the flusher's threads, which the model checker runs in many orders.
#[cfg(all(test, feature = "shuttle"))]
mod models {
    use shuttle::thread;

    use super::*;
    use crate::models::{check, finds};

    const CALLS: u64 = 5;

    /// A log that writes exactly as far as asked, and notes how far it was flushed and published.
    #[derive(Default)]
    struct Noted {
        written: AtomicU64,
        flushed: AtomicU64,
        published: AtomicU64,
    }

    impl Work for Noted {
        fn write(&self, end: Lsn) -> Result<Lsn> {
            self.written.fetch_max(end.0, Ordering::SeqCst);
            Ok(end)
        }

        fn written(&self) -> Lsn {
            Lsn(self.written.load(Ordering::SeqCst))
        }

        fn flush(&self) -> Result<()> {
            let written = self.written();
            thread::yield_now();
            self.flushed.fetch_max(written.0, Ordering::SeqCst);
            Ok(())
        }

        fn moved(&self) -> Result<()> {
            let flushed = self.flushed.load(Ordering::SeqCst);
            thread::yield_now();
            self.published.fetch_max(flushed, Ordering::SeqCst);
            Ok(())
        }
    }

    /// Under any leader, each queued caller is woken and finds its request durable and published.
    fn queued_calls_are_served() {
        let flusher = Arc::new(Flusher::new(FlushScheme::Aggregated, Arc::default(), Arc::default(), Lsn(0)));
        let work = Arc::new(Noted::default());
        let calls: Vec<_> = (1..=CALLS)
            .map(|call| {
                let (flusher, work) = (Arc::clone(&flusher), Arc::clone(&work));
                thread::spawn(move || {
                    flusher.aggregate(Lsn(8 * call), &*work).expect("it flushes");
                    assert!(work.flushed.load(Ordering::SeqCst) >= 8 * call, "who returns is durable");
                    assert!(work.published.load(Ordering::SeqCst) >= 8 * call, "and published");
                })
            })
            .collect();
        calls.into_iter().for_each(|call| call.join().expect("no panic"));
        let stats = flusher.counters.snapshot();
        assert_eq!(stats.flush_requests, CALLS, "each is served once");
        let queues = flusher.queues.lock();
        assert!(!queues.led && queues.primary.is_none(), "nobody is left");
    }

    #[test]
    fn queued_calls_are_served_whoever_runs_when() {
        check(5000, queued_calls_are_served);
        for bug in [Bug::CompletedBeforeFlush, Bug::WokenBeforePublished, Bug::CallDropped] {
            assert!(finds(bug, 5000, queued_calls_are_served), "{bug:?} stays hidden");
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

    /// A log that is written up to `written`, or as far as asked, and whose flush is a closure.
    struct Flush<F> {
        written: Lsn,
        flush: F,
    }

    impl<F: Fn() -> Result<()>> Work for Flush<F> {
        fn write(&self, end: Lsn) -> Result<Lsn> {
            Ok(self.written.max(end))
        }

        fn written(&self) -> Lsn {
            self.written
        }

        fn flush(&self) -> Result<()> {
            (self.flush)()
        }

        fn moved(&self) -> Result<()> {
            Ok(())
        }
    }

    fn wish(flusher: &Flusher, lsn: Lsn, flush: impl Fn() -> Result<()>) -> Result<()> {
        flusher.flush_through(Wish::Through(lsn), &Flush { written: Lsn(0), flush })
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
                let work = Flush { written: Lsn(16), flush };
                flusher.flush_through(Wish::Through(Lsn(lsn)), &work).expect("it flushes");
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
            while flusher.queues.lock().primary.as_ref().is_none_or(|primary| primary.requests < 7) {
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
            while flusher.queues.lock().primary.as_ref().is_none_or(|primary| primary.requests < 4) {
                thread::yield_now();
            }
            open.store(true, Ordering::SeqCst);
        });
        assert_eq!(flushes.into_inner(), 1, "a failed flush is not tried again");
        assert_eq!(flusher.durable(), Lsn(0));
        assert!(wish(&flusher, Lsn(8), || Ok(())).is_err());
    }
}
