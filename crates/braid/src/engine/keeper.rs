//! Deadlines of lazy commits.
//!
//! A lazy commit states the latest time at which a flush that covers the commit has to begin
//! ([`Keeper::flush_within`]). A thread sleeps until the earliest such deadline ([`crate::engine::log_ahead`]).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use wal::Lsn;

use crate::words::clock::Clock;

#[derive(Default)]
pub(super) struct State {
    due: Option<(Instant, Lsn)>,
    stop: bool,
}

/// Deadlines of lazy commits.
pub(crate) struct Keeper {
    pub(super) state: Mutex<State>,
    /// There is an earlier deadline, or the keeper was stopped.
    wake: Condvar,
    /// The keeper was stopped.
    stopped: Condvar,
    pub(super) clock: Arc<Clock>,
}

impl State {
    /// The position through which the log has to be flushed now; returned once.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Lsn> {
        self.due.take_if(|(due, _)| *due <= now).map(|(_, end)| end)
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
        let Some(deadline) = self.clock.instant().checked_add(interval) else { return };
        let mut state = self.state.lock();
        let earliest = state.due.is_none_or(|(due, _)| deadline < due);
        state.due = Some(state.due.map_or((deadline, end), |(due, lsn)| (due.min(deadline), lsn.max(end))));
        if earliest {
            self.wake.notify_one();
        }
    }

    /// Ends the keeper's threads.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
        self.stopped.notify_one();
    }

    /// Waits until a flush is due, and returns the position to flush through. None when the keeper is stopped.
    pub(super) fn next(&self) -> Option<Lsn> {
        let mut state = self.state.lock();
        while !state.stop {
            if let Some(end) = state.take_due(self.clock.instant()) {
                return Some(end);
            }
            match state.due {
                Some((deadline, _)) => {
                    self.wake.wait_until(&mut state, deadline);
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
