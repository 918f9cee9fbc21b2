//! Memory that open transactions hold together: a part of their own, and beyond that a part of the buffer pool, which
//! gives it up in steps while they need it.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Bytes by which the pool gives memory up.
const STEP_BYTES: u64 = 4 << 20;

/// A bound on the memory that open transactions hold together.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Their own part.
    own: u64,
    /// The part of the pool.
    beyond: u64,
    held: AtomicU64,
    /// Bytes that the pool gives now.
    taken: AtomicU64,
    taking: Mutex<()>,
}

impl Budget {
    /// At most `own` bytes, and up to `beyond` bytes of the buffer pool.
    pub(crate) const fn new(own: u64, beyond: u64) -> Self {
        Self { own, beyond, held: AtomicU64::new(0), taken: AtomicU64::new(0), taking: Mutex::new(()) }
    }

    /// Bytes of their own part.
    pub(crate) const fn own(&self) -> u64 {
        self.own
    }

    /// Most bytes.
    pub(crate) const fn limit(&self) -> u64 {
        self.own + self.beyond
    }

    /// Bytes that are held.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// Takes `bytes` more for a transaction. False, and no change, where the held bytes would exceed the limit. With
    /// `only` they are all that the transaction holds, and are always granted.
    pub(crate) fn take(&self, bytes: u64, only: bool) -> bool {
        let grown = |held: u64| Some(held + bytes).filter(|held| only || *held <= self.limit());
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grown).is_ok()
    }

    /// Gives back `bytes` of a transaction.
    pub(crate) fn give(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Has `take_from_pool` take another number of bytes from the buffer pool, if the transactions need more or fewer
    /// now.
    pub(crate) fn balance(&self, mut take_from_pool: impl FnMut(u64)) {
        let due = || {
            let beyond = self.held().saturating_sub(self.own).min(self.beyond);
            let wanted = beyond.next_multiple_of(STEP_BYTES).min(self.beyond);
            let taken = self.taken.load(Ordering::SeqCst);
            // A step stays, so that a transaction at its edge does not take and give it all the time.
            let is_due = wanted > taken || wanted + STEP_BYTES < taken || (beyond == 0 && taken > 0);
            is_due.then_some(wanted)
        };
        if due().is_none() {
            return;
        }
        let taking = self.taking.lock();
        // Others may take and give meanwhile, and leave the rest to this thread.
        while let Some(wanted) = due() {
            self.taken.store(wanted, Ordering::SeqCst);
            take_from_pool(wanted);
        }
        drop(taking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_gives_what_is_needed_beyond_and_gets_it_back() {
        let budget = Budget::new(10 << 20, 20 << 20);
        let balanced = |budget: &Budget| {
            let mut taken = None;
            budget.balance(|bytes| taken = Some(bytes >> 20));
            taken
        };
        assert!(budget.take(10 << 20, false));
        assert_eq!(balanced(&budget), None);
        assert!(budget.take(1, false));
        assert_eq!((balanced(&budget), balanced(&budget)), (Some(4), None));
        assert!(budget.take(19 << 20, false));
        assert_eq!(balanced(&budget), Some(20));
        assert!(!budget.take(2 << 20, false) && budget.take(2 << 20, true));
        assert_eq!(balanced(&budget), None, "the pool gives no more");
        budget.give(7 << 20);
        assert_eq!(balanced(&budget), None, "a step stays");
        budget.give(5 << 20);
        assert_eq!(balanced(&budget), Some(12));
        budget.give((9 << 20) + 1);
        assert_eq!((balanced(&budget), balanced(&budget)), (Some(0), None));
    }
}
