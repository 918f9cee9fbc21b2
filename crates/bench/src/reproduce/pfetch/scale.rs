//! Sizes: the paper's sizes, scaled down with their ratios kept.

use std::time::Duration;

use crate::reproduce::Effort;

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;
/// Bytes of a value: a pair has 4 KiB.
pub(super) const VALUE_BYTES: usize = 4096 - KEY_BYTES;
/// Pairs of the paper's data sets of 3, 7.5 and 15 GB, and the operations of its YCSB runs over them, in thousands.
const PAPER_SETS: [(&str, u64, u64); 3] = [("3 GB", 732, 2000), ("7.5 GB", 1831, 5000), ("15 GB", 3662, 10_000)];
/// Thousands of pairs in the data set of figure 2.
const PAPER_SPLIT: u64 = 1500;
/// Submission batch of the comparisons.
pub(super) const BATCH: usize = 128;
/// Submission batches of figure 9.
pub(super) const BATCHES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Readahead of figure 10, in KiB.
pub(super) const READAHEADS: [u64; 8] = [4, 8, 16, 32, 64, 128, 256, 512];
/// Client threads beside a compaction.
pub(super) const CLIENTS: usize = 2;

/// A data set of the paper, scaled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    /// The data set's size in the paper.
    pub(super) name: &'static str,
    pub(super) pairs: u64,
    /// Operations of YCSB-A over the data set.
    pub(super) operations: u64,
}

/// Sizes and times of one effort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    effort: Effort,
    /// Pairs and operations for each thousand of the paper's.
    per_thousand: u64,
    /// Of the operations only this part is done.
    operations_part: u64,
    /// Runs of each cell.
    pub(super) repeats: usize,
    /// Stride through the batches and readaheads of figures 9 and 10.
    pub(super) stride: usize,
    /// Whether the run may change the device's readahead for a while. The setting affects every user of the machine.
    pub(super) sets_readahead: bool,
    pub(super) cache_bytes: u64,
    pub(super) write_buffer_bytes: u64,
    pub(super) device_slice: Duration,
    pub(super) file_bytes: u64,
}

impl Scale {
    pub(super) const fn new(effort: Effort) -> Self {
        let milliseconds = Duration::from_millis;
        match effort {
            Effort::Tiny => Self {
                effort,
                per_thousand: 1,
                operations_part: 8,
                repeats: 2,
                stride: 8,
                sets_readahead: false,
                cache_bytes: 1 << 20,
                write_buffer_bytes: 1 << 20,
                device_slice: milliseconds(1),
                file_bytes: 1 << 20,
            },
            Effort::Quick => Self {
                effort,
                per_thousand: 8,
                operations_part: 1,
                repeats: 3,
                stride: 2,
                sets_readahead: true,
                cache_bytes: 16 << 20,
                write_buffer_bytes: 16 << 20,
                device_slice: milliseconds(50),
                file_bytes: 128 << 20,
            },
            Effort::Full => Self {
                effort,
                per_thousand: 50,
                operations_part: 1,
                repeats: 5,
                stride: 1,
                sets_readahead: true,
                cache_bytes: 96 << 20,
                write_buffer_bytes: 32 << 20,
                device_slice: milliseconds(300),
                file_bytes: 2 << 30,
            },
        }
    }

    /// The three data sets.
    pub(super) fn sets(&self) -> [Set; 3] {
        PAPER_SETS.map(|(name, pairs, operations)| Set {
            name,
            pairs: pairs * self.per_thousand,
            operations: operations * self.per_thousand / self.operations_part,
        })
    }

    /// The data set of figures 9 and 10.
    pub(super) fn middle(&self) -> Set {
        self.sets()[1]
    }

    /// The data set of figure 2.
    pub(super) const fn split(&self) -> Set {
        Set { name: "1.5 M pairs", pairs: PAPER_SPLIT * self.per_thousand, operations: 0 }
    }

    /// The options of a database, except for the backend.
    pub(super) fn options(&self) -> braid::Options {
        braid::Database::options()
            .durability(braid::Durability::Os)
            .cache_bytes(self.cache_bytes)
            .write_buffer_bytes(self.write_buffer_bytes)
            .lend_write_buffer(false)
    }

    /// Peak bytes on storage: the largest data set with a third of garbage, a compacted one beside it, the writes of
    /// YCSB-A, and the device's file.
    pub(super) fn needed_bytes(&self) -> u64 {
        let [.., largest] = self.sets();
        let pair = (KEY_BYTES + VALUE_BYTES) as u64 + 256;
        4 * largest.pairs * pair + largest.operations * pair / 2 + 2 * self.file_bytes + (512 << 20)
    }

    pub(super) fn setting(&self) -> Vec<String> {
        let sets = self.sets().map(|set| format!("{} pairs for {}", set.pairs, set.name)).join(", ");
        vec![
            format!(
                "Pairs of 4 KiB (keys of {KEY_BYTES} B, values of {VALUE_BYTES} B): {sets} of the paper{}. They were put in random order, and half of them again after \
                 that, so a third of the documents is garbage and places have nothing to do with keys.",
                if matches!(self.effort, Effort::Full) { ": a twentieth, the ratios kept" } else { ", the ratios kept" }
            ),
            format!(
                "Cache {} MiB, write buffer {} MiB, durability `os`; one compaction by hand of a database that was just opened, its own cache and the system's empty.",
                self.cache_bytes >> 20,
                self.write_buffer_bytes >> 20
            ),
            "The table is an `append` table, an HB+-trie as ForestDB's; what compaction does with documents is the same for every structure.".into(),
            "Documents of a submission batch that lie next to each other, or a block apart, are read at once: of offsets that are sorted these are many. sync has no batches, and reads each by itself.".into(),
            "sync reads one document after the other; libaio and io_uring have a submission batch of 128 in flight, half of which is submitted when the half before the last one \
             has come. They write a stretch when all of it is read, as in the paper; `overlapped` is what the product does: it writes while it reads."
                .into(),
        ]
    }
}
