//! The options of a table.

use doclog::Compression;

use crate::{
    error::{Error, Result},
    format::TableSettings,
    words::structure::Structure,
};

/// Most states of a table that can be retained.
pub const HISTORY_MAX: u32 = 1000;

/// Fails where this build does not have the compression.
fn check_compression(compression: Compression) -> Result<()> {
    if compression.is_built() {
        return Ok(());
    }
    let problem =
        format!("this build does not have {compression}: build with feature `{compression}` of crate `braid`");
    Err(Error::Option { option: "compression", problem })
}

/// Fails where tables with this structure cannot retain that many states.
pub(crate) fn check_history(structure: Structure, states: u32) -> Result<()> {
    if states > 0 && !structure.facts().has_history {
        return Err(no_history());
    }
    if states > HISTORY_MAX {
        let problem = format!("at most {HISTORY_MAX} states of a table can be retained, not {states}");
        return Err(Error::Option { option: "history", problem });
    }
    Ok(())
}

/// The error for a structure that keeps no older states.
pub(crate) fn no_history() -> Error {
    let problem = "only tables with structure `append` retain their states: others change in place".into();
    Error::Option { option: "history", problem }
}

/// The expected use of a new table, and its settings ([`TableSettings`]). The expected use determines the size of the
/// leaves: the size with the least time per operation, by the cost model of the PIO B-tree (`btree::cost`). The
/// contents of a table do not depend on any of these options; only time and space do.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::{Compression, Structure, TableOptions};
///
/// // Lookups in batches, rare puts, records of a kilobyte.
/// let options = TableOptions::new().insert_share(0.1).batched_share(1.0).record_bytes(1024);
/// let pages = db.table_with("pages", Structure::BTree, &options.compression(Compression::Lz4))?;
/// assert_eq!(pages.settings().compression, Compression::Lz4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableOptions {
    pub(crate) insert_share: f64,
    pub(crate) batched_share: f64,
    pub(crate) records: u64,
    pub(crate) record_bytes: u64,
    pub(crate) settings: TableSettings,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            insert_share: 0.5,
            batched_share: 0.0,
            records: 10_000_000,
            record_bytes: 128,
            settings: TableSettings::default(),
        }
    }
}

impl TableOptions {
    /// The defaults: as many puts as lookups, lookups one at a time, on ten million records of 128 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Share of operations that are puts or deletes, from 0 to 1; the others are lookups.
    #[must_use]
    pub const fn insert_share(mut self, share: f64) -> Self {
        self.insert_share = share;
        self
    }

    /// Share of looked up keys that come in batches ([`Table::get_many`](crate::Table::get_many)), from 0 to 1.
    #[must_use]
    pub const fn batched_share(mut self, share: f64) -> Self {
        self.batched_share = share;
        self
    }

    /// Records that the table will hold.
    #[must_use]
    pub const fn records(mut self, records: u64) -> Self {
        self.records = records;
        self
    }

    /// Bytes of a record, key and value.
    #[must_use]
    pub const fn record_bytes(mut self, bytes: u64) -> Self {
        self.record_bytes = bytes;
        self
    }

    /// The compression of values that are stored apart from their keys: those above 2 KiB, and above 256 bytes in
    /// tables with [`Structure::Append`]. Each value is compressed by itself, and is stored uncompressed where
    /// compression saves almost nothing. By default no value is compressed.
    ///
    /// A build without feature `lz4` or `zstd` refuses that compression ([`Compression::is_built`]).
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{Compression, Structure, TableOptions};
    ///
    /// let options = TableOptions::new().compression(Compression::Zstd);
    /// let pages = db.table_with("pages", Structure::BTree, &options)?;
    /// pages.put("/", "<p>hello</p>".repeat(1000))?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.settings.compression = compression;
        self
    }

    /// The number of states of the table that are retained, for tables with [`Structure::Append`]. A retained state can
    /// be opened again, and the table can be rolled back to a retained state: see
    /// [`Table::history`](crate::Table::history). By default none is retained.
    #[must_use]
    pub const fn history(mut self, states: u32) -> Self {
        self.settings.history = states;
        self
    }

    /// All settings of a table at once, as another table has them
    /// ([`TableInfo::settings`](crate::TableInfo::settings)).
    #[must_use]
    pub const fn settings(mut self, settings: TableSettings) -> Self {
        self.settings = settings;
        self
    }

    pub(crate) fn check(&self, structure: Structure) -> Result<()> {
        check_history(structure, self.settings.history)?;
        check_compression(self.settings.compression)?;
        for (option, share) in [("insert_share", self.insert_share), ("batched_share", self.batched_share)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::Option { option, problem: format!("{share} is not a share from 0 to 1") });
            }
        }
        for (option, number) in [("records", self.records), ("record_bytes", self.record_bytes)] {
            if number == 0 {
                return Err(Error::Option { option, problem: "it must be at least 1".into() });
            }
        }
        Ok(())
    }
}
