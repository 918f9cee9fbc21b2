//! A stream of requests with a fixed number in flight.

use crate::queue::Queue;
use crate::{Completion, Request};

/// Keeps up to `depth` requests in flight and hands completions out in the order of arrival.
///
/// 1. [`Stream::push`] accepts a request at any time. With `depth` in flight, the push first waits for one completion,
///    which is kept for [`Stream::next`].
/// 2. `next` (a stream is an iterator) hands out a completion, and waits for one if none is there; `None` when nothing
///    is in flight. More requests may be pushed after that.
/// 3. Requests are handed to the system together: when `next` or [`Stream::gather`] has to wait, at the latest when a
///    good part of `depth` has gathered. [`Stream::submit`] hands them over at once.
/// 4. A flush starts when all writes pushed before the flush are complete; requests pushed after it wait for its start.
///
/// Dropping a stream completes all pushed requests; their completions are lost.
///
/// A stream may go to another thread, and the thread that pushed may end.
pub struct Stream {
    queue: Queue,
}

impl Stream {
    pub(crate) fn new(queue: Queue) -> Self {
        Self { queue }
    }

    /// Takes a request.
    pub fn push(&mut self, request: Request) {
        self.queue.push(0, request);
        self.queue.advance();
    }

    /// Hands every accepted request to the system now, instead of when `next` waits.
    pub fn submit(&mut self) {
        self.queue.submit();
    }

    /// Waits until `next` has `completions` completions to hand out, or all that are in flight. Returns at once if a
    /// completion is ready. A consumer of many completions is woken once for all.
    pub fn gather(&mut self, completions: usize) {
        self.queue.gather(completions);
    }

    /// Requests pushed whose completion `next` has not handed out yet.
    pub fn in_flight(&self) -> usize {
        self.queue.outstanding()
    }

    /// The largest number of requests in the system's hands at a time.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }
}

impl Iterator for Stream {
    type Item = Completion;

    fn next(&mut self) -> Option<Completion> {
        self.queue.next().map(|(_, completion)| completion)
    }
}
