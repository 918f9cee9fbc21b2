//! `braid get`: values of keys.

use std::ffi::OsString;

use braid::Seq;
use clap::Args;
use serde_json::{Map, Value};

use crate::bytes::Format;
use crate::commands::scan::{expiry_field, json_field};
use crate::exit::{Error, Exit, Result};
use crate::open::{DatabaseArgs, FormatArgs, Mode, TableArgs};
use crate::output::Output;

/// Print the value of a key, or of several
///
/// One key: the value alone, escaped with a line break on a terminal, exactly its bytes into a file or a pipe. Several
/// keys are read in one batch, and each key that is found is a line: key, tab, value. With --json, `expires_ms` (since
/// 1970) says when a value expires. The exit code is 3 when a key is not there.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid get my.db ada                           print a value
  braid get my.db logo.png > logo.png           a binary value, byte for byte
  braid get my.db ada grace --table people      several keys in one batch
  braid get my.db 00ff --format hex             a binary key, a value in hex
  braid get my.db 'tab\\there' --format escaped  a key with a tab
  braid get my.db ada --json                    {\"key\":\"ada\",\"value\":\"1815\"}")]
pub(crate) struct Get {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Keys to look up
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Read the state of the table at this seq, one that `braid history` lists
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Get {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let keys = self.keys.iter().map(|key| self.format.argument("KEY", key)).collect::<Result<Vec<_>>>()?;
        let database = self.database.open(Mode::Read)?;
        let table = self.table.open(&database)?;
        let then = self.at.map(|seq| table.at(Seq(seq))).transpose()?;
        let values = match &then {
            Some(then) => then.get_many(&keys)?,
            None => table.get_many(&keys)?,
        };
        let mut output = Output::new();
        let mut missing = Vec::new();
        for (key, value) in keys.iter().zip(&values) {
            if json {
                let mut record = Map::new();
                json_field(&mut record, "key", key);
                match value {
                    Some(value) => {
                        json_field(&mut record, "value", value);
                        let expiry = match &then {
                            Some(then) => then.expiry(key)?,
                            None => table.expiry(key)?,
                        };
                        expiry_field(&mut record, expiry);
                    }
                    None => drop(record.insert("value".into(), Value::Null)),
                }
                output.json(&record)?;
            } else if let Some(value) = value {
                self.print(key, value, keys.len() == 1, &mut output)?;
            }
            if value.is_none() {
                missing.push(Format::Escaped.encode(key));
            }
        }
        output.flush()?;
        if missing.is_empty() {
            return Ok(Exit::Ok);
        }
        let names: Vec<_> = missing.iter().map(|key| String::from_utf8_lossy(key)).collect();
        Err(Error::NotFound(format!("not in table `{}`: {}", self.table.table, names.join(", "))))
    }

    fn print(&self, key: &[u8], value: &[u8], alone: bool, output: &mut Output) -> Result<()> {
        if !alone {
            let format = self.format.lines();
            output.write(&format.encode(key))?;
            output.write(b"\t")?;
            output.write(&format.encode(value))?;
            return output.write(b"\n");
        }
        let by_default = if output.terminal { Format::Escaped } else { Format::Raw };
        let format = self.format.format.unwrap_or(by_default);
        output.write(&format.encode(value))?;
        if format == Format::Raw { Ok(()) } else { output.write(b"\n") }
    }
}
