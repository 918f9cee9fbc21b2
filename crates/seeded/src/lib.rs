//! Known bugs, put in on purpose, that the crash tests and the models of threads must find.
//!
//! 1. Code that a known mistake would break asks `on(Bug::…)` at the one place where the mistake would be made.
//! 2. Without the feature `bugs` the answer is the constant `false`, and the compiler removes the branch.
//! 3. With the feature, a test switches one bug on for the whole process, runs its seeds and expects a failure.

#[cfg(feature = "bugs")]
use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that a storage engine of this shape can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A leaf run is believed without a check of its checksum.
    RunChecksumSkipped = 1,
    /// Flush-end enters the log before the pages of its batch are on stable storage.
    FlushEndBeforeData = 2,
    /// A flush is reported complete although a lower part of the log is not written.
    FlushOverHole = 3,
    /// An append to a leaf starts from a cached page that misses the leaf's newest run.
    StaleCachedTail = 4,
    /// A leaf or node stored in a reused extent has the incarnation of the former owner of the extent.
    IncarnationReused = 5,
    /// The leader of a slot of the log wakes one of its waiting members, not all.
    SlotWakeDropped = 6,
    /// A commit is reported durable before the flush.
    CompletedBeforeFlush = 7,
    /// A commit is made visible although an earlier one is not complete yet.
    PublishedOutOfOrder = 8,
    /// The holder that gives the sync lock back calls none of its waiters.
    CallDropped = 9,
    /// A transaction commits although another commit has changed a key that the transaction wrote or read.
    ConflictMissed = 10,
    /// A serializable transaction commits although a range that it read has changed.
    PhantomMissed = 11,
    /// A range tombstone is taken for swept although older operations wait in the queues.
    TombstoneCleared = 12,
    /// References to relocated documents are logged before the documents are on stable storage.
    MovedUnflushed = 13,
    /// An expired value is dropped although a snapshot of an earlier time sees that value.
    ExpiredForAll = 14,
    /// Data of an abandoned retained state is released before a checkpoint without that state is durable.
    UnpinnedBeforeCheckpoint = 15,
    /// The changes of a record are announced only when the record may have been written already, by others too.
    AnnouncedLate = 16,
    /// Committers served by a flush are woken before their commits are published.
    WokenBeforePublished = 17,
    /// The filter of a leaf misses a key of that leaf.
    FilterMissesKey = 18,
    /// Leaves packed at the growing end of a tree are published, and in the log, before they are on stable storage.
    PackedUnflushed = 19,
    /// The mark of a clean close stays when the database is opened for writing, and is believed whatever stands behind
    /// the mark.
    CleanMarkKept = 20,
    /// A gap noted by a walk stays bare although the structure gets a newer version under its keys.
    GapKept = 21,
    /// A key goes into a full node of a queue's tree before the key that should precede it.
    QueueOutOfOrder = 22,
    /// The flush of a log segment that is made longer fails, and this failure is forgotten.
    GrownFlushForgotten = 23,
    /// The end of the data file is released before an image that does without it is durable.
    TailCutEarly = 24,
    /// Segments of the log are released before a checkpoint that needs none of them is durable.
    SegmentsGivenBackEarly = 25,
    /// A waker is left for a commit that has become visible meanwhile.
    WakerLeftLate = 26,
    /// A record of the log is shown although its last part is missing.
    PartsTakenForWhole = 27,
    /// A file of an LSM tree is released as soon as the newest version does without it.
    FileReleasedEarly = 28,
    /// The redo that brings a file of an LSM tree is logged before the file is on stable storage.
    FileUnflushed = 29,
    /// The filter of a partition is made of other keys.
    FilterOfOtherKeys = 30,
    /// A file of level 0 moves down past an older one that overlaps it.
    MovedOverOverlap = 31,
}

impl Bug {
    /// Every bug that simulated crashes find.
    pub const ALL: [Self; 17] = [
        Self::RunChecksumSkipped,
        Self::FlushEndBeforeData,
        Self::FlushOverHole,
        Self::StaleCachedTail,
        Self::IncarnationReused,
        Self::TombstoneCleared,
        Self::MovedUnflushed,
        Self::ExpiredForAll,
        Self::UnpinnedBeforeCheckpoint,
        Self::FilterMissesKey,
        Self::CleanMarkKept,
        Self::TailCutEarly,
        Self::SegmentsGivenBackEarly,
        Self::FileReleasedEarly,
        Self::FileUnflushed,
        Self::FilterOfOtherKeys,
        Self::MovedOverOverlap,
    ];

    /// Every bug that walks find over a table in which many keys are deleted.
    pub const OF_WALKS: [Self; 2] = [Self::GapKept, Self::QueueOutOfOrder];

    /// Every bug that simulated crashes find while a table is filled in order.
    pub const OF_FILLS: [Self; 1] = [Self::PackedUnflushed];

    /// Every bug that simulated crashes of a log alone find, with faults injected more often.
    pub const OF_LOGS: [Self; 3] = [Self::FlushOverHole, Self::GrownFlushForgotten, Self::PartsTakenForWhole];

    /// Every bug that models of threads find, because the bug takes several threads.
    pub const OF_THREADS: [Self; 7] = [
        Self::SlotWakeDropped,
        Self::CompletedBeforeFlush,
        Self::PublishedOutOfOrder,
        Self::CallDropped,
        Self::AnnouncedLate,
        Self::WokenBeforePublished,
        Self::WakerLeftLate,
    ];

    /// Every bug that histories of transactions show.
    pub const OF_ISOLATION: [Self; 2] = [Self::ConflictMissed, Self::PhantomMissed];
}

#[cfg(feature = "bugs")]
static ACTIVE: AtomicU8 = AtomicU8::new(0);

/// Switches one bug on for the whole process, or all off.
#[cfg(feature = "bugs")]
pub fn set(bug: Option<Bug>) {
    ACTIVE.store(bug.map_or(0, |bug| bug as u8), Ordering::SeqCst);
}

/// Whether `bug` is switched on.
#[cfg(feature = "bugs")]
pub fn on(bug: Bug) -> bool {
    ACTIVE.load(Ordering::Relaxed) == bug as u8
}

/// Whether `bug` is switched on: never, without the feature `bugs`.
#[cfg(not(feature = "bugs"))]
#[inline(always)]
pub const fn on(_bug: Bug) -> bool {
    false
}
