//! `braid del`: deletes keys, or ranges of them.

use std::ffi::OsString;
use std::ops::Bound;

use braid::WriteBatch;
use clap::Args;
use serde::Serialize;

use crate::exit::{Exit, Result};
use crate::open::{DatabaseArgs, FormatArgs, Mode, TableArgs};
use crate::output::Output;

/// Delete keys, or all keys of a range
///
/// All of them in one commit: after a crash either all are gone or none. A missing key is no error; the output says how
/// many were missing. A range costs the same however many keys are in it, and they are not counted.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid del my.db ada                           delete one key
  braid del my.db ada grace --table people      two, both or none
  braid del my.db 00ff --format hex             a binary key
  braid del my.db --prefix user/7/              every key that begins so
  braid del my.db --from a --to n               every key from a on, below n")]
pub(crate) struct Del {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Keys to delete
    #[arg(required_unless_present_any = ["prefix", "from", "to"], value_name = "KEY")]
    keys: Vec<OsString>,
    /// Delete every key that begins with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// Delete every key from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Delete every key below this one
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Serialize)]
struct Report {
    deleted: usize,
    not_there: usize,
    /// Ranges that were deleted, whatever was in them.
    ranges: usize,
    table: String,
}

impl Del {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let mut keys = self.keys.iter().map(|key| self.format.argument("KEY", key)).collect::<Result<Vec<_>>>()?;
        keys.sort_unstable();
        keys.dedup();
        let database = self.database.open(Mode::Change)?;
        let table = self.table.open(&database)?;
        let deleted = table.get_many(&keys)?.iter().flatten().count();
        let mut batch = WriteBatch::new();
        let argument =
            |name, key: &Option<OsString>| key.as_ref().map(|key| self.format.argument(name, key)).transpose();
        if let Some(prefix) = argument("--prefix", &self.prefix)? {
            batch.delete_prefix(&table, prefix);
        }
        if self.from.is_some() || self.to.is_some() {
            let from = argument("--from", &self.from)?.map_or(Bound::Unbounded, Bound::Included);
            let to = argument("--to", &self.to)?.map_or(Bound::Unbounded, Bound::Excluded);
            batch.delete_range::<Vec<u8>>(&table, (from, to));
        }
        let ranges = batch.len();
        for key in &keys {
            batch.delete(&table, key);
        }
        database.write(&batch)?;
        database.close()?;
        let report = Report { deleted, not_there: keys.len() - deleted, ranges, table: self.table.table };
        let mut output = Output::new();
        if json {
            output.json(&report)?;
        } else {
            let ranges = if ranges > 0 { ", and all of a range" } else { "" };
            output.line(format!("deleted {}, not there {}{ranges}", report.deleted, report.not_there))?;
        }
        output.flush()?;
        Ok(Exit::Ok)
    }
}
