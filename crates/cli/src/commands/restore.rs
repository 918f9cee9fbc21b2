//! `braid restore`: a database out of backups, or of a dump.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use braid::{RestoreProgress, RestoreSummary};
use clap::Args;
use serde::Serialize;

use super::dump;
use super::load::Lines;
use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::open::{DatabaseArgs, Mode};
use crate::output::Output;
use crate::progress::Progress;
use crate::units::{bytes, count, seconds};

/// Make a new database from backups or from a dump
///
/// SRC is a directory of backups, a file of backups, a file of a dump, or `-` for either kind of file on standard
/// input. From a directory the newest chain is taken: the last full backup and the incremental ones behind it.
/// Everything is checked. DB has to be new or empty, and is there only when it is whole: Ctrl-C leaves nothing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid restore backups again.db                the newest that there is
  braid restore backups/000001.full again.db    one backup by itself
  zstd -dc my.backup | braid restore - again.db
  cat full since | braid restore - again.db     a chain
  braid restore my.jsonl again.db               what `braid dump` wrote")]
pub(crate) struct Restore {
    /// Directory or file of backups, file of a dump, or `-` for standard input
    #[arg(value_name = "SRC")]
    source: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    backups: u64,
    records: u64,
    changes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    seconds: f64,
}

impl Restore {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        interrupt::watch();
        let begun = Instant::now();
        let options = self.database.tuning.options(Mode::Create);
        let to = &self.database.path;
        let progress = Progress::bytes("restoring", None);
        let report = &mut |at: RestoreProgress| {
            progress.total(at.total_bytes);
            progress.set(at.bytes);
            if interrupt::came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let restored = if self.source.is_dir() {
            options.restore(&self.source, to, report)
        } else {
            let mut lines = Lines::open(&self.source)?;
            if lines.first_byte()? == Some(b'{') {
                drop(progress);
                let dump::Counts { records, .. } = dump::restore(options, lines, to)?;
                let seconds = begun.elapsed().as_secs_f64();
                return Report { seq: None, backups: 0, records, changes: 0, bytes: None, seconds }.print(json);
            }
            if lines.bytes.is_some() {
                options.restore(&self.source, to, report)
            } else {
                options.restore_stream(lines.into_reader(), to, report)
            }
        };
        drop(progress);
        let RestoreSummary { seq, backups, pairs, changes, bytes, .. } = restored.map_err(|error| {
            // A stream ends when an interrupt comes.
            if interrupt::came() {
                Error::Interrupted("interrupted: nothing was restored".into())
            } else {
                error.into()
            }
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        Report { seq: Some(seq.0), backups, records: pairs, changes, bytes: Some(bytes), seconds }.print(json)
    }
}

impl Report {
    fn print(&self, json: bool) -> Result<Exit> {
        let mut output = Output::new();
        if json {
            output.json(self)?;
        } else {
            let (records, changes, time) = (count(self.records), count(self.changes), seconds(self.seconds));
            let what = match (self.seq, self.bytes) {
                (Some(seq), Some(size)) => {
                    let backups =
                        if self.backups == 1 { "1 backup".to_owned() } else { format!("{} backups", self.backups) };
                    format!("{backups} up to seq {seq}, {}: {records} records, then {changes} changes", bytes(size))
                }
                _ => format!("a dump: {records} records"),
            };
            output.line(format!("restored {what}, in {time}"))?;
        }
        output.flush()?;
        Ok(Exit::Ok)
    }
}
