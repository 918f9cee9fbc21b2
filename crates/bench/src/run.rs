//! One workload from the open database to its report.
//!
//! 1. [`prepare`] gives the table: emptied for a fill, otherwise checked to be a benchmark's.
//! 2. A sliced workload (reads, commits) has a warm-up slice, which is not counted and gives the I/O size, and then
//!    pairs of limit and slice.
//! 3. For reads beside writers, each pair begins with a slice without writers.
//! 4. For mixes that write, a slice applies its queued operations within its own time, so that the device is quiet when
//!    the next limit is measured.
//! 5. Any other workload is one run: the limit before, the run including the wait for queued operations, the limit
//!    after.
//!
//! Invariant: counters of the process are read right before and right after a slice, so limits are not in them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use braid::{Database, Table, TableHints, TableOptions};
use psync::BLOCK;

use crate::block;
use crate::limits::Probe;
use crate::process::{bytes_below, evict_page_cache, read_bytes};
use crate::seen::{DeviceBytes, Frame, ReadCount, ScanRequest, Seen};
use crate::slice::{Shared, Tally, drive};
use crate::workload::{Job, foreign};
use crate::{Config, DepthRate, Error, Limit, Report, Result, Watch, Workload, keys, queue, ycsb};

/// Longest measurement of one limit.
const LIMIT_TIME_MAX: Duration = Duration::from_millis(250);
/// Shortest.
const LIMIT_TIME_MIN: Duration = Duration::from_millis(10);
/// Longest warm-up where the configuration gives none.
const WARM_UP_MAX: Duration = Duration::from_secs(1);
/// A fill reads one in so many of its records back.
const READ_BACK_STEP: u64 = 1000;
/// The depths in every report.
const DEPTHS: [usize; 3] = [1, 32, 128];
/// Most reads in flight while a limit is measured.
const DEPTH_MAX: usize = 1024;

/// Runs one workload.
///
/// # Errors
/// When the configuration is out of its limits, the table is missing or has other contents, a value is wrong, or the
/// database or the device fails.
pub fn run(database: &Database, config: &Config, watch: &Watch<'_>) -> Result<Report> {
    config.check()?;
    (watch.phase)("preparing");
    let Prepared { table, value_bytes, records } = prepare(database, config)?;
    if config.workload.reads() {
        // Otherwise reads of a fill's queued puts would be answered from memory, and the puts applied in the middle of
        // the measurement.
        database.checkpoint()?;
    }
    if config.cold {
        database.drop_caches();
        evict_page_cache(database.path())?;
    }
    let clients = match config.workload {
        Workload::Queue => Clients::Queue(queue::Clients::new(database, &table, config)),
        workload if workload.is_ycsb() => Clients::Ycsb(ycsb::Clients::new(database, &table, config, records)),
        _ => Clients::Plain(Job::new(database, &table, config, value_bytes)),
    };
    let mut bench = Bench { database, config, watch, clients, seen: Seen::new() };
    if config.workload.is_sliced() {
        bench.run_sliced()?;
    } else {
        bench.run_whole()?;
    }
    bench.report(&table, if matches!(config.workload, Workload::Ycsb(_)) { records } else { config.num })
}

/// Number of a benchmark's records in the table of the configuration's workload: the index of the last record plus one.
/// None when the table is missing or empty.
///
/// # Errors
/// When the table has contents that no workload wrote or that differ from the configuration, or cannot be read.
pub fn existing_records(database: &Database, config: &Config) -> Result<Option<u64>> {
    Ok(existing(database, config)?.map(|(records, _)| records))
}

/// Records of a benchmark in the table, and the bytes of the last one's value.
fn existing(database: &Database, config: &Config) -> Result<Option<(u64, usize)>> {
    let name = config.workload.table();
    if !database.tables().iter().any(|table| table.name == name) {
        return Ok(None);
    }
    let table = database.open_table(name)?;
    if config.workload.is_ycsb() {
        let records = ycsb::existing_records(&table, &config.ycsb.shape)?;
        return Ok(records.map(|records| (records, config.value_bytes())));
    }
    let Some(last) = table.iter().rev().next() else { return Ok(None) };
    let (key, value) = last?;
    let index = keys::index(&key).filter(|_| key.len() == config.key_size).ok_or_else(|| foreign(config))?;
    if !config.values().is_right(index, &value) {
        return Err(foreign(config));
    }
    Ok(Some((index + 1, value.len())))
}

