//! `braid load`: many records from files.
//!
//! 1. A source (a directory, lines of TSV, lines of JSON) hands records to a [`Loader`], which commits them in batches.
//! 2. A line that cannot be loaded ends the load. The lines before are committed; the error names the file, the line
//!    and the number of loaded records.
//! 3. A file of a directory that cannot be loaded is reported and counted, and the load goes on; the exit code then is
//!    1.
//! 4. Records in key order can go past the log; then all of them are loaded or none.
//! 5. An interrupt stops the load between two records; the records read so far are committed.
//!
//! Invariant: the count in a report or an error is the count of records committed, never of records read.

mod files;
pub(super) mod jsonl;
mod lines;
mod loader;
mod record;
mod tsv;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::open::{DatabaseArgs, FormatArgs, Mode, NewTableArgs};
use crate::output::Output;
use crate::progress::Progress;
use crate::units::{bytes, bytes_f64, count, number};

pub(crate) use files::{Skipped, load_files};
pub(super) use lines::Lines;
pub(crate) use loader::Loader;
use record::Parsed;
pub(super) use record::Record;

/// Load many records: a directory of files, tab-separated lines, or JSON lines
///
/// Creates a missing database or table. Records are committed in batches of at most 4,096, or about 1 MiB. Where a key
/// comes twice, the last value counts. Ctrl-C stops safely: the records read until then are kept.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid load my.db --files ~/src               path -> content
  braid load my.db --tsv people.tsv -t people  lines of: key, tab, value
  braid load my.db --tsv - < people.tsv        from standard input
  LC_ALL=C sort big.tsv | braid load my.db --tsv - --sorted
  braid load my.db --jsonl events.jsonl        {\"key\":\"…\",\"value\":\"…\"}
  braid load my.db --files ~/src --durability os

Formats:
  --files  The key is the path below DIR, with `/` between its parts; the
           value is the content. Symbolic links are not followed. Files that
           cannot be read, are over 512 MiB, or have a path over 1 KiB are
           reported, counted and left out; the exit code is then 1.
  --tsv    The first tab of a line ends the key. Keys and values are escaped:
           \\t \\n \\r \\0 \\\\ and \\xNN stand for those bytes. With --format hex
           they are hex digits, with --format raw the bytes themselves.
  --jsonl  An object a line, with `key` and `value` as strings, or `key_hex`
           and `value_hex` for bytes that are not UTF-8. `expires_ms`, in
           milliseconds since 1970, says when the value expires.

  Keys have at most 1 KiB here, in `append` tables too.

  With --sorted, the keys of the lines have to rise, none may come twice, and
  the table has to be empty. The records go past the log, packed and in long
  writes. After an error, an interrupt or a crash none of them is there.

  A line that does not fit ends the load with its file and line number and
  exit code 2. Without --sorted, the lines before it are loaded and kept.")]
pub(crate) struct Load {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    source: Source,
    /// Load past the log, much faster, all or nothing: the keys must rise, and the table must be empty
    #[arg(long, conflicts_with = "files")]
    sorted: bool,
    #[command(flatten)]
    table: NewTableArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Source {
    /// Load every file below a directory: path -> content
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// Load lines of key, tab, value; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    tsv: Option<PathBuf>,
    /// Load lines of JSON; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    jsonl: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    table: String,
    durability: String,
    records: u64,
    bytes: u64,
    seconds: f64,
    records_per_second: f64,
    bytes_per_second: f64,
    interrupted: bool,
    #[serde(skip)]
    sorted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    directories: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<Skipped>,
}

impl Load {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        interrupt::watch();
        // The source is opened first, so that a missing source does not leave an empty database behind.
        let source = self.open_source()?;
        let database = self.database.open(Mode::Create)?;
        let table = self.table.create(&database)?;
        let begun = Instant::now();
        let mut loader = if self.sorted { Loader::sorted(&table)? } else { Loader::new(&database, &table) };
        let skipped = match source {
            Input::Files(directory) => {
                Some(load_files(&directory, database.path(), &mut loader, &Progress::bytes("loading", None))?)
            }
            Input::Tsv(lines) => self.lines(lines, &mut loader, |line| tsv::record(line, self.format.lines()))?,
            Input::Jsonl(lines) => self.lines(lines, &mut loader, jsonl::record)?,
        };
        let durability = self.database.tuning.durability.unwrap_or_default().to_string();
        let kept = loader.finish()?;
        // A sorted load that ended is whole, even if the interrupt came then.
        let interrupted = if self.sorted { kept.is_none() } else { interrupt::came() };
        let (records, bytes) = kept.unwrap_or_default();
        database.close()?;
        let seconds = begun.elapsed().as_secs_f64();
        let report = Report {
            table: self.table.name().to_owned(),
            durability,
            records,
            bytes,
            seconds,
            records_per_second: records as f64 / seconds,
            bytes_per_second: bytes as f64 / seconds,
            interrupted,
            sorted: self.sorted,
            directories: skipped.as_ref().map(|skipped| skipped.directories),
            skipped,
        };
        report.print(json)
    }

    fn open_source(&self) -> Result<Input> {
        if let Some(directory) = &self.source.files {
            let metadata = std::fs::metadata(directory).map_err(Error::io("reading", directory))?;
            if !metadata.is_dir() {
                return Err(Error::Usage(format!("--files takes a directory, and {} is none", directory.display())));
            }
            return Ok(Input::Files(directory.clone()));
        }
        if let Some(path) = &self.source.tsv {
            return Ok(Input::Tsv(Lines::open(path)?));
        }
        let path = self.source.jsonl.as_ref().ok_or_else(|| Error::Usage("give --files, --tsv or --jsonl".into()))?;
        Ok(Input::Jsonl(Lines::open(path)?))
    }

    fn lines(
        &self, mut lines: Lines, loader: &mut Loader<'_>, record: impl Fn(&[u8]) -> Parsed,
    ) -> Result<Option<Skipped>> {
        let progress = Progress::bytes("loading", lines.bytes);
        while !interrupt::came() {
            let line = match lines.next_line() {
                Ok(None) => break,
                Ok(Some(line)) => line,
                Err(error) => return Err(loader.partly(error)),
            };
            let parsed = record(line).and_then(|record| match record {
                Some(Record { key, .. }) if key.is_empty() => Err("the key is empty".into()),
                Some(Record { key, .. }) if key.len() > braid::Structure::BTree.key_bytes_max() => Err(format!(
                    "the key has {} bytes, the limit is {}",
                    key.len(),
                    braid::Structure::BTree.key_bytes_max()
                )),
                Some(Record { value, .. }) if value.len() as u64 > braid::VALUE_BYTES_MAX => {
                    Err(format!("the value has {} bytes, the limit is {}", value.len(), braid::VALUE_BYTES_MAX))
                }
                record => Ok(record),
            });
            progress.advance(line.len() as u64 + 1);
            match parsed {
                Ok(None) => {}
                Ok(Some(Record { key, value, expires })) => match loader.add(&key, &value, expires) {
                    Err(Error::Database(error @ braid::Error::LoadOrder { .. })) => {
                        return Err(lines.wrong(error.to_string(), 0));
                    }
                    added => added?,
                },
                Err(problem) => {
                    let loaded = loader.commit()?;
                    return Err(lines.wrong(problem, loaded));
                }
            }
        }
        Ok(None)
    }
}

enum Input {
    Files(PathBuf),
    Tsv(Lines),
    Jsonl(Lines),
}

impl Report {
    fn print(&self, json: bool) -> Result<Exit> {
        let mut output = Output::new();
        if json {
            output.json(self)?;
        } else {
            output.line(format!(
                "{} records, {} loaded into table `{}` in {:.2} s ({} records/s, {}/s, durability {})",
                count(self.records),
                bytes(self.bytes),
                self.table,
                self.seconds,
                number(self.records_per_second),
                bytes_f64(self.bytes_per_second),
                self.durability
            ))?;
            if let Some(text) = self.skipped.as_ref().and_then(Skipped::describe) {
                output.line(format!("left out: {text}"))?;
            }
        }
        output.flush()?;
        if self.interrupted {
            let what = if self.sorted {
                "interrupted: nothing was loaded, because a sorted load is all or nothing".to_owned()
            } else {
                format!("interrupted: {} records were loaded and are kept; the rest was not read", count(self.records))
            };
            return Err(Error::Interrupted(what));
        }
        match self.skipped.as_ref().map_or(0, Skipped::failures) {
            0 => Ok(Exit::Ok),
            failures => Err(Error::Failed(format!("{} files could not be loaded; all others were", count(failures)))),
        }
    }
}
