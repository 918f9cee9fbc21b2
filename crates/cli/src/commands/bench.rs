//! `braid bench`: workloads beside the device's own limits.

mod ycsb;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::{Config, Limit, Report, Watch, Workload};
use braid::{Compression, Database, Durability, Structure};
use clap::Args;
use tempfile::TempDir;

use crate::commands::device::parse_share;
use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::open::{Mode, Tuning, parse_compression, parse_structure};
use crate::output::{Output, table};
use crate::progress::Progress;
use crate::units::{
    bytes, count, microseconds, number, parse_count, parse_size, parse_time, percent, seconds, to_usize,
};

/// Measure workloads, beside the device's own limits in the same minute
///
/// Every workload prints its rate, the latency of its calls, and what it read and wrote. Beside these stands what the
/// device can do on the same file system with no database on the path, measured in the same run.
#[derive(Args, Debug)]
#[command(after_help = "\
Workloads, and the device's limit that each is held against:
  fillseq          put every key once, in order  sequential write, in records
  fillrandom       the same, in random order     sequential write, in records
  overwrite        put keys that are there       sequential write, in records
  readrandom       get, one key at a time        random read, depth --threads
  multireadrandom  get_many of --batch keys      random read, depth
                                                 --batch x --threads
  readseq          scan in key order             random read of what a request
                                                 of the scan is, in records
  seekrandom       seek, read --batch records    random read, depth --threads
  readwhilewriting get while queued puts are     random read, depth --threads
                   applied, and without
  seekrandomwhilewriting
                   the same as seekrandom while  random read, depth --threads
                   another thread writes
  commit           --batch puts, waited for      4 KiB write + fdatasync
  queue            jobs pushed, claimed as the   4 KiB write + fdatasync
                   first, and acknowledged
  ycsb-load        insert the records of YCSB    sequential write, in records
  ycsb-a … ycsb-f  the core workloads of YCSB    random read, depth --threads

  Several share one database and run in the order given. Fills replace the
  table `bench` of the database, ycsb-load `usertable`, queue `queue`. No
  other table is touched.

Examples:
  braid bench fillrandom,readrandom,multireadrandom
  braid bench fillrandom --db /ssd/b --num 20m --cache 64m
  braid bench multireadrandom --cold --db /ssd/b --cache 64m
  braid bench multireadrandom --cold --db /ssd/b --cache 64m --backend sync
  braid bench commit --threads 8 --duration 10s
  braid bench fillrandom,readseq --json | jq .ops_per_second
  braid bench fillrandom --value-size 4k --compressible 0.5 --compression lz4
  braid bench ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-f --num 10m --db /ssd/b
  braid bench ycsb-a --db /ssd/b --threads 16 --target 20k --duration 60s

How it measures:
  Reads, commits and ycsb-a to ycsb-f run for --duration, cut into --pairs
  slices. The limit is measured before each slice, at the I/O size of the
  workload. Rates and shares are medians over the pairs; latencies and bytes
  are those of all slices. Before the first pair, reads and ycsb-a to ycsb-f
  run for --warm-up, which is not counted and brings the inner pages in;
  `commit` has no warm-up. --cold empties the cache of the database and that
  of the operating system before all this. From then on the cache holds the
  share of the data that fits it.

  Fills and overwrites run for --num records, with durability `os` unless
  --durability says otherwise; `commit` has `sync`. Their time includes applying
  all that is queued. The limit is measured before and after.

  `readwhilewriting` reads while another thread queues puts and has them
  applied, in turns. Its latencies are those of gets during which puts were
  applied, if only for a moment. Their p99 is compared with that of a slice
  without writes in the same pair.

  `seekrandomwhilewriting` seeks in turn while nobody writes, and while
  another thread puts records anew and deletes keys beside them, 20,000
  operations a second.

  `queue` runs --num jobs through a table `queue` of its own, each in three
  commits, with durability `sync`. Its report has the jobs of each second.

  A scan is held against random reads of the size of its requests, with as
  many in flight as it asks for ahead: PioMax leaves, with neighbours on the
  device in one request. A cached scan is held against sequential reads.

  Every value read is checked.

  YCSB's core workloads, as its core package defines them:
    ycsb-a  50% read, 50% update     ycsb-d  95% read, 5% insert
    ycsb-b  95% read, 5% update      ycsb-e  95% scan, 5% insert
    ycsb-c  read                     ycsb-f  50% read, 50% read-modify-write
  Popular records are asked for most (zipfian, 0.99), in ycsb-d the newest
  ones; scans show 1 to 100 records. A record is one value of all its fields,
  so an update of one field reads the record, changes it and puts it, as
  YCSB's binding for RocksDB does; a read-modify-write reads it once more
  before. Neither is a transaction, so of two at once the later put wins. Each
  field names the write that it is from. So a torn, foreign or missing record
  is found, and one with fields of two writes.
  Durability is `os` unless --durability says otherwise. A slice's time
  includes applying all that it queued.
  With --target, each operation has a due time. Its latency counts from then,
  also when another operation made it late (no coordinated omission); the
  latency from its beginning stands beside. With --operations, the number of
  operations of each kind follows from --seed.

  The device share is rate / limit. A cache can bring it over 100%; the share
  of `reads` leaves out what caches served. Commits of several threads share
  a flush, and a batch holds several records, so theirs can be over 100% too.

  Bytes read are those that this process made the device read
  (/proc/self/io). Bytes written are those of the block device, for all
  processes, once the page cache is written. Write amplification is
  bytes written / bytes put.")]
