//! The delay of new documents of a table, so that their writers settle at the speed of cleaning.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A delay below the first constant adds up with later ones. No delay is longer than the second, or, if the commit owes
/// more for its own documents, than the third.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
const LONGEST_OWN_SLEEP: Duration = Duration::from_secs(1);

/// The delay of new documents of a table.
#[derive(Default)]
pub(crate) struct Pace {
    ns_per_mib: AtomicU64,
    /// Nanoseconds that were too few to sleep for.
    owed_ns: AtomicU64,
}

impl Pace {
    /// Sets the delay of a MiB of documents.
    pub(crate) fn set(&self, ns_per_mib: u64) {
        self.ns_per_mib.store(ns_per_mib, Ordering::Relaxed);
        if ns_per_mib == 0 {
            self.owed_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Delays a commit with so many bytes of documents. Returns for how long.
    pub(crate) fn wait(&self, bytes: u64) -> Duration {
        let ns_per_mib = self.ns_per_mib.load(Ordering::Relaxed);
        if ns_per_mib == 0 {
            return Duration::ZERO;
        }
        let own = u64::try_from((u128::from(bytes) * u128::from(ns_per_mib)) >> 20).unwrap_or(u64::MAX);
        let owed = self.owed_ns.fetch_add(own, Ordering::Relaxed).saturating_add(own);
        if Duration::from_nanos(owed) < SHORTEST_SLEEP {
            return Duration::ZERO;
        }
        // The next commits owe the rest.
        let most = Duration::from_nanos(own).clamp(LONGEST_SLEEP, LONGEST_OWN_SLEEP);
        let mut paid = Duration::ZERO;
        let pay = |owed: u64| {
            paid = Duration::from_nanos(owed).min(most);
            Some(owed.saturating_sub(u64::try_from(paid.as_nanos()).unwrap_or(owed)))
        };
        if self.owed_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok() {
            std::thread::sleep(paid);
        }
        paid
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
        // 256 commits of 4 KiB are a MiB.
        let sum: Duration = (0..256).map(|_| pace.wait(4096)).sum();
        assert!(begun.elapsed() >= Duration::from_nanos(SHORT_NS) - SHORTEST_SLEEP);
        assert!(sum >= Duration::from_nanos(SHORT_NS) - SHORTEST_SLEEP, "{sum:?}");
        // A commit with a long delay waits for its own documents; the next commits wait for the rest.
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
