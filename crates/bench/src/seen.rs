//! The observations from the slices of one workload, and the report made of them.

use braid::Database;
use psync::BLOCK;

use crate::limits::median;
use crate::process::Memory;
use crate::slice::Tally;
use crate::ycsb::YcsbReport;
use crate::{Config, DepthRate, Limit, Report, Result};

/// The streams of a table: pages of its structure, and documents.
const STREAMS: [&str; 2] = ["node", "doc"];

/// Read requests of a database to the files of its tables: pages and documents, not the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadCount {
    /// Requests.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Leaves read whole, for lookups and scans.
    pub leaves: u64,
    /// Their bytes.
    pub leaf_bytes: u64,
}

impl ReadCount {
    /// The counts since the database was opened.
    ///
    /// # Errors
    /// When the statistics cannot be read.
    pub fn now(database: &Database) -> Result<Self> {
        let stats = database.stats()?;
        let mut count = Self::default();
        for leaves in stats.cache.structures.iter().flat_map(|part| &part.lookups).filter(|of| of.nodes == "leaves") {
            count.leaves += leaves.reads;
            count.leaf_bytes += leaves.read_bytes.unwrap_or(0);
        }
        for stream in stats.streams {
            if STREAMS.contains(&stream.stream.as_str()) {
                count.reads += stream.reads;
                count.bytes += stream.read_bytes;
            }
        }
        Ok(count)
    }

    /// The difference since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            leaves: self.leaves.saturating_sub(earlier.leaves),
            leaf_bytes: self.leaf_bytes.saturating_sub(earlier.leaf_bytes),
        }
    }

    /// Average bytes of a request, rounded up to whole pages; one page without any request.
    #[must_use]
    pub const fn bytes_per_read(self) -> u64 {
        whole_pages(self.bytes, self.reads)
    }

    /// Average bytes of a leaf, whether or not each leaf had a request of its own.
    #[must_use]
    pub const fn bytes_per_leaf(self) -> u64 {
        whole_pages(self.leaf_bytes, self.leaves)
    }
}

/// The average yield of one request of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanRequest {
    pub(crate) records: f64,
    pub(crate) leaves: f64,
}

impl ScanRequest {
    /// None when the cache served everything.
    pub(crate) fn of(reads: ReadCount, records: u64) -> Option<Self> {
        let leaves = ratio(reads.leaves as f64, reads.reads as f64).filter(|leaves| *leaves > 0.0)?;
        Some(Self { records: ratio(records as f64, reads.reads as f64)?, leaves })
    }

    /// Requests in flight when so many leaves are asked for ahead.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to the number of leaves")]
    pub(crate) fn depth(self, leaves: usize) -> usize {
        ((leaves as f64 / self.leaves.max(1.0)).ceil() as usize).max(1)
    }
}

const fn whole_pages(bytes: u64, reads: u64) -> u64 {
    let block = BLOCK as u64;
    let reads = if reads == 0 { 1 } else { reads };
    let blocks = (bytes / reads).div_ceil(block);
    if blocks == 0 { block } else { blocks * block }
}

/// Bytes from and to the storage device, where known.
#[derive(Clone, Copy)]
pub(crate) struct DeviceBytes {
    /// Read by this process.
    pub(crate) read: Option<u64>,
    /// Written by all processes on the same device.
    pub(crate) written: Option<u64>,
}

impl DeviceBytes {
    /// The difference since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// The sum.
    fn and(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| join(one, other));
        Self { read: both(self.read, other.read), written: both(self.written, other.written) }
    }
}

