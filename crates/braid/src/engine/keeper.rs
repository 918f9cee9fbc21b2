//! Deadlines of commits that nobody waits for.
//!
//! 1. A commit states the latest time at which a flush that covers the commit has to begin ([`Keeper::flush_within`]):
//!    its interval for a lazy commit, and none for a submitted one.
//! 2. A ticket whose commit is to count as done later leaves a waker ([`Keeper::wake_at`]).
//! 3. A thread sleeps until the earliest of these times ([`crate::engine::log_ahead`]).

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use index::Seq;
use parking_lot::{Condvar, Mutex, MutexGuard};
use wal::Lsn;

use crate::words::{clock::Clock, wake::wake_all};

#[derive(Default)]
pub(super) struct State {
    due: Option<Due>,
    /// Who is woken when, by the system's clock. The seq is that of the ticket.
    wakers: BTreeMap<(Instant, Seq), Waker>,
    stop: bool,
}

/// The flush that is due next.
struct Due {
    /// By the clock of the database, which tests set.
    by_clock: Instant,
    /// By the system's clock, for the thread that sleeps. A clock that is set does not wake it.
    really: Instant,
    end: Lsn,
}

/// Deadlines of commits that nobody waits for.
pub(crate) struct Keeper {
    pub(super) state: Mutex<State>,
    /// There is an earlier deadline, or the keeper was stopped.
    wake: Condvar,
    /// The keeper was stopped.
    stopped: Condvar,
    pub(super) clock: Arc<Clock>,
}

impl State {
    /// The position through which the log has to be flushed now, by the clock of the database; returned once.
    #[cfg(test)]
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Lsn> {
        self.due.take_if(|due| due.by_clock <= now).map(|due| due.end)
    }

    /// The position through which the log has to be flushed now; returned once.
    fn take_really_due(&mut self) -> Option<Lsn> {
        self.due.take_if(|due| due.really <= Instant::now()).map(|due| due.end)
    }

    /// The wakers whose time has come.
    fn take_wakers(&mut self) -> Vec<Waker> {
        let mut taken = Vec::new();
        while let Some(first) = self.wakers.first_entry().filter(|first| first.key().0 <= Instant::now()) {
            taken.push(first.remove());
        }
        taken
    }

    /// The earliest time at which there is something to do.
    fn earliest(&self) -> Option<Instant> {
        let waker = self.wakers.first_key_value().map(|((at, _), _)| *at);
        self.due.as_ref().map(|due| due.really).into_iter().chain(waker).min()
    }
}

impl Keeper {
    /// A keeper that goes by this clock.
    pub(crate) fn new(clock: Arc<Clock>) -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), stopped: Condvar::new(), clock }
    }

    /// Asks for the log up to `end` on stable storage within `interval`.
    pub(crate) fn flush_within(&self, end: Lsn, interval: Duration) {
        // An interval beyond the end of time is never due.
        let [by_clock, really] = [self.clock.instant(), Instant::now()].map(|now| now.checked_add(interval));
        let (Some(by_clock), Some(really)) = (by_clock, really) else { return };
        let mut state = self.state.lock();
        let earliest = state.due.as_ref().is_none_or(|due| really < due.really);
        let due = state.due.get_or_insert(Due { by_clock, really, end });
        *due = Due { by_clock: due.by_clock.min(by_clock), really: due.really.min(really), end: due.end.max(end) };
        if earliest {
            self.wake.notify_one();
        }
    }

    /// Wakes `waker` at a time, unless it is forgotten before. One waker is kept for each time and ticket. False where
    /// the keeper was stopped.
    pub(crate) fn wake_at(&self, at: Instant, ticket: Seq, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if state.stop {
            return false;
        }
        let earliest = state.earliest().is_none_or(|earliest| at < earliest);
        let replaced = state.wakers.insert((at, ticket), waker.clone());
        if earliest {
            self.wake.notify_one();
        }
        drop(state);
        drop(replaced);
        true
    }

    /// Forgets the waker of a time and ticket.
    pub(crate) fn forget_waker(&self, at: Instant, ticket: Seq) {
        let forgotten = self.state.lock().wakers.remove(&(at, ticket));
        drop(forgotten);
    }

    /// Ends the keeper's threads, and wakes every waker.
    pub(crate) fn stop(&self) {
        let wakers = {
            let mut state = self.state.lock();
            state.stop = true;
            std::mem::take(&mut state.wakers)
        };
        self.wake.notify_one();
        self.stopped.notify_one();
        wake_all(wakers.into_values());
    }

    /// Waits until a flush is due, and returns the position to flush through. None when the keeper is stopped.
    pub(super) fn next(&self) -> Option<Lsn> {
        let mut state = self.state.lock();
        while !state.stop {
            let wakers = state.take_wakers();
            if !wakers.is_empty() {
                MutexGuard::unlocked(&mut state, || wake_all(wakers));
                continue;
            }
            if let Some(end) = state.take_really_due() {
                return Some(end);
            }
            match state.earliest() {
                Some(earliest) => {
                    self.wake.wait_until(&mut state, earliest);
                }
                None => self.wake.wait(&mut state),
            }
        }
        None
    }

    /// Waits for `time`. False when the keeper is stopped.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stop {
            self.stopped.wait_for(&mut state, time);
        }
        !state.stop
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU8, Ordering},
        task::Wake,
        thread,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU8);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn wakers_are_woken_at_their_time_and_all_of_them_at_the_end() {
        let keeper = Keeper::new(Arc::new(Clock::new(None, index::Time(0))));
        let [soon, late, forgotten, flush] = [(); 4].map(|()| Arc::new(Count::default()));
        let waker = |count: &Arc<Count>| Waker::from(Arc::clone(count));
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(keeper.next(), Some(Lsn(8)));
                flush.0.store(1, Ordering::SeqCst);
                assert_eq!(keeper.next(), None);
            });
            assert!(keeper.wake_at(now + hour, Seq(1), &waker(&late)));
            assert!(keeper.wake_at(now + hour, Seq(2), &waker(&forgotten)));
            keeper.forget_waker(now + hour, Seq(2));
            assert!(keeper.wake_at(now + Duration::from_millis(2), Seq(3), &waker(&soon)));
            while soon.0.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            keeper.flush_within(Lsn(8), Duration::ZERO);
            while flush.0.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            assert_eq!(late.0.load(Ordering::SeqCst), 0);
            keeper.stop();
        });
        assert!(!keeper.wake_at(now, Seq(4), &waker(&soon)), "it was stopped");
        let woken = [&soon, &late, &forgotten].map(|count| count.0.load(Ordering::SeqCst));
        assert_eq!(woken, [1, 1, 0]);
    }
}
