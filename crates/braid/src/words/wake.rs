//! Waking tasks.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

/// Wakes tasks. A waker that panics is the fault of its task, and keeps no other from being woken.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            events::error!("the waker of a task panicked");
        }
    }
}
