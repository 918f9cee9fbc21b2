//! `braid salvage`: copies the intact records of a damaged database into a new one.

use std::path::PathBuf;
use std::time::Instant;

use braid::{SalvagedTable, salvage};
use clap::Args;
use serde::Serialize;

use crate::bytes::escape;
use crate::exit::{Error, Exit, Result};
use crate::open::{DatabaseArgs, Mode};
use crate::output::Output;
use crate::progress::Progress;
use crate::units::{count, seconds};

/// Copy everything intact of a damaged database into a new one, and say what is lost
///
/// The damaged database is only read, and no process may have it open for writing. Keys in a range that is told as lost
/// may be missing, have an older value than they should, or be deleted keys that are back. So may keys that a lost
/// commit changed. A key whose document is lost is missing. All others are as they were.
///
/// When something is lost the exit code is 5, and the new database is complete as far as it goes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid salvage my.db new.db                    exit code 0: nothing is lost
  braid salvage my.db new.db --json | jq .lost_commits
  braid verify new.db                           the copy is whole")]
pub(crate) struct Salvage {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Directory of the new database, which must be missing or empty
    #[arg(value_name = "NEW")]
    to: PathBuf,
}

#[derive(Serialize)]
struct Report {
    complete: bool,
    tables: Vec<Table>,
    commits: u64,
    lost_commits: Vec<Commits>,
    findings: Vec<String>,
    torn: Option<String>,
    seconds: f64,
}

#[derive(Serialize)]
struct Table {
    id: u32,
    name: String,
    name_known: bool,
    pairs: u64,
    operations: u64,
    lost: Vec<Range>,
    documents_lost: Vec<Document>,
}

/// Keys are escaped, as `braid scan` shows them.
#[derive(Serialize)]
struct Range {
    low: String,
    high: Option<String>,
    taken: bool,
    why: String,
}

#[derive(Serialize)]
struct Document {
    key: String,
    why: String,
}

#[derive(Serialize)]
struct Commits {
    first: u64,
    last: Option<u64>,
    why: String,
}

impl Salvage {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let begun = Instant::now();
        let progress = Progress::count("salvaging", None);
        let mut before = 0;
        let mut table = String::new();
        let options = self.database.tuning.options(Mode::Create);
        let salvaged = salvage(&self.database.path, &self.to, options, &mut |now| {
            if now.table != table {
                (before, table) = (0, now.table);
                progress.message(format!("pairs, table {table}"));
            }
            progress.advance(now.pairs - before);
            before = now.pairs;
        })?;
        drop(progress);
        let complete = salvaged.is_complete();
        let lost_commits = salvaged.lost_commits.into_iter().map(|commits| Commits {
            first: commits.first.0,
            last: commits.last.map(|last| last.0),
            why: commits.why,
        });
        let report = Report {
            complete,
            tables: salvaged.tables.into_iter().map(Table::new).collect(),
            commits: salvaged.commits,
            lost_commits: lost_commits.collect(),
            findings: salvaged.findings,
            torn: salvaged.torn,
            seconds: begun.elapsed().as_secs_f64(),
        };
        let mut output = Output::new();
        if json {
            output.json(&report)?;
        } else {
            report.tell(&mut output)?;
        }
        output.flush()?;
        if complete {
            return Ok(Exit::Ok);
        }
        let path = self.database.path.display();
        Err(Error::Damaged(format!("not all of {path} could be saved; what could is in {}", self.to.display())))
    }
}

impl Table {
    fn new(table: SalvagedTable) -> Self {
        let range = |lost: braid::LostRange| Range {
            low: escape(&lost.low),
            high: lost.high.as_deref().map(escape),
            taken: lost.taken,
            why: lost.why,
        };
        let document = |lost: braid::LostDocument| Document { key: escape(&lost.key), why: lost.why };
        Self {
            id: table.id,
            name: table.name,
            name_known: table.is_name_known,
            pairs: table.pairs,
            operations: table.operations,
            lost: table.lost.into_iter().map(range).collect(),
            documents_lost: table.documents_lost.into_iter().map(document).collect(),
        }
    }

    fn tell(&self, output: &mut Output) -> Result<()> {
        let name = &self.name;
        let renamed = if self.name_known { "" } else { " (its name is lost)" };
        let nothing = if self.lost.is_empty() && self.documents_lost.is_empty() { "; nothing is lost" } else { "" };
        output.line(format!(
            "table {name}{renamed}: {} pairs, and {} later operations from the log{nothing}",
            count(self.pairs),
            count(self.operations)
        ))?;
        for Range { low, high, taken, why } in &self.lost {
            let end = high.as_ref().map_or_else(|| "the end".to_owned(), |high| format!("below \"{high}\""));
            let what = if *taken { "doubtful, some are there" } else { "lost" };
            output.line(format!("  keys from \"{low}\" to {end}: {what} ({why})"))?;
        }
        for Document { key, why } in &self.documents_lost {
            output.line(format!("  key \"{key}\": its value is lost ({why})"))?;
        }
        Ok(())
    }
}

impl Report {
    fn tell(&self, output: &mut Output) -> Result<()> {
        for finding in &self.findings {
            output.line(finding)?;
        }
        for table in &self.tables {
            table.tell(output)?;
        }
        for Commits { first, last, why } in &self.lost_commits {
            let which = last.map_or_else(|| format!("from {first} on, if any"), |last| format!("{first} to {last}"));
            output.line(format!("commits {which} are lost: what they changed is older, or missing ({why})"))?;
        }
        if let Some(torn) = &self.torn {
            output.line(format!(
                "the log ends with a commit that is not whole: a crash explains it; else that commit is lost ({torn})"
            ))?;
        }
        let outcome = if self.complete { "nothing is lost" } else { "not all could be saved" };
        let pairs: u64 = self.tables.iter().map(|table| table.pairs).sum();
        output.line(format!(
            "{outcome}: {} pairs in {} tables, and {} later commits, copied in {}",
            count(pairs),
            count(self.tables.len() as u64),
            count(self.commits),
            seconds(self.seconds)
        ))
    }
}