/// The state of the table at the start of a workload.
struct Prepared {
    table: Table,
    value_bytes: usize,
    /// Records at the start.
    records: u64,
}

fn prepare(database: &Database, config: &Config) -> Result<Prepared> {
    let existing = existing(database, config)?;
    let (workload, name) = (config.workload, config.workload.table());
    if workload.fills() && existing.is_some() {
        database.drop_table(name)?;
    }
    if workload.reads() || workload == Workload::Overwrite {
        let Some((there, value_bytes)) = existing else {
            let fill = if workload.is_ycsb() { Workload::YcsbLoad } else { Workload::FillRandom };
            let what =
                format!("workload {workload} needs records in table `{name}`: run {fill} on the same --db first");
            return Err(Error::Invalid(what));
        };
        let records = match workload {
            Workload::Ycsb(_) if config.num > there => {
                let what =
                    format!("num is {}: table `{name}` has {there} records; load more, or ask for fewer", config.num);
                return Err(Error::Invalid(what));
            }
            // New records follow all existing ones.
            Workload::Ycsb(core) if core.insert_share() > 0.0 => there,
            _ => config.num,
        };
        return Ok(Prepared { table: database.open_table(name)?, value_bytes, records });
    }
    let hints = TableHints::new()
        .insert_share(config.insert_share)
        .records(config.num)
        .record_bytes(config.record_bytes().max(1));
    let options = TableOptions::new().hints(hints).compression(config.compression);
    let table = match existing {
        Some(_) if !workload.fills() => database.open_table(name)?,
        _ => database.table_with(name, config.structure, &options)?,
    };
    Ok(Prepared { table, value_bytes: config.value_bytes(), records: 0 })
}

/// The work of a workload's threads.
enum Clients<'a> {
    Plain(Job<'a>),
    Ycsb(ycsb::Clients<'a>),
    Queue(queue::Clients<'a>),
}

impl Clients<'_> {
    fn next_slice(&self) {
        match self {
            Self::Plain(job) => job.next_slice(),
            Self::Ycsb(clients) => clients.next_slice(),
            Self::Queue(_) => {}
        }
    }

    fn work(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        match self {
            Self::Plain(job) => job.work(thread, shared, tally),
            Self::Ycsb(clients) => clients.work(thread, shared, tally),
            Self::Queue(clients) => clients.work(shared, tally),
        }
    }

    /// Reads every `step`th record back; returns how many were read and how many of those were missing. A queue must be
    /// empty.
    fn read_back(&self, step: u64) -> Result<(u64, u64)> {
        match self {
            Self::Plain(job) => job.read_back(step),
            Self::Ycsb(clients) => Ok((clients.read_back(step)?, 0)),
            Self::Queue(clients) => match clients.left()? {
                0 => Ok((0, 0)),
                left => Err(Error::Invalid(format!("{left} jobs are left of those that were all acknowledged"))),
            },
        }
    }
}

struct Bench<'a> {
    database: &'a Database,
    config: &'a Config,
    watch: &'a Watch<'a>,
    clients: Clients<'a>,
    seen: Seen,
}

