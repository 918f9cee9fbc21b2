//! The cost model of the FD-tree's paper (section 5), and the choices that follow.
//!
//! There are f entries to a page, and levels grow by k.
//!
//! - A search reads one page a level, log_k(n / |L₀|) of them.
//! - An entry that goes down a level pays its share of a merge: (1 + the size of the level below in units of this one)
//!   page reads and page writes for the f − k entries that a page has beside its fences.
//! - The ratio k is the one with the least mean of both costs for the workload.
//!
//! The paper has the head's size given and no buffer. Here both share a budget, so the head's share is chosen with k,
//! and the buffer holds the upper levels first. The lowest level is as large as its data, not as its ratio would allow.
//! holding the upper levels first. The lowest level is as large as its data, not as its ratio would let it be.

use psync::probe::DeviceProfile;

use super::page::{Layout, PAGE_BYTES};
use crate::Result;
use crate::trees::Shape;

/// The choices for a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// k: how many times as large as the level above a level may be.
    pub size_ratio: u32,
    /// Bytes of memory of the head tree with its fences, out of the budget. The page buffer gets the rest.
    pub head_bytes: u64,
}

/// The lowest level's room beside its loaded data, as a share of that data.
const ROOM_TO_GROW: f64 = 0.25;

impl Tuning {
    /// Pages that a level may have; level 0 is the head.
    pub(super) fn level_pages(self, level: usize) -> u64 {
        let head = (self.head_bytes / PAGE_BYTES as u64).max(1);
        let ratio = u64::from(self.size_ratio.max(2));
        (0..level).fold(head, |pages, _| pages.saturating_mul(ratio))
    }

    /// Whether a tree of so many levels has room for so many pages in the lowest, and for more to come.
    pub(super) fn is_deep_enough(self, levels: usize, pages: f64) -> bool {
        self.level_pages(levels) as f64 >= pages * (1.0 + ROOM_TO_GROW)
    }
}

/// The largest ratio that is tried.
const SIZE_RATIO_MAX: u32 = 256;

/// The shares of the budget that are tried for the head, in sixteenths.
const HEAD_SHARES: [u64; 6] = [1, 2, 4, 8, 12, 14];

/// How full the blocks of a B+-tree are after random inserts.
const HEAD_FILL: f64 = 0.69;

/// Chooses the ratio and the head's size for a tree of `records` of which `insert_share` of the operations are updates,
/// in `memory` bytes.
///
/// # Errors
/// When a page has no room for a few entries of the shape.
pub fn tune(profile: &DeviceProfile, shape: Shape, records: u64, memory: u64, insert_share: f64) -> Result<Tuning> {
    let model = Model::new(profile, shape, records, memory, insert_share.clamp(0.0, 1.0))?;
    let ratios = 2..=SIZE_RATIO_MAX;
    let all =
        ratios.flat_map(|size_ratio| HEAD_SHARES.map(|share| Tuning { size_ratio, head_bytes: memory * share / 16 }));
    let least = all.min_by(|left, right| model.cost_us(*left).total_cmp(&model.cost_us(*right)));
    Ok(least.expect("there are ratios to try"))
}

struct Model {
    entries_per_page: f64,
    fences_per_page: f64,
    key_bytes: f64,
    /// Bytes of an entry in the head.
    slot_bytes: f64,
    /// Pages of all records.
    pages: f64,
    memory_pages: f64,
    insert_share: f64,
    read_us: f64,
    /// Reading and writing a page in sequential requests.
    moved_us: f64,
}

impl Model {
    fn new(profile: &DeviceProfile, shape: Shape, records: u64, memory: u64, insert_share: f64) -> Result<Self> {
        let layout = Layout::new(shape)?;
        let entries_per_page = layout.entries_per_page() as f64;
        let largest = profile.reads.last().map(|read| read.batched_us / read.pages as f64);
        let sequential_read_us = largest.unwrap_or(profile.batched_read_us).min(profile.batched_read_us);
        // The profile has no large writes, so they are assumed to gain over single pages as much as reads gain.
        let sequential_write_us = profile.batched_write_us * sequential_read_us / profile.batched_read_us;
        Ok(Self {
            entries_per_page,
            fences_per_page: layout.fences_per_page() as f64,
            key_bytes: shape.key_bytes as f64,
            slot_bytes: (shape.entry_bytes() + 1) as f64,
            pages: (records as f64 / entries_per_page).max(1.0),
            memory_pages: memory as f64 / PAGE_BYTES as f64,
            insert_share,
            read_us: profile.read_us,
            moved_us: sequential_read_us + sequential_write_us,
        })
    }

