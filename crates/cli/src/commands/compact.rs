//! `braid compact`: rebuilds tables in key order.

use std::ops::ControlFlow;
use std::time::Instant;

use braid::{Database, TableStats};
use clap::Args;
use serde::Serialize;

use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::open::{DatabaseArgs, Mode};
use crate::output::Output;
use crate::progress::Progress;
use crate::units::{bytes, count, percent, seconds};

/// Rebuild tables in key order: packed pages that lie next to each other
///
/// Scans of a table that was filled in random order become sequential, and what was deleted or replaced leaves no trace. Leaves get the size that suits what the table was
/// used for since the database was opened, if it was used. Ctrl-C stops safely at any time: what was compacted until then stays so.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid compact my.db                           every table
  braid compact my.db --table people            one of them
  braid stats my.db                             what it has brought")]
pub(crate) struct Compact {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Table to compact [default: all]
    #[arg(long, short, value_name = "NAME")]
    table: Option<String>,
}

#[derive(Serialize)]
struct Report {
    tables: Vec<Table>,
    bytes_rewritten: u64,
    seconds: f64,
    interrupted: bool,
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
    leaves: u64,
    bytes: u64,
    /// Share of these bytes that runs fill.
    filled: f64,
    /// Share of leaves that begin where the one before them ends.
    adjacent: f64,
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
        let done = match &self.table {
            Some(name) => database.open_table(name)?.compact(report)?,
            None => database.compact(report)?,
        };
        drop(progress);
        let after = self.shapes(&database)?;
        database.close()?;
        let seconds = begun.elapsed().as_secs_f64();
        let tables = before.into_iter().zip(after).map(|((table, before), (_, after))| Table { table, before, after });
        let report =
            Report { tables: tables.collect(), bytes_rewritten: done.bytes, seconds, interrupted: done.stopped };
        report.print(json)
    }

    fn shapes(&self, database: &Database) -> Result<Vec<(String, Shape)>> {
        let stats = database.stats()?;
        let wanted = |table: &&TableStats| self.table.as_ref().is_none_or(|name| *name == table.name);
        let shape = |table: &TableStats| (table.name.clone(), Shape::of(table, stats.space.page_bytes));
        Ok(stats.tables.iter().filter(wanted).map(shape).collect())
    }
}

impl Shape {
    fn of(table: &TableStats, page_bytes: u64) -> Self {
        let bytes = table.leaf_pages * page_bytes;
        Self {
            leaves: table.leaves,
            bytes,
            filled: table.run_bytes as f64 / bytes.max(1) as f64,
            adjacent: table.adjacent_leaves as f64 / table.leaves.max(1) as f64,
        }
    }

    fn describe(&self) -> String {
        format!(
            "{} in {} leaves, {} filled, {} of them right behind the one before",
            bytes(self.bytes),
            count(self.leaves),
            percent(self.filled),
            percent(self.adjacent)
        )
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
        }
        output.flush()?;
        if self.interrupted {
            return Err(Error::Interrupted("interrupted: what was compacted until then stays so".into()));
        }
        Ok(Exit::Ok)
    }
}
