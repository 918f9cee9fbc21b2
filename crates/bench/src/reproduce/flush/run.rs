//! One run: a new database, its clients, and the measurements of the clients and the log.
//!
//! 1. The database is created. Its log is filled with puts whose table is dropped again, and a checkpoint then leaves
//!    the segments as spares. Entries that the workload needs are loaded past the log.
//! 2. The clients work until all of their transactions are done, or the time is over. The counters of the log are read
//!    right before and right after.
//! 3. The table is checked, and everything is removed.

use std::fs;
use std::sync::atomic::AtomicU64;

use braid::{Database, Durability, FlushScheme, LogStats, Structure, Table, WriteBatch};
use tempfile::TempDir;

use super::scale::{SHAPE, Scale};
use super::workload::{Stage, Work, check};
use crate::reproduce::lab::Lab;
use crate::reproduce::stock::entry;
use crate::slice::{Shared, Tally, drive};
use crate::{Error, Result};

/// The table of the clients.
const TABLE: &str = "flush";
/// The table that fills the log.
const FILLER: &str = "filler";
/// Bytes of a value that fills the log: short enough not to be stored elsewhere.
const FILLER_BYTES: usize = 1024;
/// Puts of one commit that fills the log.
const FILLER_BATCH: u64 = 32;

/// One run to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) work: Work,
    pub(super) scheme: FlushScheme,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

/// Measurements of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) transactions: u64,
    pub(super) seconds: f64,
    /// Average latency of a transaction, measured by its client.
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Counters of the log during the run.
    pub(super) log: Counts,
    /// Whether the run did all of its transactions.
    pub(super) is_whole: bool,
    /// Whether the log outgrew the segments that were ready.
    pub(super) grew: bool,
}

/// A measurement of a run.
pub(super) type Quantity = fn(&Sample) -> f64;

/// The log's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) consolidated_records: u64,
    pub(super) slots: u64,
    pub(super) sync_lock_acquisitions: u64,
    pub(super) sync_lock_wait_ns: u64,
    pub(super) flush_ns: u64,
    pub(super) flush_wait_ns: u64,
    pub(super) flushes: u64,
    pub(super) flush_requests: u64,
}

impl Counts {
    fn between(before: &LogStats, after: &LogStats) -> Self {
        let since = |of: fn(&LogStats) -> u64| of(after).saturating_sub(of(before));
        Self {
            consolidated_records: since(|log| log.consolidated_records),
            slots: since(|log| log.slots),
            sync_lock_acquisitions: since(|log| log.sync_lock_acquisitions),
            sync_lock_wait_ns: since(|log| log.sync_lock_wait_ns),
            flush_ns: since(|log| log.flush_ns),
            flush_wait_ns: since(|log| log.flush_wait_ns),
            flushes: since(|log| log.flushes),
            flush_requests: since(|log| log.flush_requests),
        }
    }
}

impl Sample {
    pub(super) fn per_second(&self) -> f64 {
        self.transactions as f64 / self.seconds
    }

    /// A count of the log per transaction.
    pub(super) fn each(&self, count: u64) -> f64 {
        count as f64 / self.transactions as f64
    }

    /// Average microseconds per transaction, from a total of the log in nanoseconds.
    pub(super) fn each_us(&self, nanoseconds: u64) -> f64 {
        self.each(nanoseconds) / 1e3
    }

    /// Microseconds of a transaction without the waits for the sync lock, its own flushes, and the waits for another's
    /// flush.
    pub(super) fn rest_us(&self) -> f64 {
        let Counts { sync_lock_wait_ns, flush_ns, flush_wait_ns, .. } = self.log;
        (self.mean_us - self.each_us(sync_lock_wait_ns + flush_ns + flush_wait_ns)).max(0.0)
    }

    /// Records per slot of the consolidation array; 0 if none was used.
    pub(super) fn consolidated(&self) -> f64 {
        self.log.consolidated_records as f64 / self.log.slots.max(1) as f64
    }

    /// Requests that one flush served.
    pub(super) fn aggregated(&self) -> f64 {
        self.log.flush_requests as f64 / self.log.flushes.max(1) as f64
    }
}

