//! Braid beside RocksDB, LMDB, redb and fjall, on the same work with the same memory.
//!
//! - `peers run` measures and reports;
//! - `peers report` makes the report from existing samples;
//! - `peers job` is the process that a run starts for each sample.
//!
//! `make peers` builds the program and runs all of this.

mod child;
mod data;
mod drive;
mod error;
mod job;
mod report;
mod run;
mod sample;
mod store;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::drive::Pace;
use crate::error::{Error, Result};
use crate::run::{Ending, Options, Sizes};

/// Braid beside the stores that one would take instead, on the same work.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures, and writes samples, plots and a report
    Run(RunArguments),
    /// Writes plots and a report of samples that are there
    Report {
        /// Where the samples are
        #[arg(long, default_value = "target/peers")]
        out: PathBuf,
    },
    #[command(hide = true)]
    Job { text: String },
}

#[derive(Args)]
struct RunArguments {
    /// A million records, one round and short samples: about five minutes
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Three million records and three rounds: about an hour [the default]
    #[arg(long)]
    full: bool,
    /// Records with values of 100 bytes; memory is in proportion [default: 3m]
    #[arg(long, value_parser = count)]
    records: Option<u64>,
    /// How often each sample is taken [default: 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// How long a sample takes [default: 3s]
    #[arg(long, value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Rows by name or its beginning, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Stores, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    stores: Vec<String>,
    /// Where samples, plots and the report go
    #[arg(long, default_value = "target/peers")]
    out: PathBuf,
    /// Where the databases are while they are measured [default: `data` below OUT]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Goes on with the samples in OUT: what is there is not measured again
    #[arg(long)]
    resume: bool,
    /// Reads the databases that are there, of whatever round, instead of filling new ones
    #[arg(long)]
    reuse: bool,
    /// Leaves the databases where they are
    #[arg(long)]
    keep: bool,
    /// Begins nothing new after so long; go on with --resume
    #[arg(long = "for", value_parser = humantime::parse_duration)]
    stop_after: Option<Duration>,
}

impl RunArguments {
    fn options(self) -> Result<Options> {
        let (records, rounds, time) = if self.quick && !self.full {
            (1_000_000, 1, Duration::from_millis(600))
        } else {
            (Sizes::RECORDS, 3, Duration::from_secs(3))
        };
        let (records, rounds, time) =
            (self.records.unwrap_or(records), self.rounds.unwrap_or(rounds), self.time.unwrap_or(time));
        if records == 0 || rounds == 0 || time.is_zero() {
            return Err(Error::Invalid("records, rounds and time must be above 0".into()));
        }
        let pace = Pace { warm_up: time / 4, time };
        Ok(Options {
            sizes: Sizes::of(records, rounds, pace),
            rows: self.rows,
            stores: self.stores,
            data: self.data.unwrap_or_else(|| self.out.join("data")),
            out: self.out,
            resume: self.resume,
            reuse: self.reuse,
            keep: self.keep || self.stop_after.is_some() || self.reuse,
            stop_after: self.stop_after,
        })
    }
}

/// A count as people write it: `300k`, `3m`.
fn count(text: &str) -> std::result::Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no count such as 300k or 3m"))?;
    number.checked_mul(unit).ok_or_else(|| format!("`{text}` is too large"))
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(arguments) => measure(arguments),
        Command::Report { out } => report::write(&out),
        Command::Job { text } => job::run(&text),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: RunArguments) -> Result<()> {
    let options = arguments.options()?;
    let ending = run::run(&options)?;
    report::write(&options.out)?;
    match ending {
        Ending::Complete => println!("{}", options.out.join("report.md").display()),
        Ending::Stopped => println!("stopped in time; go on with --resume, and the same sizes"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_as_people_do() {
        assert_eq!(count("300k"), Ok(300_000));
        assert_eq!(count("3m"), Ok(3_000_000));
        assert_eq!(count("17"), Ok(17));
        assert!(count("k").is_err() && count("3g").is_err() && count("99999999999999999m").is_err());
    }
}
