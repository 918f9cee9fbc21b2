//! Where the time of a compaction went.

use std::time::{Duration, Instant};

/// Where the time of a compaction went, divided as in figure 2 of the paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionTimes {
    /// Finding documents through the structure.
    pub search: Duration,
    /// Sorting documents by place.
    pub sort: Duration,
    /// Reading and checking documents, as far as the compaction waited for that.
    pub read: Duration,
    /// Writing documents, and the structure that refers to them.
    pub write: Duration,
    /// Flushing log, documents and structure, and logging the result.
    pub flush: Duration,
    /// Packing the structure in key order.
    pub pack: Duration,
    /// Everything else: applying operations that waited before, checkpoints, turns of others.
    pub other: Duration,
}

/// Measures one part after the other.
pub(crate) struct Watch(Instant);

impl Watch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Adds the time since the last part to `part`.
    pub(crate) fn lap(&mut self, part: &mut Duration) {
        let now = Instant::now();
        *part += now.saturating_duration_since(self.0);
        self.0 = now;
    }
}
