//! Memory that open transactions hold together.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bound on the memory that open transactions hold together.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    held: AtomicU64,
}

impl Budget {
    /// At most `limit` bytes.
    pub(crate) const fn new(limit: u64) -> Self {
        Self { limit, held: AtomicU64::new(0) }
    }

    /// Most bytes.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that are held.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Takes `bytes` more for a transaction. False, and no change, where the held bytes would exceed the limit. With
    /// `only` they are all that the transaction holds, and are always granted.
    pub(crate) fn take(&self, bytes: u64, only: bool) -> bool {
        let grown = |held: u64| Some(held + bytes).filter(|held| only || *held <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    /// Gives back `bytes` of a transaction.
    pub(crate) fn give(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}
