//! The bytes that a log takes, and its counts.

use crate::stats::Stats;
use crate::{Lsn, Wal};
use sync::Ordering;

impl Wal {
    /// Bytes of log that a recovery would replay.
    #[must_use]
    pub fn bytes_to_replay(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| self.end().0.saturating_sub(log.start.load(Ordering::Acquire)))
    }

    /// Bytes of log from the beginning of the oldest segment that a recovery would read to the end.
    #[must_use]
    pub fn bytes_retained(&self) -> u64 {
        let Some(log) = &self.log else { return 0 };
        let needed = self.geometry.number(Lsn(log.start.load(Ordering::Acquire)));
        self.bytes_from(log.pool.first_live().map(|first| first.max(needed)))
    }

    /// Bytes of log from the beginning of the oldest segment that is kept to the end.
    #[must_use]
    pub fn bytes_kept(&self) -> u64 {
        self.bytes_from(self.log.as_ref().and_then(|log| log.pool.first_live()))
    }

    fn bytes_from(&self, first: Option<u64>) -> u64 {
        first.map_or(0, |first| self.end().0.saturating_sub(self.geometry.base(first).0))
    }

    /// Counts of the log since its opening.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Some(log) = &self.log else {
            return Stats::default();
        };
        let (segments_live, segments_spare) = log.pool.counts();
        Stats { segments_live, segments_spare, ..log.counters.snapshot() }
    }
}
