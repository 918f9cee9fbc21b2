//! The inserted records that can be requested.
//!
//! 1. A client takes the next record, inserts the record, and acknowledges the record when the insert has returned.
//! 2. Records are acknowledged in any order; the count advances over all records without a gap before them.
//!
//! Invariant: every record below the count has been acknowledged.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{Error, Result};

/// Most records that are acknowledged before an earlier one.
const AHEAD_MAX: usize = 1 << 20;

/// Counts the records that many clients insert.
#[derive(Debug)]
pub struct Acknowledged {
    next: AtomicU64,
    count: AtomicU64,
    ahead: Mutex<BTreeSet<u64>>,
}

impl Acknowledged {
    /// A count that begins with `records` present records.
    #[must_use]
    pub const fn new(records: u64) -> Self {
        Self { next: AtomicU64::new(records), count: AtomicU64::new(records), ahead: Mutex::new(BTreeSet::new()) }
    }

    /// The record to insert next.
    pub fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Acknowledges that `record`, which was taken, has been inserted.
    ///
    /// # Errors
    /// When an earlier insert does not return while very many later ones do.
    pub fn acknowledge(&self, record: u64) -> Result<()> {
        let mut ahead = self.ahead.lock();
        let mut count = self.count.load(Ordering::Relaxed);
        if record != count {
            ahead.insert(record);
            if ahead.len() <= AHEAD_MAX {
                return Ok(());
            }
            let what = format!("the insert of record {count} has not returned while {AHEAD_MAX} later ones did");
            return Err(Error::Invalid(what));
        }
        count += 1;
        while ahead.remove(&count) {
            count += 1;
        }
        self.count.store(count, Ordering::Release);
        Ok(())
    }

    /// Number of records without a gap: all records below this one are present.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn a_record_counts_once_all_before_it_are_there() {
        let records = Acknowledged::new(10);
        let taken = [(); 4].map(|()| records.take());
        assert_eq!(taken, [10, 11, 12, 13]);
        for (record, count) in [(12, 10), (11, 10), (10, 13), (13, 14)] {
            records.acknowledge(record).expect("few are ahead");
            assert_eq!(records.count(), count, "after {record}");
        }
        assert!(records.ahead.lock().is_empty());
    }

    #[test]
    fn no_count_covers_a_record_that_is_not_there() {
        const RECORDS: usize = 4000;
        let there: Vec<_> = (0..RECORDS).map(|_| AtomicBool::new(false)).collect();
        let records = Acknowledged::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(here) = usize::try_from(records.take()).ok().filter(|record| *record < RECORDS) {
                        there[here].store(true, Ordering::Release);
                        records.acknowledge(here as u64).expect("few are ahead");
                        let count = usize::try_from(records.count()).expect("small");
                        assert!(there[..count].iter().all(|there| there.load(Ordering::Acquire)));
                    }
                });
            }
        });
        assert_eq!(records.count(), RECORDS as u64);
    }

    #[test]
    fn an_insert_that_never_returns_is_an_error() {
        let records = Acknowledged::new(0);
        for record in 1..=AHEAD_MAX as u64 {
            records.acknowledge(record).expect("up to the bound");
        }
        let error = records.acknowledge(AHEAD_MAX as u64 + 1).expect_err("one more");
        assert!(error.to_string().contains("record 0"), "{error}");
    }
}
