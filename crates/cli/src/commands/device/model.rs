//! The cost of an operation by leaf size: Roh et al., PVLDB 5(4), 2011, section 3.5, with the internal nodes in the cache.
//!
//! What is left of equation (7) then: a search reads one leaf, `P_r(L)`; an insert shares with the `G` others that one batch update takes to the same
//! leaf the read of its last page and the write of a page, `(P'_r + P'_w) / G`. `G` (equation 8) is the number of waiting operations over the number of
//! leaves, at least 1. Searches are taken as single ones, as in the paper; what they cost in batches is shown beside it.

use psync::probe::{DeviceProfile, PAGE_BYTES};
use serde::Serialize;

/// How full leaves are on average: half after a split, full before the next.
const FILL: f64 = 0.75;
/// Bytes that an entry has besides key and value, about.
const ENTRY_BYTES: f64 = 16.0;

/// The load that a leaf size is for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Load {
    pub(super) records: u64,
    pub(super) record_bytes: u64,
    /// From 0, all lookups, to 1, all puts.
    pub(super) insert_share: f64,
    pub(super) write_buffer_bytes: u64,
}

/// Microseconds per operation with leaves of `pages`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LeafCost {
    pub(super) pages: usize,
    /// A lookup alone.
    pub(super) search_us: f64,
    /// A lookup in a batch.
    pub(super) batched_search_us: f64,
    /// A put or delete, its share of the batch update that applies it.
    pub(super) insert_us: f64,
    /// An operation of the load.
    pub(super) microseconds: f64,
}

/// The cost for each leaf size that was measured.
pub(super) fn leaf_costs(profile: &DeviceProfile, load: &Load) -> Vec<LeafCost> {
    let entry = load.record_bytes as f64 + ENTRY_BYTES;
    let waiting = load.write_buffer_bytes as f64 / entry;
    let cost = |read: &psync::probe::ReadCost| {
        let per_leaf = (read.pages * PAGE_BYTES) as f64 * FILL / entry;
        let leaves = (load.records as f64 / per_leaf).max(1.0);
        let shared = (waiting / leaves).max(1.0);
        let insert_us = (profile.batched_read_us + profile.batched_write_us) / shared;
        LeafCost {
            pages: read.pages,
            search_us: read.alone_us,
            batched_search_us: read.batched_us,
            insert_us,
            microseconds: (1.0 - load.insert_share) * read.alone_us + load.insert_share * insert_us,
        }
    };
    profile.reads.iter().map(cost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(insert_share: f64) -> usize {
        let load = Load { records: 20_000_000, record_bytes: 116, insert_share, write_buffer_bytes: 64 << 20 };
        let costs = leaf_costs(&DeviceProfile::default(), &load);
        costs.iter().min_by(|left, right| left.microseconds.total_cmp(&right.microseconds)).expect("some sizes").pages
    }

    #[test]
    fn lookups_want_small_leaves_and_puts_large_ones() {
        assert_eq!(best(0.0), 1);
        assert_eq!(best(1.0), 16);
        assert!((best(0.0)..=best(1.0)).contains(&best(0.5)));
    }

    #[test]
    fn a_small_table_shares_no_more_than_it_has() {
        let load = Load { records: 1, record_bytes: 0, insert_share: 1.0, write_buffer_bytes: 0 };
        for cost in leaf_costs(&DeviceProfile::default(), &load) {
            assert!(cost.insert_us.is_finite() && cost.insert_us > 0.0);
        }
    }
}
