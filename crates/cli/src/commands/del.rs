//! `braid del`: deletes keys.

use std::ffi::OsString;

use braid::WriteBatch;
use clap::Args;
use serde::Serialize;

use crate::exit::{Exit, Result};
use crate::open::{DatabaseArgs, FormatArgs, Mode, TableArgs};
use crate::output::Output;

/// Delete keys
///
/// All of them in one commit: after a crash either all are gone or none. A key that is not there is no error; the output says how many were.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid del my.db ada                           delete one key
  braid del my.db ada grace --table people      two, both or none
  braid del my.db 00ff --format hex             a binary key")]
pub(crate) struct Del {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Keys to delete
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Serialize)]
struct Report {
    deleted: usize,
    not_there: usize,
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
        for key in &keys {
            batch.delete(&table, key);
        }
        database.write(batch)?;
        database.close()?;
        let report = Report { deleted, not_there: keys.len() - deleted, table: self.table.table };
        let mut output = Output::new();
        if json {
            output.json(&report)?;
        } else {
            output.line(format!("deleted {}, not there {}", report.deleted, report.not_there))?;
        }
        output.flush()?;
        Ok(Exit::Ok)
    }
}
