//! The interface of all backends: single attempts as plain calls, and queues of attempts.

use std::io;
use std::time::Instant;

use super::attempt::{Done, Transfer};
use super::kind::BackendKind;
use crate::file::FileInner;

/// A way to reach storage.
pub(crate) trait Backend: Send + Sync {
    fn kind(&self) -> BackendKind;

    /// Performs one attempt now.
    ///
    /// # Safety
    /// The transfer's memory is valid for its length during the call.
    #[expect(unsafe_code, reason = "transfers into memory given by address")]
    unsafe fn call(&self, file: &FileInner, offset: u64, transfer: Transfer) -> i64;

    /// The clock of requests; none where the backend says nothing of a device.
    fn now(&self) -> Option<Instant> {
        Some(Instant::now())
    }

    /// A queue for the calling thread.
    fn lane(&self) -> io::Result<Box<dyn Lane>>;

    /// A queue that any thread may use, one after another.
    fn roaming_lane(&self) -> io::Result<Box<dyn Lane>> {
        self.lane()
    }

    /// Takes back a lane on which nothing is in flight.
    fn give_back(&self, lane: Box<dyn Lane>) {
        drop(lane);
    }
}

/// A queue of attempts, owned by one batch or stream.
pub(crate) trait Lane: Send {
    /// Most attempts in flight.
    fn capacity(&self) -> usize;

    /// Takes one attempt, to be started by `reap` at the latest. The caller keeps at most `capacity` in flight.
    ///
    /// # Safety
    /// The transfer's memory and the file stay valid until `reap` reports the slot, and the memory is used by nobody
    /// else.
    #[expect(unsafe_code, reason = "transfers into memory given by address")]
    unsafe fn push(&mut self, slot: u32, file: &FileInner, offset: u64, transfer: Transfer);

    /// Starts all pushed attempts, waits until at least `wait` of them are complete, and reports those that are. `wait`
    /// is at most the number of attempts pushed and not reported; with 0 the lane need not report anything.
    ///
    /// # Errors
    /// When the queue itself fails; attempts in flight are then in an unknown state.
    fn reap(&mut self, wait: usize, done: &mut Vec<Done>) -> io::Result<()>;
}
