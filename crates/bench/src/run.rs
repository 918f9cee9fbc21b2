//! One workload from the open database to its report.
//!
//! 1. [`prepare`] gives the table: emptied for a fill, checked to be a benchmark's for the rest.
//! 2. A sliced workload (reads, commits): a warm-up slice that is not counted and tells the I/O size; then pairs of limit and slice.
//! 3. Reads while others write: each pair has a slice without writers before.
//! 4. Any other: the limit before, the whole run with the wait for queued operations, the limit after.
//!
//! Invariant: counters of the process are read right before and right after a slice, so limits are not in them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid::{Database, Structure, Table, TableOptions};
use psync::BLOCK;

use crate::limits::Probe;
use crate::process::{DeviceBytes, bytes_below, evict_page_cache};
use crate::seen::{Frame, ReadCount, ScanRequest, Seen};
use crate::slice::{Shared, Tally, drive};
use crate::workload::Job;
use crate::{Config, DepthRate, Error, Limit, Report, Result, TABLE, Workload, keys, values};

/// Longest measurement of one limit.
const LIMIT_TIME_MAX: Duration = Duration::from_millis(500);
/// Longest warm-up.
const WARM_UP_MAX: Duration = Duration::from_secs(1);
/// A fill reads every so many of its records back.
const READ_BACK_STEP: u64 = 1000;
/// The depths that every report has.
const DEPTHS: [usize; 3] = [1, 32, 128];
/// Most reads in flight while a limit is measured.
const DEPTH_MAX: usize = 1024;

/// How a caller follows and stops a run.
pub struct Watch<'a> {
    /// Set to stop soon; the report then covers what was done.
    pub stop: &'a AtomicBool,
    /// Called about ten times a second with operations done and, where known, how many there will be.
    pub progress: &'a (dyn Fn(u64, Option<u64>) + Sync),
    /// Called when another phase begins, with its name.
    pub phase: &'a (dyn Fn(&str) + Sync),
}

/// Runs one workload.
///
/// # Errors
/// When the configuration is out of its limits, the table is missing or holds something else, a value is wrong, or the database or
/// the device fails.
pub fn run(database: &Database, config: &Config, watch: &Watch<'_>) -> Result<Report> {
    config.check()?;
    (watch.phase)("preparing");
    let (table, value_bytes) = prepare(database, config)?;
    let structure = table.structure();
    if config.workload.reads() {
        // What a fill left in the queue would be answered from memory, and applied in the middle of the measurement.
        database.checkpoint()?;
    }
    if config.cold {
        database.drop_caches();
        evict_page_cache(database.path())?;
    }
    let mut bench =
        Bench { database, config, watch, job: Job::new(database, &table, config, value_bytes), seen: Seen::new() };
    if config.workload.is_sliced() {
        bench.run_sliced()?;
    } else {
        bench.run_whole()?;
    }
    bench.report(structure)
}

/// Records of a benchmark in a table: one more than the index of its last key. None when the table is missing or empty.
///
/// # Errors
/// When the table holds something that no workload wrote, or cannot be read.
pub fn existing_records(database: &Database, key_size: usize) -> Result<Option<u64>> {
    Ok(last_record(database, key_size)?.map(|(records, _)| records))
}

/// Records of a benchmark in a table, and the bytes of the last one's value.
fn last_record(database: &Database, key_size: usize) -> Result<Option<(u64, usize)>> {
    if !database.tables().iter().any(|table| table.name == TABLE) {
        return Ok(None);
    }
    let table = database.open_table(TABLE)?;
    let Some(last) = table.iter().rev().next() else { return Ok(None) };
    let (key, value) = last?;
    let foreign = || Error::ForeignTable { table: TABLE.into(), key_size };
    let index = keys::index(&key).filter(|_| key.len() == key_size).ok_or_else(foreign)?;
    if !values::is_right(index, &value) {
        return Err(foreign());
    }
    Ok(Some((index + 1, value.len())))
}

/// The table, and the bytes of a value in it.
fn prepare(database: &Database, config: &Config) -> Result<(Table, usize)> {
    let existing = last_record(database, config.key_size)?;
    if config.workload.fills() && existing.is_some() {
        database.drop_table(TABLE)?;
    }
    if config.workload.reads() || config.workload == Workload::Overwrite {
        let Some((_, value_bytes)) = existing else {
            let what = format!(
                "workload {} needs records in table `{TABLE}`: run fillrandom on the same --db first",
                config.workload
            );
            return Err(Error::Invalid(what));
        };
        return Ok((database.open_table(TABLE)?, value_bytes));
    }
    let expected = TableOptions::new()
        .insert_share(config.insert_share)
        .records(config.num)
        .record_bytes(config.record_bytes().max(1));
    Ok((database.table_with(TABLE, Structure::BTree, &expected)?, config.value_size))
}

struct Bench<'a> {
    database: &'a Database,
    config: &'a Config,
    watch: &'a Watch<'a>,
    job: Job<'a>,
    seen: Seen,
}