pub(crate) struct Bench {
    /// Workloads to run, separated by commas
    #[arg(value_name = "WORKLOAD", value_delimiter = ',', required = true)]
    workloads: Vec<Workload>,
    /// Database to use, created where it is not there, and kept [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    db: Option<PathBuf>,
    /// Records, e.g. 20m [default: as many as the database has, or 1m]; in a larger database ycsb-a, -b, -c and -f ask
    /// for the first so many
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    num: Option<u64>,
    /// Bytes of a key
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16")]
    key_size: u64,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "100")]
    value_size: u64,
    /// Client threads
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: usize,
    /// Operations in one call [default: 128 keys for multireadrandom, 10 records for seekrandom, else 1]
    #[arg(long, value_name = "COUNT")]
    batch: Option<usize>,
    /// Empty the database's cache and the operating system's before each workload
    #[arg(long)]
    cold: bool,
    /// How long reads and commits run, over all slices, and a limit is measured at most [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
    /// Pairs of (device limit, slice of the workload)
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pairs: usize,
    /// How long reads and ycsb-a to ycsb-f run before anything counts [default: as long as a slice, 1s at most]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    warm_up: Option<Duration>,
    /// Directory for plots (SVG) of the operations of each second, of fills, overwrites and queue
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Structure of the table that a fill creates
    #[arg(long, value_name = "NAME", value_parser = parse_structure, default_value_t = Structure::BTree)]
    structure: Structure,
    /// Compression of large values of the table that a fill creates: none, lz4 or zstd
    #[arg(long, value_name = "NAME", value_parser = parse_compression, default_value_t = Compression::None)]
    compression: Compression,
    /// Share of a value that is zeros, from 0 to 1; the rest does not compress. Workloads that read need the share of
    /// the fill. Not for YCSB
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "0")]
    compressible: f64,
    /// Pages of a leaf of the table that a fill creates: 1 to 256 [default: chosen by the cost model]
    #[arg(long, value_name = "COUNT")]
    leaf_pages: Option<u32>,
    /// Share of puts for which the cost model chooses the leaves, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "0.5")]
    insert_share: f64,
    /// Seed of the random numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    ycsb: ycsb::Ycsb,
    #[command(flatten)]
    tuning: Tuning,
}

/// Records of a new database.
const NUM: u64 = 1_000_000;

