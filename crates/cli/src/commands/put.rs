//! `braid put`: one record.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::exit::{Error, Exit, Result};
use crate::open::{DatabaseArgs, FormatArgs, Mode, NewTableArgs};
use crate::output::Output;
use crate::units::parse_time;

/// Store a value under a key
///
/// Replaces the value that the key had. Creates a missing database or table. When it returns, the value is on stable
/// storage, unless --durability says otherwise.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid put my.db ada 1815                      store `1815` under `ada`
  braid put my.db logo.png --file logo.png      the content of a file
  braid put my.db page --file page.html --compression zstd
  date | braid put my.db now --file -           standard input
  braid put my.db session 42 --ttl 10m          a value that expires
  braid put my.db 00ff cafe --format hex        two bytes under two bytes
  braid put my.db 'a\\tb' 'c\\n' --format escaped  a tab and a line break")]
pub(crate) struct Put {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Key, 1 byte to 1 KiB (8 KiB in `append` and `lsm` tables)
    #[arg(value_name = "KEY")]
    key: OsString,
    /// Value, up to 512 MiB
    #[arg(value_name = "VALUE", required_unless_present = "file")]
    value: Option<OsString>,
    /// Take the value from a file, byte for byte; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Time after which the value expires, for example 500ms, 30s, 10m, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    ttl: Option<Duration>,
    #[command(flatten)]
    table: NewTableArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Serialize)]
struct Report {
    key_bytes: usize,
    value_bytes: usize,
    table: String,
}

impl Put {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let key = self.format.argument("KEY", &self.key)?;
        let value = self.value()?;
        let database = self.database.open(Mode::Create)?;
        let table = self.table.create(&database)?;
        match self.ttl {
            Some(ttl) => table.put_expiring(&key, &value, ttl)?,
            None => table.put(&key, &value)?,
        };
        database.close()?;
        if json {
            let mut output = Output::new();
            output.json(&Report {
                key_bytes: key.len(),
                value_bytes: value.len(),
                table: self.table.name().to_owned(),
            })?;
            output.flush()?;
        }
        Ok(Exit::Ok)
    }

    fn value(&self) -> Result<Vec<u8>> {
        if let Some(value) = &self.value {
            return self.format.argument("VALUE", value);
        }
        let Some(path) = &self.file else { return Err(Error::Usage("give a VALUE or --file".into())) };
        // One byte above the limit proves that the value is too long, so the rest need not be read.
        let limit = braid::VALUE_BYTES_MAX + 1;
        let mut value = Vec::new();
        let read = if path.as_os_str() == "-" {
            io::stdin().lock().take(limit).read_to_end(&mut value)
        } else {
            std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut value))
        };
        read.map_err(Error::io("reading", path))?;
        Ok(value)
    }
}
