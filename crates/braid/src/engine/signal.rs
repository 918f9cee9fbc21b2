//! What callers ask of the background worker, and how they learn that it is done.

use std::{ops::RangeInclusive, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;

/// What the worker is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// End after this.
    pub(crate) stop: bool,
    /// Apply everything that was visible when this was asked.
    pub(crate) drain: bool,
    /// Write a checkpoint.
    pub(crate) checkpoint: bool,
    /// Give back what is not needed at rest with it, where nobody writes.
    pub(crate) rest: bool,
    /// Give back what the data file does not need in any case.
    pub(crate) cut: bool,
    /// There was something to do before the wait for it was over.
    pub(crate) woken: bool,
    ticket: u64,
}

#[derive(Default)]
struct State {
    kicked: bool,
    request: Request,
    done: u64,
    /// The newest tickets that could not be done, and why.
    refused: Option<(RangeInclusive<u64>, Error)>,
    failed: bool,
}

impl State {
    const fn has_work(&self) -> bool {
        self.kicked || self.request.stop || self.done != self.request.ticket || self.failed
    }
}

/// The worker's mailbox.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    wake: Condvar,
    done: Condvar,
}

impl Signal {
    /// Wakes the worker: there may be something to do.
    pub(crate) fn kick(&self) {
        self.state.lock().kicked = true;
        self.wake.notify_one();
    }

    /// Asks for everything to be applied, and a checkpoint where wanted. The answer is at [`Signal::answer`] under this ticket.
    pub(crate) fn post(&self, checkpoint: bool) -> u64 {
        self.post_with(|request| request.checkpoint |= checkpoint)
    }

    /// Asks for everything to be applied, a checkpoint, and what is not needed at rest to be given back with it, if nobody writes; what the data file does not need in any case, where that is to
    /// be `cut`.
    pub(crate) fn post_rest(&self, cut: bool) -> u64 {
        self.post_with(|request| {
            (request.checkpoint, request.rest) = (true, true);
            request.cut |= cut;
        })
    }

    fn post_with(&self, ask: impl FnOnce(&mut Request)) -> u64 {
        let mut state = self.state.lock();
        ask(&mut state.request);
        state.request.ticket += 1;
        state.request.drain = true;
        self.wake.notify_one();
        state.request.ticket
    }

    /// Waits until what was posted is done.
    ///
    /// # Errors
    /// What kept the worker from it; none in that error when the worker ended.
    pub(crate) fn answer(&self, ticket: u64) -> Result<(), Option<Error>> {
        let mut state = self.state.lock();
        while state.done < ticket && !state.failed {
            self.done.wait(&mut state);
        }
        match &state.refused {
            Some((tickets, error)) if tickets.contains(&ticket) => Err(Some(error.clone())),
            _ if state.done >= ticket => Ok(()),
            _ => Err(None),
        }
    }

    /// Asks the worker to end.
    pub(crate) fn stop(&self) {
        self.state.lock().request.stop = true;
        self.wake.notify_one();
    }

    /// The worker ended, or will find nothing that it may do.
    pub(crate) fn fail(&self) {
        self.state.lock().failed = true;
        self.done.notify_all();
        self.wake.notify_one();
    }

    /// Whether a turn would find something to do.
    pub(crate) fn has_work(&self) -> bool {
        self.state.lock().has_work()
    }

    /// The worker waits for something to do, at most so long.
    pub(crate) fn wait(&self, longest: Duration) -> Request {
        let mut state = self.state.lock();
        if !state.has_work() {
            self.wake.wait_for(&mut state, longest);
        }
        let woken = state.has_work();
        state.kicked = false;
        Request { woken, ..state.request }
    }

    /// The worker did what `request` asked for, or could not.
    pub(crate) fn finish(&self, request: Request, outcome: Result<(), Error>) {
        let mut state = self.state.lock();
        let has_failed = outcome.is_err();
        if let Err(error) = outcome
            && state.done < request.ticket
        {
            state.refused = Some((state.done + 1..=request.ticket, error));
        }
        state.done = state.done.max(request.ticket);
        if state.request.ticket == request.ticket {
            // A file that was not cut is cut by the next checkpoint.
            let Request { stop, ticket, cut, .. } = state.request;
            state.request = Request { stop, ticket, cut: cut && has_failed, ..Request::default() };
        }
        self.done.notify_all();
    }
}
