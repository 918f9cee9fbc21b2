//! Counters of an engine since opening, and the work of opening itself.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// The log that opening replayed.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Recovery {
    /// Records.
    pub records: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Groups.
    pub groups: u64,
    /// The reason why the log ended at its last record.
    pub tail: String,
    /// Time that opening took, in seconds.
    pub seconds: f64,
}

/// Counters of one engine.
pub(crate) struct EngineCounters {
    pub(crate) commits: AtomicU64,
    pub(crate) operations: AtomicU64,
    pub(crate) user_bytes: AtomicU64,
    /// Keys looked up in tables that are gone; the other tables count their own.
    pub(crate) lookups: AtomicU64,
    pub(crate) applies: AtomicU64,
    pub(crate) applied_operations: AtomicU64,
    pub(crate) apply_micros: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    last_checkpoint: Mutex<Instant>,
    pub(crate) recovery: Recovery,
}

impl EngineCounters {
    pub(crate) fn new(recovery: Recovery) -> Self {
        Self {
            commits: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            user_bytes: AtomicU64::new(0),
            lookups: AtomicU64::new(0),
            applies: AtomicU64::new(0),
            applied_operations: AtomicU64::new(0),
            apply_micros: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            last_checkpoint: Mutex::new(Instant::now()),
            recovery,
        }
    }

    pub(crate) fn committed(&self, operations: usize, bytes: usize) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations as u64, Ordering::Relaxed);
        self.user_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes of keys and values that were committed.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.user_bytes.load(Ordering::Relaxed)
    }

    /// Adds the lookups of a table that no longer counts its own.
    pub(crate) fn looked_up(&self, keys: u64) {
        self.lookups.fetch_add(keys, Ordering::Relaxed);
    }

    pub(crate) fn applied(&self, operations: usize, took: Duration) {
        self.applies.fetch_add(1, Ordering::Relaxed);
        self.applied_operations.fetch_add(operations as u64, Ordering::Relaxed);
        self.apply_micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn checkpointed(&self) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        *self.last_checkpoint.lock() = Instant::now();
    }

    /// Time since the newest checkpoint, or since opening.
    pub(crate) fn checkpoint_age(&self) -> Duration {
        self.last_checkpoint.lock().elapsed()
    }

    /// Commits so far.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}
