//! The choices of the model: leaf size, division of memory, requests in flight; and the node size of a plain B+-tree.

use std::ops::RangeInclusive;

use psync::probe::DeviceProfile;
use space::PAGE;

use super::device::Device;
use super::ours::{Estimate, estimate, fill};
use super::paper::{self, Times, Tree};
use super::{LEAF_PAGES, Memory, Workload};
use crate::leaf_size;

/// A cost of at most this times the least is as good as the least, because figures are measured and minima are flat.
pub const AS_GOOD: f64 = 1.05;

/// Bounds of the requests in flight, independent of the measurement. Fewer leave a device idle that was busy with other
/// requests when measured; more only add to latency.
pub const PIO_MAX_BOUNDS: RangeInclusive<usize> = 32..=256;

/// Parts of memory that the write buffer may get, in 32nds.
const WRITE_BUFFER_PARTS: [u64; 7] = [1, 2, 4, 8, 16, 24, 28];
/// The largest part where anything is looked up. Keys of real lookups are less evenly spread than the model assumes, so
/// a cache serves more than the model says.
const WRITE_BUFFER_PART_MAX: u64 = 16;

/// The choice of the model.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Choice {
    /// Pages of a leaf: `L`.
    pub leaf_pages: u32,
    /// Bytes for nodes.
    pub cache_bytes: u64,
    /// Bytes for waiting operations: `O`.
    pub write_buffer_bytes: u64,
    /// Requests in flight: `PioMax`.
    pub pio_max: usize,
    /// For each leaf size, with that memory.
    pub estimates: Vec<Estimate>,
}

/// The leaf size and queue with the least time per operation, (10).
#[must_use]
pub fn choose(profile: &DeviceProfile, workload: &Workload) -> Choice {
    let divisions: Vec<(u64, u64)> = match workload.memory {
        Memory::Divided { cache_bytes, write_buffer_bytes } => vec![(cache_bytes, write_buffer_bytes)],
        Memory::Total { bytes } => {
            let most = if workload.insert_share < 1.0 { WRITE_BUFFER_PART_MAX } else { 32 };
            let part = |part: u64| bytes / 32 * part + bytes % 32 * part / 32;
            let parts = WRITE_BUFFER_PARTS.into_iter().filter(|part| *part <= most);
            parts.map(part).map(|write_buffer_bytes| (bytes - write_buffer_bytes, write_buffer_bytes)).collect()
        }
    };
    let by_size = |(cache_bytes, write_buffer_bytes)| {
        LEAF_PAGES.map(|pages| estimate(profile, workload, pages, cache_bytes, write_buffer_bytes)).to_vec()
    };
    let mut all: Vec<Vec<Estimate>> = divisions.into_iter().map(by_size).collect();
    let least = |estimates: &Vec<Estimate>| estimates.iter().map(|of| of.cost_us).fold(f64::INFINITY, f64::min);
    let division = first_as_good(all.iter().map(least));
    let estimates = all.swap_remove(division);
    let least_pages = least_leaf_pages(workload);
    let possible: Vec<&Estimate> = estimates.iter().filter(|of| of.leaf_pages >= least_pages).collect();
    let chosen = *possible[first_as_good(possible.iter().map(|of| of.cost_us))];
    Choice {
        leaf_pages: u32::try_from(chosen.leaf_pages).expect("few pages"),
        cache_bytes: chosen.cache_bytes,
        write_buffer_bytes: chosen.write_buffer_bytes,
        pio_max: pio_max(profile),
        estimates,
    }
}

/// The least pages of a leaf, independent of cost: the bound for long entries ([`leaf_size::least_pages`]).
fn least_leaf_pages(workload: &Workload) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of an entry")]
    let entry_bytes = workload.sound().entry_bytes() as usize;
    leaf_size::least_pages(1, entry_bytes) as usize
}

/// Requests that a database keeps in flight on a device.
#[must_use]
pub fn pio_max(profile: &DeviceProfile) -> usize {
    profile.best_depth.clamp(*PIO_MAX_BOUNDS.start(), *PIO_MAX_BOUNDS.end())
}

/// Requests that a batch of lookups keeps in flight. They are more than those of other operations, because a batch
/// begins and ends with few and most of its reads are pages. So more are needed to keep a device busy on average.
#[must_use]
pub fn lookups_in_flight(profile: &DeviceProfile) -> usize {
    (2 * pio_max(profile)).min(*PIO_MAX_BOUNDS.end())
}

/// Pages between two wanted pages that a device reads in the time that one more request costs.
#[must_use]
pub fn gap_pages(profile: &DeviceProfile) -> usize {
    let gap = Device::new(profile).gap_pages();
    (1..).take_while(|pages| f64::from(*pages) <= gap).count()
}

/// The first of at least one figure that is as good as the least.
fn first_as_good(figures: impl Iterator<Item = f64> + Clone) -> usize {
    let least = figures.clone().fold(f64::INFINITY, f64::min);
    figures.into_iter().position(|figure| figure <= least * AS_GOOD).unwrap_or(0)
}

/// The node size of a plain B+-tree, by both of the paper's methods.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NodeChoice {
    /// Pages of a node with the least `C'` (6).
    pub pages: usize,
    /// Pages of a node with the greatest utility/cost (3), which knows neither memory nor inserts.
    pub pages_by_utility: usize,
    /// `C'` in µs for each size in pages.
    pub costs: Vec<(usize, f64)>,
}

/// The node size of a plain B+-tree with entries of `entry_bytes` in leaves and internal nodes alike, and all memory
/// for nodes. The best figure is taken without our rules of choice, because the tree serves as a comparison.
#[must_use]
pub fn node_pages(
    profile: &DeviceProfile, records: u64, entry_bytes: u64, memory_bytes: u64, insert_share: f64,
) -> NodeChoice {
    let device = Device::new(profile);
    let entries = |pages: usize| (pages * PAGE) as f64 / entry_bytes.max(1) as f64;
    let cost = |pages: usize| {
        // At least two children: with fewer there is no tree.
        let fanout = (entries(pages) * fill(insert_share)).max(2.0);
        let tree = Tree { entries: records.max(1) as f64, leaf_entries: fanout, fanout, leaf_pages: 1.0 };
        let (read, write) = (device.read.us(pages as f64), device.write.us(pages as f64));
        let times = Times { read, write, leaf_read: read, batched_read: read, batched_write: write };
        let nodes = memory_bytes as f64 / (pages * PAGE) as f64;
        paper::b_plus_buffered(&tree, nodes, &times).average(insert_share)
    };
    let costs: Vec<(usize, f64)> = LEAF_PAGES.map(|pages| (pages, cost(pages))).to_vec();
    let least = costs.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    let utility = |pages: usize| paper::utility_per_cost(entries(pages).max(2.0), device.read.us(pages as f64));
    let useful = LEAF_PAGES.into_iter().rev().max_by(|one, other| utility(*one).total_cmp(&utility(*other)));
    NodeChoice { pages: least.map_or(1, |(pages, _)| *pages), pages_by_utility: useful.unwrap_or(1), costs }
}
