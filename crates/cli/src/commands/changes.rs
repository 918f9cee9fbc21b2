//! `braid changes`: the committed changes, in order.

use braid::{Change, ChangeEvent, ChangeOperation, ChangedTable, Seq};
use clap::Args;
use serde_json::{Map, Value};

use super::scan::{expiry_field, json_field};
use crate::exit::{Exit, Result};
use crate::interrupt;
use crate::open::{DatabaseArgs, Mode};
use crate::output::Output;
use crate::units::parse_count;

/// Print what was committed, in order, a JSON object a line
///
/// Each line has a `seq` and one of `operations`, `created`, `dropped`, `loaded` and `rolled_back`. To go on later,
/// give the last seq that was printed.
///
/// An operation has `put`, `delete` or `delete_range` with the name of its table, and the table's `id`. A range has the
/// keys `from` and, unless it has no end, `to`; others have `key`. A put has `value`, and `expires_ms` (since 1970)
/// where the value expires. Bytes that are not UTF-8 are in hex, in a field whose name ends in `_hex`.
///
/// The log goes back as far as recovery needs, or as far as --retain-log said each time the database was opened for
/// writing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid load my.db --files ~/src --retain-log 1g  keep the log of it
  braid changes my.db                             all that the log has
  braid changes my.db --from 1200 --limit 100     a hundred after seq 1200
  braid stats my.db --json | jq .log.oldest_seq   the oldest one there is")]
pub(crate) struct Changes {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Begin after this seq [default: with the oldest there is]
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Print at most so many changes
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    limit: Option<u64>,
}

impl Changes {
    pub(crate) fn run(self) -> Result<Exit> {
        let stop = interrupt::watch();
        let database = self.database.open(Mode::Read)?;
        let from = match self.from {
            Some(seq) => seq,
            None => database.stats()?.log.oldest_seq.saturating_sub(1),
        };
        let limit = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut output = Output::new();
        for change in database.changes(Seq(from))?.take(limit) {
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                output.flush()?;
                return Ok(Exit::Interrupted);
            }
            output.json(&line(change?))?;
        }
        output.flush()?;
        Ok(Exit::Ok)
    }
}

fn line(change: Change) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("seq".into(), change.seq.0.into());
    match change.event {
        ChangeEvent::Commit(operations) => {
            let operations = operations.into_iter().map(|of| Value::Object(operation(&of))).collect();
            line.insert("operations".into(), Value::Array(operations));
        }
        ChangeEvent::TableCreated { table, structure, settings } => {
            let mut created = named("table", &table);
            created.insert("structure".into(), structure.to_string().into());
            created.insert("compression".into(), settings.compression.to_string().into());
            if let Some(bytes) = settings.inline_bytes {
                created.insert("inline_bytes".into(), bytes.into());
            }
            line.insert("created".into(), created.into());
        }
        ChangeEvent::TableDropped { table } => drop(line.insert("dropped".into(), named("table", &table).into())),
        ChangeEvent::Loaded { table } => drop(line.insert("loaded".into(), named("table", &table).into())),
        ChangeEvent::RolledBack { table, to } => {
            let mut back = named("table", &table);
            back.insert("to".into(), to.0.into());
            line.insert("rolled_back".into(), back.into());
        }
        // A kind of change that a later version adds.
        _ => drop(line.insert("other".into(), true.into())),
    }
    line
}

fn named(field: &str, table: &ChangedTable) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert(field.into(), Value::String(table.name.to_string()));
    fields.insert("id".into(), table.id.into());
    fields
}

fn operation(operation: &ChangeOperation) -> Map<String, Value> {
    match operation {
        ChangeOperation::Put { table, key, value, expiry } => {
            let mut fields = named("put", table);
            json_field(&mut fields, "key", key);
            json_field(&mut fields, "value", value);
            expiry_field(&mut fields, *expiry);
            fields
        }
        ChangeOperation::Delete { table, key } => {
            let mut fields = named("delete", table);
            json_field(&mut fields, "key", key);
            fields
        }
        ChangeOperation::DeleteRange { table, from, to } => {
            let mut fields = named("delete_range", table);
            json_field(&mut fields, "from", from);
            if let Some(to) = to {
                json_field(&mut fields, "to", to);
            }
            fields
        }
    }
}
