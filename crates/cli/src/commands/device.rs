//! `braid device`: the limits of the device, and the choices that follow.

mod explain;
pub(crate) mod learned;

use std::path::PathBuf;

use btree::cost::{Choice, Memory, Workload, choose};
use clap::Args;
use psync::probe::{DeviceProfile, DurableWrite, DurableWriteCost, profile, save};
use psync::{BackendKind, Psync};
use serde::Serialize;

use crate::exit::{Error, Exit, Result};
use crate::open::parse_backend;
use crate::output::{Output, section};
use crate::units::{bytes, microseconds, number, parse_count, parse_size};

/// Measure the device under a directory, and show what follows from it
///
/// Takes some seconds: reads, writes and flushes of a small scratch file, past the page cache, in turn and five times
/// over. Durable writes are measured through the page cache too. The figures are the terms of the cost model of the PIO
/// B-tree (Roh et al., PVLDB 5(4), 2011, section 3.5), which chooses the leaf size of a table when it is created or
/// compacted.
///
/// A database goes by an ordinary NVMe drive, unless it is told otherwise. With `--save` it goes by what was measured,
/// from its next opening on. Without `--save` this changes nothing.
///
/// A database also learns from its own requests, while it is used. With `--learned` nothing is measured: what the
/// database learned is shown beside what it goes by, with the leaves that would follow. It goes by that only after
/// `--save --learned`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid device                                  under the working directory
  braid device /ssd                             another one
  braid device --save mydb                      for the database mydb to go by
  braid device --learned mydb                   what mydb learned in use
  braid device --save --learned mydb            for it to go by that
  braid device --backend sync                   one request at a time
  braid device --explain                        every term of the cost model
  braid device --explain --insert-share 0.9     for a table mostly written
  braid device --explain --memory 1g            with memory to be divided
  braid device --json | jq .depth_ratio         for programs")]
pub(crate) struct Device {
    /// Directory on the device, which must be writable; with `--save` or `--learned`, a database
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// How I/O is done: `io_uring`, `libaio`, `threads` or `sync` [default: the first of these that this system allows]
    #[arg(long, value_name = "BACKEND", value_parser = parse_backend)]
    backend: Option<BackendKind>,
    /// Records of the table that the leaf size is for
    #[arg(long, value_name = "COUNT", value_parser = parse_count, default_value = "20m")]
    records: u64,
    /// Bytes of one of its records, key and value
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "116")]
    record_size: u64,
    /// Share of operations that are puts or deletes, from 0 to 1; the others are lookups
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "0.5")]
    insert_share: f64,
    /// Share of lookups that come in batches, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "0")]
    batched_share: f64,
    /// Memory for the cache of pages
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256MiB")]
    cache: u64,
    /// Memory for writes that wait to be applied
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "36MiB")]
    write_buffer: u64,
    /// Memory for both, for the model to divide
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["cache", "write_buffer"])]
    memory: Option<u64>,
    /// Keep the profile in the database for it to go by: leaf sizes of tables that are created or compacted, the
    /// division of memory, and requests in flight
    #[arg(long)]
    save: bool,
    /// Measure nothing: show what the database learned from its own requests. With `--save`, have it go by that
    #[arg(long)]
    learned: bool,
    /// Show every term of the cost model for each leaf size, and the reason for the choice
    #[arg(long)]
    explain: bool,
}

#[derive(Serialize)]
struct Report {
    directory: PathBuf,
    backend_fallback: Option<String>,
    profile: DeviceProfile,
    /// Reads per second in batches over reads per second one at a time.
    depth_ratio: f64,
    /// The faster way of a durable write past the page cache: `flush` or `dsync`.
    durable_write_direct: DurableWrite,
    /// The same through the page cache.
    durable_write_buffered: DurableWrite,
    /// Commits per second of one thread that waits for each.
    commits_per_second_alone: f64,
    /// What the leaf size is for.
    workload: Workload,
    /// What the cost model chooses, with each term for each leaf size.
    choice: Choice,
}

impl Device {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        if !self.directory.is_dir() {
            return Err(Error::NotFound(format!("there is no directory {}", self.directory.display())));
        }
        let psync = Psync::new(self.backend)?;
        if (self.save || self.learned) && !self.directory.join("superblock").is_file() {
            return Err(Error::NotFound(format!("there is no database in {}", self.directory.display())));
        }
        if self.learned {
            let workload = self.workload();
            let Self { directory, save, explain, .. } = self;
            return learned::run(learned::Request { directory, workload, save, explain }, &psync, json);
        }
        let profile = profile(&psync, &self.directory)?;
        if self.save {
            save(&self.directory, &profile)?;
        }
        let workload = self.workload();
        let choice = choose(&profile, &workload);
        let report = Report {
            directory: self.directory,
            backend_fallback: psync.fallback_reason(),
            depth_ratio: profile.read_us / profile.batched_read_us,
            durable_write_direct: profile.durable_write(true),
            durable_write_buffered: profile.durable_write(false),
            commits_per_second_alone: 1e6 / profile.flushed_write_us,
            workload,
            choice,
            profile,
        };
        let mut output = Output::new();
        if json {
            output.json(&report)?;
        } else {
            print(&report, &mut output)?;
            if self.explain {
                explain::print(&report.workload, &report.choice, &mut output)?;
            }
        }
        output.flush()?;
        Ok(Exit::Ok)
    }

    fn workload(&self) -> Workload {
        let divided = Memory::Divided { cache_bytes: self.cache, write_buffer_bytes: self.write_buffer };
        Workload {
            records: self.records,
            record_bytes: self.record_size,
            insert_share: self.insert_share,
            batched_share: self.batched_share,
            memory: self.memory.map_or(divided, |bytes| Memory::Total { bytes }),
        }
    }
}