impl Bench<'_> {
    fn run_sliced(&mut self) -> Result<()> {
        let pairs = u32::try_from(self.config.pairs).expect("checked to be at most 1000");
        let slice_time = self.config.duration.unwrap_or(Config::DURATION) / pairs;
        self.seen.io_bytes = BLOCK as u64;
        let time = if self.config.workload.reads() { self.warm_up(slice_time)? } else { slice_time };
        let probe = self.probe()?;
        self.all_limits(&probe, time)?;
        for pair in 1..=self.config.pairs {
            if self.stopped() {
                break;
            }
            (self.watch.phase)(&format!("pair {pair} of {}: the device's limit", self.config.pairs));
            let limit = self.limit(&probe, time)?;
            let quiet = self.quiet_slice(pair, slice_time)?;
            (self.watch.phase)(&format!("pair {pair} of {}: the database", self.config.pairs));
            let operations = self.config.slice_operations(pair - 1);
            // Without a number of operations, time ends the slice; with a number, time does so only where asked.
            let slice_time = Some(slice_time).filter(|_| operations.is_none() || self.config.duration.is_some());
            let busy = self.counted_slice(slice_time, operations)?;
            if let Some(quiet) = quiet {
                self.seen.quiet(&quiet, &busy);
            }
            self.seen.limits.extend(limit);
        }
        Ok(())
    }

    /// A slice that does not count. The warm-up finds the size of a read, and returns the time for measuring a limit:
    /// as long as a slice will take.
    fn warm_up(&mut self, slice_time: Duration) -> Result<Duration> {
        (self.watch.phase)("warming up");
        let before = ReadCount::now(self.database)?;
        self.clients.next_slice();
        let time = self.config.warm_up.unwrap_or(slice_time.min(WARM_UP_MAX));
        let (tally, elapsed) = self.slice(Some(time), None)?;
        let reads = ReadCount::now(self.database)?.since(before);
        self.seen.io_bytes = reads.bytes_per_read();
        match self.config.workload {
            Workload::ReadSeq => self.seen.scan = ScanRequest::of(reads, tally.operations),
            // Reads made in order to apply writes are not reads of a call.
            workload if !workload.only_reads() => self.seen.io_bytes = reads.bytes_per_leaf(),
            _ => {}
        }
        if self.config.workload.drains() {
            self.database.drain()?;
        }
        let Some(operations) = self.config.slice_operations(0) else { return Ok(slice_time) };
        let expected = elapsed.as_secs_f64() / tally.operations.max(1) as f64 * operations as f64;
        Ok(Duration::try_from_secs_f64(expected).unwrap_or(LIMIT_TIME_MAX).max(LIMIT_TIME_MIN))
    }

    fn run_whole(&mut self) -> Result<()> {
        self.seen.io_bytes = BLOCK as u64;
        (self.watch.phase)("the device's limit");
        let probe = self.probe()?;
        let time = self.config.duration.unwrap_or(LIMIT_TIME_MAX).max(LIMIT_TIME_MIN);
        let before = self.limit(&probe, time)?;
        drop(probe);
        (self.watch.phase)("the database");
        self.counted_slice(None, self.config.slice_operations(0))?;
        if self.config.workload.fills() && !self.stopped() {
            (self.watch.phase)("reading a sample back");
            (self.seen.read_back, self.seen.tally.not_found) = self.clients.read_back(READ_BACK_STEP)?;
        }
        let probe = self.probe()?;
        let after = self.limit(&probe, time)?;
        if let (Some(before), Some(after)) = (before, after) {
            self.seen.limits.push(f64::midpoint(before, after));
        }
        self.all_limits(&probe, time)
    }

    fn stopped(&self) -> bool {
        self.watch.stop.load(Ordering::Relaxed)
    }

    fn probe(&mut self) -> Result<Probe> {
        let probe = Probe::open(self.database.path())?;
        self.seen.backend = probe.backend().to_string();
        self.seen.direct = probe.is_direct();
        Ok(probe)
    }

    fn slice(&self, time: Option<Duration>, operations: Option<u64>) -> Result<(Tally, Duration)> {
        let work = |thread: usize, shared: &Shared<'_>, tally: &mut Tally| self.clients.work(thread, shared, tally);
        let writers = usize::from(self.config.workload.has_writer());
        drive(self.config.threads + writers, time, self.watch, operations, &work)
    }

    /// The reads of a pair without writers, for a workload about the difference.
    fn quiet_slice(&mut self, pair: usize, time: Duration) -> Result<Option<Tally>> {
        let Clients::Plain(job) = &self.clients else { return Ok(None) };
        if !self.config.workload.has_writer() {
            return Ok(None);
        }
        (self.watch.phase)(&format!("pair {pair} of {}: nobody writes", self.config.pairs));
        job.next_slice();
        let work = |thread: usize, shared: &Shared<'_>, tally: &mut Tally| job.read_alone(thread, shared, tally);
        let (tally, _) = drive(self.config.threads, Some(time), self.watch, None, &work)?;
        Ok(Some(tally))
    }

    fn counted_slice(&mut self, time: Option<Duration>, operations: Option<u64>) -> Result<Tally> {
        self.clients.next_slice();
        let device = self.device_bytes();
        let reads = ReadCount::now(self.database)?;
        let (tally, mut elapsed) = self.slice(time, operations)?;
        if self.config.workload.drains() {
            (self.watch.phase)("applying what is queued");
            let begun = Instant::now();
            self.database.drain()?;
            self.seen.drain_seconds += begun.elapsed().as_secs_f64();
            elapsed += begun.elapsed();
        }
        let seconds = elapsed.as_secs_f64();
        let reads = ReadCount::now(self.database)?.since(reads);
        let device = self.device_bytes().since(device);
        self.seen.slice(&tally, seconds, reads, device);
        Ok(tally)
    }

    fn device_bytes(&self) -> DeviceBytes {
        DeviceBytes { read: read_bytes(), written: block::written_bytes(self.database.path()) }
    }

    /// The limit for this workload, and the number of requests in flight.
    fn limit_of_workload(&self) -> (Limit, usize) {
        let threads = self.config.threads;
        match self.config.workload {
            Workload::FillSeq | Workload::FillRandom | Workload::Overwrite | Workload::YcsbLoad => {
                (Limit::SequentialWrite, 8)
            }
            Workload::Commit | Workload::Queue => (Limit::FlushedWrite, 1),
            // Every operation but the insert of a new record begins with a lookup.
            Workload::ReadRandom
            | Workload::SeekRandom
            | Workload::ReadWhileWriting
            | Workload::SeekRandomWhileWriting
            | Workload::Ycsb(_) => (Limit::RandomRead, threads.min(DEPTH_MAX)),
            Workload::MultiReadRandom => (Limit::RandomRead, (threads * self.config.batch).min(DEPTH_MAX)),
            Workload::ReadSeq => match self.seen.scan {
                Some(request) => {
                    (Limit::ScanRead, (threads * request.depth(self.database.psync().pio_max())).min(DEPTH_MAX))
                }
                // The scanned records are cached.
                None => (Limit::SequentialRead, 8),
            },
        }
    }

    /// The device's rate in the unit of the workload's operations.
    fn limit(&self, probe: &Probe, time: Duration) -> Result<Option<f64>> {
        let time = time.min(LIMIT_TIME_MAX);
        let record = self.config.record_bytes() as f64;
        let (limit, depth) = self.limit_of_workload();
        Ok(match limit {
            Limit::RandomRead => probe.random_reads_per_second(self.seen.io_bytes, depth, time)?,
            Limit::ScanRead => {
                let reads = probe.random_reads_per_second(self.seen.io_bytes, depth, time)?;
                reads.zip(self.seen.scan).map(|(reads, request)| reads * request.records)
            }
            Limit::SequentialRead => probe.sequential_read_bytes_per_second(time)?.map(|bytes| bytes / record),
            Limit::SequentialWrite => Some(probe.writes(time)?.sequential_bytes_per_second / record),
            Limit::FlushedWrite => Some(probe.writes(time)?.flushed_per_second),
        })
    }

    fn all_limits(&mut self, probe: &Probe, time: Duration) -> Result<()> {
        (self.watch.phase)("the device's limits");
        let time = time.min(LIMIT_TIME_MAX);
        for depth in DEPTHS {
            if let Some(reads_per_second) = probe.random_reads_per_second(self.seen.io_bytes, depth, time)? {
                self.seen.random_read.push(DepthRate { depth, reads_per_second });
            }
        }
        if self.config.workload.reads() {
            self.seen.sequential_read = probe.sequential_read_bytes_per_second(time)?;
        }
        let writes = probe.writes(time)?;
        self.seen.sequential_write = Some(writes.sequential_bytes_per_second);
        self.seen.flushed_writes = Some(writes.flushed_per_second);
        Ok(())
    }

    fn report(self, table: &Table, records: u64) -> Result<Report> {
        let (limit, depth) = self.limit_of_workload();
        let database_bytes = bytes_below(self.database.path())?;
        let interrupted = self.stopped();
        let stats = self.database.stats()?;
        let of_table = stats.tables.iter().find(|stats| stats.name == table.name());
        let leaf_pages =
            of_table.and_then(|table| table.figure("new leaf")).map(|bytes| bytes / stats.space.page_bytes);
        let ycsb = match &self.clients {
            Clients::Plain(_) | Clients::Queue(_) => None,
            Clients::Ycsb(clients) => Some(clients.report(&self.seen.tally)),
        };
        Ok(self.seen.report(
            self.config,
            Frame {
                structure: table.structure().to_string(),
                compression: table.settings().compression.to_string(),
                backend: self.database.psync().backend().to_string(),
                database_bytes,
                leaf_pages,
                limit,
                depth,
                interrupted,
                records,
                ycsb,
            },
        ))
    }
}