impl Bench {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        interrupt::watch();
        self.ycsb.check(&self.workloads)?;
        for workload in &self.workloads {
            self.config(*workload, 1, None).check()?;
        }
        let (_temporary, path) = self.directory()?;
        let options = self.tuning.options(Mode::Create);
        let database = match self.leaf_pages {
            Some(pages) => options.leaf_pages(pages),
            None => options,
        }
        .open(&path)?;
        let mut output = Output::new();
        if !json {
            output.line(self.headline(&database, &path))?;
        }
        for workload in &self.workloads {
            let report = self.run_one(*workload, &database)?;
            if let Some(directory) = self.plot.as_ref().filter(|_| !report.ops_by_second.is_empty()) {
                std::fs::create_dir_all(directory).map_err(Error::io("creating", directory))?;
                report.draw_by_second(&directory.join(format!("{workload}.svg")))?;
            }
            if json {
                output.json(&report)?;
            } else {
                print(&report, &mut output)?;
            }
            output.flush()?;
            if interrupt::came() {
                return Err(Error::Interrupted("interrupted: the figures cover what was done until then".into()));
            }
        }
        database.close()?;
        Ok(Exit::Ok)
    }

    fn run_one(&self, workload: Workload, database: &Database) -> Result<Report> {
        let mut config = self.config(workload, self.num.unwrap_or(NUM), Some(database));
        if self.num.is_none() && !workload.fills() {
            config.num = bench::existing_records(database, &config)?.unwrap_or(NUM);
        }
        let progress = Progress::count(workload.name(), None);
        let watch = Watch {
            stop: interrupt::watch(),
            progress: &|done, total| {
                progress.total(total);
                progress.set(done);
            },
            phase: &|phase| progress.message(phase),
        };
        Ok(bench::run(database, &config, &watch)?)
    }

    fn config(&self, workload: Workload, num: u64, database: Option<&Database>) -> Config {
        // Waiting for a flush after each of a million puts would measure the flush, and `commit` measures that already.
        let by_default =
            if matches!(workload, Workload::Commit | Workload::Queue) { Durability::Sync } else { Durability::Os };
        Config {
            workload,
            num,
            key_size: to_usize(self.key_size),
            value_size: to_usize(self.value_size),
            threads: self.threads,
            batch: self.batch.unwrap_or(workload.default_batch()),
            durability: self.tuning.durability.unwrap_or(by_default),
            seed: self.seed,
            duration: self.duration,
            pairs: self.pairs,
            cold: self.cold,
            insert_share: self.insert_share,
            structure: self.structure,
            compression: self.compression,
            compressible: self.compressible,
            warm_up: self.warm_up,
            ycsb: self.ycsb.settings(),
            cache_bytes: database.map_or(0, Database::cache_bytes),
            write_buffer_bytes: database.map_or(0, Database::write_buffer_bytes),
        }
    }

    /// The database's directory, and the temporary one that holds it, if it is not to be kept.
    fn directory(&self) -> Result<(Option<TempDir>, PathBuf)> {
        if let Some(path) = &self.db {
            return Ok((None, path.clone()));
        }
        let temporary = temporary_directory("braid-bench-")?;
        let path = temporary.path().join("database");
        Ok((Some(temporary), path))
    }

    fn headline(&self, database: &Database, path: &Path) -> String {
        let records = if self.workloads.iter().all(|workload| workload.is_ycsb()) {
            String::new()
        } else {
            format!(", keys {} B, values {} B", count(self.key_size), count(self.value_size))
        };
        format!(
            "database {}{}, backend {}, cache {}, write buffer {}{records}",
            path.display(),
            if self.db.is_some() { "" } else { " (temporary)" },
            database.psync().backend(),
            bytes(database.cache_bytes()),
            bytes(database.write_buffer_bytes()),
        )
    }
}

