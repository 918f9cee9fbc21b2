//! Stretches of compactions, which run beside the worker.
//!
//! 1. A stretch runs in the thread of its caller. It holds its table, and does without the lock of upkeep. So rounds of
//!    other tables go on meanwhile, and sweeps and cleaning until they come to the table of the stretch.
//! 2. At most one stretch is under way, so its memory and its room come once on top of the worker's.
//! 3. Rounds leave the table of a stretch alone where they can, and the worker is woken when the stretch ends.
//! 4. Who captures all tables, or finds the disk full, waits for the stretch, and keeps the next from beginning
//!    ([`Stretches::alone`]).
//!
//! Invariant: locks are taken in the order upkeep, stretches, tables, superblock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

use crate::tables::catalog::TableCore;

#[derive(Default)]
pub(crate) struct Stretches {
    /// A thread that is alone may be so again: relief on a full disk writes checkpoints.
    one: ReentrantMutex<()>,
    under_way: AtomicBool,
    /// The worker has left something out because a stretch has its table.
    awaited: AtomicBool,
    ended: AtomicU64,
}

/// As long as this lives, no stretch is under way.
pub(crate) struct Alone<'a> {
    stretches: &'a Stretches,
    one: ReentrantMutexGuard<'a, ()>,
}

/// A stretch that is under way.
pub(crate) struct UnderWay<'a>(Option<Alone<'a>>);

impl Stretches {
    /// Waits for the stretch under way, and keeps others from beginning.
    pub(crate) fn alone(&self) -> Alone<'_> {
        Alone { stretches: self, one: self.one.lock() }
    }

    /// Whether a stretch is under way.
    pub(crate) fn are_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire)
    }

    /// Whether the stretch under way has this table. If so a round leaves the table alone, and the end of the stretch
    /// wakes the worker.
    pub(crate) fn has(&self, table: &TableCore) -> bool {
        if !self.are_under_way() {
            return false;
        }
        // The order matters: a stretch gives its table up before it looks whether it was awaited.
        self.awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        table.is_held()
    }

    /// Whether the worker has waited for a stretch since the last call.
    pub(crate) fn take_awaited(&self) -> bool {
        fence(Ordering::SeqCst);
        self.awaited.swap(false, Ordering::Relaxed)
    }

    /// How many stretches have ended. Where this has not changed from before a step until one is alone, none was under
    /// way beside that step.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether nobody is alone, and no stretch under way.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        !self.one.is_locked()
    }
}

impl<'a> Alone<'a> {
    /// Begins a stretch.
    pub(crate) fn begin(self) -> UnderWay<'a> {
        self.stretches.under_way.store(true, Ordering::Release);
        UnderWay(Some(self))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let Some(Alone { stretches, one }) = self.0.take() else { return };
        stretches.under_way.store(false, Ordering::Release);
        stretches.ended.fetch_add(1, Ordering::Release);
        // Somebody may have waited for this stretch.
        ReentrantMutexGuard::unlock_fair(one);
    }
}
