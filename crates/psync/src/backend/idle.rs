//! Kernel queues that a thread keeps for its next batch, because making one costs far more than using one.
//!
//! A queue belongs to one batch or stream at a time, so a batch that runs while a stream of the same thread is open
//! takes a second one. A thread keeps at most [`IDLE_MAX`] of a kind; they are closed when the thread ends. The queues
//! carry nothing of one `Psync`, so all instances share the thread's queues.

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

/// Asserts that a lane without work in flight leaves its queue to the thread.
#[cfg(test)]
pub(super) fn keeps_its_queue(backend: &dyn super::Backend, take: impl Fn() -> bool) {
    use super::Transfer;
    use crate::file::{File, Handle};

    let opened = std::fs::File::open("/dev/zero").expect("open");
    let zero = File::new(std::path::Path::new("/dev/zero"), None, None, Handle::System(opened));
    let mut buffer = crate::Buffer::from_slice(&[1; 100]);
    let transfer = Transfer::Read { memory: buffer.pointer(), length: 100 };
    let mut lane = backend.lane().expect("lane");
    assert!(!take(), "the lane has what there was");
    #[expect(unsafe_code, reason = "the buffer outlives the attempt")]
    // SAFETY: reaped below; the buffer and the file live until the end.
    unsafe {
        lane.push(3, &zero.0, 0, transfer);
    }
    let mut done = Vec::new();
    lane.reap(1, &mut done).expect("reaped");
    assert_eq!((done[0].slot, done[0].outcome), (3, 100));
    drop(lane);
    assert!(take() && !take());
    assert_eq!(*buffer, [0; 100]);
}
