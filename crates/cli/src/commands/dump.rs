//! `braid dump`: tables as lines of JSON, for other programs and other stores; and reading such a dump back.
//!
//! 1. The first line identifies the dump: `braid_dump`, the version, and `seq`, the moment.
//! 2. Each table has a line with its name, structure and compression. Its records follow in key order, in the format of
//!    `braid load --jsonl`.
//! 3. The last line, `end`, counts tables and records. A dump without this line was cut off.

use std::path::Path;

use braid::{Compression, Database, Entry, Loader, Options, Structure, TableOptions};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::load::{Lines, Record, jsonl};
use super::scan::{expiry_field, json_field};
use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::open::{DatabaseArgs, Mode};
use crate::output::Output;
use crate::progress::Progress;

const VERSION: u32 = 1;

/// Print tables as JSON, an object a line, for other programs
///
/// The first line has `braid_dump`. A line with `table`, `structure` and, where it has them, `compression` and
/// `inline_bytes` begins a table. Its records follow in key order, as `braid scan --json` prints them. The last line
/// has `end` with counts, so that a dump that was cut off is noticed.
///
/// `braid restore` makes a database of a dump. `braid load --jsonl` takes only the lines of records, and refuses the
/// others. A backup is smaller and faster.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid dump my.db > my.jsonl                   every table
  braid dump my.db --table people | jq .key     one of them
  braid restore my.jsonl again.db               and back")]
pub(crate) struct Dump {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Table to print [default: all]
    #[arg(long, short, value_name = "NAME")]
    table: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    braid_dump: u32,
    seq: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    table: String,
    structure: String,
    /// Where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compression: Option<String>,
    /// Where it is not that of the structure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inline_bytes: Option<u16>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    end: Counts,
}

/// What a dump has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    pub(super) tables: u64,
    pub(super) records: u64,
}

impl Dump {
    pub(crate) fn run(self) -> Result<Exit> {
        interrupt::watch();
        let database = self.database.open(Mode::Read)?;
        let names: Vec<String> = match self.table {
            Some(name) => vec![name],
            None => database.tables().into_iter().map(|table| table.name).collect(),
        };
        let snapshot = database.snapshot();
        let mut output = Output::new();
        let progress = (!output.terminal).then(|| Progress::count("dumping", None));
        output.json(&Begin { braid_dump: VERSION, seq: snapshot.seq().0 })?;
        let mut counts = Counts::default();
        for name in names {
            let table = database.open_table(&name)?;
            let compression =
                Some(table.settings().compression).filter(|compression| *compression != Compression::None);
            output.json(&Table {
                table: name,
                structure: table.structure().to_string(),
                compression: compression.map(|compression| compression.to_string()),
                inline_bytes: table.settings().inline_bytes,
            })?;
            counts.tables += 1;
            let mut range = snapshot.iter(&table);
            while let Some(Entry { key, value, expiry }) = range.next_entry()? {
                let mut record = Map::new();
                json_field(&mut record, "key", key);
                json_field(&mut record, "value", value);
                expiry_field(&mut record, expiry);
                counts.records += 1;
                if let Some(progress) = &progress {
                    progress.advance(1);
                }
                let written = output.json(&record);
                if written.is_ok() && !interrupt::came() {
                    continue;
                }
                output.flush()?;
                return Err(written.err().unwrap_or_else(interrupted));
            }
        }
        output.json(&End { end: counts })?;
        output.flush()?;
        Ok(Exit::Ok)
    }
}

fn interrupted() -> Error {
    Error::Interrupted("interrupted: the dump is cut off, and has no line `end`".into())
}

/// Makes a database of a dump: as a whole or not at all.
pub(super) fn restore(options: Options, mut lines: Lines, to: &Path) -> Result<Counts> {
    let progress = Progress::bytes("restoring", lines.bytes);
    options.build(to, |database| {
        let mut dump = Undump { database, table: None, counts: Counts::default(), begun: false, ended: false };
        while let Some(line) = lines.next_line()? {
            progress.advance(line.len() as u64 + 1);
            let taken = dump.take(line);
            taken.map_err(|problem| match problem {
                Problem::Line(what) => {
                    Error::Usage(format!("{}:{}: {what}. Nothing was restored", lines.name, lines.number))
                }
                Problem::Database(error) => error.into(),
            })?;
        }
        if interrupt::came() {
            return Err(Error::Interrupted("interrupted: nothing was restored".into()));
        }
        if !dump.ended {
            let what = "it ends without its last line, `end`: it was cut off. Nothing was restored";
            return Err(Error::Damaged(format!("{}: {what}", lines.name)));
        }
        Ok(dump.counts)
    })
}

/// Why a line is not taken.
enum Problem {
    Line(String),
    Database(braid::Error),
}

impl From<braid::Error> for Problem {
    fn from(error: braid::Error) -> Self {
        match error {
            braid::Error::LoadOrder { .. } | braid::Error::KeyLength { .. } | braid::Error::ValueLength { .. } => {
                Self::Line(error.to_string())
            }
            error => Self::Database(error),
        }
    }
}

/// A dump being read.
struct Undump<'a> {
    database: &'a Database,
    /// The table whose records come.
    table: Option<Loader>,
    counts: Counts,
    begun: bool,
    ended: bool,
}

impl Undump<'_> {
    fn take(&mut self, line: &[u8]) -> std::result::Result<(), Problem> {
        let wrong = |what: &str| Err(Problem::Line(what.to_owned()));
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        if self.ended {
            return wrong("something is behind the line `end`");
        }
        if !self.begun {
            self.begun = true;
            return match serde_json::from_slice(line) {
                Ok(Begin { braid_dump: VERSION, .. }) => Ok(()),
                Ok(Begin { braid_dump: version, .. }) => {
                    let what = format!("it has version {version} of dumps, this build reads {VERSION}");
                    Err(Problem::Line(what))
                }
                Err(_) => wrong("a dump begins with a line `braid_dump`; lines of records alone go into `braid load`"),
            };
        }
        let problem = match jsonl::record(line) {
            Ok(Some(Record { key, value, expires })) => {
                let Some(loader) = &mut self.table else { return wrong("a record comes before any table") };
                match expires {
                    Some(expires) => loader.push_expiring(key, value, expires)?,
                    None => loader.push(key, value)?,
                }
                self.counts.records += 1;
                return Ok(());
            }
            Ok(None) => return Ok(()),
            Err(problem) => problem,
        };
        if let Ok(Table { table, structure, compression, inline_bytes }) = serde_json::from_slice(line) {
            self.end_table()?;
            if self.database.open_table(&table).is_ok() {
                return wrong("the table was there before");
            }
            let structure: Structure =
                structure.parse().map_err(|error: braid::Error| Problem::Line(error.to_string()))?;
            let compression = compression.map_or(Ok(Compression::None), |compression| compression.parse());
            let mut options = TableOptions::new().compression(compression.map_err(Problem::Line)?);
            if let Some(bytes) = inline_bytes {
                options = options.inline_bytes(bytes);
            }
            self.table = Some(self.database.table_with(&table, structure, &options)?.loader()?);
            self.counts.tables += 1;
            return Ok(());
        }
        if let Ok(End { end }) = serde_json::from_slice(line) {
            self.end_table()?;
            self.ended = true;
            return if end == self.counts { Ok(()) } else { wrong("it counts other than there was") };
        }
        Err(Problem::Line(problem))
    }

    fn end_table(&mut self) -> std::result::Result<(), Problem> {
        if let Some(loader) = self.table.take() {
            loader.finish()?;
        }
        Ok(())
    }
}