    /// Pages of the head's entries as a run, and of all levels below the head, for a full tree.
    fn levels(&self, tuning: Tuning) -> Vec<f64> {
        // The fences of level 1 are in the head too.
        let fences = (tuning.level_pages(1) as f64).min(self.pages) * self.key_bytes;
        let slots = (tuning.head_bytes as f64 - fences).max(0.0) * HEAD_FILL / self.slot_bytes;
        let mut pages = vec![(slots / self.entries_per_page).max(1.0)];
        while !tuning.is_deep_enough(pages.len(), self.pages) {
            pages.push(tuning.level_pages(pages.len()) as f64);
        }
        pages.push(self.pages);
        pages
    }

    fn cost_us(&self, tuning: Tuning) -> f64 {
        // A level with little room beside fences moves nothing down.
        if f64::from(tuning.size_ratio) > self.fences_per_page / 2.0 {
            return f64::INFINITY;
        }
        let levels = self.levels(tuning);
        self.insert_share * self.insert_us(tuning, &levels)
            + (1.0 - self.insert_share) * self.search_us(tuning, &levels)
    }

    fn insert_us(&self, tuning: Tuning, levels: &[f64]) -> f64 {
        let own_share = 1.0 - f64::from(tuning.size_ratio) / self.fences_per_page;
        let lowest = levels.len() - 1;
        let moved = (1..levels.len()).map(|level| {
            // A level is half full on average when the one above is merged down; the lowest has all its data.
            let below = if level == lowest { levels[level] } else { levels[level] / 2.0 };
            1.0 + below / levels[level - 1]
        });
        moved.sum::<f64>() * self.moved_us / (self.entries_per_page * own_share)
    }

    fn search_us(&self, tuning: Tuning, levels: &[f64]) -> f64 {
        let mut buffer = (self.memory_pages - tuning.head_bytes as f64 / PAGE_BYTES as f64).max(0.0);
        let lowest = levels.len() - 1;
        let mut reads = 0.0;
        for (level, full) in levels.iter().enumerate().skip(1) {
            let pages = if level == lowest { *full } else { full / 2.0 + levels[level + 1] / self.fences_per_page };
            let held = buffer.min(pages);
            buffer -= held;
            reads += 1.0 - held / pages;
        }
        reads * self.read_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { key_bytes: 8, value_bytes: 8 };

    fn levels(insert_share: f64) -> (Tuning, usize) {
        let (records, memory) = (64 << 20, 16 << 20);
        let profile = DeviceProfile::default();
        let tuning = tune(&profile, SHAPE, records, memory, insert_share).expect("fits");
        let model = Model::new(&profile, SHAPE, records, memory, insert_share).expect("fits");
        (tuning, model.levels(tuning).len() - 1)
    }

    #[test]
    fn more_inserts_make_more_levels_and_smaller_ratios() {
        let (searches, few) = levels(0.0);
        let (inserts, many) = levels(1.0);
        assert!(few < many, "{searches:?} has {few} levels, {inserts:?} has {many}");
        assert!(searches.size_ratio > inserts.size_ratio);
        assert!(searches.head_bytes <= inserts.head_bytes);
    }

    #[test]
    fn costs_are_those_of_the_formula() {
        // 250 entries and 341 fences to a page; 1000 pages under a head of 10: with k = 10 there are levels of 100 and
        // 1000 pages.
        let profile = DeviceProfile::default();
        let mut model = Model::new(&profile, SHAPE, 0, 0, 0.5).expect("fits");
        (model.pages, model.entries_per_page, model.fences_per_page) = (1000.0, 250.0, 340.0);
        (model.read_us, model.moved_us) = (80.0, 10.0);
        let tuning = Tuning { size_ratio: 10, head_bytes: 0 };
        let pages = [10.0, 100.0, 1000.0];
        // Level 1 takes 10 pages into 50 on average, level 2 takes 100 into 1000.
        let insert_us = (1.0 + 5.0 + 1.0 + 10.0) * 10.0 / (250.0 * 330.0 / 340.0);
        assert!((model.insert_us(tuning, &pages) - insert_us).abs() < 1e-9);
        assert!((model.search_us(tuning, &pages) - 160.0).abs() < 1e-9);
        // A buffer for all of level 1, which has 50 pages of entries and a page for 340 fences on average.
        model.memory_pages = 50.0 + 1000.0 / 340.0;
        assert!((model.search_us(tuning, &pages) - 80.0).abs() < 1e-9);
    }
}
