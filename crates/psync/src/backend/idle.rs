//! Kernel queues that a thread keeps for its next batch: making one costs far more than using one.
//!
//! A queue belongs to one batch or stream at a time, so a batch that runs while a stream of the same thread is open takes a
//! second one. A thread keeps at most [`IDLE_MAX`] of a kind; they are closed when it ends. They carry nothing of one `Psync`,
//! so all of them share the thread's queues.

use std::cell::RefCell;

/// Most idle queues that a thread keeps of a kind.
const IDLE_MAX: usize = 2;

/// A thread's idle queues of one kind.
pub(super) struct Idle<Q>(RefCell<Vec<Q>>);

impl<Q> Idle<Q> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    pub(super) fn take(&self) -> Option<Q> {
        self.0.borrow_mut().pop()
    }

    pub(super) fn keep(&self, queue: Q) {
        let mut idle = self.0.borrow_mut();
        if idle.len() < IDLE_MAX {
            idle.push(queue);
        }
    }
}
