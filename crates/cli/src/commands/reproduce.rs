//! `braid reproduce`: the experiments of papers, repeated on this machine.

use std::path::PathBuf;

use bench::reproduce::flush::FlushPaper;
use bench::reproduce::pfetch::PfetchPaper;
use bench::reproduce::pio::PioPaper;
use bench::reproduce::{Claim, Effort, Experiment, Places, Results, data_directory, run, section_name};
use bench::{Error as BenchError, Watch};
use clap::{Args, Subcommand};

use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::output::{Output, list};
use crate::progress::Progress;
use crate::units::seconds;

/// Where data goes, for the help of each experiment.
const PLACE: &str = "\
Data goes to --dir and is removed at the end, after an error too. Ctrl-C stops
at the next safe place; the report then has the figures that were finished. A
second Ctrl-C, or kill -9, ends it at once and leaves a directory `reproduce-*`
in --dir, which may be removed.";

/// Repeat the experiments of a paper on this machine
///
/// Measures the figures of a paper that Braid is built on, against what the paper compares with, beside the device's
/// own limits. Writes a report: `report.md`, `results.json`, and a CSV and an SVG file for each figure.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid reproduce pio --quick --out results
  braid reproduce pio --full --out results --dir /ssd/scratch
  braid reproduce pio --figure 9,12 --out results
  braid reproduce flush --quick --out results
  braid reproduce pfetch --quick --out results
  braid reproduce pio --quick --out results --json | jq '.claims[].here'")]
pub(crate) struct Reproduce {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand, Debug)]
enum Paper {
    Pio(Pio),
    Flush(Flush),
    Pfetch(Pfetch),
}

/// The PIO B-tree: Roh et al., "B+-tree Index Optimization by Exploiting Internal Parallelism of Flash-based Solid
/// State Drives", PVLDB 5(4), 2011
#[derive(Args, Debug)]
#[command(after_help = format!("\
Figures:
  2         latency by size of request
  3         bandwidth by requests in flight; reads and writes mixed
  4         psync against threads; context switches
  9         point search by size of the buffer
  10        range search by length of the range
  11        insert and point search by size of the operation queue
  12        five mixed workloads: BFTL, B+-tree, FD-tree, PIO B-tree
  13        a trace of TPC-C's index operations; 1 to 16 threads
  headline  the goals that this project set itself

Examples:
  braid reproduce pio --out results
  braid reproduce pio --full --out results --dir /ssd/scratch
  braid reproduce pio --figure 2,3,4 --out results

--quick takes under 5 minutes; --full about 40 minutes and 36 GB of space.

{PLACE}"))]
struct Pio {
    #[command(flatten)]
    options: Options,
}

/// Flushing the log: Son, Yeom and Han, "Design and implementation of an efficient flushing scheme for cloud key-value
/// storage", Cluster Computing 20, 2017
#[derive(Args, Debug)]
#[command(after_help = format!("\
Figures:
  5a        transactions per second by client threads: insert
  5b        the same: 50 % update, 50 % search
  6         the same: an update, a delete and an insert, all or nothing
  table1    inserts: where their time goes; sync locks and flushes

Each has the four schemes of the log side by side: per-commit, existing,
existing-all and aggregated, with 1 to 128 client threads.

Examples:
  braid reproduce flush --out results
  braid reproduce flush --full --out results --dir /ssd/scratch
  braid reproduce flush --figure 5a,table1 --out results

--quick takes under 5 minutes; --full about half an hour and 2 GB of space.

{PLACE}"))]
struct Flush {
    #[command(flatten)]
    options: Options,
}

/// Parallel fetch: Lee et al., "Boosting Compaction in B-Tree Based Key-Value Store by Exploiting Parallel Reads in
/// Flash SSDs", IEEE Access 9, 2021
#[derive(Args, Debug)]
#[command(after_help = format!("\
Figures:
  2         parts of a compaction's time, offsets sorted and not
  4-5       compaction and its reads by size of the data: direct I/O
  6-7       the same: buffered I/O, offsets not sorted
  8         YCSB-A with a compaction inside
  9         reads by submission batch
  10        size and time of reads by readahead (needs the right to set it)