fn print(report: &Report, output: &mut Output) -> Result<()> {
    let profile = &report.profile;
    output.line(format!("device under {}, measured through {}", report.directory.display(), profile.backend))?;
    if let Some(reason) = &report.backend_fallback {
        output.line(format!("  {reason}"))?;
    }
    if !profile.direct {
        output
            .line("  this file system has no direct I/O: the figures are those of the page cache, not of a device")?;
    }
    let title = format!("Measured, pages of 4 KiB (rounds of a figure lay {:.0} % apart):", profile.spread * 100.0);
    section(&title, &measured(profile), output)?;
    section("Reads of L pages:", &reads(profile), output)?;
    section("Writes of L pages in place:", &writes(profile), output)?;
    section("Durable writes of a page in place, alone:", &durable(profile), output)?;
    section("What follows:", &follows(report), output)
}

fn measured(profile: &DeviceProfile) -> Vec<Vec<String>> {
    let row = |name: &str, time: f64| vec![name.to_owned(), microseconds(time), format!("{}/s", number(1e6 / time))];
    vec![
        row("P_r   random read, one at a time", profile.read_us),
        row(&format!("P'_r  random read in batches of {}, each", profile.best_depth), profile.batched_read_us),
        row("P_w   write in place, one at a time", profile.write_us),
        row(&format!("P'_w  write in place in batches of {}, each", profile.best_depth), profile.batched_write_us),
        row("      write in place + fdatasync", profile.flushed_write_us),
    ]
}

fn reads(profile: &DeviceProfile) -> Vec<Vec<String>> {
    let title = ["L", "alone: P_r(L)", "in batches, each: P'_r(L)", "in batches"].map(String::from).to_vec();
    let row = |read: &psync::probe::ReadCost| sized(read.pages, read.alone_us, read.batched_us);
    std::iter::once(title).chain(profile.reads.iter().map(row)).collect()
}

fn writes(profile: &DeviceProfile) -> Vec<Vec<String>> {
    let title = ["L", "alone: P_w(L)", "in batches, each: P'_w(L)", "in batches"].map(String::from).to_vec();
    let row = |write: &psync::probe::WriteCost| sized(write.pages, write.alone_us, write.batched_us);
    std::iter::once(title).chain(profile.writes.iter().map(row)).collect()
}

fn durable(profile: &DeviceProfile) -> Vec<Vec<String>> {
    let title = ["", "write + fdatasync", "RWF_DSYNC", "faster"].map(String::from).to_vec();
    let row = |name: &str, cost: DurableWriteCost| {
        let faster = match cost.faster() {
            DurableWrite::Flush => "write + fdatasync",
            DurableWrite::Dsync => "RWF_DSYNC",
        };
        vec![name.to_owned(), microseconds(cost.flushed_us), microseconds(cost.dsync_us), faster.to_owned()]
    };
    let direct = row("past the page cache", profile.durable_direct);
    vec![title, direct, row("through the page cache", profile.durable_buffered)]
}

fn sized(pages: usize, alone_us: f64, batched_us: f64) -> Vec<String> {
    let size = psync::probe::PAGE_BYTES * pages;
    let rate = size as f64 * 1e6 / batched_us;
    vec![
        format!("{pages} ({})", bytes(size as u64)),
        microseconds(alone_us),
        microseconds(batched_us),
        format!("{}/s", crate::units::bytes_f64(rate)),
    ]
}

fn follows(report: &Report) -> Vec<Vec<String>> {
    let row = |name: &str, value: String, why: &str| vec![format!("{name} {value}: {why}")];
    vec![
        row(
            "depth ratio",
            format!("{:.1}x", report.depth_ratio),
            "batches of reads are so much faster than one at a time",
        ),
        row(
            "PioMax",
            report.choice.pio_max.to_string(),
            "requests in flight that bring 95% of the best rate with the least latency, 32 at the least",
        ),
        row(
            "leaf pages",
            report.choice.leaf_pages.to_string(),
            "by the cost model, for the expected table; --explain shows its terms",
        ),
        row(
            "commits",
            format!("{}/s", number(report.commits_per_second_alone)),
            "durable, for one thread that waits for each; commits that wait together share a flush",
        ),
    ]
}

pub(super) fn parse_share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a share from 0 to 1"))
}
