//! Memory that open transactions hold together.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bound on it.
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

    /// A transaction takes `bytes` more. False where that is too much; then it has not. What is its `only` one it gets in any case.
    pub(crate) fn take(&self, bytes: u64, only: bool) -> bool {
        let grown = |held: u64| Some(held + bytes).filter(|held| only || *held <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    /// A transaction holds `bytes` less.
    pub(crate) fn give(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}