impl Bench<'_> {
    fn run_sliced(&mut self) -> Result<()> {
        let pairs = u32::try_from(self.config.pairs).expect("checked to be at most 1000");
        let time = self.config.duration.unwrap_or(Config::DURATION) / pairs;
        self.seen.io_bytes = BLOCK as u64;
        if self.config.workload.reads() {
            (self.watch.phase)("warming up");
            let before = ReadCount::now(self.database)?;
            self.job.next_slice();
            let (tally, _) = self.slice(Some(time.min(WARM_UP_MAX)))?;
            let reads = ReadCount::now(self.database)?.since(before);
            self.seen.io_bytes = reads.bytes_per_read();
            match self.config.workload {
                Workload::ReadSeq => self.seen.scan = ScanRequest::of(reads, tally.operations),
                // What is read to apply writes is not what a call reads.
                Workload::ReadWhileWriting => self.seen.io_bytes = reads.bytes_per_leaf(),
                _ => {}
            }
        }
        let probe = self.probe()?;
        self.all_limits(&probe, time)?;
        for pair in 1..=self.config.pairs {
            if self.stopped() {
                break;
            }
            (self.watch.phase)(&format!("pair {pair} of {}: the device's limit", self.config.pairs));
            let limit = self.limit(&probe, time)?;
            let quiet = self.quiet_slice(pair, time)?;
            (self.watch.phase)(&format!("pair {pair} of {}: the database", self.config.pairs));
            let busy = self.counted_slice(Some(time))?;
            if let Some(quiet) = quiet {
                self.seen.quiet(&quiet, &busy);
            }
            self.seen.limits.extend(limit);
        }
        Ok(())
    }

    fn run_whole(&mut self) -> Result<()> {
        self.seen.io_bytes = BLOCK as u64;
        (self.watch.phase)("the device's limit");
        let probe = self.probe()?;
        let before = self.limit(&probe, LIMIT_TIME_MAX)?;
        drop(probe);
        (self.watch.phase)("the database");
        self.counted_slice(None)?;
        if self.config.workload.fills() && !self.stopped() {
            (self.watch.phase)("reading a sample back");
            (self.seen.read_back, self.seen.tally.not_found) = self.job.read_back(READ_BACK_STEP)?;
        }
        let probe = self.probe()?;
        let after = self.limit(&probe, LIMIT_TIME_MAX)?;
        if let (Some(before), Some(after)) = (before, after) {
            self.seen.limits.push(f64::midpoint(before, after));
        }
        self.all_limits(&probe, LIMIT_TIME_MAX)
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

    fn slice(&self, time: Option<Duration>) -> Result<(Tally, Duration)> {
        let total = (!self.config.workload.is_sliced()).then_some(self.config.num);
        let work = |thread: usize, shared: &Shared<'_>, tally: &mut Tally| self.job.work(thread, shared, tally);
        let writers = usize::from(self.config.workload == Workload::ReadWhileWriting);
        drive(self.config.threads + writers, time, self.watch, total, &work)
    }

    /// The reads of a pair without writers, where the workload is about the difference.
    fn quiet_slice(&mut self, pair: usize, time: Duration) -> Result<Option<Tally>> {
        if self.config.workload != Workload::ReadWhileWriting {
            return Ok(None);
        }
        (self.watch.phase)(&format!("pair {pair} of {}: nobody writes", self.config.pairs));
        self.job.next_slice();
        let work = |thread: usize, shared: &Shared<'_>, tally: &mut Tally| self.job.read_random(thread, shared, tally);
        let (tally, _) = drive(self.config.threads, Some(time), self.watch, None, &work)?;
        Ok(Some(tally))
    }

    fn counted_slice(&mut self, time: Option<Duration>) -> Result<Tally> {
        self.job.next_slice();
        let (reads, device) = (ReadCount::now(self.database)?, DeviceBytes::now());
        let (tally, mut elapsed) = self.slice(time)?;
        if self.config.workload.writes() && !self.config.workload.is_sliced() {
            (self.watch.phase)("applying what is queued");
            let begun = Instant::now();
            self.database.drain()?;
            self.seen.drain_seconds += begun.elapsed().as_secs_f64();
            elapsed += begun.elapsed();
        }
        let seconds = elapsed.as_secs_f64();
        let reads = ReadCount::now(self.database)?.since(reads);
        if let (Some(before), Some(now)) = (device, DeviceBytes::now()) {
            let total = self.seen.device.get_or_insert_default();
            let here = now.since(before);
            total.read += here.read;
            total.written += here.written;
        }
        self.seen.slice(&tally, seconds, reads);
        Ok(tally)
    }

    /// Which limit this workload is held against, and with how many requests in flight.
    fn limit_of_workload(&self) -> (Limit, usize) {
        let threads = self.config.threads;
        match self.config.workload {
            Workload::FillSeq | Workload::FillRandom | Workload::Overwrite => (Limit::SequentialWrite, 8),
            Workload::Commit => (Limit::FlushedWrite, 1),
            Workload::ReadRandom | Workload::SeekRandom | Workload::ReadWhileWriting => {
                (Limit::RandomRead, threads.min(DEPTH_MAX))
            }
            Workload::MultiReadRandom => (Limit::RandomRead, (threads * self.config.batch).min(DEPTH_MAX)),
            Workload::ReadSeq => match self.seen.scan {
                Some(request) => {
                    (Limit::ScanRead, (threads * request.depth(self.database.psync().pio_max())).min(DEPTH_MAX))
                }
                // What is scanned is cached.
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

    fn report(self, structure: Structure) -> Result<Report> {
        let (limit, depth) = self.limit_of_workload();
        let database_bytes = bytes_below(self.database.path())?;
        let interrupted = self.stopped();
        let tables = self.database.stats()?.tables;
        let leaf_pages = tables.iter().find(|table| table.name == TABLE).map_or(0, |table| table.pages_of_new_leaf);
        Ok(self.seen.report(
            self.config,
            Frame {
                structure: structure.to_string(),
                backend: self.database.psync().backend().to_string(),
                database_bytes,
                leaf_pages,
                limit,
                depth,
                interrupted,
            },
        ))
    }
}
