//! The cost of one leaf size, level by level, as this engine pays it.

use psync::probe::DeviceProfile;
use space::PAGE;

use super::device::Device;
use super::paper::{self, Queue, Times, Tree};
use super::{ROUND_FLUSHES, Workload};
use crate::apply::nodes::PACKED;
use crate::filter;

/// Mean fill of leaves and nodes where each is cut by itself, and grows from half full to full: ln 2.
const GROWN_FILL: f64 = std::f64::consts::LN_2;

/// Fill of leaves and nodes where nothing is inserted, because then everything was loaded.
const LOADED_FILL: f64 = PACKED as f64 / PAGE as f64;

/// Processor time to check a page that was read, in µs: its CRC, over bytes that are in no cache of the processor yet.
const PAGE_CHECK_US: f64 = 0.25;

/// Fill of the leaves and nodes of a table.
pub(super) fn fill(insert_share: f64) -> f64 {
    if insert_share > 0.0 { GROWN_FILL } else { LOADED_FILL }
}

/// Sorted pages of a leaf: each is a part of its own.
fn sorted_pages(leaf_pages: f64, insert_share: f64) -> f64 {
    (leaf_pages * if insert_share > 0.0 { MADE_FILL } else { LOADED_FILL }).ceil().max(1.0)
}

/// Bytes of a leaf in an internal node: pointer, newest seq, separator and its length. A separator is as short as
/// possible to tell two leaves apart.
const LEAF_BYTES: f64 = 24.0;

/// The share of lookups for absent keys. Where filters have all keys, these read nothing.
const ABSENT_SHARE: f64 = 0.2;

/// The share of lookups that begin a short scan, and the records that such a scan shows (YCSB's workload E: 1 to 100).
const SCAN_SHARE: f64 = 0.1;
const SCAN_RECORDS: f64 = 50.0;

/// Weight of space: a table that takes a tenth more on storage counts as so many tenths slower. The reason is that the
/// table takes more of the cache, of writes, and of the device in the same proportion.
const SPACE_WEIGHT: f64 = 0.25;

/// Bytes of each further sorted page of a leaf: its fence.
const FENCE_BYTES: f64 = 4.0;

/// The filter of a leaf of so many pages, and its bytes.
fn filter(leaf_pages: f64, insert_share: f64, entry_bytes: f64) -> (filter::Shape, f64) {
    let sorted = sorted_pages(leaf_pages, insert_share);
    let made = leaf_pages * PAGE as f64 * if insert_share > 0.0 { MADE_FILL } else { LOADED_FILL };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few pages of a few entries")]
    let (pages, sorted) = (leaf_pages as u32, sorted.min(leaf_pages) as u32);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a leaf")]
    let shape = filter::Shape::new(pages, sorted, ((made / entry_bytes) as usize).max(1), made as usize);
    (shape, shape.bytes(pages - sorted) as f64)
}

/// Bytes of a leaf of so many pages, with its fences and its filter, in an internal node.
fn leaf_child_bytes(leaf_pages: f64, insert_share: f64, entry_bytes: f64) -> f64 {
    let fences = sorted_pages(leaf_pages, insert_share) - 1.0;
    LEAF_BYTES + fences * FENCE_BYTES + filter(leaf_pages, insert_share, entry_bytes).1
}

/// Bytes of a node in the one above.
const NODE_BYTES: f64 = 14.0;

/// Bytes of an internal node beside its children.
const NODE_FIXED: f64 = 120.0;

/// `F'`: children of an internal node whose children take so many bytes.
fn fanout(fill: f64, child_bytes: f64) -> f64 {
    (PAGE as f64 * fill - NODE_FIXED) / child_bytes
}

/// Bytes that a cached internal node takes for each byte of its page that is in use.
const CACHED_NODE: f64 = 1.05;

/// Sorted share of a leaf that was made from other leaves: half. The rest was appended.
const MADE_FILL: f64 = 0.5;

/// Time of a search, in µs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SearchCost {
    /// Internal nodes that are not in memory.
    pub nodes_us: f64,
    /// The leaf, unless it is in memory.
    pub leaf_us: f64,
    /// The leaves of a short scan, unless they are in memory. Beyond the paper.
    pub scan_us: f64,
    /// Nodes and a leaf or, now and then, leaves.
    pub total_us: f64,
}

/// Time of an insert, its share of the batch update that applies it, in µs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct InsertCost {
    /// Internal nodes that are not in memory, read.
    pub node_reads_us: f64,
    /// Internal nodes, written anew. Beyond the paper.
    pub node_writes_us: f64,
    /// The last page of the leaf, read and written.
    pub append_us: f64,
    /// Full leaves, read and written. Beyond the paper.
    pub rewrite_us: f64,
    /// The flushes of the batch update. Beyond the paper.
    pub flush_us: f64,
    /// All of it.
    pub total_us: f64,
}