/// Sums over the slices, and one rate per slice.
pub(crate) struct Seen {
    pub(crate) tally: Tally,
    /// Latencies of the same calls without writers.
    pub(crate) quiet: Option<Tally>,
    /// Ratios of the 99th percentiles of each pair: beside applied writes over without writers.
    pub(crate) p99_ratios: Vec<f64>,
    /// Records that a fill read back.
    pub(crate) read_back: u64,
    pub(crate) seconds: f64,
    pub(crate) drain_seconds: f64,
    pub(crate) device: DeviceBytes,
    pub(crate) reads: ReadCount,
    /// Operations per second of each slice.
    pub(crate) rates: Vec<f64>,
    /// Read requests per second of each slice.
    pub(crate) read_rates: Vec<f64>,
    /// The device's limit before each slice.
    pub(crate) limits: Vec<f64>,
    pub(crate) io_bytes: u64,
    /// Records and leaves per request of a scan, on average.
    pub(crate) scan: Option<ScanRequest>,
    pub(crate) random_read: Vec<DepthRate>,
    pub(crate) sequential_read: Option<f64>,
    pub(crate) sequential_write: Option<f64>,
    pub(crate) flushed_writes: Option<f64>,
    /// Backend that measured the limits.
    pub(crate) backend: String,
    pub(crate) direct: bool,
}

/// The report's figures beside the observations.
pub(crate) struct Frame {
    pub(crate) structure: String,
    pub(crate) compression: String,
    pub(crate) backend: String,
    pub(crate) database_bytes: u64,
    pub(crate) leaf_pages: Option<u64>,
    pub(crate) limit: Limit,
    pub(crate) depth: usize,
    pub(crate) interrupted: bool,
    /// Records in the table at the start of the workload, or the number that a fill was to make.
    pub(crate) records: u64,
    pub(crate) ycsb: Option<YcsbReport>,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self {
            tally: Tally::new(),
            quiet: None,
            p99_ratios: Vec::new(),
            read_back: 0,
            seconds: 0.0,
            drain_seconds: 0.0,
            device: DeviceBytes { read: Some(0), written: Some(0) },
            reads: ReadCount::default(),
            rates: Vec::new(),
            read_rates: Vec::new(),
            limits: Vec::new(),
            io_bytes: BLOCK as u64,
            scan: None,
            random_read: Vec::new(),
            sequential_read: None,
            sequential_write: None,
            flushed_writes: None,
            backend: String::new(),
            direct: false,
        }
    }

    /// Adds a slice.
    pub(crate) fn slice(&mut self, tally: &Tally, seconds: f64, reads: ReadCount, device: DeviceBytes) {
        self.device = self.device.and(device);
        self.rates.push(tally.operations as f64 / seconds);
        self.read_rates.push(reads.reads as f64 / seconds);
        self.reads.reads += reads.reads;
        self.reads.bytes += reads.bytes;
        self.reads.leaves += reads.leaves;
        self.reads.leaf_bytes += reads.leaf_bytes;
        self.seconds += seconds;
        self.tally.merge(tally);
    }

    /// Adds a pair's latencies without writers, and its latencies while writes were applied.
    pub(crate) fn quiet(&mut self, quiet: &Tally, busy: &Tally) {
        let p99 = |tally: &Tally| tally.latency.value_at_quantile(0.99) as f64;
        self.p99_ratios.extend(ratio(p99(busy), p99(quiet)).filter(|_| !busy.latency.is_empty()));
        self.quiet.get_or_insert_with(Tally::new).merge(quiet);
    }

    pub(crate) fn report(self, config: &Config, frame: Frame) -> Report {
        let at = |tally: &Tally, quantile| tally.latency.value_at_quantile(quantile) as f64 / 1000.0;
        let microseconds = |quantile| at(&self.tally, quantile);
        let operations = self.tally.operations;
        let DeviceBytes { read, written } = self.device;
        let amplification = |written| ratio(written as f64, self.tally.put_bytes as f64);
        let reads = config.workload.reads();
        // The counts do not tell the requests of reads and of applied writes apart.
        let only_reads = config.workload.only_reads();
        let memory = Memory::now();
        let of_random_reads = frame.limit == Limit::RandomRead;
        Report {
            workload: config.workload.to_string(),
            structure: frame.structure,
            compression: frame.compression,
            backend: frame.backend,
            durability: config.durability.to_string(),
            threads: config.threads,
            batch: config.batch,
            num: frame.records,
            key_size: config.key_bytes(),
            value_size: config.value_bytes(),
            cache_bytes: config.cache_bytes,
            write_buffer_bytes: config.write_buffer_bytes,
            leaf_pages: frame.leaf_pages,
            database_bytes: frame.database_bytes,
            cold: config.cold,
            seed: config.seed,
            operations,
            seconds: self.seconds,
            drain_seconds: self.drain_seconds,
            ops_per_second: median(&self.rates).unwrap_or(0.0),
            ops_by_second: if config.workload.is_sliced() { Vec::new() } else { self.tally.by_second.clone() },
            p50_us: microseconds(0.5),
            p99_us: microseconds(0.99),
            p999_us: microseconds(0.999),
            max_us: self.tally.latency.max() as f64 / 1000.0,
            quiet_p99_us: self.quiet.as_ref().map(|quiet| at(quiet, 0.99)),
            p99_ratio: median(&self.p99_ratios),
            not_found: self.tally.not_found,
            read_back: self.read_back,
            read_bytes: read,
            written_bytes: written,
            write_amplification: written.and_then(amplification),
            reads_per_operation: ratio(self.reads.reads as f64, operations as f64).filter(|_| reads && only_reads),
            leaf_reads_per_operation: ratio(self.reads.leaves as f64, operations as f64).filter(|_| reads),
            reads_per_second: median(&self.read_rates).filter(|_| reads && only_reads),
            io_bytes: self.io_bytes,
            resident_bytes: memory.map(|memory| memory.resident_bytes),
            peak_resident_bytes: memory.map(|memory| memory.peak_bytes),
            device_limit: frame.limit,
            device_depth: frame.depth,
            device_backend: self.backend,
            device_direct: self.direct,
            device_ops_per_second: median(&self.limits),
            device_share: median_ratio(&self.rates, &self.limits),
            device_read_share: median_ratio(&self.read_rates, &self.limits).filter(|_| of_random_reads && only_reads),
            device_random_read: self.random_read,
            device_sequential_read_bytes_per_second: self.sequential_read,
            device_sequential_write_bytes_per_second: self.sequential_write,
            device_flushed_writes_per_second: self.flushed_writes,
            pairs: self.rates.len(),
            interrupted: frame.interrupted,
            ycsb: frame.ycsb,
        }
    }
}

