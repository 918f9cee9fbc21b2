//! The choice of C: the trade of BFTL's paper (section 4.3), as a cost function.
//!
//! A search reads the pages of one list at each level. The list of a leaf under writes grows from 1 to C pages and is
//! then compacted:
//!
//! - The list has (1 + C) / 2 pages on average.
//! - A record pays for its share of a compaction, which is one page in C changes, and for the page space of its unit.
//!
//! A larger C thus makes writes cheaper and searches dearer. The table grows with C too, which leaves less for a buffer
//! pool.
//!
//! C is at least 2. With one page for each node, every change writes a whole node to a new place, and there are no
//! lists of index units, which are the essence of BFTL. Where writes are cheap the function would choose C = 1.

use std::ops::RangeInclusive;

use psync::probe::DeviceProfile;

use super::page::{Formats, PAGE_BYTES};
use crate::Result;
use crate::trees::Shape;
use crate::trees::bulk::FILL_DEFAULT;

/// The choices for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// C: the most pages that the units of a node are in.
    pub list_pages: usize,
    /// Bytes of the reservation buffer.
    pub reservation_bytes: u64,
    /// Approximate bytes of the future node translation table. The rest of the budget, beside the table and the
    /// reservation buffer, is the buffer pool, if there is any rest.
    pub table_bytes: u64,
}

/// The lengths of lists that are tried.
const LIST_PAGES: RangeInclusive<usize> = 2..=16;

/// Pages of the reservation buffer: the few sectors of the paper.
const RESERVATION_PAGES: usize = 4;

/// Chooses C for a tree of `records` of which `insert_share` of the operations are updates, in `memory` bytes.
///
/// # Errors
/// When a page has no room for a few entries of the shape.
pub fn tune(profile: &DeviceProfile, shape: Shape, records: u64, memory: u64, insert_share: f64) -> Result<Tuning> {
    let model = Model::new(profile, shape, records, memory, insert_share.clamp(0.0, 1.0))?;
    let all = LIST_PAGES.map(|list_pages| model.tuning(list_pages));
    let least = all.min_by(|left, right| model.cost_us(*left).total_cmp(&model.cost_us(*right)));
    Ok(least.expect("there are lengths to try"))
}

struct Model<'p> {
    profile: &'p DeviceProfile,
    insert_share: f64,
    memory: u64,
    /// Nodes of each level, leaves first.
    levels: Vec<f64>,
    /// Records of a full reservation buffer.
    records_per_commit: f64,
    /// The part of a page that one unit takes.
    unit_pages: f64,
}

impl<'p> Model<'p> {
    fn new(profile: &'p DeviceProfile, shape: Shape, records: u64, memory: u64, insert_share: f64) -> Result<Self> {
        let formats = Formats::new(shape)?;
        let mut levels = vec![(records as f64 / (FILL_DEFAULT * formats.leaf.capacity() as f64)).max(1.0)];
        while let Some(nodes) = levels.last().filter(|nodes| **nodes > 1.0) {
            levels.push((nodes / (FILL_DEFAULT * formats.inner.capacity() as f64)).max(1.0));
        }
        let records_per_commit =
            (RESERVATION_PAGES * PAGE_BYTES) as f64 * FILL_DEFAULT / (shape.entry_bytes() + 1) as f64;
        let unit_pages = formats.leaf.group_bytes(1) as f64 / PAGE_BYTES as f64;
        Ok(Self { profile, insert_share, memory, levels, records_per_commit, unit_pages })
    }

    fn tuning(&self, list_pages: usize) -> Tuning {
        let nodes = self.levels.iter().sum::<f64>();
        // The lists, and for each page of a node a count of lists and its share of the free ones.
        let per_node = (list_pages * size_of::<u32>() + size_of::<u16>() + size_of::<u32>()) as f64;
        #[expect(clippy::cast_possible_truncation, reason = "a positive number of bytes, and saturating")]
        let table_bytes = (nodes * per_node).ceil() as u64;
        Tuning { list_pages, reservation_bytes: (RESERVATION_PAGES * PAGE_BYTES) as u64, table_bytes }
    }

    fn cost_us(&self, tuning: Tuning) -> f64 {
        let longest = tuning.list_pages as f64;
        let length = if self.insert_share > 0.0 { f64::midpoint(1.0, longest) } else { 1.0 };
        let leaf_us = self.profile.read_us + (length - 1.0) * self.profile.batched_read_us;
        let pool = self.memory.saturating_sub(tuning.reservation_bytes + tuning.table_bytes) as f64 / PAGE_BYTES as f64;
        let search_us = leaf_us + self.inner_reads(pool, 1.0) * self.profile.read_us;
        // A commit walks down in key order, so its records share inner nodes.
        let walk_us = leaf_us + self.inner_reads(pool, self.records_per_commit) * self.profile.read_us;
        let written = 1.0 / longest + (1.0 - 1.0 / longest) * self.unit_pages;
        let insert_us = walk_us + written * self.profile.batched_write_us;
        self.insert_share * insert_us + (1.0 - self.insert_share) * search_us
    }

    /// Reads of inner nodes for each of `together` records that are looked up together, with the upper levels first in
    /// the pool.
    fn inner_reads(&self, mut pool: f64, together: f64) -> f64 {
        let mut reads = 0.0;
        for nodes in self.levels.iter().skip(1).rev() {
            let held = pool.min(*nodes);
            pool -= held;
            reads += (1.0 - held / nodes) * (nodes / together).min(1.0);
        }
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { key_bytes: 8, value_bytes: 8 };

    fn tuned(insert_share: f64) -> Tuning {
        // Writes cost as much as reads here; with cheap writes, short lists are right throughout.
        let profile = DeviceProfile { batched_write_us: 80.0, ..DeviceProfile::default() };
        tune(&profile, SHAPE, 16 << 20, 4 << 20, insert_share).expect("fits")
    }

    #[test]
    fn more_inserts_make_longer_lists() {
        let lists = [0.0, 0.3, 0.6, 1.0].map(|share| tuned(share).list_pages);
        assert!(lists.is_sorted(), "{lists:?}");
        assert_eq!(lists[0], *LIST_PAGES.start(), "the least, though one page would do");
        assert!(lists[3] > lists[1] && lists[3] < *LIST_PAGES.end(), "{lists:?}");
    }

    #[test]
    fn costs_are_those_of_the_formula() {
        let profile = DeviceProfile::default();
        let (read, batched, write) = (profile.read_us, profile.batched_read_us, profile.batched_write_us);
        let mut model = Model::new(&profile, SHAPE, 1, 0, 0.0).expect("fits");
        model.levels = vec![20_000.0, 100.0, 1.0];
        (model.records_per_commit, model.unit_pages) = (400.0, 0.01);
        let tuning = Tuning { list_pages: 4, reservation_bytes: 0, table_bytes: 0 };
        // No pool: three nodes, all of one page.
        assert!((model.cost_us(tuning) - 3.0 * read).abs() < 1e-9);
        // Lists of 2.5 pages; of the inner nodes a record reads a quarter and a four-hundredth; one page in four
        // changes.
        model.insert_share = 1.0;
        let expected = read + 1.5 * batched + (0.25 + 0.0025) * read + (0.25 + 0.75 * 0.01) * write;
        assert!((model.cost_us(tuning) - expected).abs() < 1e-9);
        // A pool for the root and half of the level below.
        model.memory = 51 * PAGE_BYTES as u64;
        let expected = read + 1.5 * batched + 0.125 * read + (0.25 + 0.75 * 0.01) * write;
        assert!((model.cost_us(tuning) - expected).abs() < 1e-9);
    }
}
