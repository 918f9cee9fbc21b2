//! `braid rollback`: a table goes back to a retained state.

use braid::Seq;
use clap::Args;
use serde_json::json;

use crate::exit::{Exit, Result};
use crate::open::{DatabaseArgs, Mode, TableArgs};
use crate::output::Output;
use crate::units::count;

/// Take a table back to a retained state
///
/// The table has exactly what it had then, except what has expired since. Its state before that is retained too, so
/// another rollback can undo this one. With --json the answer is an object: `to`, the `seq` of the rollback, `keys`,
/// and `before`, the seq of the state that there was.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid history my.db --table pages             which states there are
  braid rollback my.db --table pages --to 118   back to the one of seq 118")]
pub(crate) struct Rollback {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The seq of the state, as `braid history` lists it
    #[arg(long, value_name = "SEQ")]
    to: u64,
    #[command(flatten)]
    table: TableArgs,
}

impl Rollback {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let database = self.database.open(Mode::Change)?;
        let table = self.table.open(&database)?;
        let keys = table.at(Seq(self.to))?.header().keys;
        let seq = table.roll_back(Seq(self.to))?;
        let before = table.history().iter().rev().find(|header| header.seq < seq).map(|header| header.seq.0);
        database.close()?;
        let mut output = Output::new();
        if json {
            output.json(&json!({"to": self.to, "seq": seq.0, "keys": keys, "before": before}))?;
        } else {
            let name = &self.table.table;
            output.line(format!("table `{name}` is back at the state of seq {}: {} keys", self.to, count(keys)))?;
            if let Some(before) = before {
                output.line(format!("what there was before is the state of seq {before}"))?;
            }
        }
        output.flush()?;
        Ok(Exit::Ok)
    }
}
