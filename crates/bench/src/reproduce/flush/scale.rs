//! Sizes: the paper's sizes, and the time that a run may take.

use std::time::Duration;

use crate::reproduce::Effort;
use crate::trees::Shape;

/// Keys of 20 B and values of 100 B, as in the paper.
pub(super) const SHAPE: Shape = Shape { key_bytes: 20, value_bytes: 100 };
/// Client threads in the paper.
pub(super) const PAPER_THREADS: [usize; 5] = [8, 16, 32, 64, 128];
/// Client threads: the paper's numbers, and smaller ones beside them.
pub(super) const THREADS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Operations wait in memory until a run is over. No batch update is measured, because the comparison is about the log.
const WRITE_BUFFER_BYTES: u64 = 512 << 20;
/// Large enough for all entries.
const CACHE_BYTES: u64 = 256 << 20;
/// Pages of a leaf: the same in every run, without profiling a device.
const LEAF_PAGES: u32 = 4;

/// Sizes and times of one effort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    effort: Effort,
    /// Transactions of one client in a run.
    pub(super) transactions: u64,
    /// Longest run with a number of threads that the paper has.
    pub(super) run: Duration,
    /// Longest run with a number of threads that the paper does not have.
    pub(super) run_beside: Duration,
    /// Runs of each cell.
    pub(super) repeats: usize,
    /// Entries loaded before a run, for workloads that need some.
    pub(super) entries: u64,
    /// Bytes of a log segment.
    pub(super) segment_bytes: u64,
    /// Segments that the log fills before a run, and that the run recycles.
    pub(super) segments: u64,
    /// Duration of a sample of the device.
    pub(super) device_slice: Duration,
    /// Bytes of the file on which the device is measured.
    pub(super) file_bytes: u64,
}

impl Scale {
    pub(super) const fn new(effort: Effort) -> Self {
        let milliseconds = Duration::from_millis;
        match effort {
            Effort::Tiny => Self {
                effort,
                transactions: 2,
                run: Duration::from_secs(600),
                run_beside: Duration::from_secs(600),
                repeats: 2,
                entries: 100,
                segment_bytes: 256 << 10,
                segments: 1,
                device_slice: milliseconds(1),
                file_bytes: 1 << 20,
            },
            Effort::Quick => Self {
                effort,
                transactions: 5000,
                run: milliseconds(500),
                run_beside: milliseconds(300),
                repeats: 3,
                entries: 20_000,
                segment_bytes: 16 << 20,
                segments: 2,
                device_slice: milliseconds(50),
                file_bytes: 64 << 20,
            },
            Effort::Full => Self {
                effort,
                transactions: 50_000,
                run: milliseconds(3000),
                run_beside: milliseconds(1500),
                repeats: 5,
                entries: 100_000,
                segment_bytes: 16 << 20,
                segments: 10,
                device_slice: milliseconds(200),
                file_bytes: 64 << 20,
            },
        }
    }

    /// Longest run with so many clients.
    pub(super) fn run_with(&self, threads: usize) -> Duration {
        if PAPER_THREADS.contains(&threads) { self.run } else { self.run_beside }
    }

    /// The options of a run's database, except for the scheme.
    pub(super) fn options(&self) -> braid::Options {
        braid::Database::options()
            .durability(braid::Durability::Sync)
            .cache_bytes(CACHE_BYTES)
            .write_buffer_bytes(WRITE_BUFFER_BYTES)
            .lend_write_buffer(false)
            .segment_bytes(self.segment_bytes)
            .leaf_pages(LEAF_PAGES)
    }

    /// Bytes of log that are ready when a run begins.
    pub(super) const fn log_bytes(&self) -> u64 {
        self.segments * self.segment_bytes
    }

    /// Peak bytes on storage: one database, with a log that may double, its entries, and the files for the device.
    pub(super) const fn needed_bytes(&self) -> u64 {
        2 * self.log_bytes() + 2 * WRITE_BUFFER_BYTES + 4 * self.file_bytes + (256 << 20)
    }

    pub(super) fn setting(&self) -> Vec<String> {
        let mut sentences = vec![
            format!(
                "{} transactions of each client thread, keys of 20 B, values of 100 B, durability `sync`. The paper has 50000 transactions a thread and 8 to \
                 128 threads; 1, 2 and 4 stand beside.",
                self.transactions
            ),
            format!(
                "Each number is over {} runs, each in a new database; the four schemes, and the device's own flushed writes, take turns, in another order each \
                 time. Plots and their tables have medians, ratios are medians over the runs' pairs; the paper's averages stand in tables of their own.",
                self.repeats
            ),
            format!(
                "A run ends after {} ms ({} ms with 1, 2 or 4 threads) where its transactions take longer: rates and latencies are those of the transactions that \
                 were done until then. Each figure says how many that were, and of which cells.",
                self.run.as_millis(),
                self.run_beside.as_millis()
            ),
            format!(
                "Before a run the log was filled with {} MiB and recycled, so that no run pays for making its segments; segments of {} KiB.",
                self.log_bytes() >> 20,
                self.segment_bytes >> 10
            ),
            "A write buffer of 512 MiB and a cache of 256 MiB hold everything, so that no run has a batch update in it: what is compared is the log alone."
                .into(),
            "After each run the whole table is read and compared with what its clients committed, every value included.".into(),
            "The schemes: `per-commit`, every commit flushes for itself; `existing`, the paper's section 2.2 (under the sync lock: done if the synced LSN covers \
             one's own, else flush and set it to one's own); `existing-all`, the same but the synced LSN becomes all that was written before the flush; `aggregated`, \
             section 3.1 and Braid's default."
                .into(),
            "Son, Yeom and Han changed WiredTiger 2.6.1 on 16 cores and an NVMe SSD with ext4; here all four schemes are Braid's log, and the machine is the one \
             above. Their existing scheme and ours differ in everything around the flush, so ratios compare better than rates."
                .into(),
        ];
        if self.effort != Effort::Full {
            sentences.push(format!(
                "This is a `{}` run: its runs are short and few. Ratios to quote come from `--full`.",
                self.effort.name()
            ));
        }
        sentences
    }
}
