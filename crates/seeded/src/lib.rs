//! Known bugs, put in on purpose, that the crash tests and the models of threads must find.
//!
//! 1. Code that a known mistake would break asks `on(Bug::…)` at the one place where the mistake would be made.
//! 2. Without the feature `bugs` the answer is the constant `false`, and the compiler removes the branch.
//! 3. With it, a test switches one bug on for the whole process, runs its seeds and expects a failure.

#[cfg(feature = "bugs")]
use std::sync::atomic::{AtomicU8, Ordering};

/// A mistake that a storage engine of this shape can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A leaf run is believed without looking at its checksum.
    RunChecksumSkipped = 1,
    /// Flush-end enters the log before the pages of its batch are on stable storage.
    FlushEndBeforeData = 2,
    /// A flush is reported complete although a lower part of the log is not written.
    FlushOverHole = 3,
    /// An append to a leaf starts from a cached page that misses the leaf's newest run.
    StaleCachedTail = 4,
    /// What is stored of a leaf or node in a reused extent has the incarnation of what lived there before.
    IncarnationReused = 5,
    /// The leader of a slot of the log wakes one of the members that wait for it, not all.
    SlotWakeDropped = 6,
    /// A commit is told that it is durable before the flush.
    CompletedBeforeFlush = 7,
    /// A commit is made visible although one before it is not there yet.
    PublishedOutOfOrder = 8,
    /// Who gives the sync lock back calls nobody of those who wait for it.
    CallDropped = 9,
    /// A transaction commits although somebody else committed what it wrote or read.
    ConflictMissed = 10,
    /// A serializable transaction commits although a range that it read has changed.
    PhantomMissed = 11,
    /// A range tombstone is taken for swept although older operations wait in the queues.
    TombstoneCleared = 12,
    /// What refers to documents that were moved is logged before they are on stable storage.
    MovedUnflushed = 13,
    /// A value that has expired goes although a snapshot of an earlier time sees it.
    ExpiredForAll = 14,
    /// What a retained state that is given up refers to goes before a checkpoint is durable that does not know it.
    UnpinnedBeforeCheckpoint = 15,
    /// What a record changes is announced only when the record may have been written, by others too.
    AnnouncedLate = 16,
    /// Those that a flush served are woken before what they commit is published.
    WokenBeforePublished = 17,
    /// The filter of a leaf misses a key that is in it.
    FilterMissesKey = 18,
    /// Leaves that were packed at the end at which a tree grows are published, and in the log, before they are on stable storage.
    PackedUnflushed = 19,
    /// The mark of a clean close stays where the database is opened for writing, and is believed whatever stands behind it.
    CleanMarkKept = 20,
    /// A gap that a walk has noted stays bare although the structure gets something newer under its keys.
    GapKept = 21,
    /// A key goes into a full node of a queue's tree before the one that it belongs behind.
    QueueOutOfOrder = 22,
    /// A segment that the log is in is flushed when it is made longer, and whether that failed is forgotten.
    GrownFlushForgotten = 23,
    /// The end of the data file is given back before an image is durable that does not count with it.
    TailCutEarly = 24,
    /// Segments of the log are given back before a checkpoint is durable that needs none of them.
    SegmentsGivenBackEarly = 25,
}

impl Bug {
    /// Every bug that simulated crashes find.
    pub const ALL: [Self; 13] = [
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
    ];

    /// Every bug that walks over a table find in which many keys are deleted.
    pub const OF_WALKS: [Self; 2] = [Self::GapKept, Self::QueueOutOfOrder];

    /// Every bug that simulated crashes find while a table is filled in order.
    pub const OF_FILLS: [Self; 1] = [Self::PackedUnflushed];

    /// Every bug that simulated crashes of a log alone find, by faults that they ask for more often.
    pub const OF_LOGS: [Self; 2] = [Self::FlushOverHole, Self::GrownFlushForgotten];

    /// Every bug that models of threads find: it takes several of them.
    pub const OF_THREADS: [Self; 6] = [
        Self::SlotWakeDropped,
        Self::CompletedBeforeFlush,
        Self::PublishedOutOfOrder,
        Self::CallDropped,
        Self::AnnouncedLate,
        Self::WokenBeforePublished,
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
