//! Lookups whose callers do not wait in a thread.
//!
//! 1. A caller leaves a request, and a waker with it ([`Lookups::add`]).
//! 2. A few threads take what has gathered, up to [`BATCH_KEYS`] keys at a time, and read it as one batch
//!    ([`crate::read::gather`]). What comes meanwhile gathers for the next batch. So many tasks that each want a key
//!    become a few batches for the device.
//! 3. Each request is answered, and its caller woken.
//!
//! Invariant: every request that was taken in is answered, though its read panics or the database closes.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Poll, Waker},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    error::{Error, Result},
    tables::catalog::TableCore,
    words::wake::wake_all,
};

/// Threads that read. With two, one has requests at the device while the other answers.
pub(crate) const READERS: usize = 2;
/// Keys that are read together: more than a device has in flight at a time.
const BATCH_KEYS: usize = 256;

/// The values of the keys of a request, in their order.
pub(crate) type Values = Vec<Option<Vec<u8>>>;

/// Where a caller finds the answer to its request.
#[derive(Default)]
pub(crate) struct Answer {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    values: Option<Result<Values>>,
    waker: Option<Waker>,
}

impl Answer {
    /// The answer, if it is there; otherwise `waker` is woken when it is. It is given once.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<Values>> {
        let mut state = self.state.lock();
        match state.values.take() {
            Some(values) => Poll::Ready(values),
            None => {
                let replaced = state.waker.replace(waker.clone());
                drop(state);
                drop(replaced);
                Poll::Pending
            }
        }
    }

    fn set(&self, values: Result<Values>) {
        let waker = {
            let mut state = self.state.lock();
            state.values = Some(values);
            state.waker.take()
        };
        wake_all(waker);
    }
}

/// Keys of a table that a caller wants looked up.
pub(crate) struct Request {
    pub(crate) table: Arc<TableCore>,
    pub(crate) keys: Vec<Vec<u8>>,
    answer: Option<Arc<Answer>>,
}

impl Request {
    pub(crate) const fn new(table: Arc<TableCore>, keys: Vec<Vec<u8>>, answer: Arc<Answer>) -> Self {
        Self { table, keys, answer: Some(answer) }
    }

    /// Whether nobody waits for the answer any more.
    fn is_forgotten(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| Arc::strong_count(answer) == 1)
    }

    pub(crate) fn answer(mut self, values: Result<Values>) {
        self.answer.take().into_iter().for_each(|answer| answer.set(values.clone()));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let panicked = || Error::Failed { cause: "a lookup panicked".into() };
        self.answer.take().into_iter().for_each(|answer| answer.set(Err(panicked())));
    }
}

#[derive(Default)]
struct Gathered {
    requests: VecDeque<Request>,
    is_over: bool,
}

/// Requests that wait for a reader.
#[derive(Default)]
pub(crate) struct Lookups {
    gathered: Mutex<Gathered>,
    more: Condvar,
}

impl Lookups {
    /// Takes a request in; gives it back where no thread reads any more.
    pub(crate) fn add(&self, request: Request) -> Option<Request> {
        let mut gathered = self.gathered.lock();
        if gathered.is_over {
            return Some(request);
        }
        gathered.requests.push_back(request);
        self.more.notify_one();
        None
    }

    /// Waits for requests, and takes as many as are read together. None once nothing comes any more.
    pub(crate) fn next(&self) -> Option<Vec<Request>> {
        let mut gathered = self.gathered.lock();
        loop {
            let (mut batch, mut keys) = (Vec::new(), 0);
            while let Some(request) = gathered.requests.front() {
                if keys > 0 && keys + request.keys.len() > BATCH_KEYS {
                    break;
                }
                keys += request.keys.len();
                batch.extend(gathered.requests.pop_front().filter(|request| !request.is_forgotten()));
            }
            if !batch.is_empty() {
                return Some(batch);
            }
            if gathered.is_over {
                return None;
            }
            self.more.wait(&mut gathered);
        }
    }

    /// Ends the readers, once what was taken in is answered.
    pub(crate) fn end(&self) {
        self.gathered.lock().is_over = true;
        self.more.notify_all();
    }
}
