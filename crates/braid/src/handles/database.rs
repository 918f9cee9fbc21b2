//! The database handle.

use std::{path::Path, sync::Arc, time::SystemTime};

use index::Seq;
use psync::{Psync, probe::LearnedProfile};

use crate::{
    engine::{
        Engine,
        handle::{Handle, Hold, Kind, left_of},
        learned,
    },
    error::{Error, Result},
    format::TableSettings,
    handles::{batch::WriteBatch, stats::Stats, table::Table},
    open,
    options::{Options, TableOptions},
    verify::{self, Verification, VerifyProgress},
    words::{clock::of_1970, durability::Durability, structure::Structure},
};

/// An open database. Cheap to clone; dropping the last handle, table or range closes the database.
#[derive(Clone)]
pub struct Database {
    handle: Hold,
}

/// A table of a database, as listed by [`Database::tables`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// Name of the table.
    pub name: String,
    /// Id of the table, never given twice in a database.
    pub id: u32,
    /// Structure of the table.
    pub structure: Structure,
    /// Settings chosen when the table was created, with the number of retained states as set last.
    pub settings: TableSettings,
}

impl Database {
    /// Opens the database in directory `path`. A database that does not exist is created.
    ///
    /// # Errors
    /// When another process has the database open, the directory holds something else, or the database is damaged: see
    /// [`crate::ErrorKind`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Options for opening.
    #[must_use]
    pub fn options() -> Options {
        Options::new()
    }

    pub(crate) fn open_with(psync: Psync, path: &Path, options: &Options) -> Result<Self> {
        let engine = open::open(psync, path, options).map_err(|error| match error {
            Error::Locked { path, holder } if holder == std::process::id().to_string() => {
                let left = left_of(&path).map(|left| format!("{holder}, this one, which has left: {left}"));
                Error::Locked { path, holder: left.unwrap_or(holder) }
            }
            error => error,
        })?;
        let engine = Arc::new(engine);
        engine.lend();
        let handle = Handle::new(Arc::clone(&engine));
        if options.background && !options.read_only {
            // After a failure here the handle closes with no worker to wait for.
            engine.start_threads().inspect_err(|error| engine.fail(error))?;
        }
        Ok(Self::of(&handle))
    }

    pub(crate) fn of(handle: &Arc<Handle>) -> Self {
        Self { handle: Hold::new(handle, Kind::Database) }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    /// Opens a table. A table that does not exist is created with this structure.
    ///
    /// # Errors
    /// When the table has another structure, or cannot be created.
    pub fn table(&self, name: &str, structure: Structure) -> Result<Table> {
        self.table_with(name, structure, &TableOptions::new())
    }

    /// Opens a table. A table that does not exist is created with this structure, for the use and with the settings
    /// given in `expected`. An existing table stays as it is.
    ///
    /// # Errors
    /// As [`Database::table`], and when `expected` is out of bounds.
    pub fn table_with(&self, name: &str, structure: Structure, expected: &TableOptions) -> Result<Table> {
        self.table_given(name, structure, expected, None)
    }

    /// As [`Database::table_with`]; a new table's structure gets the settings that are given, if there are any.
    pub(crate) fn table_given(
        &self, name: &str, structure: Structure, expected: &TableOptions, given: Option<&[u8]>,
    ) -> Result<Table> {
        let core = self.engine().table(name, structure, expected, given)?;
        Ok(Table { handle: Arc::clone(&self.handle), core, durability: None })
    }

    /// Opens an existing table.
    ///
    /// # Errors
    /// When there is no table of this name.
    pub fn open_table(&self, name: &str) -> Result<Table> {
        let core = self.engine().catalog.by_name(name);
        let core = core.ok_or_else(|| Error::NoSuchTable { name: name.to_owned() })?;
        Ok(Table { handle: Arc::clone(&self.handle), core, durability: None })
    }

    /// All tables, by name.
    #[must_use]
    pub fn tables(&self) -> Vec<TableInfo> {
        let info = |table: Arc<crate::tables::catalog::TableCore>| TableInfo {
            name: table.name.clone(),
            id: table.id.0,
            structure: table.structure,
            settings: table.settings(),
        };
        self.engine().catalog.live().into_iter().map(info).collect()
    }

    /// Drops a table with all its contents. The space is free once no reader uses the table any more.
    ///
    /// # Errors
    /// When there is no table of this name, or the database does not write.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.engine().drop_table(name)
    }

    /// Writes a batch, all or nothing, with the durability of the batch, or else of the database. Returns the seq of
    /// the commit; for an empty batch, that of the newest visible commit.
    ///
    /// # Errors
    /// Outside the limits, on a full disk, or when the database no longer writes: see [`crate::ErrorKind`].
    pub fn write(&self, batch: &WriteBatch) -> Result<Seq> {
        self.write_with(batch, batch.durability().unwrap_or(self.engine().options.durability))
    }

    /// Writes a batch with the given durability.
    ///
    /// # Errors
    /// As [`Database::write`].
    pub fn write_with(&self, batch: &WriteBatch, durability: Durability) -> Result<Seq> {
        batch.check_own(&self.handle)?;
        self.engine().commit(batch, durability)
    }

