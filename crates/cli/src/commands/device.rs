//! `braid device`: what the device can do, and what follows from it.

mod model;

use std::path::PathBuf;

use clap::Args;
use psync::probe::{DeviceProfile, profile};
use psync::{BackendKind, Psync};
use serde::Serialize;

use self::model::{LeafCost, Load, leaf_costs};
use crate::exit::{Error, Exit, Result};
use crate::open::parse_backend;
use crate::output::{Output, table};
use crate::units::{bytes, count, microseconds, number, parse_count, parse_size};

/// Measure the device under a directory, and show what follows from it
///
/// Takes under a second: reads, writes and flushes of a small scratch file, past the page cache. The figures are the terms of the cost model of the PIO B-tree
/// (Roh et al., PVLDB 5(4), 2011, section 3.5).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid device                                  under the working directory
  braid device /ssd                             another one
  braid device --backend sync                   one request at a time
  braid device --records 1g --insert-share 0.9  for a table mostly written
  braid device --json | jq .depth_ratio         for programs")]
pub(crate) struct Device {
    /// Directory on the device; must be writable
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
    /// Memory for writes that wait to be applied
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    write_buffer: u64,
}

#[derive(Serialize)]
struct Report {
    directory: PathBuf,
    backend_fallback: Option<String>,
    profile: DeviceProfile,
    /// Reads per second in batches over reads per second one at a time.
    depth_ratio: f64,
    /// Requests to keep in flight.
    suggested_pio_max: usize,
    /// Commits per second of one thread that waits for each.
    commits_per_second_alone: f64,
    /// The load that the leaf size is for.
    load: Load,
    /// Time per operation for each leaf size.
    leaf_costs: Vec<LeafCost>,
    /// Pages of a leaf with the least time.
    suggested_leaf_pages: usize,
}

impl Device {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        if !self.directory.is_dir() {
            return Err(Error::NotFound(format!("there is no directory {}", self.directory.display())));
        }
        let psync = Psync::new(self.backend)?;
        let profile = profile(&psync, &self.directory)?;
        let load = Load {
            records: self.records,
            record_bytes: self.record_size,
            insert_share: self.insert_share,
            write_buffer_bytes: self.write_buffer,
        };
        let leaf_costs = leaf_costs(&profile, &load);
        let least = leaf_costs.iter().min_by(|left, right| left.microseconds.total_cmp(&right.microseconds));
        let report = Report {
            directory: self.directory,
            backend_fallback: psync.fallback_reason(),
            depth_ratio: profile.read_us / profile.batched_read_us,
            suggested_pio_max: profile.best_depth,
            commits_per_second_alone: 1e6 / profile.flushed_write_us,
            suggested_leaf_pages: least.map_or(1, |cost| cost.pages),
            leaf_costs,
            load,
            profile,
        };
        let mut output = Output::new();
        if json {
            output.json(&report)?;
        } else {
            print(&report, &mut output)?;
        }
        output.flush()?;
        Ok(Exit::Ok)
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
    section("Measured, pages of 4 KiB:", &measured(profile), output)?;
    section("Reads of L pages:", &reads(profile), output)?;
    section("What follows:", &follows(report), output)?;
    let load = &report.load;
    let title = format!(
        "Time per operation by leaf size, for {} records of {}, {:.0}% puts, a write buffer of {}, internal nodes in the cache:",
        count(load.records),
        bytes(load.record_bytes),
        load.insert_share * 100.0,
        bytes(load.write_buffer_bytes)
    );
    section(&title, &costs(report), output)
}

fn section(title: &str, rows: &[Vec<String>], output: &mut Output) -> Result<()> {
    output.line("")?;
    output.line(title)?;
    for line in table(rows) {
        output.line(format!("  {line}"))?;
    }
    Ok(())
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
    let row = |read: &psync::probe::ReadCost| {
        let page = psync::probe::PAGE_BYTES * read.pages;
        let rate = page as f64 * 1e6 / read.batched_us;
        vec![
            format!("{} ({})", read.pages, bytes(page as u64)),
            microseconds(read.alone_us),
            microseconds(read.batched_us),
            format!("{}/s", crate::units::bytes_f64(rate)),
        ]
    };
    std::iter::once(title).chain(profile.reads.iter().map(row)).collect()
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
            report.suggested_pio_max.to_string(),
            "requests in flight that bring 95% of the best rate with the least latency",
        ),
        row(
            "leaf pages",
            report.suggested_leaf_pages.to_string(),
            "the leaf size with the least time per operation below",
        ),
        row(
            "commits",
            format!("{}/s", number(report.commits_per_second_alone)),
            "durable, for one thread that waits for each; commits that wait together share a flush",
        ),
    ]
}

fn costs(report: &Report) -> Vec<Vec<String>> {
    let title = ["leaf pages", "lookup alone", "lookup in a batch", "put", "all", ""].map(String::from).to_vec();
    let row = |cost: &LeafCost| {
        let mark = if cost.pages == report.suggested_leaf_pages { "<- least" } else { "" };
        vec![
            cost.pages.to_string(),
            microseconds(cost.search_us),
            microseconds(cost.batched_search_us),
            microseconds(cost.insert_us),
            microseconds(cost.microseconds),
            mark.to_owned(),
        ]
    };
    std::iter::once(title).chain(report.leaf_costs.iter().map(row)).collect()
}

fn parse_share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a share from 0 to 1"))
}
