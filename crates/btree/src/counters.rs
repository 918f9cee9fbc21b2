//! The counters of the trees of a database.

use std::sync::atomic::{AtomicU64, Ordering};

use tally::Tally;

/// A counter of events that happen in every search.
#[derive(Debug, Default)]
pub(crate) struct Often(Tally<1>);

impl Often {
    #[inline]
    pub(crate) fn add(&self, by: u64) {
        self.0.add(0, by);
    }

    fn load(&self, _: Ordering) -> u64 {
        self.0.sum(0)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: $kind,)* }

        /// Counters of all trees of a database, since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CountersSnapshot { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> CountersSnapshot {
                CountersSnapshot { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Internal nodes read from storage.
    node_reads: AtomicU64,
    /// Psyncs that these took: one for each level that many keys pass on their way down.
    node_psyncs: AtomicU64,
    /// Leaves read whole from storage.
    leaf_reads: AtomicU64,
    /// Bytes of these reads.
    leaf_read_bytes: AtomicU64,
    /// Last pages of leaves read from storage, to append to them.
    tail_reads: AtomicU64,
    /// Internal nodes found in the cache.
    node_hits: Often,
    /// Leaves found in the cache.
    leaf_hits: Often,
    /// Last pages of leaves found in the cache.
    tail_hits: AtomicU64,
    /// Runs appended to leaves.
    runs_appended: AtomicU64,
    /// Pages of leaves written, appends and rewrites.
    leaf_pages_written: AtomicU64,
    /// Internal nodes written.
    nodes_written: AtomicU64,
    /// Leaves rewritten as one.
    leaves_shrunk: AtomicU64,
    /// Leaves rewritten as several.
    leaves_split: AtomicU64,
    /// Leaves that became one with a neighbour.
    leaves_merged: AtomicU64,
    /// Nearly empty leaves that shared their entries with a neighbour.
    leaves_redistributed: AtomicU64,
    /// Leaves that had nothing left in them.
    leaves_removed: AtomicU64,
}

/// Adds to a counter. Nothing is ordered by counters.
pub(crate) fn count(counter: &AtomicU64, by: usize) {
    if by > 0 {
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }
}