Each has sync, libaio and io_uring side by side. Most also have Braid's own
way: io_uring with the next batch under way while one is written.

Examples:
  braid reproduce pfetch --out results
  braid reproduce pfetch --full --out results --dir /ssd/scratch
  braid reproduce pfetch --figure 2,9 --out results

--quick takes under 5 minutes; --full about an hour and 15 GB of space.

{PLACE}"))]
struct Pfetch {
    #[command(flatten)]
    options: Options,
}

#[derive(Args, Debug)]
struct Options {
    /// Figures to measure, separated by commas [default: all]
    #[arg(long, value_name = "FIGURE", value_delimiter = ',')]
    figure: Vec<String>,
    /// Small data and short samples: minutes (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The paper's ratios of sizes, and its number of runs: up to an hour
    #[arg(long)]
    full: bool,
    /// Hardly any data: seconds, to see that everything works
    #[arg(long, hide = true, conflicts_with_all = ["quick", "full"])]
    tiny: bool,
    /// Directory for the results; created if it is missing, and files of an earlier run in it are replaced
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Directory for the data, on the device to be measured [default: `data` below --out]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Reproduce {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        match self.paper {
            Paper::Pio(Pio { options }) => measure(Box::new(PioPaper::new(options.effort())), options, json),
            Paper::Flush(Flush { options }) => measure(Box::new(FlushPaper::new(options.effort())), options, json),
            Paper::Pfetch(Pfetch { options }) => measure(Box::new(PfetchPaper::new(options.effort())), options, json),
        }
    }
}

impl Options {
    const fn effort(&self) -> Effort {
        match (self.full, self.tiny) {
            (true, _) => Effort::Full,
            (_, true) => Effort::Tiny,
            _ => Effort::Quick,
        }
    }
}

fn measure(experiment: Box<dyn Experiment>, options: Options, json: bool) -> Result<Exit> {
    let effort = options.effort();
    let data = options.dir.unwrap_or_else(|| data_directory(&options.out));
    let is_ours = !data.exists();
    let places = Places { out: options.out, data };
    let progress = Progress::share(experiment.name());
    let watch = Watch {
        stop: interrupt::watch(),
        progress: &|done, total| {
            progress.total(total);
            progress.set(done);
        },
        phase: &|phase| progress.message(phase),
    };
    let results = run(experiment, effort, &options.figure, &places, &watch);
    drop(progress);
    if is_ours {
        // The directory is empty unless another process put files there meanwhile; such a directory must not be
        // removed.
        let _ = std::fs::remove_dir(&places.data);
    }
    let results = match results {
        Err(BenchError::Interrupted) => {
            return Err(Error::Interrupted("interrupted before a figure was finished: nothing was written".into()));
        }
        other => other?,
    };
    let mut output = Output::new();
    if json {
        output.json(&results)?;
    } else {
        print(&results, &mut output)?;
        output.line(format!("\nreport: {}", places.out.join("report.md").display()))?;
    }
    output.flush()?;
    if results.interrupted {
        return Err(Error::Interrupted("interrupted: the report has the figures that were finished".into()));
    }
    Ok(Exit::Ok)
}

fn print(results: &Results, output: &mut Output) -> Result<()> {
    output.line(format!("{} figures in {}", results.figures.len(), seconds(results.seconds)))?;
    for claim in &results.claims {
        output.line("")?;
        output.line(format!("{}: {} ({})", section_name(&claim.figure), claim.what, claim.setting))?;
        for line in list(&rows(claim)) {
            output.line(format!("  {line}"))?;
        }
    }
    Ok(())
}

fn rows(claim: &Claim) -> Vec<(&'static str, String)> {
    let met = match claim.met {
        Some(true) => ", met",
        Some(false) => ", NOT met",
        None => "",
    };
    let mut rows = vec![("paper", claim.paper.clone()), ("measured here", claim.here.clone())];
    rows.extend(claim.goal.as_ref().map(|goal| ("goal", format!("{goal}{met}"))));
    rows.push(("device", claim.device.clone()));
    rows
}
