//! `braid tables`: the tables of a database.

use clap::Args;

use crate::exit::{Exit, Result};
use crate::open::{DatabaseArgs, Mode};
use crate::output::{Output, table};
use crate::units::{bytes, count};

/// List the tables of a database
///
/// Entries are versions of keys in the table's structure: a key that was overwritten or deleted counts until its leaf
/// is next rewritten. Waiting operations are committed, and not yet in the structure.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid tables my.db
  braid tables my.db --json | jq -r .name       an object a line")]
pub(crate) struct Tables {
    #[command(flatten)]
    database: DatabaseArgs,
}

impl Tables {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let database = self.database.open(Mode::Read)?;
        let stats = database.stats()?;
        let mut output = Output::new();
        if json {
            for table in &stats.tables {
                output.json(table)?;
            }
        } else if stats.tables.is_empty() {
            output.line("no tables")?;
        } else {
            let title = ["table", "structure", "entries", "waiting", "stored", "documents"].map(String::from).to_vec();
            let row = |table: &braid::TableStats| {
                vec![
                    crate::bytes::escape(table.name.as_bytes()),
                    table.structure.clone(),
                    count(table.entries),
                    count(table.waiting_operations),
                    bytes(table.stored_bytes),
                    bytes(table.document_live_bytes),
                ]
            };
            let rows: Vec<_> = std::iter::once(title).chain(stats.tables.iter().map(row)).collect();
            for line in table(&rows) {
                output.line(line)?;
            }
        }
        output.flush()?;
        Ok(Exit::Ok)
    }
}
