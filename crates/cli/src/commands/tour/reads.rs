//! Point, batched and range reads, cold, beside the device alone.
//!
//! Each kind runs in slices. Before each slice the device's own limit is measured at the same I/O size and depth, on
//! the same files. The figures are medians over these pairs.

use std::time::{Duration, Instant};

use bench::ReadCount;
use bench::limits::{Probe, median};
use bench::process::evict_page_cache;
use braid::{Database, Table};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::story::{Story, interrupted};
use crate::exit::Result;
use crate::output::table as columns;
use crate::progress::Progress;
use crate::units::{bytes, bytes_f64, number, percent};

/// Keys of one `get_many`.
const BATCH: usize = 128;
/// Pairs of (limit, slice).
const PAIRS: u32 = 4;

/// The parameters of the reads.
pub(super) struct Plan {
    pub(super) cache: u64,
    pub(super) time: Duration,
}

/// One kind of read. Rates per second.
#[derive(Serialize)]
pub(super) struct Shown {
    what: String,
    /// Lookups, or records of a range.
    operations_per_second: f64,
    /// Bytes of the values.
    value_bytes_per_second: f64,
    /// Read requests to the device.
    reads_per_second: f64,
    /// Bytes of one of them, on average, in whole pages.
    io_bytes: u64,
    /// The device's own limit: reads per second, or bytes per second for the range.
    device_per_second: f64,
    /// Braid's rate over the device's limit, pair by pair.
    device_share: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Point,
    Batch,
    Range,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Point => "get, one key at a time",
            Self::Batch => "get_many, 128 keys at a time",
            Self::Range => "range, in key order",
        }
    }
}

/// Runs and prints all kinds.
pub(super) fn show(database: &Database, table: &Table, plan: &Plan, story: &mut Story) -> Result<Vec<Shown>> {
    story.step("Read it cold, beside what the device does alone")?;
    database.checkpoint()?;
    let keys = table.iter().keys_only().map(|pair| Ok(pair?.0)).collect::<Result<Vec<_>>>()?;
    let size = bench::process::bytes_below(database.path())?;
    story.say(format!(
        "   {} on disk, a cache of {}, the operating system's cache left out; medians of {PAIRS} interleaved pairs",
        bytes(size),
        bytes(plan.cache)
    ))?;
    let mut reader = Reader {
        database,
        table,
        keys,
        probe: Probe::open(database.path())?,
        random: SmallRng::seed_from_u64(1),
        position: 0,
    };
    let mut shown = Vec::new();
    if !reader.keys.is_empty() {
        for kind in [Kind::Point, Kind::Batch, Kind::Range] {
            database.drop_caches();
            evict_page_cache(database.path())?;
            shown.push(reader.measure(kind, plan.time)?);
        }
    }
    for line in columns(&rows(&shown)) {
        story.say(format!("   {line}"))?;
    }
    story.say("   device alone: the same reads, at the same size and depth, with no database; share: how much of that Braid brings")?;
    if !reader.probe.is_direct() {
        story.say("   (this file system has no direct I/O: both columns come from the page cache)")?;
    }
    Ok(shown)
}

fn rows(shown: &[Shown]) -> Vec<Vec<String>> {
    let mut rows = vec![
        ["", "records/s", "data/s", "device reads/s", "size of a read", "device alone", "share"]
            .map(String::from)
            .to_vec(),
    ];
    for kind in shown {
        let alone = if kind.what == Kind::Range.name() {
            format!("{}/s", bytes_f64(kind.device_per_second))
        } else {
            format!("{} reads/s", number(kind.device_per_second))
        };
        rows.push(vec![
            kind.what.clone(),
            number(kind.operations_per_second),
            format!("{}/s", bytes_f64(kind.value_bytes_per_second)),
            number(kind.reads_per_second),
            bytes(kind.io_bytes),
            alone,
            percent(kind.device_share),
        ]);
    }
    rows
}

struct Reader<'a> {
    database: &'a Database,
    table: &'a Table,
    keys: Vec<Vec<u8>>,
    probe: Probe,
    random: SmallRng,
    /// Index of the key where the range continues.
    position: usize,
}

