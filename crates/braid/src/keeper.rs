//! Keeps the log ahead of its writers: flushes lazy commits in time and has the next segment ready before it is needed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use wal::Lsn;

use crate::engine::Engine;

/// How long to sleep while nothing is due; the log is also looked after at this pace.
const IDLE: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    due: Option<(Instant, Lsn)>,
    stop: bool,
}

/// Deadlines of lazy commits.
#[derive(Default)]
pub(crate) struct Keeper {
    state: Mutex<State>,
    wake: Condvar,
}

impl Keeper {
    /// The log has to be on stable storage up to `end` within `interval`.
    pub(crate) fn flush_within(&self, end: Lsn, interval: Duration) {
        // An interval beyond the end of time is never due.
        let Some(deadline) = Instant::now().checked_add(interval) else { return };
        let mut state = self.state.lock();
        let earliest = state.due.is_none_or(|(due, _)| deadline < due);
        state.due = Some(state.due.map_or((deadline, end), |(due, lsn)| (due.min(deadline), lsn.max(end))));
        if earliest {
            self.wake.notify_one();
        }
    }

    /// Ends the keeper's loop.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
    }

    /// The next flush that is due, or none after an idle while; an error when the keeper ends.
    fn next(&self) -> Result<Option<Lsn>, Stopped> {
        let mut state = self.state.lock();
        let deadline = state.due.map_or_else(|| Instant::now() + IDLE, |(due, _)| due);
        if !state.stop && deadline > Instant::now() {
            self.wake.wait_until(&mut state, deadline.min(Instant::now() + IDLE));
        }
        if state.stop {
            return Err(Stopped);
        }
        Ok(state.due.take_if(|(due, _)| *due <= Instant::now()).map(|(_, lsn)| lsn))
    }
}

struct Stopped;

/// Runs until the keeper is stopped or the log fails.
pub(crate) fn run(engine: &Arc<Engine>) {
    while let Ok(due) = engine.keeper.next() {
        if engine.health.check().is_err() {
            return;
        }
        let Some(end) = due else {
            prepare(engine);
            continue;
        };
        if let Err(error) = engine.wal.flush_through(end) {
            engine.fail(engine.log_error(error).cause());
            return;
        }
    }
}

/// Has the next log segment ready.
pub(crate) fn prepare(engine: &Engine) {
    if let Err(error) = engine.wal.prepare() {
        tracing::warn!(%error, "no spare log segment");
    }
}
