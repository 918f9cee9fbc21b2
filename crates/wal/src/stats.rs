//! Counts of the log since its opening.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counts of the log since its opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records appended.
    pub records: u64,
    /// Payload bytes appended.
    pub record_bytes: u64,
    /// Records of threads that had the end of the log for themselves; part of `records`.
    pub direct_records: u64,
    /// Records that took their space together with others, in a slot; part of `records`.
    pub consolidated_records: u64,
    /// Slots that were closed; `consolidated_records` divided by this is the records per slot.
    pub slots: u64,
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
    /// Times that a call had the sync lock.
    pub sync_lock_acquisitions: u64,
    /// Nanoseconds that these calls waited for the sync lock, in sum.
    pub sync_lock_wait_ns: u64,
    /// Nanoseconds that flushes took, in sum, of calls that flushed themselves.
    pub flush_ns: u64,
    /// Nanoseconds that calls waited for another's flush, without the lock, in sum.
    pub flush_wait_ns: u64,
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
    pub(crate) direct_records: AtomicU64,
    pub(crate) consolidated_records: AtomicU64,
    pub(crate) slots: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) group_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flush_requests: AtomicU64,
    pub(crate) flush_requests_max: AtomicU64,
    pub(crate) sync_lock_acquisitions: AtomicU64,
    pub(crate) sync_lock_wait_ns: AtomicU64,
    pub(crate) flush_ns: AtomicU64,
    pub(crate) flush_wait_ns: AtomicU64,
    pub(crate) segments_created: AtomicU64,
    pub(crate) segments_recycled: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Adds the time since `begun`.
pub(crate) fn add_time(counter: &AtomicU64, begun: Instant) {
    add(counter, u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            records: of(&self.records),
            record_bytes: of(&self.record_bytes),
            direct_records: of(&self.direct_records),
            consolidated_records: of(&self.consolidated_records),
            slots: of(&self.slots),
            groups: of(&self.groups),
            group_bytes: of(&self.group_bytes),
            flushes: of(&self.flushes),
            flush_requests: of(&self.flush_requests),
            flush_requests_max: of(&self.flush_requests_max),
            sync_lock_acquisitions: of(&self.sync_lock_acquisitions),
            sync_lock_wait_ns: of(&self.sync_lock_wait_ns),
            flush_ns: of(&self.flush_ns),
            flush_wait_ns: of(&self.flush_wait_ns),
            segments_created: of(&self.segments_created),
            segments_recycled: of(&self.segments_recycled),
            segments_live: 0,
            segments_spare: 0,
        }
    }
}