/// The costs of operations with leaves of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Estimate {
    /// Pages of a leaf: `L`.
    pub leaf_pages: usize,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Bytes of the write buffer.
    pub write_buffer_bytes: u64,
    /// Leaves.
    pub leaves: f64,
    /// Internal nodes.
    pub nodes: f64,
    /// Part of the internal nodes that the cache holds.
    pub nodes_cached: f64,
    /// Part of the leaves that the cache holds.
    pub leaves_cached: f64,
    /// Bytes on storage for each byte of the records.
    pub space: f64,
    /// Operations of a batch update that share a leaf: `G`.
    pub shared: f64,
    /// A search.
    pub search: SearchCost,
    /// An insert.
    pub insert: InsertCost,
    /// An operation of the workload.
    pub total_us: f64,
    /// The figure that is compared: `total_us`, with the charge for space.
    pub cost_us: f64,
    /// A search by the paper's equation (9).
    pub paper_search_us: f64,
    /// An insert by the paper's equation (9), as mended.
    pub paper_insert_us: f64,
    /// An operation by the paper's equation (9).
    pub paper_us: f64,
}

/// A level of internal nodes.
struct Level {
    nodes: f64,
    /// Part of them that is in memory.
    cached: f64,
}

/// A tree, and the parts of it that are in memory.
struct Shape {
    leaf_pages: f64,
    fill: f64,
    leaves: f64,
    /// Part of the leaves that is in memory.
    leaves_cached: f64,
    /// From the leaves upwards.
    levels: Vec<Level>,
}

impl Shape {
    fn new(workload: &Workload, leaf_pages: f64, cache_bytes: u64) -> Self {
        let fill = fill(workload.insert_share);
        let leaf_bytes = leaf_pages * PAGE as f64 * fill;
        let leaves = (workload.records as f64 * workload.entry_bytes() / leaf_bytes).max(1.0);
        let mut levels = Vec::new();
        let mut nodes = leaves;
        let mut child_bytes = leaf_child_bytes(leaf_pages, workload.insert_share, workload.entry_bytes());
        while nodes > 1.0 {
            nodes /= fanout(fill, child_bytes);
            child_bytes = NODE_BYTES;
            // An average of hardly more than one is a root.
            nodes = if nodes < 1.5 { 1.0 } else { nodes };
            levels.push(Level { nodes, cached: 0.0 });
        }
        // Memory reaches down from the root.
        let mut left = cache_bytes as f64;
        for level in levels.iter_mut().rev() {
            let bytes = level.nodes * PAGE as f64 * fill * CACHED_NODE;
            level.cached = (left / bytes).min(1.0);
            left = (left - bytes).max(0.0);
        }
        let leaves_cached = (left / (leaves * leaf_bytes)).min(1.0);
        Self { leaf_pages, fill, leaves, leaves_cached, levels }
    }

    /// Time of a search's reads in a leaf that are not served from memory, alone and in a batch. The page that the
    /// filter names is read, if the filter names one.
    fn leaf_read(&self, device: &Device, workload: &Workload) -> (f64, f64) {
        let (filter, _) = filter(self.leaf_pages, workload.insert_share, workload.entry_bytes());
        let (absent, in_filter) = match filter.covers_sorted() {
            true => (0.0, self.fill),
            false => (ABSENT_SHARE, (self.fill - MADE_FILL).max(0.0)),
        };
        let entries = self.leaf_pages * PAGE as f64 * in_filter / workload.entry_bytes();
        let appended_pages = (self.leaf_pages * (self.fill - MADE_FILL)).max(1.0);
        let misled = appended_pages * filter.mistaken(entries);
        let pages = 1.0 - ABSENT_SHARE + absent + misled;
        let check = pages * PAGE_CHECK_US;
        (device.shared_read_us(1.0, 1.0) * pages + check, device.batched_read.us(1.0) * pages + check)
    }

    /// Time of a short scan: the leaves of its records, whole where anything was appended to them, else their pages.
    fn scan(&self, device: &Device, workload: &Workload) -> f64 {
        let in_pages = PAGE as f64 * self.fill / workload.entry_bytes();
        let (records, pages) = match workload.insert_share > 0.0 {
            true => (in_pages * self.leaf_pages, (self.leaf_pages * self.fill).max(1.0)),
            false => (in_pages, 1.0),
        };
        let pieces = 1.0 + SCAN_RECORDS / records.max(1.0);
        let check = pieces * pages * PAGE_CHECK_US;
        (1.0 - self.leaves_cached) * (device.shared_read_us(pieces, pages) + check)
    }

    /// Bytes on storage for each byte of the records.
    fn space(&self, workload: &Workload) -> f64 {
        let pages = self.leaves * self.leaf_pages + self.nodes();
        pages * PAGE as f64 / (workload.records as f64 * workload.entry_bytes())
    }

    fn nodes(&self) -> f64 {
        self.levels.iter().map(|level| level.nodes).sum()
    }

    fn nodes_cached(&self) -> f64 {
        if self.levels.is_empty() {
            return 1.0;
        }
        self.levels.iter().map(|level| level.nodes * level.cached).sum::<f64>() / self.nodes()
    }

