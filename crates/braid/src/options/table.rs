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

/// Fails where tables with this structure cannot store values of that many bytes beside their keys.
fn check_inline_bytes(structure: Structure, bytes: Option<u16>) -> Result<()> {
    let most = structure.inline_bytes_max();
    match bytes.map(usize::from).filter(|bytes| *bytes > most) {
        Some(bytes) => {
            let problem = format!(
                "tables with structure `{structure}` store values of at most {most} bytes beside their keys, not {bytes}; \
                 longer ones are documents"
            );
            Err(Error::Option { option: "inline_bytes", problem })
        }
        None => Ok(()),
    }
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

/// The expected use of a new table. It determines the size of the leaves: the size with the least time per operation,
/// by the cost model of the PIO B-tree (`btree::cost`). The table keeps that size, and not the expectation. Contents
/// never depend on it; only time and space do. Tables with [`Structure::Append`] have leaves of one size, and need no
/// hints.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::{Structure, TableHints, TableOptions};
///
/// // Lookups in batches, rare puts, records of a kilobyte.
/// let hints = TableHints::new().insert_share(0.1).batched_share(1.0).record_bytes(1024);
/// let pages = db.table_with("pages", Structure::BTree, &TableOptions::new().hints(hints))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableHints {
    pub(crate) insert_share: f64,
    pub(crate) batched_share: f64,
    pub(crate) records: u64,
    pub(crate) record_bytes: u64,
}

impl Default for TableHints {
    fn default() -> Self {
        Self { insert_share: 0.5, batched_share: 0.0, records: 10_000_000, record_bytes: 128 }
    }
}

impl TableHints {
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

    pub(crate) fn check(&self) -> Result<()> {
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

/// What a new table is made with: its settings, which it keeps ([`TableSettings`]), and hints of its use
/// ([`TableHints`]).
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::{Compression, Structure, TableHints, TableOptions};
///
/// let options = TableOptions::new().compression(Compression::Lz4).hints(TableHints::new().record_bytes(4096));
/// let pages = db.table_with("pages", Structure::BTree, &options)?;
/// assert_eq!(pages.settings().compression, Compression::Lz4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TableOptions {
    pub(crate) settings: TableSettings,
    pub(crate) hints: TableHints,
}

impl TableOptions {
    /// The defaults: no compression, no history, and the use of [`TableHints::new`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The expected use.
    #[must_use]
    pub const fn hints(mut self, hints: TableHints) -> Self {
        self.hints = hints;
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

    /// The longest value that is stored beside its key, in bytes. A longer one is a document in a file of documents,
    /// and only its place is beside the key: it is not moved when the structure rewrites what is around it, and reading
    /// it takes a read more. By default the limit is that of the structure ([`Structure::inline_bytes`]); it can be
    /// lower, and in tables with [`Structure::Lsm`] higher, up to [`Structure::inline_bytes_max`].
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{Structure, TableOptions};
    ///
    /// let options = TableOptions::new().inline_bytes(16 << 10);
    /// let pages = db.table_with("pages", Structure::Lsm, &options)?;
    /// pages.put("/", vec![b'-'; 16 << 10])?;
    /// assert!(db.table_with("others", Structure::BTree, &options).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn inline_bytes(mut self, bytes: u16) -> Self {
        self.settings.inline_bytes = Some(bytes);
        self
    }

    pub(crate) fn check(&self, structure: Structure) -> Result<()> {
        check_inline_bytes(structure, self.settings.inline_bytes)?;
        check_history(structure, self.settings.history)?;
        check_compression(self.settings.compression)?;
        self.hints.check()
    }
}
