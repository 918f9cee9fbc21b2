//! A cache as one of several that share a sum of memory.

use std::hash::Hash;

use crate::{Beside, Cache, Stats};

/// A cache, whatever it holds.
pub trait Part: Send + Sync {
    /// As [`Cache::stats`].
    fn stats(&self) -> Stats;

    /// As [`Cache::set_capacity`].
    fn set_capacity(&self, bytes: u64);

    /// As [`Cache::lend`].
    fn lend(&self, bytes: u64);

    /// As [`Cache::clear`].
    fn clear(&self);
}

impl<K, V, F> Part for Cache<K, V, F>
where
    K: Eq + Hash + Clone + Send + Sync,
    V: Clone + Send + Sync,
    F: Beside<K> + Send + Sync,
{
    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn set_capacity(&self, bytes: u64) {
        Self::set_capacity(self, bytes);
    }

    fn lend(&self, bytes: u64) {
        Self::lend(self, bytes);
    }

    fn clear(&self) {
        Self::clear(self);
    }
}
