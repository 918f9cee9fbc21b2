//! `braid compact`: rebuilds tables in key order.

use std::ops::ControlFlow;
use std::time::Instant;

use braid::{CompactOptions, CompactionTimes, Database, Figure, TableStats};
use clap::Args;
use serde::Serialize;

use super::device::parse_share;
use super::stats;
use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::open::{DatabaseArgs, Mode};
use crate::output::Output;
use crate::progress::Progress;
use crate::units::{bytes, count, percent, seconds};

/// Rebuild tables in key order: packed pages that lie next to each other
///
/// Scans of a table that was filled in random order become sequential, and deleted and replaced records give their
/// space back. Large values (documents) are read in large batches and written in key order to new segments. Until the
/// old segments go, that takes the space of all live documents once more.
///
/// Leaves keep their size, unless --insert-share says what the tables are used for. No other process may have the
/// database open meanwhile. Ctrl-C stops safely at any time: what was compacted until then stays so.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid compact my.db                           every table
  braid compact my.db --table people            one of them
  braid compact my.db --submission-batch 1 --unsorted
                                                documents one by one, by key
  braid compact my.db --insert-share 0.9        leaves for tables mostly written
  braid stats my.db                             what it has brought")]
pub(crate) struct Compact {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Table to compact [default: all]
    #[arg(long, short, value_name = "NAME")]
    table: Option<String>,
    /// Documents in flight at a time, 1 to 1024 [default: what suits the device]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=braid::SUBMISSION_BATCH_MAX as i64))]
    submission_batch: Option<u16>,
    /// Read documents in the order of their keys, not of their places
    #[arg(long)]
    unsorted: bool,
    /// Read documents through the page cache
    #[arg(long)]
    buffered: bool,
    /// Choose leaf sizes anew, for tables where this share of the operations are puts or deletes, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    insert_share: Option<f64>,
    /// Share of the lookups in these tables that come in batches, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "0", requires = "insert_share")]
    batched_share: f64,
}

#[derive(Serialize)]
struct Report {
    tables: Vec<Table>,
    bytes_rewritten: u64,
    documents_moved: u64,
    document_bytes_moved: u64,
    /// These stay where they are.
    documents_damaged: u64,
    times: Times,
    seconds: f64,
    interrupted: bool,
}

/// Where the time went, in seconds.
#[derive(Serialize)]
struct Times {
    tree_search: f64,
    sort: f64,
    read: f64,
    write: f64,
    log_flush_and_commit: f64,
    packing: f64,
    other: f64,
}

impl From<CompactionTimes> for Times {
    fn from(times: CompactionTimes) -> Self {
        Self {
            tree_search: times.search.as_secs_f64(),
            sort: times.sort.as_secs_f64(),
            read: times.read.as_secs_f64(),
            write: times.write.as_secs_f64(),
            log_flush_and_commit: times.flush.as_secs_f64(),
            packing: times.pack.as_secs_f64(),
            other: times.other.as_secs_f64(),
        }
    }
}

impl Times {
    fn describe(&self) -> String {
        format!(
            "tree search {}, sort {}, read {}, write {}, log flush and commit {}, packing leaves {}, other {}",
            seconds(self.tree_search),
            seconds(self.sort),
            seconds(self.read),
            seconds(self.write),
            seconds(self.log_flush_and_commit),
            seconds(self.packing),
            seconds(self.other)
        )
    }
}

/// A table before and after.
#[derive(Serialize)]
struct Table {
    table: String,
    before: Shape,
    after: Shape,
}

#[derive(Serialize)]
struct Shape {
    /// Bytes that the entries take.
    bytes: u64,
    /// Share of these bytes that entries fill.
    filled: f64,
    /// What the structure says of its shape.
    figures: Vec<Figure>,
    /// Bytes of document segments, and of what lives in them.
    document_bytes: u64,
    document_live_bytes: u64,
}

impl Compact {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        interrupt::watch();
        let database = self.database.open(Mode::Change)?;
        let begun = Instant::now();
        let before = self.shapes(&database)?;
        let progress = Progress::bytes("compacting", None);
        let report = &mut |now: braid::CompactProgress| {
            progress.total(Some(now.total_bytes.max(now.bytes)));
            progress.set(now.bytes);
            progress.message(format!("table {}", now.table));
            if interrupt::came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = CompactOptions::new().sorted(!self.unsorted).direct(!self.buffered);
        let options = self.submission_batch.map_or(options, |batch| options.submission_batch(batch.into()));
        let options = self.insert_share.map_or(options, |share| options.used_for(share, self.batched_share));
        let done = match &self.table {
            Some(name) => database.open_table(name)?.compact_with(&options, report)?,
            None => database.compact_with(&options, report)?,
        };
        drop(progress);
        let after = self.shapes(&database)?;
        database.close()?;
        let seconds = begun.elapsed().as_secs_f64();
        let tables = before.into_iter().zip(after).map(|((table, before), (_, after))| Table { table, before, after });
        let report = Report {
            tables: tables.collect(),
            bytes_rewritten: done.bytes,
            documents_moved: done.documents,
            document_bytes_moved: done.document_bytes,
            documents_damaged: done.damaged_documents,
            times: done.times.into(),
            seconds,
            interrupted: done.stopped,
        };
        report.print(json)
    }

    fn shapes(&self, database: &Database) -> Result<Vec<(String, Shape)>> {
        let stats = database.stats()?;
        let wanted = |table: &&TableStats| self.table.as_ref().is_none_or(|name| *name == table.name);
        let shape = |table: &TableStats| (table.name.clone(), Shape::of(table));
        Ok(stats.tables.iter().filter(wanted).map(shape).collect())
    }
}

impl Shape {
    fn of(table: &TableStats) -> Self {
        Self {
            bytes: table.stored_bytes,
            filled: table.entry_bytes as f64 / table.stored_bytes.max(1) as f64,
            figures: table.shape.clone(),
            document_bytes: table.document_bytes,
            document_live_bytes: table.document_live_bytes,
        }
    }

    fn describe(&self) -> String {
        let figures = self.figures.iter().map(|figure| format!(", {} {}", stats::value(figure), figure.name));
        let shape = format!("{}, {} filled{}", bytes(self.bytes), percent(self.filled), figures.collect::<String>());
        match self.document_bytes {
            0 => shape,
            all => format!("{shape}; {} of documents, {} of them live", bytes(all), bytes(self.document_live_bytes)),
        }
    }
}

impl Report {
    fn print(&self, json: bool) -> Result<Exit> {
        let mut output = Output::new();
        if json {
            output.json(self)?;
        } else {
            for table in &self.tables {
                output.line(format!("table {}", crate::bytes::escape(table.table.as_bytes())))?;
                output.line(format!("  before  {}", table.before.describe()))?;
                output.line(format!("  after   {}", table.after.describe()))?;
            }
            output.line(format!("{} rewritten in {}", bytes(self.bytes_rewritten), seconds(self.seconds)))?;
            if self.documents_moved > 0 {
                let (moved, of) = (count(self.documents_moved), bytes(self.document_bytes_moved));
                output.line(format!("{moved} documents of {of} moved: {}", self.times.describe()))?;
            }
            if self.documents_damaged > 0 {
                let damaged = count(self.documents_damaged);
                output.line(format!("{damaged} damaged documents stay where they are: `braid verify` names them"))?;
            }
        }
        output.flush()?;
        if self.interrupted {
            return Err(Error::Interrupted("interrupted: what was compacted until then stays so".into()));
        }
        Ok(Exit::Ok)
    }
}
