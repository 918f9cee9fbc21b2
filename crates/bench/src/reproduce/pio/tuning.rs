//! Each tree tuned by its own paper's method.

use btree::cost::{Memory, Workload, choose};
use psync::probe::DeviceProfile;

use crate::Result;
use crate::reproduce::stock::Contestant;
use crate::trees::pio::{CACHE_BYTES_MIN, QUEUE_BYTES_MIN};
use crate::trees::{Shape, bftl, bplus, fdtree, pio};

/// The B+-tree for searches only: the node size with the most utility per cost (3).
pub(super) fn b_plus(profile: &DeviceProfile, shape: Shape) -> Contestant {
    Contestant::BPlus { node_bytes: bplus::node_bytes_by_utility(profile, shape) }
}

/// The B+-tree for a share of inserts: the node size with the least cost (6).
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

/// The PIO B-tree: the leaf and queue with the least cost (10).
pub(super) fn pio(profile: &DeviceProfile, shape: Shape, entries: u64, memory_bytes: u64, inserts: f64) -> Contestant {
    pio_for(profile, shape, entries, memory_bytes, inserts, 0.0)
}

/// The PIO B-tree where a share of the searches comes in batches. Searches alone need no queue, so the queue then has
/// the least size that Braid works with.
pub(super) fn pio_for(
    profile: &DeviceProfile, shape: Shape, entries: u64, memory_bytes: u64, inserts: f64, batched: f64,
) -> Contestant {
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
        batched_share: batched,
        memory,
    };
    let choice = choose(profile, &workload);
    let most = memory_bytes.saturating_sub(CACHE_BYTES_MIN);
    let queue_bytes = choice.write_buffer_bytes.min(most).max(QUEUE_BYTES_MIN);
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

/// The device's terms that the cost models chose by, in a note.
pub(super) fn terms(profile: &DeviceProfile) -> String {
    let each = |of: &[(usize, f64, f64)]| {
        let texts: Vec<String> =
            of.iter().map(|(pages, alone, batched)| format!("{pages}: {alone:.1} / {batched:.1}")).collect();
        texts.join(", ")
    };
    let reads: Vec<_> = profile.reads.iter().map(|read| (read.pages, read.alone_us, read.batched_us)).collect();
    let writes: Vec<_> = profile.writes.iter().map(|write| (write.pages, write.alone_us, write.batched_us)).collect();
    format!(
        "Trees are tuned by these times of requests of so many pages, alone / in batches of {}, in µs: reads {}; writes {}; a write and its flush {:.0}.",
        profile.best_depth,
        each(&reads),
        each(&writes),
        profile.flushed_write_us
    )
}

/// The tuning of the trees, in a note.
pub(super) fn note(trees: &[Contestant]) -> String {
    let each: Vec<String> = trees.iter().map(|tree| format!("{} with {}", tree.name(), tree.tuning())).collect();
    each.join("; ")
}
