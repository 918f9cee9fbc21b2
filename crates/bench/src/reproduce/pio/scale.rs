//! Sizes: the paper's ratios, at the sizes that an effort affords.

use std::time::Duration;

use crate::reproduce::Effort;
use crate::reproduce::stock::{Contestant, Load, Plan};
use crate::tpcc;
use crate::trees::Shape;

/// Entries of 8 B + 8 B, as in the paper.
pub(super) const SMALL: Shape = Shape { key_bytes: 8, value_bytes: 8 };
/// Entries of 16 B + 100 B, a usual size in measurements of today's stores.
pub(super) const LARGE: Shape = Shape { key_bytes: 16, value_bytes: 100 };
/// Data : memory in the paper: 8 GB and 16 MB.
pub(super) const PAPER_RATIO: u64 = 512;
/// Data : memory in the setting with more memory.
pub(super) const EASY_RATIO: u64 = 64;
/// Data : memory of TPC-C in the paper: 1 GB and 4 MB.
pub(super) const TPCC_RATIO: u64 = 256;
/// The least budget of a tree. Below this size a buffer pool has too few pages.
const MEMORY_BYTES_MIN: u64 = 256 << 10;

/// Sizes and times of one effort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    effort: Effort,
    /// Entries of 8 B + 8 B. Entries of another shape have the same number of bytes in all.
    pub(super) entries: u64,
    /// Samples of each cell.
    pub(super) repeats: usize,
    /// Duration of a sample of a tree.
    pub(super) slice: Duration,
    /// Duration of a sample of the TPC-C trace.
    pub(super) trace_slice: Duration,
    /// Duration of a sample of the device.
    pub(super) device_slice: Duration,
    /// Bytes of the file that figures 2 to 4 read and write.
    pub(super) file_bytes: u64,
    /// The scale of TPC-C, in warehouses.
    pub(super) warehouses: u64,
}

impl Scale {
    pub(super) fn new(effort: Effort) -> Self {
        let milliseconds = Duration::from_millis;
        match effort {
            Effort::Tiny => Self {
                effort,
                entries: 1 << 16,
                repeats: 2,
                slice: milliseconds(5),
                trace_slice: milliseconds(20),
                device_slice: milliseconds(2),
                file_bytes: 16 << 20,
                warehouses: 1,
            },
            Effort::Quick => Self {
                effort,
                entries: 8 << 20,
                repeats: 3,
                slice: milliseconds(200),
                trace_slice: milliseconds(700),
                device_slice: milliseconds(50),
                file_bytes: 512 << 20,
                warehouses: 4,
            },
            Effort::Full => Self {
                effort,
                entries: 128 << 20,
                repeats: 5,
                slice: milliseconds(1500),
                trace_slice: milliseconds(6000),
                device_slice: milliseconds(200),
                file_bytes: 4 << 30,
                warehouses: 100,
            },
        }
    }

    /// Bytes of the entries' keys and values.
    pub(super) const fn data_bytes(&self) -> u64 {
        self.entries * SMALL.entry_bytes() as u64
    }

    /// The budget of a tree with `ratio` bytes of data for each byte of memory.
    pub(super) fn memory_bytes(&self, ratio: u64) -> u64 {
        (self.data_bytes() / ratio).max(MEMORY_BYTES_MIN)
    }

    /// A tree of entries of that shape, with as many bytes in all as the small entries have.
    pub(super) fn plan(&self, contestant: Contestant, shape: Shape, memory_bytes: u64) -> Plan {
        let load = Load::Even(self.entries_of(shape));
        Plan { contestant, shape, load, memory_bytes }
    }

    /// Number of entries of that shape.
    pub(super) const fn entries_of(&self, shape: Shape) -> u64 {
        self.data_bytes() / shape.entry_bytes() as u64
    }

    /// Bytes of keys and values of the TPC-C indexes.
    pub(super) fn tpcc_bytes(&self) -> u64 {
        tpcc::loaded_keys(self.warehouses) * SMALL.entry_bytes() as u64
    }

    /// The budget of all of TPC-C's indexes together.
    pub(super) fn tpcc_memory_bytes(&self) -> u64 {
        (self.tpcc_bytes() / TPCC_RATIO).max(MEMORY_BYTES_MIN)
    }

    /// Peak bytes on storage: four trees at hand and three kept, with room to grow; their logs; the files of figures 2
    /// to 4.
    pub(super) const fn needed_bytes(&self) -> u64 {
        12 * self.data_bytes() + 2 * self.file_bytes + (1 << 30)
    }

    pub(super) fn setting(&self) -> Vec<String> {
        let mebibytes = |bytes: u64| format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20));
        let mut sentences = vec![
            format!(
                "{} entries of 8 B + 8 B ({} of data), or as many bytes of 16 B + 100 B; the paper has 10^9 entries in 8 GB. Memory for buffers, \
                 queues and tables together: {} (1/{} of the data: the paper's 16 MB : 8 GB), and {} (1/{}).",
                self.entries,
                mebibytes(self.data_bytes()),
                mebibytes(self.memory_bytes(PAPER_RATIO)),
                self.data_bytes() / self.memory_bytes(PAPER_RATIO),
                mebibytes(self.memory_bytes(EASY_RATIO)),
                self.data_bytes() / self.memory_bytes(EASY_RATIO),
            ),
            format!(
                "Each point is the median of {} samples, taken in turns with the other contestants'. A sample of a tree lasts {} ms (with inserts: \
                 until they are in the tree, which counts), where the paper has 5 or 10 million operations; times are per operation.",
                self.repeats,
                self.slice.as_millis()
            ),
            "PioMax 64, speriod 5000 and bcnt 5000 as in the paper. A bupdate of the paper takes bcnt operations of one sorted OPQ; here it takes \
             the fullest sections of the OPQ, a small part of it, and bcnt only bounds how many operations that may be at a time."
                .into(),
            "All trees are loaded in key order: their nodes 15/16 full, the runs of the FD-tree in full pages.".into(),
            "BFTL gets a C of 2 at least. With one page for each node it has no lists of changes: it would be a B-tree that writes whole nodes to new \
             places, and its own cost function can prefer that where writes are cheap."
                .into(),
            "The PIO B-tree is Braid with one table and durability `os`: it logs every write, handed to the operating system when the call returns, \
             and flushes its data file and its log in every bupdate. The other trees log nothing and never flush."
                .into(),
            "The budget of the PIO B-tree is its cache and its write buffer (the OPQ, also while it is applied); the LSMap is the lengths in its leaf \
             pointers, so in the cache. Memory of one call is in nobody's budget: for the PIO B-tree the leaves that a bupdate works on together (16 MiB \
             at most) and those that a scan reads ahead (PioMax of them, 4 MiB at most); for the FD-tree the batches of a merge; for BFTL the pages of a \
             commit."
                .into(),
        ];
        if self.effort != Effort::Full {
            sentences.push(format!(
                "This is a `{}` run: at this size even 1/64 of the data holds few pages, and short samples scatter. Ratios to quote come from `--full`.",
                self.effort.name()
            ));
        }
        sentences
    }
}
