//! The results of a workload, as printed by `--json`: one object per workload.

use std::path::Path;

use serde::Serialize;

use crate::Result;
use crate::reproduce::figure::{Axis, Drawing, Figure, Panel, Point};
use crate::ycsb::YcsbReport;

/// Random reads per second at one depth.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DepthRate {
    /// Reads in flight.
    pub depth: usize,
    /// Reads per second.
    pub reads_per_second: f64,
}

/// The device limit behind `device_ops_per_second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Random reads per second at the workload's depth and I/O size.
    RandomRead,
    /// Random reads of the size of a scan's requests, as many in flight as the scan asks for ahead, times the records
    /// per request.
    ScanRead,
    /// Sequential read bytes per second, divided by the bytes of a record.
    SequentialRead,
    /// Sequential write bytes per second, divided by the bytes of a record.
    SequentialWrite,
    /// Writes of 4 KiB with fdatasync after each, per second.
    FlushedWrite,
}

/// The result of one workload. Rates are per second, latencies in microseconds, sizes in bytes. A field is null where
/// it was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the workload.
    pub workload: String,
    /// Structure of the table.
    pub structure: String,
    /// Compression of large values of the table.
    pub compression: String,
    /// I/O backend of the database.
    pub backend: String,
    /// Durability of writes: `sync`, `os` or `lazy:MS`.
    pub durability: String,
    /// Client threads.
    pub threads: usize,
    /// Operations per call.
    pub batch: usize,
    /// Records in the table; for a workload that inserts, those at the beginning.
    pub num: u64,
    /// Bytes of a key; of the longest key where sizes differ.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Cache of the database.
    pub cache_bytes: u64,
    /// Write buffer of the database.
    pub write_buffer_bytes: u64,
    /// Pages of a leaf of the table, if its structure has leaves of a chosen size.
    pub leaf_pages: Option<u64>,
    /// Bytes of all files of the database after the run.
    pub database_bytes: u64,
    /// Whether caches were emptied before the run.
    pub cold: bool,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Operations done: keys looked up, records written or scanned, seeks, commits. For reads beside writers, all of
    /// the reads.
    pub operations: u64,
    /// Time of the operations. For fills, overwrites and the slices of mixes that write, the time ends when every
    /// operation is applied to the structure.
    pub seconds: f64,
    /// Part of `seconds` spent waiting for queued operations to be applied after the last call.
    pub drain_seconds: f64,
    /// Operations per second; with several pairs the median over them.
    pub ops_per_second: f64,
    /// Operations of each whole second, where the workload is one run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ops_by_second: Vec<u64>,
    /// Median latency of a call; in a scan, of 64 records, read and checked. With a target rate, a latency starts when
    /// the call was due.
    pub p50_us: f64,
    /// 99th percentile of the latency of a call. Beside writers, this and the other latencies are those of calls during
    /// which writes were applied.
    pub p99_us: f64,
    /// 99.9th percentile of the latency of a call.
    pub p999_us: f64,
    /// Worst latency of a call.
    pub max_us: f64,
    /// 99th percentile of the same calls without writers, where the workload measures both.
    pub quiet_p99_us: Option<f64>,
    /// `p99_us` over `quiet_p99_us`; the median of the ratio within each pair.
    pub p99_ratio: Option<f64>,
    /// Keys looked up that did not exist.
    pub not_found: u64,
    /// Records (every 1000th) that a fill read back afterwards and found right.
    pub read_back: u64,
    /// Bytes that this process made the device read during the workload.
    pub read_bytes: Option<u64>,
    /// Bytes written to the device during the workload by all processes, so run nothing beside the workload. Dirty
    /// pages of the page cache are written before each count. None where the file system has no block device of its
    /// own.
    pub written_bytes: Option<u64>,
    /// `written_bytes` over the bytes of the keys and values put.
    pub write_amplification: Option<f64>,
    /// Read requests to the data files per operation.
    pub reads_per_operation: Option<f64>,
    /// Leaves read whole from storage per operation.
    pub leaf_reads_per_operation: Option<f64>,
    /// Read requests to the data files per second; the median over the pairs.
    pub reads_per_second: Option<f64>,
    /// Bytes of one read request, or of one leaf beside writers: the average, rounded up to whole pages. This is the
    /// I/O size of the limit.
    pub io_bytes: u64,
    /// Resident memory at the end.
    pub resident_bytes: Option<u64>,
    /// Peak resident memory since the process started.
    pub peak_resident_bytes: Option<u64>,
    /// The limit behind `device_ops_per_second`.
    pub device_limit: Limit,
    /// Requests in flight during the measurement of that limit.
    pub device_depth: usize,
    /// Backend that measured the limits.
    pub device_backend: String,
    /// Whether the limits were measured past the page cache.
    pub device_direct: bool,
    /// The device's own rate in the unit of `ops_per_second`; the median over the pairs.
    pub device_ops_per_second: Option<f64>,
    /// `ops_per_second` over `device_ops_per_second`; the median of the ratio within each pair.
    pub device_share: Option<f64>,
    /// For reads: `reads_per_second` over the limit, pair by pair. Reads served by caches are left out, so the figure
    /// cannot flatter.
    pub device_read_share: Option<f64>,
    /// The device's random reads at `io_bytes` and depths 1, 32 and 128.
    pub device_random_read: Vec<DepthRate>,
    /// The device's sequential read, bytes per second. Measured for reads.
    pub device_sequential_read_bytes_per_second: Option<f64>,
    /// The device's sequential write, bytes per second.
    pub device_sequential_write_bytes_per_second: Option<f64>,
    /// The device's writes of 4 KiB with fdatasync after each, per second.
    pub device_flushed_writes_per_second: Option<f64>,
    /// Pairs of (limit, slice) that the medians are over.
    pub pairs: usize,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
    /// The further results of a YCSB workload.
    pub ycsb: Option<YcsbReport>,
}

impl Report {
    /// Draws the operations of each second as an SVG file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn draw_by_second(&self, path: &Path) -> Result<()> {
        let title = format!("{}, {} threads, durability {}", self.workload, self.threads, self.durability);
        let mut panel =
            Panel::new("", Drawing::Lines, Axis::linear("seconds"), Axis::linear("operations in the second"));
        for (second, operations) in (1_u32..).zip(&self.ops_by_second) {
            panel.add(&self.structure, Point::of(second.into(), vec![*operations as f64]));
        }
        let figure = Figure { panels: vec![panel], ..Figure::new(&self.workload, title) };
        crate::reproduce::draw(&figure, path)
    }
}
