//! The options that every command on a database has, and the opening of a database with these options.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use braid::{Compression, Database, Durability, Options, Structure, Table, TableOptions};
use clap::Args;
use psync::BackendKind;

use crate::bytes::Format;
use crate::exit::{Error, Result};
use crate::units::parse_size;

/// Which database, and how to open it.
#[derive(Args, Clone, Debug)]
pub(crate) struct DatabaseArgs {
    /// Directory of the database
    #[arg(value_name = "DB")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
}

/// Heading of the options that say how to open a database.
const HEADING: &str = "Database options";

/// How to open a database.
#[derive(Args, Clone, Debug)]
pub(crate) struct Tuning {
    /// Memory in all. A sixteenth is for open transactions, a sixteenth for scans and batches, and an eighth is set
    /// aside for losses of allocation. The cost model divides the rest into cache and write buffer, unless one of these
    /// is given
    #[arg(long, help_heading = HEADING, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<u64>,
    /// Memory for the cache of pages, e.g. 64MiB or 1g [default: 256MiB]
    #[arg(long, help_heading = HEADING, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) cache: Option<u64>,
    /// Memory for writes that wait to be applied to their table [default: 36MiB]
    #[arg(long, help_heading = HEADING, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) write_buffer: Option<u64>,
    /// When a commit is done: `sync` on stable storage, `os` handed to the operating system (survives a killed process,
    /// not a power cut), `lazy:MS` in memory, where its flush begins within that many milliseconds [default: sync]
    #[arg(long, help_heading = HEADING, value_name = "sync|os|lazy:MS", value_parser = parse_durability)]
    pub(crate) durability: Option<Durability>,
    /// Keep at least so much of the log, for `braid changes` and incremental backups. Each command that writes needs
    /// this option, because one without it gives the kept log up [default: 0]
    #[arg(long, help_heading = HEADING, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) retain_log: Option<u64>,
    /// How I/O is done: `io_uring`, `libaio`, `threads` or `sync` [default: the first of these that this system allows]
    #[arg(long, help_heading = HEADING, value_name = "BACKEND", value_parser = parse_backend)]
    pub(crate) backend: Option<BackendKind>,
}

/// What a command means to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Read; nothing in the directory changes.
    Read,
    /// Change what is there.
    Change,
    /// Change, and create the database where there is none.
    Create,
}

impl Tuning {
    pub(crate) fn options(&self, mode: Mode) -> Options {
        let mut options = Database::options()
            .durability(self.durability.unwrap_or_default())
            .read_only(mode == Mode::Read)
            .create(mode == Mode::Create);
        if let Some(bytes) = self.memory {
            options = options.memory_bytes(bytes);
        }
        if let Some(bytes) = self.cache {
            options = options.cache_bytes(bytes);
        }
        if let Some(bytes) = self.write_buffer {
            options = options.write_buffer_bytes(bytes);
        }
        if let Some(bytes) = self.retain_log {
            options = options.retain_log_bytes(bytes);
        }
        match self.backend {
            Some(backend) => options.backend(backend),
            None => options,
        }
    }

    pub(crate) fn open(&self, path: &Path, mode: Mode) -> Result<Database> {
        Ok(self.options(mode).open(path)?)
    }
}

impl DatabaseArgs {
    pub(crate) fn open(&self, mode: Mode) -> Result<Database> {
        self.tuning.open(&self.path, mode)
    }
}

/// Which table.
#[derive(Args, Clone, Debug)]
pub(crate) struct TableArgs {
    /// Table to use
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub(crate) table: String,
}

impl TableArgs {
    /// The table, which must be there.
    pub(crate) fn open(&self, database: &Database) -> Result<Table> {
        Ok(database.open_table(&self.table)?)
    }
}

/// Which table, and what it is to be where it is not there.
#[derive(Args, Clone, Debug)]
pub(crate) struct NewTableArgs {
    #[command(flatten)]
    of: TableArgs,
    /// Structure of the table if it is created now: btree, append or lsm [default: btree]
    #[arg(long, value_name = "NAME", value_parser = parse_structure)]
    structure: Option<Structure>,
    /// Compression of large values if the table is created now: none, lz4 or zstd [default: none]
    #[arg(long, value_name = "NAME", value_parser = parse_compression)]
    compression: Option<Compression>,
    /// Longest value that is stored beside its key if the table is created now, in bytes [default: 2048, append 256]
    #[arg(long, value_name = "BYTES")]
    inline_bytes: Option<u16>,
}

impl NewTableArgs {
    /// The table's name.
    pub(crate) fn name(&self) -> &str {
        &self.of.table
    }

    /// The table, created where it is not there.
    pub(crate) fn create(&self, database: &Database) -> Result<Table> {
        let table = match self.of.open(database) {
            Ok(table) if self.structure.is_none() => table,
            _ => {
                let mut options = TableOptions::new().compression(self.compression.unwrap_or_default());
                if let Some(bytes) = self.inline_bytes {
                    options = options.inline_bytes(bytes);
                }
                database.table_with(&self.of.table, self.structure.unwrap_or(Structure::BTree), &options)?
            }
        };
        let has = table.settings();
        let differs = |what, has: &dyn Display, wanted: &dyn Display| {
            let table = &self.of.table;
            Error::Usage(format!(
                "table {table:?} has {what} {has}, not {wanted}: it is chosen when a table is created"
            ))
        };
        if let Some(wanted) = self.compression.filter(|wanted| *wanted != has.compression) {
            return Err(differs("compression", &has.compression, &wanted));
        }
        let inline_bytes = has.inline_bytes.map_or(table.structure().inline_bytes(), usize::from);
        match self.inline_bytes.filter(|wanted| usize::from(*wanted) != inline_bytes) {
            None => Ok(table),
            Some(wanted) => Err(differs("inline bytes", &inline_bytes, &wanted)),
        }
    }
}

/// A structure by its name.
pub(crate) fn parse_structure(text: &str) -> std::result::Result<Structure, String> {
    text.parse().map_err(|error: braid::Error| error.to_string())
}

/// A compression by its name.
pub(crate) fn parse_compression(text: &str) -> std::result::Result<Compression, String> {
    text.parse()
}

/// How keys and values are written as text.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct FormatArgs {
    /// How keys and values are written as text
    ///
    /// Without this, arguments are taken as they are, and lines are escaped. `get` of one key into a file or a pipe
    /// writes the bytes of the value.
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
}

impl FormatArgs {
    /// The bytes that an argument means.
    pub(crate) fn argument(self, name: &str, text: &std::ffi::OsStr) -> Result<Vec<u8>> {
        let format = self.format.unwrap_or(Format::Raw);
        let bytes = format.decode(std::os::unix::ffi::OsStrExt::as_bytes(text));
        bytes.map_err(|problem| Error::Usage(format!("{name}, {problem}")))
    }

    /// The format of fields in lines.
    pub(crate) fn lines(self) -> Format {
        self.format.unwrap_or(Format::Escaped)
    }
}

fn parse_durability(text: &str) -> std::result::Result<Durability, String> {
    Durability::from_str(text).map_err(|error| error.to_string())
}

pub(crate) fn parse_backend(text: &str) -> std::result::Result<BackendKind, String> {
    BackendKind::from_str(text).map_err(|_| format!("`{text}` is none of io_uring, libaio, threads, sync"))
}
