//! What the trees of a database count.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)* }

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
    node_reads,
    /// Psyncs that these took: one for each level that many keys pass on their way down.
    node_psyncs,
    /// Leaves read whole from storage.
    leaf_reads,
    /// Bytes of these reads.
    leaf_read_bytes,
    /// Last pages of leaves read from storage, to append to them.
    tail_reads,
    /// Internal nodes found in the cache.
    node_hits,
    /// Leaves found in the cache.
    leaf_hits,
    /// Last pages of leaves found in the cache.
    tail_hits,
    /// Runs appended to leaves.
    runs_appended,
    /// Pages of leaves written, appends and rewrites.
    leaf_pages_written,
    /// Internal nodes written.
    nodes_written,
    /// Leaves rewritten as one.
    leaves_shrunk,
    /// Leaves rewritten as several.
    leaves_split,
    /// Leaves that became one with a neighbour.
    leaves_merged,
    /// Leaves, nearly empty, that shared with a neighbour what both had.
    leaves_redistributed,
    /// Leaves that had nothing left in them.
    leaves_removed,
}

/// Adds to a counter. Nothing is ordered by counters.
pub(crate) fn count(counter: &AtomicU64, by: usize) {
    if by > 0 {
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }
}
