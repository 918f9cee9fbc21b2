//! `braid backup`: the whole database at one moment, or the changes since another backup.

use std::io::{IsTerminal, stdout};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use braid::{BackupKind, BackupPoint, BackupProgress, BackupSummary};
use clap::Args;
use serde::Serialize;

use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::open::{DatabaseArgs, Mode};
use crate::output::Output;
use crate::progress::Progress;
use crate::units::{bytes, count, seconds};

/// Write a backup: everything, or what changed since the one before
///
/// DEST is a directory of backups, which gets one file more, or `-` for a stream on standard output. A missing
/// directory is created. A file has its name only when it is whole and durable; Ctrl-C leaves nothing. `braid restore`
/// makes a database of it.
///
/// No process may have the database open for writing meanwhile; any number may read it. A program backs up its own
/// database with `Database::backup`, while it is in use.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid backup my.db backups                        everything
  braid backup my.db backups --incremental          what changed since
  braid backup my.db backups --incremental --or-full
  braid backup my.db - | zstd > my.backup           a stream
  braid backup my.db - --since POINT >> my.chain    POINT: the last one's
  braid restore backups again.db                    the newest of all that

An incremental backup comes from the log, which has to reach back to the
backup before: give --retain-log each time the database is written to.")]
pub(crate) struct Backup {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Directory of backups, or `-` for standard output
    #[arg(value_name = "DEST")]
    destination: PathBuf,
    /// Only what changed since the newest backup in DEST
    #[arg(long)]
    incremental: bool,
    /// With --incremental: everything, where no backup can be continued
    #[arg(long, requires = "incremental")]
    or_full: bool,
    /// To standard output: only what changed since the backup that printed this point
    #[arg(long, value_name = "POINT", conflicts_with = "incremental")]
    since: Option<BackupPoint>,
}

#[derive(Serialize)]
struct Report {
    kind: &'static str,
    seq: u64,
    tables: u64,
    records: u64,
    changes: u64,
    bytes: u64,
    seconds: f64,
    point: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

impl Backup {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        interrupt::watch();
        let to_stream = self.destination.as_os_str() == "-";
        if to_stream && self.incremental {
            return Err(Error::Usage("--incremental needs a directory; for a stream say --since POINT".into()));
        }
        if !to_stream && self.since.is_some() {
            return Err(Error::Usage("--since is for standard output; for a directory say --incremental".into()));
        }
        if to_stream && stdout().is_terminal() {
            return Err(Error::Usage(
                "a backup is not for a terminal: send standard output to a file or a pipe".into(),
            ));
        }
        let begun = Instant::now();
        let database = self.database.open(Mode::Read)?;
        let backup = database.begin_backup()?;
        let progress = Progress::bytes("backing up", None);
        let report = &mut |at: BackupProgress| {
            // The total counted in advance is an estimate, not a promise.
            progress.total(at.total_bytes.map(|total| total.max(at.bytes)));
            progress.set(at.bytes);
            if interrupt::came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let summary = match (&self.since, to_stream) {
            (Some(since), _) => backup.stream_since(since, stdout(), report),
            (None, true) => backup.stream(stdout(), report),
            (None, false) => backup.write_to(&self.destination, self.kind(), report),
        }?;
        drop(progress);
        Report::new(summary, begun).print(json, to_stream)
    }

    const fn kind(&self) -> BackupKind {
        match (self.incremental, self.or_full) {
            (false, _) => BackupKind::Full,
            (true, false) => BackupKind::Incremental,
            (true, true) => BackupKind::IncrementalOrFull,
        }
    }
}

impl Report {
    fn new(summary: BackupSummary, begun: Instant) -> Self {
        Self {
            kind: if summary.incremental { "incremental" } else { "full" },
            seq: summary.point.seq().0,
            tables: summary.tables,
            records: summary.pairs,
            changes: summary.changes,
            bytes: summary.bytes,
            seconds: begun.elapsed().as_secs_f64(),
            point: summary.point.to_string(),
            file: summary.file,
        }
    }

    fn print(&self, json: bool, aside: bool) -> Result<Exit> {
        let text = if json {
            serde_json::to_string(self).map_err(std::io::Error::from)?
        } else {
            let (records, changes) = (count(self.records), count(self.changes));
            let (size, time) = (bytes(self.bytes), seconds(self.seconds));
            let place = self.file.as_ref().map_or(String::new(), |file| format!(" in {}", file.display()));
            format!(
                "{} backup of seq {}{place}: {records} records, {changes} changes, {size} in {time}\npoint {}",
                self.kind, self.seq, self.point
            )
        };
        if aside {
            eprintln!("{text}");
            return Ok(Exit::Ok);
        }
        let mut output = Output::new();
        output.line(text)?;
        output.flush()?;
        Ok(Exit::Ok)
    }
}
