//! Requests of callers to the background worker, and the answers.

use std::{ops::RangeInclusive, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;

/// A request to the worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// End after this.
    pub(crate) stop: bool,
    /// Apply all operations that were visible at the time of the request.
    pub(crate) drain: bool,
    /// Write a checkpoint.
    pub(crate) checkpoint: bool,
    /// With the checkpoint, give back the space that a database at rest does not need, if there are no writers.
    pub(crate) rest: bool,
    /// Give back the surplus of the data file in any case.
    pub(crate) cut: bool,
    /// There was work before the wait was over.
    pub(crate) woken: bool,
    ticket: u64,
}

#[derive(Default)]
struct State {
    kicked: bool,
    request: Request,
    done: u64,
    /// The newest tickets that the worker could not serve, and the error.
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
    /// Wakes the worker, because there may be work.
    pub(crate) fn kick(&self) {
        self.state.lock().kicked = true;
        self.wake.notify_one();
    }

    /// Requests that everything be applied, and a checkpoint where wanted. [`Signal::answer`] gives the answer to the
    /// returned ticket.
    pub(crate) fn post(&self, checkpoint: bool) -> u64 {
        self.post_with(|request| request.checkpoint |= checkpoint)
    }

    /// Requests that everything be applied, and a checkpoint. If there are no writers, the checkpoint also gives back
    /// the space that a database at rest does not need. With `cut`, the data file gives back its surplus in any case.
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

    /// Waits until the request with this ticket is done.
    ///
    /// # Errors
    /// The error that kept the worker from serving the request; none inside when the worker ended.
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

    /// Notes that the worker ended, or may do no more work.
    pub(crate) fn fail(&self) {
        self.state.lock().failed = true;
        self.done.notify_all();
        self.wake.notify_one();
    }

    /// Whether a turn would find work.
    pub(crate) fn has_work(&self) -> bool {
        self.state.lock().has_work()
    }

    /// Whether more was asked for since this request.
    pub(crate) fn is_asked_more(&self, since: Request) -> bool {
        let state = self.state.lock();
        state.request.stop || state.failed || state.request.ticket > since.ticket
    }

    /// Waits for work on behalf of the worker, at most for `longest`.
    pub(crate) fn wait(&self, longest: Duration) -> Request {
        let mut state = self.state.lock();
        if !state.has_work() {
            self.wake.wait_for(&mut state, longest);
        }
        let woken = state.has_work();
        state.kicked = false;
        Request { woken, ..state.request }
    }

    /// Notes that the worker served `request`, or failed to.
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
