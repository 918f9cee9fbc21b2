//! How long new documents of a table wait, so that their writers settle at the speed of cleaning.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A delay below this is left to add up with later ones, and none is longer than the second, or, of a commit that owes more by itself, than the third.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
const LONGEST_OWN_SLEEP: Duration = Duration::from_secs(1);

/// How long new documents of a table wait.
#[derive(Default)]
pub(crate) struct Pace {
    ns_per_mib: AtomicU64,
    /// Nanoseconds that were too few to sleep for.
    owed_ns: AtomicU64,
}

impl Pace {
    /// Has a MiB of documents wait so long.
    pub(crate) fn set(&self, ns_per_mib: u64) {
        self.ns_per_mib.store(ns_per_mib, Ordering::Relaxed);
        if ns_per_mib == 0 {
            self.owed_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Delays a commit with documents of so many bytes.
    pub(crate) fn wait(&self, bytes: u64) {
        let ns_per_mib = self.ns_per_mib.load(Ordering::Relaxed);
        if ns_per_mib == 0 {
            return;
        }
        let own = u64::try_from((u128::from(bytes) * u128::from(ns_per_mib)) >> 20).unwrap_or(u64::MAX);
        let owed = self.owed_ns.fetch_add(own, Ordering::Relaxed).saturating_add(own);
        if Duration::from_nanos(owed) < SHORTEST_SLEEP {
            return;
        }
        // Who comes meanwhile owes what is left.
        let most = Duration::from_nanos(own).clamp(LONGEST_SLEEP, LONGEST_OWN_SLEEP);
        let mut paid = Duration::ZERO;
        let pay = |owed: u64| {
            paid = Duration::from_nanos(owed).min(most);
            Some(owed.saturating_sub(u64::try_from(paid.as_nanos()).unwrap_or(owed)))
        };
        if self.owed_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok() {
            std::thread::sleep(paid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const SHORT_NS: u64 = 10_000_000;
    const LONG_NS: u64 = 20 * SHORT_NS;

    #[test]
    fn who_writes_much_waits_and_little_adds_up() {
        let pace = Pace::default();
        pace.set(SHORT_NS);
        let begun = Instant::now();
        // 256 of 4 KiB are a MiB.
        (0..256).for_each(|_| pace.wait(4096));
        assert!(begun.elapsed() >= Duration::from_nanos(SHORT_NS) - SHORTEST_SLEEP);
        // One that is long waits for itself, and what it does not wait for the next ones do.
        pace.set(LONG_NS);
        let begun = Instant::now();
        pace.wait(1 << 20);
        assert!(begun.elapsed() >= Duration::from_nanos(LONG_NS));
        pace.wait(6 << 20);
        let begun = Instant::now();
        pace.wait(1);
        assert!(begun.elapsed() >= LONGEST_SLEEP);
        pace.set(0);
        assert_eq!(pace.owed_ns.load(Ordering::Relaxed), 0);
    }
}
