//! Counts of lookups and changes of a table since it was opened: the cost model derives the use of the table from them.

use std::sync::atomic::{AtomicU64, Ordering};

use tally::Tally;

/// A call with at least so many keys counts as a batch, because the device then has several requests at a time.
const BATCH_KEYS: usize = 8;

/// With fewer operations their shares say nothing.
const OPERATIONS_MIN: u64 = 10_000;

/// Indexes of the counts of lookups.
const ALONE: usize = 0;
const BATCHED: usize = 1;

/// Counts of one table.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    lookups: Tally<2>,
    changes: AtomicU64,
}

/// Shares of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shares {
    /// Puts and deletes among all operations.
    pub(crate) insert: f64,
    /// Lookups in batches among lookups.
    pub(crate) batched: f64,
}

impl Traffic {
    /// Counts the lookups of one call with `keys` keys.
    pub(crate) fn looked_up(&self, keys: usize) {
        self.lookups.add(if keys >= BATCH_KEYS { BATCHED } else { ALONE }, keys as u64);
    }

    /// Counts committed puts and deletes.
    pub(crate) fn changed(&self, operations: u64) {
        self.changes.fetch_add(operations, Ordering::Relaxed);
    }

    /// Keys looked up.
    pub(crate) fn lookups(&self) -> u64 {
        self.lookups.sum(ALONE) + self.lookups.sum(BATCHED)
    }

    /// The use of the table; none if there were too few operations.
    pub(crate) fn shares(&self) -> Option<Shares> {
        let (batched, changes) = (self.lookups.sum(BATCHED), self.changes.load(Ordering::Relaxed));
        let lookups = self.lookups.sum(ALONE) + batched;
        let all = lookups + changes;
        if all < OPERATIONS_MIN {
            return None;
        }
        Some(Shares { insert: changes as f64 / all as f64, batched: batched as f64 / lookups.max(1) as f64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_was_counted() {
        let traffic = Traffic::default();
        traffic.changed(OPERATIONS_MIN - 1);
        assert_eq!(traffic.shares(), None);
        traffic.looked_up(1);
        assert_eq!(traffic.shares(), Some(Shares { insert: 0.9999, batched: 0.0 }));
        for _ in 0..OPERATIONS_MIN / 100 - 1 {
            traffic.looked_up(100);
        }
        traffic.looked_up(99);
        assert_eq!(traffic.lookups(), OPERATIONS_MIN);
        let shares = traffic.shares().expect("enough");
        assert!((shares.insert - 0.5).abs() < 0.001 && (shares.batched - 0.9999).abs() < 0.001, "{shares:?}");
    }
}
