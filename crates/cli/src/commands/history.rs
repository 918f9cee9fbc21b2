//! `braid history`: the retained states of a table.

use std::time::SystemTime;

use clap::Args;
use serde_json::json;

use crate::exit::{Exit, Result};
use crate::open::{DatabaseArgs, Mode, TableArgs};
use crate::output::{Output, table};
use crate::units::{bytes, count, seconds};

/// List the retained states of a table
///
/// A table with structure `append` retains as many of its states as --keep says. Each checkpoint makes one if the table
/// has changed; beyond that number the oldest goes. `braid get` and `braid scan` read a state with --at, and `braid
/// rollback` goes back to one.
///
/// A state has the number of its commit header, the seq of its last commit, and about how many keys. With --json each
/// is an object: `number`, `seq`, `time_ms` since 1970, `keys` and `bytes`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid history my.db --table pages             what there is
  braid history my.db --table pages --keep 10   retain ten from now on
  braid history my.db --table pages --keep 0    none, and give up what there is
  braid scan my.db --table pages --at 118       read the one of seq 118")]
pub(crate) struct History {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Retain so many states from now on, the present one at once
    #[arg(long, value_name = "COUNT")]
    keep: Option<u32>,
    #[command(flatten)]
    table: TableArgs,
}

impl History {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let mode = if self.keep.is_some() { Mode::Change } else { Mode::Read };
        let database = self.database.open(mode)?;
        let own = self.table.open(&database)?;
        if let Some(keep) = self.keep {
            own.set_history(keep)?;
            database.checkpoint()?;
        }
        let history = own.history();
        let mut output = Output::new();
        if json {
            for header in &history {
                let since = header.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let time_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
                let (number, seq, keys, bytes) = (header.number, header.seq.0, header.keys, header.bytes);
                let line = json!({"number": number, "seq": seq, "time_ms": time_ms, "keys": keys, "bytes": bytes});
                output.json(&line)?;
            }
        } else if history.is_empty() {
            let name = &self.table.table;
            output.line(format!("no state of table `{name}` is retained; --keep COUNT says how many are to be"))?;
        } else {
            let title = ["number", "seq", "age", "keys", "bytes"].map(String::from).to_vec();
            let row = |header: &braid::CommitHeader| {
                let age = header.time.elapsed().unwrap_or_default().as_secs_f64();
                vec![
                    header.number.to_string(),
                    header.seq.0.to_string(),
                    seconds(age),
                    count(header.keys),
                    bytes(header.bytes),
                ]
            };
            let rows: Vec<_> = std::iter::once(title).chain(history.iter().map(row)).collect();
            for line in table(&rows) {
                output.line(line)?;
            }
        }
        output.flush()?;
        Ok(Exit::Ok)
    }
}
