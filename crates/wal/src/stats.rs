//! Counts of what the log did since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the log did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records appended.
    pub records: u64,
    /// Payload bytes appended.
    pub record_bytes: u64,
    /// Groups written, pads and the opening included.
    pub groups: u64,
    /// Bytes of groups written.
    pub group_bytes: u64,
    /// Flushes of the log.
    pub flushes: u64,
    /// Calls that these flushes served; divided by `flushes`, the waiters per flush.
    pub flush_requests: u64,
    /// Most calls that one flush served.
    pub flush_requests_max: u64,
    /// Segment files made.
    pub segments_created: u64,
    /// Segment files used again.
    pub segments_recycled: u64,
    /// Segments that hold the log now.
    pub segments_live: u64,
    /// Segments ready for use, the reserve included.
    pub segments_spare: u64,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records: AtomicU64,
    pub(crate) record_bytes: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) group_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flush_requests: AtomicU64,
    pub(crate) flush_requests_max: AtomicU64,
    pub(crate) segments_created: AtomicU64,
    pub(crate) segments_recycled: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            records: of(&self.records),
            record_bytes: of(&self.record_bytes),
            groups: of(&self.groups),
            group_bytes: of(&self.group_bytes),
            flushes: of(&self.flushes),
            flush_requests: of(&self.flush_requests),
            flush_requests_max: of(&self.flush_requests_max),
            segments_created: of(&self.segments_created),
            segments_recycled: of(&self.segments_recycled),
            segments_live: 0,
            segments_spare: 0,
        }
    }
}
