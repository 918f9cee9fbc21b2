//! The cost model: the time of a search and an insert with leaves of each size, and the choice that follows (Roh et
//! al., PVLDB 5(4), 2011, sections 3.5 and 3.6).
//!
//! 1. A [`Workload`] describes the use of a table, a [`DeviceProfile`](psync::probe::DeviceProfile) the times of the
//!    device.
//! 2. [`estimate`] gives the [`Estimate`] of one leaf size and one operation queue: the paper's figure ([`paper`]) and
//!    our own (`ours`), which covers the differences of this engine. Each term is a field of the estimate, in µs.
//! 3. [`choose`] takes the leaf size L with the least time per operation, (10), including the charge for space. Where
//!    memory is given in one sum, [`choose`] also takes the queue O.
//! 4. Measured figures are noisy and minima are flat, so every choice within [`AS_GOOD`] of the least counts as good.
//!    The first criterion among those is the smallest queue, which has the least to replay after a crash. The second is
//!    the smallest leaf size, which reads and caches the least beyond the entries asked for.
//!
//! # Terms of our figure beyond the paper's
//!
//! - **Children and entries differ.** A leaf page holds entries of the table's size. An internal node takes some twenty
//!   bytes for a leaf, four for each of its fences, independent of their keys, and its filter: a byte for each entry
//!   that the leaf has room for.
//! - **Levels are counted whole**, and the pages of upper levels are taken off the memory for lower ones.
//! - **Sharing.** The paper takes `G` for (operations / nodes), at least 1. Operations with random keys meet now and
//!   then long before there are as many as nodes: `n` of them touch `m (1 - e^(-n/m))` of `m` nodes.
//! - **A search reads one page** of a leaf, whatever `L`: the one that the leaf's filter names. A search reads another
//!   page in vain as often as a filter of that size is mistaken. One search in five is for an absent key, and reads
//!   nothing where leaves are small enough for their filters to have all keys. Checking pages takes time too. A share
//!   of the searches may come in batches: these pay `P'_r`, for internal nodes and for leaves.
//! - **Readers come together.** The time of one reader depends on the device's latency; the time of eight or thirty-two
//!   depends on the device's throughput. A search is the mean over these, so bytes count, and not only requests.
//! - **Some searches are short scans.** A short scan reads the leaves of its records, whole where anything was
//!   appended. Large leaves make short scans dear.
//! - **Space counts.** The bytes that a table takes on storage beyond its records make an operation dearer in
//!   proportion ([`Estimate::cost_us`]).
//! - **Where nothing is inserted** everything was loaded: leaves and nodes are as full as the loader makes them, and
//!   entries have no seq of their own.
//! - **An append** reads the last page of a leaf unless that page is cached. An append writes the pages that the new
//!   entries reach: more than one where many entries come to a leaf.
//! - **Rewrites.** A full leaf is read and written whole; the paper ignores that. Leaves are assumed to grow from half
//!   full to full, as where each is cut by itself. So the share of batches of new entries to a leaf that end in a
//!   rewrite is (their bytes / half of the leaf).
//! - **Rounds.** A batch update takes the fullest of the sections that keys fall to, which holds twice the mean. A
//!   batch update ends with a flush of the log and one of the data, whose time its operations share.
//! - **Internal nodes are copied on write**: every node on the way to a changed leaf is written anew, in large writes.
//!
//! Records are assumed to be of one size, keys as well as values, so that their runs are uniform. In other runs an
//! entry takes six bytes more, which a model that knows only the size of a record cannot tell.
//!
//! Keys are assumed to be spread evenly, which is the worst case for a cache. Time is the device's time, as in the
//! paper, because the processor's time is much the same for all sizes.

mod choice;
mod device;
mod ours;
pub mod paper;
#[cfg(test)]
mod tests;

pub use crate::leaf_size::{ROOM_ENTRIES, ROOM_PAGES_MAX};
pub use choice::{
    AS_GOOD, Choice, NodeChoice, PIO_MAX_BOUNDS, choose, gap_pages, lookups_in_flight, node_pages, pio_max,
};
pub use ours::{Estimate, InsertCost, SearchCost, estimate};

use psync::probe::PAGES_MEASURED;

use crate::format::INLINE_BYTES_MAX;

/// The leaf sizes that are considered, in pages.
pub const LEAF_PAGES: [usize; PAGES_MEASURED.len()] = PAGES_MEASURED;

