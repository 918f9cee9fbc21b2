//! The database handle.

use std::{path::Path, sync::Arc};

use psync::Psync;
use psync::probe::LearnedProfile;

use crate::{
    engine::{Engine, handle::Handle, learned},
    error::{Error, Result},
    format::TableSettings,
    handles::{batch::WriteBatch, stats::Stats, table::Table},
    open,
    options::{Options, TableOptions},
    verify::{self, Verification, VerifyProgress},
    words::{durability::Durability, structure::Structure},
};

/// An open database. Cheap to clone; the last handle, table or range to go closes it.
#[derive(Clone)]
pub struct Database {
    handle: Arc<Handle>,
}

/// A table of a database, as [`Database::tables`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// Its id, never given twice in a database.
    pub id: u32,
    /// Its structure.
    pub structure: Structure,
    /// What was chosen for it when it was created.
    pub settings: TableSettings,
}

impl Database {
    /// Opens the database in directory `path`, creating it where there is none.
    ///
    /// # Errors
    /// When another process has it open, the directory holds something else, or what it holds is damaged: see
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
        let engine = Arc::new(open::open(psync, path, options)?);
        engine.lend();
        let handle = Handle { engine: Arc::clone(&engine) };
        if options.background && !options.read_only {
            // The handle closes without a worker to wait for.
            engine.threads.open(&engine).inspect_err(|error| engine.fail(error))?;
        }
        Ok(Self { handle: Arc::new(handle) })
    }

    pub(crate) fn of(handle: &Arc<Handle>) -> Self {
        Self { handle: Arc::clone(handle) }
    }

    pub(crate) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    /// Opens a table, creating it with this structure where there is none.
    ///
    /// # Errors
    /// When it has another structure, or can't be created.
    pub fn table(&self, name: &str, structure: Structure) -> Result<Table> {
        self.table_with(name, structure, &TableOptions::new())
    }

    /// Opens a table, creating it with this structure, for the use that `expected` says and with the settings in it, where there is none. One that is there
    /// stays as it is.
    ///
    /// # Errors
    /// As [`Database::table`], and when `expected` is out of bounds.
    pub fn table_with(&self, name: &str, structure: Structure, expected: &TableOptions) -> Result<Table> {
        let core = self.engine().table(name, structure, expected)?;
        Ok(Table { handle: Arc::clone(&self.handle), core })
    }

    /// Opens a table that exists.
    ///
    /// # Errors
    /// When it does not.
    pub fn open_table(&self, name: &str) -> Result<Table> {
        let core = self.engine().catalog.by_name(name);
        let core = core.ok_or_else(|| Error::NoSuchTable { name: name.to_owned() })?;
        Ok(Table { handle: Arc::clone(&self.handle), core })
    }

    /// The tables there are, by name.
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

    /// Drops a table with everything in it. Its space is free once nobody reads it any more.
    ///
    /// # Errors
    /// When there is no such table, or the database does not write.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.engine().drop_table(name)
    }

    /// Writes a batch: all of it or nothing, with the durability of the database.
    ///
    /// # Errors
    /// Outside the limits, on a full disk, or when the database does not write any more: see [`crate::ErrorKind`].
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, self.engine().options.durability)
    }

    /// Writes a batch with a durability of its own.
    ///
    /// # Errors
    /// As [`Database::write`].
    pub fn write_with(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        self.engine().commit(&batch, durability).map(drop)
    }

    /// Applies everything that is visible now to the structures and writes a checkpoint, which trims the log. Where nobody commits meanwhile, the disk gets back what only writers need: room that the log and
    /// the data file keep ahead of use. What is dead in `append` tables beyond a quarter of what lives goes too: this takes a walk through the table, and ends with the first commit.
    ///
    /// # Errors
    /// On a full disk, or when the database does not write.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().ask_for_rest(false)
    }

    /// Applies everything that is visible now to the structures, without a checkpoint.
    ///
    /// # Errors
    /// As [`Database::checkpoint`].
    pub fn drain(&self) -> Result<()> {
        self.engine().ask(false)
    }

    /// Empties the buffer pool, so that the next reads meet the device.
    pub fn drop_caches(&self) {
        self.engine().trees.clear_cache();
    }

    /// What the database holds and has done since it was opened.
    ///
    /// # Errors
    /// When storage fails.
    pub fn stats(&self) -> Result<Stats> {
        Stats::of(self.engine())
    }

    /// Reads everything and checks it: checksums, order, documents, and that every page is either used once or free.
    ///
    /// # Errors
    /// When storage fails in a way that is not a finding.
    pub fn verify(&self, progress: &mut dyn FnMut(VerifyProgress)) -> Result<Verification> {
        verify::run(self.engine(), progress)
    }

    /// The batched I/O that the database uses.
    #[must_use]
    pub fn psync(&self) -> &Psync {
        self.engine().store.psync()
    }

    /// Bytes of its buffer pool: as the options said, or as the cost model divided what they gave.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.engine().tuning.cache_bytes
    }

    /// Bytes of its write buffer, likewise.
    #[must_use]
    pub fn write_buffer_bytes(&self) -> u64 {
        self.engine().tuning.write_buffer_bytes
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.engine().path
    }

    /// Lets writes under way end, applies what waits, writes a checkpoint and closes; so little that the next opening has it again in no time stays in the log, which is flushed. Handles that are left can only read from then on,
    /// and keep others from opening the database while they are there.
    /// Dropping the last handle does the same but can't say what went wrong.
    ///
    /// # Errors
    /// When that failed. Nothing acknowledged is lost: the next open recovers it.
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
    /// When it can't be opened: see [`Error::kind`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        let psync = Psync::new(self.backend)?;
        self.open_on(psync, path.as_ref())
    }

    /// Opens the database at `path` of `psync`'s storage: a simulated disk, say.
    ///
    /// # Errors
    /// When it can't be opened: see [`Error::kind`].
    #[doc(hidden)]
    pub fn open_on(self, psync: Psync, path: &Path) -> Result<Database> {
        self.check()?;
        Database::open_with(psync, path, &self)
    }
}

impl Database {
    /// What the database learned of its device from its own requests, those of earlier processes included, as a profile: that in use with each figure replaced that was seen often
    /// enough. Each figure stands beside it, with the requests that it rests on.
    ///
    /// The database does not go by it, so that no choice follows from a busy minute. It does from the next opening on that gives it to [`Options::profile`](crate::Options::profile), or
    /// when `braid device --save --learned` has saved it: for tables that are created, and with `compact`.
    #[must_use]
    pub fn learned_profile(&self) -> LearnedProfile {
        learned::learned(self.engine())
    }
}
