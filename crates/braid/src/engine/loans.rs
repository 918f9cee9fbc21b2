//! Lends idle memory of the write buffer to the cache, and calls the loan in as operations come.
//!
//! 1. Waiting operations and the loan leave two steps of the write buffer free. A step is an eighth of the write
//!    buffer, at most [`STEP_BYTES_MAX`]. When commits have taken one of these steps, the thread that publishes them
//!    makes the loan smaller. So the loan is called in a little at a time while the buffer fills, and no writer waits
//!    for that.
//! 2. The loan becomes larger, likewise in steps, when a round has given memory back. A buffer that is filled and
//!    applied all the time lives nearly full, and lends nothing.
//! 3. The cache uses the loan as a secondary cache ([`cache`]), which gives memory up at once.
//!
//! Invariant: `waiting bytes + lent bytes ≤ write buffer`, but for the bytes of one commit.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::structures::Structures;

/// Part of the write buffer by which a loan changes.
const STEP_PART: u64 = 8;
/// Most bytes of a step, because no commit becomes visible while the cache gives them up.
const STEP_BYTES_MAX: u64 = 8 << 20;
/// Steps that are not lent.
const KEPT_STEPS: u64 = 2;

/// The loan of a write buffer.
pub(crate) struct Loans {
    budget: u64,
    lent: AtomicU64,
    changing: Mutex<()>,
}

impl Loans {
    /// Loans of a write buffer of `budget` bytes; 0 lends nothing.
    pub(crate) const fn new(budget: u64) -> Self {
        Self { budget, lent: AtomicU64::new(0), changing: Mutex::new(()) }
    }

    const fn step(&self) -> u64 {
        let part = self.budget / STEP_PART;
        if part < STEP_BYTES_MAX { part } else { STEP_BYTES_MAX }
    }

    /// The bytes that may be lent while operations of `used` bytes wait.
    const fn lendable(&self, used: u64) -> u64 {
        self.budget.saturating_sub(KEPT_STEPS * self.step()).saturating_sub(used)
    }

    /// The bytes that are lent.
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Calls memory in. Operations of `used` bytes wait now, more than before.
    pub(crate) fn call_in(&self, used: u64, structures: &Structures) {
        let is_due = |lent| lent > 0 && used + lent > self.budget - self.step();
        if !is_due(self.lent()) {
            return;
        }
        let changing = self.changing.lock();
        if is_due(self.lent()) {
            self.set(self.lendable(used), structures);
        }
        drop(changing);
    }

    /// Offers memory. Operations of `used` bytes wait now, fewer than before.
    pub(crate) fn offer(&self, used: impl Fn() -> u64, structures: &Structures) {
        let changing = self.changing.lock();
        let lendable = self.lendable(used());
        if lendable >= (self.lent() + self.step()).max(1) {
            self.set(lendable, structures);
            // Commits that came meanwhile saw the smaller loan.
            let now = self.lendable(used());
            if now < lendable {
                self.set(now, structures);
            }
        }
        drop(changing);
    }

    fn set(&self, bytes: u64, structures: &Structures) {
        self.lent.store(bytes, Ordering::Relaxed);
        structures.lend(bytes);
    }
}