/// The counts of a slice.
struct Slice {
    operations: f64,
    value_bytes: f64,
    reads: f64,
    read_bytes: f64,
}

impl Reader<'_> {
    fn measure(&mut self, kind: Kind, time: Duration) -> Result<Shown> {
        let progress = Progress::count(kind.name(), Some(u64::from(PAIRS)));
        let part = time / PAIRS;
        // A slice that does not count: inner pages enter the cache, and the I/O size shows.
        let before = ReadCount::now(self.database)?;
        self.slice(kind, part / 2)?;
        let io_bytes = ReadCount::now(self.database)?.since(before).bytes_per_read();
        let (mut slices, mut limits, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            interrupted()?;
            let limit = self.limit(kind, io_bytes, part / 2)?;
            let slice = self.slice(kind, part)?;
            let ours = if kind == Kind::Range { slice.read_bytes } else { slice.reads };
            shares.push(if limit > 0.0 { ours / limit } else { 0.0 });
            slices.push(slice);
            limits.push(limit);
            progress.advance(1);
        }
        let of = |field: fn(&Slice) -> f64| median(&slices.iter().map(field).collect::<Vec<_>>()).unwrap_or(0.0);
        Ok(Shown {
            what: kind.name().to_owned(),
            operations_per_second: of(|slice| slice.operations),
            value_bytes_per_second: of(|slice| slice.value_bytes),
            reads_per_second: of(|slice| slice.reads),
            io_bytes,
            device_per_second: median(&limits).unwrap_or(0.0),
            device_share: median(&shares).unwrap_or(0.0),
        })
    }

    fn limit(&self, kind: Kind, io_bytes: u64, time: Duration) -> Result<f64> {
        let rate = match kind {
            Kind::Point => self.probe.random_reads_per_second(io_bytes, 1, time)?,
            Kind::Batch => self.probe.random_reads_per_second(io_bytes, BATCH, time)?,
            Kind::Range => self.probe.sequential_read_bytes_per_second(time)?,
        };
        Ok(rate.unwrap_or(0.0))
    }

    fn slice(&mut self, kind: Kind, time: Duration) -> Result<Slice> {
        let before = ReadCount::now(self.database)?;
        let begun = Instant::now();
        let (mut operations, mut value_bytes) = (0u64, 0u64);
        while begun.elapsed() < time {
            let (some, their_bytes) = match kind {
                Kind::Point => self.get()?,
                Kind::Batch => self.get_many()?,
                Kind::Range => self.range(begun, time)?,
            };
            operations += some;
            value_bytes += their_bytes;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let reads = ReadCount::now(self.database)?.since(before);
        Ok(Slice {
            operations: operations as f64 / seconds,
            value_bytes: value_bytes as f64 / seconds,
            reads: reads.reads as f64 / seconds,
            read_bytes: reads.bytes as f64 / seconds,
        })
    }

    fn get(&mut self) -> Result<(u64, u64)> {
        let key = &self.keys[self.random.random_range(0..self.keys.len())];
        let value = self.table.get(key)?;
        Ok((1, value.map_or(0, |value| value.len() as u64)))
    }

    fn get_many(&mut self) -> Result<(u64, u64)> {
        let draw = |_| &self.keys[self.random.random_range(0..self.keys.len())];
        let keys: Vec<_> = (0..BATCH).map(draw).collect();
        let values = self.table.get_many(&keys)?;
        Ok((BATCH as u64, values.iter().flatten().map(|value| value.len() as u64).sum()))
    }

    /// Continues the scan until the time is over; a scan that ends starts again at the first key.
    fn range(&mut self, begun: Instant, time: Duration) -> Result<(u64, u64)> {
        let (mut operations, mut value_bytes) = (0, 0);
        let mut ended = true;
        for pair in self.table.range::<&Vec<u8>>(&self.keys[self.position]..) {
            value_bytes += pair?.1.len() as u64;
            operations += 1;
            self.position += 1;
            if begun.elapsed() >= time {
                ended = false;
                break;
            }
        }
        if ended || self.position >= self.keys.len() {
            self.position = 0;
        }
        Ok((operations, value_bytes))
    }
}