    fn search(&self, device: &Device, workload: &Workload) -> SearchCost {
        let batched_share = workload.batched_share;
        let us = |alone: f64, batched: f64| (1.0 - batched_share) * alone + batched_share * batched;
        let missing: f64 = self.levels.iter().map(|level| 1.0 - level.cached).sum();
        let nodes_us = missing * us(device.shared_read_us(1.0, 1.0), device.batched_read.us(1.0));
        let (alone, batched) = self.leaf_read(device, workload);
        let leaf_us = (1.0 - self.leaves_cached) * us(alone, batched);
        let scan_us = self.scan(device, workload);
        let total_us = nodes_us + (1.0 - SCAN_SHARE) * leaf_us + SCAN_SHARE * scan_us;
        SearchCost { nodes_us, leaf_us, scan_us, total_us }
    }

    fn insert(&self, device: &Device, waiting: f64, of_round: f64, entry_bytes: f64) -> InsertCost {
        let page_read = device.batched_read.us(1.0);
        let (mut node_reads_us, mut node_writes_us) = (0.0, 0.0);
        for level in &self.levels {
            let shared = shared(waiting, level.nodes);
            node_reads_us += (1.0 - level.cached) * page_read / shared;
            node_writes_us += device.bulk_write_us / shared;
        }
        let shared = shared(waiting, self.leaves);
        let page = PAGE as f64;
        let new_pages = shared * entry_bytes / page;
        let rewritten = (new_pages / ((1.0 - MADE_FILL) * self.leaf_pages)).min(1.0);
        let uncached = 1.0 - self.leaves_cached;
        let append = uncached * page_read + device.batched_write.us((1.0 + new_pages).min(self.leaf_pages));
        // The output is laid out in new leaves, side by side, whose last pages are used in part.
        let rewrite = uncached * device.batched_read.us(self.leaf_pages)
            + device.batched_write.us(self.leaf_pages + new_pages + 1.0);
        let append_us = (1.0 - rewritten) * append / shared;
        let rewrite_us = rewritten * rewrite / shared;
        let flush_us = ROUND_FLUSHES * device.flush_us / of_round;
        let total_us = node_reads_us + node_writes_us + append_us + rewrite_us + flush_us;
        InsertCost { node_reads_us, node_writes_us, append_us, rewrite_us, flush_us, total_us }
    }
}

/// Number of `operations` with random keys that share one of `nodes`, on average over the nodes that they touch.
pub(super) fn shared(operations: f64, nodes: f64) -> f64 {
    let each = operations / nodes;
    // 1 - e^-x is close to x for small x, and the direct formula would lose digits there.
    let touched = -(-each).exp_m1();
    if touched > 0.0 { (each / touched).max(1.0) } else { 1.0 }
}

/// Costs of the operations of a workload with leaves of `leaf_pages` pages, and this much memory for nodes and for
/// waiting operations.
#[must_use]
pub fn estimate(
    profile: &DeviceProfile, workload: &Workload, leaf_pages: usize, cache_bytes: u64, write_buffer_bytes: u64,
) -> Estimate {
    let device = Device::new(profile);
    let workload = workload.sound();
    let shape = Shape::new(&workload, leaf_pages as f64, cache_bytes);
    let waiting = workload.waiting(write_buffer_bytes);
    let search = shape.search(&device, &workload);
    let insert = shape.insert(&device, waiting, workload.of_round(write_buffer_bytes), workload.entry_bytes());
    let space = shape.space(&workload);
    let average = |search: f64, insert: f64| (1.0 - workload.insert_share) * search + workload.insert_share * insert;
    let queued = workload.queued(write_buffer_bytes);
    let paper = papers(&device, &workload, leaf_pages as f64, queued, cache_bytes);
    let total_us = average(search.total_us, insert.total_us);
    Estimate {
        leaf_pages,
        cache_bytes,
        write_buffer_bytes,
        leaves: shape.leaves,
        nodes: shape.nodes(),
        nodes_cached: shape.nodes_cached(),
        leaves_cached: shape.leaves_cached,
        space,
        shared: shared(waiting, shape.leaves),
        search,
        insert,
        total_us,
        cost_us: total_us * (1.0 + SPACE_WEIGHT * (space - 1.0)),
        paper_search_us: paper.search,
        paper_insert_us: paper.insert,
        paper_us: paper.average(workload.insert_share),
    }
}

/// The paper's figure for our sizes of entries and nodes.
fn papers(device: &Device, workload: &Workload, leaf_pages: f64, queued: f64, cache_bytes: u64) -> paper::Cost {
    let fill = fill(workload.insert_share);
    let leaf_entries = PAGE as f64 * fill / workload.entry_bytes();
    let fanout = fanout(fill, leaf_child_bytes(leaf_pages, workload.insert_share, workload.entry_bytes()));
    let tree = Tree { entries: workload.records as f64, leaf_entries, fanout, leaf_pages };
    let times = Times {
        read: device.read.us(1.0),
        write: device.write.us(1.0),
        leaf_read: device.read.us(leaf_pages),
        batched_read: device.batched_read.us(1.0),
        batched_write: device.batched_write.us(1.0),
    };
    let queue = Queue { entries: queued, batch_max: queued };
    paper::pio_buffered(&tree, &queue, cache_bytes as f64 / PAGE as f64, &times)
}