/// Bytes of an entry of a leaf besides key and value, where operations came one by one: its seq, and its share of run
/// headers.
const ENTRY_OVERHEAD_BYTES: f64 = 4.0;

/// The same where everything was loaded, and so has one seq. The share of the header of a run that fills a page is less
/// than a percent.
const LOADED_OVERHEAD_BYTES: f64 = 0.0;

/// Bytes of a key and a document pointer, where the value is a document.
const DOCUMENT_ENTRY_BYTES: f64 = 52.0;

/// Bytes of a waiting operation besides key and value, including the queue's allocation ahead.
const QUEUED_OVERHEAD_BYTES: f64 = 40.0;

/// Operations of the fullest section when a round takes that section, in means of all sections. Sections that wait for
/// their turn hold from 0 to so many means.
const FULLEST: f64 = 2.0;

/// The share of a write buffer that is in use while operations come. The rest is room for operations that come in
/// during a round.
const WRITE_BUFFER_USED: f64 = 0.8;

/// Flushes of a round: the log before, the data after.
const ROUND_FLUSHES: f64 = 2.0;

/// Usual bytes of a section of a write buffer, and the bounds of the number of sections: fewer are too few, more do not
/// pay off.
const SECTION_BYTES: u64 = 128 << 10;
const SECTIONS: (u64, u64) = (8, 32);
/// Least bytes of a section in a small buffer, because a queue takes some memory for its first operation.
const SECTION_BYTES_MIN: u64 = 16 << 10;

/// The number of sections of a write buffer. Each is a queue of a range of keys; a batch update takes the fullest.
#[must_use]
pub fn sections(write_buffer_bytes: u64) -> u64 {
    let most = (write_buffer_bytes / SECTION_BYTES_MIN).max(1);
    (write_buffer_bytes / SECTION_BYTES).clamp(SECTIONS.0, SECTIONS.1).min(most)
}

/// Memory for nodes and for operations that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Memory {
    /// In one sum, to be divided.
    Total {
        /// Bytes.
        bytes: u64,
    },
    /// Divided already.
    Divided {
        /// Bytes for nodes.
        cache_bytes: u64,
        /// Bytes for operations that wait.
        write_buffer_bytes: u64,
    },
}

/// The use of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Workload {
    /// Records in the table: `N`.
    pub records: u64,
    /// Bytes of a record, key and value.
    pub record_bytes: u64,
    /// Share of operations that are puts or deletes, `R_i`; the others are lookups.
    pub insert_share: f64,
    /// Share of lookups that come in batches.
    pub batched_share: f64,
    /// Memory.
    pub memory: Memory,
}

impl Workload {
    /// Bytes of an entry of a leaf.
    fn entry_bytes(&self) -> f64 {
        let is_document = self.record_bytes > INLINE_BYTES_MAX as u64;
        let data = if is_document { DOCUMENT_ENTRY_BYTES } else { self.record_bytes as f64 };
        data + if self.insert_share > 0.0 { ENTRY_OVERHEAD_BYTES } else { LOADED_OVERHEAD_BYTES }
    }

    /// Operations that a write buffer holds.
    fn queued(&self, write_buffer_bytes: u64) -> f64 {
        let value = (self.record_bytes as f64).min(DOCUMENT_ENTRY_BYTES.max(INLINE_BYTES_MAX as f64));
        (write_buffer_bytes as f64 * WRITE_BUFFER_USED / (value + QUEUED_OVERHEAD_BYTES)).max(1.0)
    }

    /// Operations that would wait for the whole tree if all sections held as many as the section that a batch update
    /// takes.
    fn waiting(&self, write_buffer_bytes: u64) -> f64 {
        FULLEST * self.queued(write_buffer_bytes)
    }

    /// Operations of one batch update.
    fn of_round(&self, write_buffer_bytes: u64) -> f64 {
        (self.waiting(write_buffer_bytes) / sections(write_buffer_bytes) as f64).max(1.0)
    }

    /// The workload within its bounds: shares from 0 to 1, at least one record of a byte, and a queue that is part of
    /// the memory.
    fn sound(&self) -> Self {
        let share = |share: f64| if share.is_nan() { 0.5 } else { share.clamp(0.0, 1.0) };
        Self {
            records: self.records.max(1),
            record_bytes: self.record_bytes.max(1),
            insert_share: share(self.insert_share),
            batched_share: share(self.batched_share),
            memory: self.memory,
        }
    }
}
