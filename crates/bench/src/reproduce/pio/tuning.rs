//! Each tree tuned by its own paper's method.

use btree::cost::{Memory, Workload, choose};
use psync::probe::DeviceProfile;

use crate::Result;
use crate::reproduce::stock::Contestant;
use crate::trees::pio::QUEUE_BYTES_MIN;
use crate::trees::{Shape, bftl, bplus, fdtree, pio};

/// The B+-tree where only searches are asked for: the node size with the most utility per cost (3).
pub(super) fn b_plus(profile: &DeviceProfile, shape: Shape) -> Contestant {
    Contestant::BPlus { node_bytes: bplus::node_bytes_by_utility(profile, shape) }
}

/// The B+-tree for a share of inserts: the node size that costs least (6).
pub(super) fn b_plus_for(
    profile: &DeviceProfile, shape: Shape, entries: u64, memory_bytes: u64, inserts: f64,
) -> Contestant {
    Contestant::BPlus { node_bytes: bplus::node_bytes_by_cost(profile, shape, entries, memory_bytes, inserts) }
}

/// The FD-tree: level ratio and head by its cost model.
pub(super) fn fd(
    profile: &DeviceProfile, shape: Shape, entries: u64, memory_bytes: u64, inserts: f64,
) -> Result<Contestant> {
    Ok(Contestant::Fd(fdtree::tune(profile, shape, entries, memory_bytes, inserts)?))
}

/// The PIO B-tree: leaf and queue that cost least (10). Searches alone need no queue: it gets the least that Braid works with.
pub(super) fn pio(profile: &DeviceProfile, shape: Shape, entries: u64, memory_bytes: u64, inserts: f64) -> Contestant {
    let memory = if inserts > 0.0 {
        Memory::Total { bytes: memory_bytes }
    } else {
        let write_buffer_bytes = QUEUE_BYTES_MIN;
        Memory::Divided { cache_bytes: memory_bytes.saturating_sub(write_buffer_bytes), write_buffer_bytes }
    };
    let workload = Workload {
        records: entries,
        record_bytes: shape.entry_bytes() as u64,
        insert_share: inserts,
        batched_share: 0.0,
        memory,
    };
    let choice = choose(profile, &workload);
    let queue_bytes = choice.write_buffer_bytes.max(QUEUE_BYTES_MIN);
    Contestant::Pio(pio::Tuning { leaf_pages: choice.leaf_pages, queue_bytes })
}

/// Every tree of figure 12.
pub(super) fn all(
    profile: &DeviceProfile, shape: Shape, entries: u64, memory_bytes: u64, inserts: f64,
) -> Result<Vec<Contestant>> {
    Ok(vec![
        Contestant::Bftl(bftl::tune(profile, shape, entries, memory_bytes, inserts)?),
        b_plus_for(profile, shape, entries, memory_bytes, inserts),
        fd(profile, shape, entries, memory_bytes, inserts)?,
        pio(profile, shape, entries, memory_bytes, inserts),
    ])
}

/// What trees are tuned by, in a note.
pub(super) fn note(trees: &[Contestant]) -> String {
    let each: Vec<String> = trees.iter().map(|tree| format!("{} with {}", tree.name(), tree.tuning())).collect();
    each.join("; ")
}