    /// Makes every commit durable that is visible by now, whatever its durability: commits under
    /// [`Durability::Os`](crate::Durability::Os) and [`Durability::Lazy`](crate::Durability::Lazy) too. Costs one
    /// flush of the log, or none where there is nothing to flush.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let events = db.table("events", braid::Structure::BTree)?;
    /// for number in 0..100_u32 {
    ///     events.put_with(number.to_be_bytes(), "seen", braid::Durability::Os)?;
    /// }
    /// db.persist()?; // from here on, all hundred survive a power cut
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the flush fails, or the database does not write.
    pub fn persist(&self) -> Result<()> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.flush_record()?;
        engine.publish();
        Ok(())
    }

    /// Applies all visible operations to the structures and writes a checkpoint, which trims the log.
    ///
    /// If no commit comes meanwhile, the disk also gets back:
    ///
    /// - space that the log and the data file keep ahead of use, because only writers need that space;
    /// - dead bytes in `append` tables beyond a quarter of the live bytes, and beyond 4 MiB. This needs a walk through
    ///   the table, and ends with the first commit.
    ///
    /// # Errors
    /// On a full disk, or when the database does not write.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().ask_for_rest(false)
    }

    /// Applies all visible operations to the structures, without a checkpoint.
    ///
    /// # Errors
    /// As [`Database::checkpoint`].
    pub fn drain(&self) -> Result<()> {
        self.engine().ask(false)
    }

    /// Empties the buffer pool, so that the next reads go to the device.
    pub fn drop_caches(&self) {
        self.engine().structures.clear_cache();
    }

    /// Contents of the database, and its counters since it was opened.
    ///
    /// # Errors
    /// When storage fails.
    pub fn stats(&self) -> Result<Stats> {
        Stats::of(self.engine())
    }

    /// Reads and checks the whole database: checksums, order, documents, and that every page is either used once or
    /// free.
    ///
    /// # Errors
    /// When storage fails in a way that is not a finding.
    pub fn verify(&self) -> Result<Verification> {
        self.verify_with(&mut |_| {})
    }

    /// As [`Database::verify`]; `progress` gets to know how far it has come.
    ///
    /// # Errors
    /// As [`Database::verify`].
    pub fn verify_with(&self, progress: &mut dyn FnMut(VerifyProgress)) -> Result<Verification> {
        verify::run(self.engine(), progress)
    }

    /// The batched I/O used by the database, for measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn psync(&self) -> &Psync {
        self.engine().store.psync()
    }

    /// Bytes of the buffer pool: as given in the options, or as divided by the cost model from the memory given there.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.engine().tuning.cache_bytes
    }

    /// Bytes of the write buffer: given or divided in the same way.
    #[must_use]
    pub fn write_buffer_bytes(&self) -> u64 {
        self.engine().tuning.write_buffer_bytes
    }

    /// The time by which values expire. It never runs backwards, whatever is done to the clock.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        of_1970(self.engine().clock.now().0)
    }

    /// The seq of the newest commit that is visible.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.engine().publisher.visible()
    }

    /// Directory of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.engine().path
    }

    /// Closes the database:
    ///
    /// 1. Writes under way end.
    /// 2. Waiting operations are applied and a checkpoint is written. With little to replay, this step can be left out:
    ///    the operations stay in the log, which is flushed, and the next open replays them quickly.
    /// 3. The database is closed. The remaining handles can only read. While they exist, other processes cannot open
    ///    the database.
    ///
    /// Dropping the last handle does the same but cannot report a failure.
    ///
    /// # Errors
    /// When one of the steps failed. Nothing acknowledged is lost: the next open recovers it.
    pub fn close(self) -> Result<()> {
        self.handle.close()
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Database").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Options {
    /// Opens the database at `path`.
    ///
    /// # Errors
    /// When the database cannot be opened: see [`Error::kind`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        let psync = Psync::new(self.backend)?;
        self.open_on(psync, path.as_ref())
    }

    /// Opens the database at `path` of `psync`'s storage, for example a simulated disk.
    ///
    /// # Errors
    /// When the database cannot be opened: see [`Error::kind`].
    #[doc(hidden)]
    pub fn open_on(self, psync: Psync, path: &Path) -> Result<Database> {
        self.check()?;
        if path.as_os_str().is_empty() {
            return Err(Error::Option {
                option: "path",
                problem: "it is empty: name a directory, or `.` for the present one".into(),
            });
        }
        Database::open_with(psync, path, &self)
    }
}

impl Database {
    /// A profile of the device, learned by the database from its own requests, those of earlier processes included.
    ///
    /// The profile is the one in use, with each figure replaced that rests on enough requests. The other figures of the
    /// same kind of request are adjusted to these. Each figure is also listed separately, with the requests that it
    /// rests on.
    ///
    /// The database does not use the learned profile by itself, so that no choice follows from a busy minute. The
    /// profile takes effect from the next open with [`Options::profile`](crate::Options::profile), or after
    /// `braid device --save --learned`: for tables that are created then, and with `compact`.
    #[must_use]
    pub fn learned_profile(&self) -> LearnedProfile {
        learned::learned(self.engine())
    }
}
