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
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// # use braid::Structure;
/// let users = db.table("users", Structure::BTree)?;
/// let writer = std::thread::spawn({
///     let users = users.clone(); // a handle for each thread, or one that is shared
///     move || users.put("ada", "1815")
/// });
/// let seq = writer.join().expect("no panic")?;
/// assert_eq!(db.seq(), seq);
/// db.close()?; // reports failures, which a drop cannot
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Database {
    handle: Hold,
}

/// A table of a database, as listed by [`Database::tables`].
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::{Compression, Structure, TableOptions};
///
/// db.table_with("pages", Structure::BTree, &TableOptions::new().compression(Compression::Lz4))?;
/// db.table("users", Structure::BTree)?;
/// let names: Vec<String> = db.tables().into_iter().map(|table| table.name).collect();
/// assert_eq!(names, ["pages", "users"]);
/// assert_eq!(db.tables()[0].settings.compression, Compression::Lz4);
/// # Ok(())
/// # }
/// ```
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
    /// Opens the database in directory `path`. A database that does not exist is created, and so are its directory and
    /// those above. [`Options`] has more choices.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// let path = path.join("of/my/program");
    /// let db = braid::Database::open(&path)?;
    /// assert!(db.path() == path && path.is_dir());
    /// assert!(braid::Database::open(&path).is_err(), "it is open, and one process has it once");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When another process has the database open, the directory holds something else, or the database is damaged: see
    /// [`crate::ErrorKind`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Options for opening.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// let db = braid::Database::options().memory_bytes(64 << 20).open(&path)?;
    /// assert!(db.cache_bytes() + db.write_buffer_bytes() < 64 << 20);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{Error, Structure};
    ///
    /// let users = db.table("users", Structure::BTree)?; // is created
    /// users.put("ada", "1815")?;
    /// let again = db.table("users", Structure::BTree)?; // is opened
    /// assert!(again.contains_key("ada")?);
    /// assert!(matches!(db.table("users", Structure::Append), Err(Error::WrongStructure { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the table has another structure, or cannot be created.
    pub fn table(&self, name: &str, structure: Structure) -> Result<Table> {
        self.table_with(name, structure, &TableOptions::new())
    }

    /// Opens a table. A table that does not exist is created with this structure and these options. An existing
    /// table stays as it is.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{Compression, Structure, TableOptions};
    ///
    /// let options = TableOptions::new().compression(Compression::Zstd).history(3);
    /// let pages = db.table_with("pages", Structure::Append, &options)?;
    /// assert_eq!(pages.settings().history, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Database::table`], and when an option is out of bounds.
    pub fn table_with(&self, name: &str, structure: Structure, options: &TableOptions) -> Result<Table> {
        self.table_given(name, structure, options, None)
    }

    /// As [`Database::table_with`]; a new table's structure gets the settings that are given, if there are any.
    pub(crate) fn table_given(
        &self, name: &str, structure: Structure, options: &TableOptions, given: Option<&[u8]>,
    ) -> Result<Table> {
        let core = self.engine().table(name, structure, options, given)?;
        Ok(Table { handle: Arc::clone(&self.handle), core, durability: None })
    }

    /// Opens an existing table.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{ErrorKind, Structure};
    ///
    /// assert_eq!(db.open_table("users").expect_err("none yet").kind(), ErrorKind::NotFound);
    /// db.table("users", Structure::BTree)?;
    /// assert_eq!(db.open_table("users")?.structure(), Structure::BTree);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no table of this name.
    pub fn open_table(&self, name: &str) -> Result<Table> {
        let core = self.engine().catalog.by_name(name);
        let core = core.ok_or_else(|| Error::NoSuchTable { name: name.to_owned() })?;
        Ok(Table { handle: Arc::clone(&self.handle), core, durability: None })
    }

    /// All tables, by name, as in the example of [`TableInfo`].
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
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// let then = db.snapshot();
    /// db.drop_table("users")?;
    /// assert!(users.get("ada").is_err() && db.tables().is_empty());
    /// assert!(then.get(&users, "ada")?.is_some(), "an older snapshot still sees it");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no table of this name, or the database does not write.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.engine().drop_table(name)
    }

    /// Writes a batch, all or nothing, with the durability of the batch, or else of the database. Returns the seq of
    /// the commit; for an empty batch, that of the newest visible commit.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{Structure, WriteBatch};
    ///
    /// let (users, mails) = (db.table("users", Structure::BTree)?, db.table("mails", Structure::BTree)?);
    /// let mut batch = WriteBatch::new();
    /// batch.put(&users, "ada", "ada@example.org");
    /// batch.put(&mails, "ada@example.org", "ada");
    /// let seq = db.write(&batch)?; // both are there, or neither
    /// assert_eq!(db.seq(), seq);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Outside the limits, on a full disk, or when the database no longer writes: see [`crate::ErrorKind`].
    pub fn write(&self, batch: &WriteBatch) -> Result<Seq> {
        self.write_with(batch, batch.durability().unwrap_or(self.engine().options.durability))
    }

    /// Writes a batch with the given durability.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use braid::{Durability, Structure, WriteBatch};
    /// # let events = db.table("events", Structure::BTree)?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(&events, "1", "begun");
    /// db.write_with(&batch, Durability::Os)?; // survives this process, and a power cut from the next flush on
    /// assert!(events.contains_key("1")?);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// db.checkpoint()?;
    /// assert_eq!(users.stats()?.waiting_operations, 0); // a recovery would have nothing to replay
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// On a full disk, or when the database does not write.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().ask_for_rest(false)
    }

    /// Applies all visible operations to the structures, without a checkpoint. [`Database::verify`] has an example.
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
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// let stats = db.stats()?;
    /// assert_eq!((stats.operations, stats.user_bytes), (1, 7));
    /// assert!(stats.log.flushes >= 1 && stats.tables[0].name == "users");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When storage fails.
    pub fn stats(&self) -> Result<Stats> {
        Stats::of(self.engine())
    }

    /// Reads and checks the whole database: checksums, order, documents, and that every page is either used once or
    /// free.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// db.table("users", braid::Structure::BTree)?.put("ada", "1815")?;
    /// db.drain()?; // keys that wait to be applied are checked in the log
    /// let verified = db.verify()?;
    /// assert!(verified.findings.is_empty(), "{:?}", verified.findings);
    /// assert_eq!((verified.tables, verified.keys), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use std::time::Duration;
    /// let sessions = db.table("sessions", braid::Structure::BTree)?;
    /// sessions.put_expiring("ada", "token", Duration::from_secs(60))?;
    /// let left = sessions.expiry("ada")?.and_then(|at| at.duration_since(db.now()).ok());
    /// assert!(left.is_some_and(|left| left <= Duration::from_secs(60)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn now(&self) -> SystemTime {
        of_1970(self.engine().clock.now().0)
    }

    /// The seq of the newest commit that is visible.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// let seq = users.put("ada", "1815")?;
    /// assert_eq!((db.seq(), db.snapshot().seq()), (seq, seq));
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// let db = braid::Database::open(&path)?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// db.close()?;
    /// assert!(users.put("grace", "1906").is_err() && users.get("ada")?.is_some(), "a handle that is left reads");
    /// drop(users); // from here on the database can be opened again
    /// assert!(braid::Database::open(&path)?.open_table("users")?.contains_key("ada")?);
    /// # Ok(())
    /// # }
    /// ```
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