/// A database that is ready for its clients.
struct Bed {
    database: Database,
    table: Table,
    /// Declared after the database, so that the directory is removed last.
    directory: TempDir,
}

impl Bed {
    fn make(lab: &Lab<'_>, scale: &Scale, plan: &Plan) -> Result<Self> {
        let directory = tempfile::tempdir_in(lab.path()).map_err(Error::io("creating a directory in", lab.path()))?;
        let options = scale.options().flush_scheme(plan.scheme);
        let database = options.open_on(lab.psync().clone(), &directory.path().join("database"))?;
        fill_log(&database, scale.log_bytes())?;
        let table = database.table(TABLE, Structure::BTree)?;
        let loaded = plan.work.loaded(scale.entries) + plan.work.own() * plan.threads as u64;
        if loaded > 0 {
            let mut loader = table.loader()?;
            let (mut key, mut value) = (Vec::new(), Vec::new());
            for index in 0..loaded {
                entry(SHAPE, index, &mut key, &mut value);
                loader.push(&key, &value)?;
            }
            loader.finish()?;
        }
        database.checkpoint()?;
        Ok(Self { database, table, directory })
    }

    fn segments(&self) -> Result<usize> {
        let log = self.database.path().join("wal");
        Ok(fs::read_dir(&log).map_err(Error::io("listing", log))?.count())
    }

    /// Removes the database. The table is dropped first, so that closing does not apply its contents.
    fn remove(self) -> Result<()> {
        let Self { database, table, directory } = self;
        drop(table);
        database.drop_table(TABLE)?;
        database.close()?;
        let path = directory.path().to_owned();
        directory.close().map_err(Error::io("removing", path))
    }
}

/// Grows the log by so many bytes, for the next checkpoint to recycle.
fn fill_log(database: &Database, bytes: u64) -> Result<()> {
    let table = database.table(FILLER, Structure::BTree)?;
    let mut left = bytes;
    let value = [1; FILLER_BYTES];
    while left > 0 {
        let mut batch = WriteBatch::new();
        for key in 0..FILLER_BATCH {
            batch.put(&table, key.to_be_bytes(), value);
        }
        left = left.saturating_sub(batch.bytes() as u64);
        database.write_with(&batch, Durability::Os)?;
    }
    drop(table);
    Ok(database.drop_table(FILLER)?)
}

/// Makes one run.
///
/// # Errors
/// When the database fails, or the table differs from the transactions that its clients committed.
pub(super) fn run(lab: &Lab<'_>, scale: &Scale, plan: &Plan) -> Result<Sample> {
    let bed = Bed::make(lab, scale, plan)?;
    let stage = Stage {
        database: &bed.database,
        table: &bed.table,
        work: plan.work,
        loaded: plan.work.loaded(scale.entries),
        transactions: scale.transactions,
        seed: plan.seed,
        done: (0..plan.threads).map(|_| AtomicU64::new(0)).collect(),
    };
    let (segments, before) = (bed.segments()?, bed.database.stats()?.log);
    let work = |client: usize, shared: &Shared<'_>, tally: &mut Tally| stage.client(client, shared, tally);
    let (tally, elapsed) = drive(plan.threads, Some(scale.run_with(plan.threads)), &lab.watch(), None, &work)?;
    let log = Counts::between(&before, &bed.database.stats()?.log);
    let grew = bed.segments()? > segments;
    lab.go_on()?;
    check(&stage)?;
    bed.remove()?;
    if tally.operations == 0 {
        return Err(Error::Invalid(format!("no transaction of {plan:?} was done in time")));
    }
    Ok(Sample {
        transactions: tally.operations,
        seconds: elapsed.as_secs_f64(),
        mean_us: tally.latency.mean() / 1e3,
        p50_us: tally.latency.value_at_quantile(0.5) as f64 / 1e3,
        p99_us: tally.latency.value_at_quantile(0.99) as f64 / 1e3,
        log,
        is_whole: tally.operations == scale.transactions * plan.threads as u64,
        grew,
    })
}