fn ratio(value: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| value / of)
}

fn median_ratio(values: &[f64], limits: &[f64]) -> Option<f64> {
    let ratios: Vec<_> = values.iter().zip(limits).filter_map(|(value, limit)| ratio(*value, *limit)).collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_of_neighbours_has_fewer_and_larger_requests_in_flight() {
        let of = |reads, leaves, records| {
            ScanRequest::of(ReadCount { reads, leaves, ..ReadCount::default() }, records)
                .map(|request| (request.records.to_string(), request.depth(64)))
        };
        assert_eq!(of(10, 10, 1000), Some(("100".into(), 64)));
        assert_eq!(of(10, 80, 8000), Some(("800".into(), 8)));
        // Internal nodes have requests of their own.
        assert_eq!(of(11, 10, 1100), Some(("100".into(), 64)));
        assert_eq!(of(1, 100, 100), Some(("100".into(), 1)));
        assert_eq!(of(0, 0, 1000), None);
    }

    #[test]
    fn the_size_of_a_read_is_whole_pages() {
        let size = |reads, bytes| ReadCount { reads, bytes, ..ReadCount::default() }.bytes_per_read();
        assert_eq!(size(0, 0), 4096);
        assert_eq!(size(10, 40960), 4096);
        assert_eq!(size(10, 40970), 8192);
        assert_eq!(size(2, 3 * 8192), 12288);
    }

    #[test]
    fn a_share_is_taken_within_each_pair() {
        assert_eq!(median_ratio(&[10.0, 90.0, 30.0], &[20.0, 100.0, 100.0]), Some(0.5));
        assert_eq!(median_ratio(&[], &[]), None);
    }
}