/// A directory below `./target` if that is there, since a system's temporary directory is often in memory; it is
/// removed when dropped.
pub(super) fn temporary_directory(prefix: &str) -> Result<TempDir> {
    let target = Path::new("target");
    let parent = if target.is_dir() { target.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(&parent)
        .map_err(Error::io("creating a temporary directory in", parent))
}

fn print(report: &Report, output: &mut Output) -> Result<()> {
    output.line("")?;
    output.line(format!(
        "{}: {} operations in {} ({} threads, batch {}, durability {}{})",
        report.workload,
        count(report.operations),
        seconds(report.seconds),
        report.threads,
        report.batch,
        report.durability,
        if report.cold { ", cold" } else { "" }
    ))?;
    for line in table(&rows(report)) {
        output.line(format!("  {line}"))?;
    }
    for note in notes(report) {
        output.line(format!("  note: {note}"))?;
    }
    Ok(())
}

fn rows(report: &Report) -> Vec<Vec<String>> {
    let share = |share: Option<f64>| share.map_or_else(String::new, percent);
    let limit = report.device_ops_per_second.map_or(String::new(), |limit| format!("{}/s", number(limit)));
    let mut rows = vec![
        vec![String::new(), "braid".into(), "device alone".into(), "share".into()],
        vec![
            "operations".into(),
            format!("{}/s", number(report.ops_per_second)),
            limit.clone(),
            share(report.device_share),
        ],
    ];
    if let (Some(rate), Limit::RandomRead) = (report.reads_per_second, report.device_limit) {
        rows.push(vec!["reads".into(), format!("{}/s", number(rate)), limit, share(report.device_read_share)]);
    }
    let plain = |name: &str, value: String| vec![name.to_owned(), value];
    rows.push(plain("latency p50", microseconds(report.p50_us)));
    rows.push(plain("latency p99", microseconds(report.p99_us)));
    if let (Some(quiet), Some(ratio)) = (report.quiet_p99_us, report.p99_ratio) {
        rows.push(plain("  nobody writing", format!("{} ({ratio:.2}x)", microseconds(quiet))));
    }
    rows.push(plain("latency p99.9", microseconds(report.p999_us)));
    let optional = |value: Option<u64>| value.map_or("unknown".into(), bytes);
    rows.push(plain("read by the process", optional(report.read_bytes)));
    rows.push(plain("written to the device", optional(report.written_bytes)));
    if let Some(amplification) = report.write_amplification {
        rows.push(plain("write amplification", format!("{amplification:.2}x")));
    }
    if let Some(reads) = report.reads_per_operation {
        rows.push(plain("reads per operation", format!("{reads:.3}")));
    }
    if let Some(leaves) = report.leaf_reads_per_operation {
        // Beside writers, requests are not told apart, but the leaves of lookups are.
        let name = if report.reads_per_operation.is_some() { "  of them leaves" } else { "leaves read per operation" };
        rows.push(plain(name, format!("{leaves:.3}")));
    }
    if report.read_back > 0 {
        rows.push(plain("records read back, and right", count(report.read_back - report.not_found)));
    }
    rows.extend(report.ycsb.iter().flat_map(ycsb::rows));
    rows.extend(report.leaf_pages.map(|pages| plain("pages of a leaf", pages.to_string())));
    rows.push(plain("data on disk", bytes(report.database_bytes)));
    rows.push(plain("resident memory, peak", optional(report.peak_resident_bytes)));
    rows.extend(device_rows(report));
    rows
}

fn device_rows(report: &Report) -> Vec<Vec<String>> {
    let row = |name: String, value: String| vec![name, String::new(), value];
    let mut rows: Vec<_> = report
        .device_random_read
        .iter()
        .map(|rate| {
            let name = format!("random read of {}, {} in flight", bytes(report.io_bytes), rate.depth);
            row(name, format!("{}/s", number(rate.reads_per_second)))
        })
        .collect();
    if let Some(rate) = report.device_sequential_read_bytes_per_second {
        rows.push(row("sequential read of 1 MiB".into(), format!("{}/s", crate::units::bytes_f64(rate))));
    }
    if let Some(rate) = report.device_sequential_write_bytes_per_second {
        rows.push(row("sequential write of 1 MiB".into(), format!("{}/s", crate::units::bytes_f64(rate))));
    }
    if let Some(rate) = report.device_flushed_writes_per_second {
        rows.push(row("write of 4 KiB + fdatasync".into(), format!("{}/s", number(rate))));
    }
    rows
}

fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if report.not_found > 0 {
        let what = "keys were not there: is --num larger than what the database was filled with?";
        notes.push(format!("{} {what}", count(report.not_found)));
    }
    if report.leaf_reads_per_operation.is_some() && report.cache_bytes >= report.database_bytes {
        notes.push("the data fits the cache, so this measures memory; give a smaller --cache or a larger --num".into());
    }
    notes.extend(report.ycsb.iter().flat_map(ycsb::notes));
    if report.device_direct && report.device_backend != report.backend {
        notes.push(format!("the device's figures are those of backend {}", report.device_backend));
    }
    if !report.device_direct {
        notes.push("this file system has no direct I/O, so the device's figures are those of the page cache".into());
    }
    notes
}
