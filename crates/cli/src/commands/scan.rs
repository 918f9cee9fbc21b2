//! `braid scan`: records in key order.

use std::ffi::OsString;
use std::ops::Bound;
use std::time::SystemTime;

use braid::{Entry, Range, Seq, Table};
use clap::Args;
use serde_json::{Map, Value};

use crate::bytes::hex;
use crate::exit::{Exit, Result};
use crate::interrupt;
use crate::open::{DatabaseArgs, FormatArgs, Mode, TableArgs};
use crate::output::Output;
use crate::units::parse_count;

/// Print records in key order
///
/// Each is a line: key, tab, value, escaped so that one record is one line. `braid load --tsv` reads the same format.
///
/// With --json each line is an object with `key` and `value`, or `key_hex` and `value_hex` where the bytes are not
/// UTF-8. Where the value expires it has `expires_ms`, in milliseconds since 1970. `braid load --jsonl` reads that.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid scan my.db --limit 10                   the first ten records
  braid scan my.db --reverse --limit 1          the last record
  braid scan my.db --prefix src/ --keys-only    keys that begin with src/
  braid scan my.db --from 2024-01 --to 2024-02  from 2024-01 to before 2024-02
  braid scan my.db --format hex | head          everything in hex

  Copies of a table:
  braid scan my.db | braid load copy.db --tsv -
  braid scan my.db --json | braid load copy.db --jsonl -")]
pub(crate) struct Scan {
    #[command(flatten)]
    database: DatabaseArgs,
    /// First key, included
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Key to stop before
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// Stop after so many records
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = parse_count)]
    limit: Option<u64>,
    /// From the last key to the first
    #[arg(long, short)]
    reverse: bool,
    /// Read the state of the table at this seq, one that `braid history` lists
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// Print no values, and do not read large ones
    #[arg(long, short)]
    keys_only: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Scan {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let stop = interrupt::watch();
        let bounds = self.bounds()?;
        let database = self.database.open(Mode::Read)?;
        let table = self.table.open(&database)?;
        let mut output = Output::new();
        let format = self.format.lines();
        let limit = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut range = self.range(&table, bounds)?;
        for _ in 0..limit {
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                output.flush()?;
                return Ok(Exit::Interrupted);
            }
            let Some(Entry { key, value, expiry }) = range.next_entry()? else { break };
            if json {
                let mut record = Map::new();
                json_field(&mut record, "key", key);
                if !self.keys_only {
                    json_field(&mut record, "value", value);
                }
                expiry_field(&mut record, expiry);
                output.json(&record)?;
                continue;
            }
            output.write(&format.encode(key))?;
            if !self.keys_only {
                output.write(b"\t")?;
                output.write(&format.encode(value))?;
            }
            output.write(b"\n")?;
        }
        output.flush()?;
        Ok(Exit::Ok)
    }

    fn bounds(&self) -> Result<Bounds> {
        let bytes =
            |name, text: &Option<OsString>| text.as_ref().map(|text| self.format.argument(name, text)).transpose();
        if let Some(prefix) = bytes("--prefix", &self.prefix)? {
            return Ok(Bounds::Prefix(prefix));
        }
        let from = bytes("--from", &self.from)?.map_or(Bound::Unbounded, Bound::Included);
        let to = bytes("--to", &self.to)?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(Bounds::Between(from, to))
    }

    fn range(&self, table: &Table, bounds: Bounds) -> Result<Range> {
        let then = self.at.map(|seq| table.at(Seq(seq))).transpose()?;
        let range = match (then, bounds) {
            (None, Bounds::Prefix(prefix)) => table.prefix(&prefix),
            (None, Bounds::Between(from, to)) => table.range::<Vec<u8>>((from, to)),
            (Some(then), Bounds::Prefix(prefix)) => then.prefix(&prefix),
            (Some(then), Bounds::Between(from, to)) => then.range::<Vec<u8>>((from, to)),
        };
        let range = if self.reverse { range.rev() } else { range };
        Ok(if self.keys_only { range.keys_only() } else { range })
    }
}

enum Bounds {
    Prefix(Vec<u8>),
    Between(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

/// Puts when a value expires into a JSON object, in milliseconds since 1970, if it does.
pub(super) fn expiry_field(record: &mut Map<String, Value>, expiry: Option<SystemTime>) {
    let since = expiry.and_then(|expiry| expiry.duration_since(SystemTime::UNIX_EPOCH).ok());
    if let Some(millis) = since.and_then(|since| u64::try_from(since.as_millis()).ok()) {
        record.insert("expires_ms".into(), millis.into());
    }
}

/// Puts bytes into a JSON object: under `name` where they are UTF-8, else in hex under `name` with `_hex` after it.
pub(super) fn json_field(record: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => record.insert(name.to_owned(), text.into()),
        Err(_) => record.insert(format!("{name}_hex"), hex(bytes).into()),
    };
}
