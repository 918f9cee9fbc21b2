//! Backups: everything as it was at one seq, or what changed since another backup, while everybody reads and writes.
//!
//! 1. [`Database::begin_backup`] takes a snapshot, with the tables that there are at it, and makes the log durable up to there: a later backup
//!    continues this one at its seq, which no crash may take back.
//! 2. The contents of all tables, or the changes out of the log since the backup that is continued (`content`), become blocks (`blocks`),
//!    whose bytes are in `format`. Tables are walked by all cores (`stretches`), and values that are documents are copied after that, in the order of their
//!    places (`documents`). One more thread checksums blocks and writes them (`encoder`).
//! 3. They go to a stream, or into a directory (`directory`) as a file that has its name only when it is whole and durable (`file`).
//! 4. A restore (`restore`) reads blocks back (`reader`), checks each, and puts them into a new database: tables by loads, changes by commits.
//!
//! Invariants: memory is bounded by some blocks, what a scan has in flight and one value; a backup that was interrupted is never taken for a whole
//! one; a restore is there as a whole or not at all.
//!
//! It stands on snapshots, walks, documents, loads and the change feed, and knows nothing of structures and files.

mod blocks;
mod content;
mod directory;
mod documents;
mod encoder;
mod file;
mod format;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod point;
mod reader;
mod restore;
mod stretches;

use std::{
    fmt,
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use blocks::Memory;
use directory::Directory;
use encoder::{Encoder, ToStream};
use format::Header;
use index::Seq;
use psync::Request;
use rand::RngCore;
use space::StreamKind;

use crate::{
    engine::Engine,
    error::{Error, Result},
    handles::{database::Database, snapshot::Snapshot, table::Table},
};

pub use point::BackupPoint;
pub use restore::{RestoreProgress, RestoreReport, RestoreSummary};

/// How far a backup is.
#[derive(Clone, Debug)]
pub struct BackupProgress {
    /// The table whose pairs are being written; none for changes.
    pub table: Option<Arc<str>>,
    /// Pairs and changes so far.
    pub records: u64,
    /// Bytes of blocks so far.
    pub bytes: u64,
    /// About how many there will be; none for changes.
    pub total_bytes: Option<u64>,
}

/// Told after each block; [`ControlFlow::Break`] ends the backup with [`Error::Stopped`].
pub type BackupReport<'a> = &'a mut dyn FnMut(BackupProgress) -> ControlFlow<()>;

/// What a backup in a directory is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupKind {
    /// Everything.
    Full,
    /// What changed since the newest backup there.
    Incremental,
    /// What changed, or everything where there is no backup that can be continued.
    IncrementalOrFull,
}

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// What the next one can continue.
    pub point: BackupPoint,
    /// Whether it is an incremental one.
    pub incremental: bool,
    /// Tables that begin in it.
    pub tables: u64,
    /// Pairs of tables.
    pub pairs: u64,
    /// Changes, for an incremental one.
    pub changes: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its file, in a directory.
    pub file: Option<PathBuf>,
}

/// A backup that has begun: it holds the moment that it is of. See [`Database::begin_backup`].
pub struct Backup {
    database: Database,
    snapshot: Snapshot,
    /// Those there are at the snapshot.
    tables: Vec<Table>,
    point: BackupPoint,
}

impl Database {
    /// Writes everything, as it is now, into a directory of backups, which is created where it is missing: a full backup, with a file of its own.
    /// Reads and writes go on meanwhile. [`Options::restore`](crate::Options::restore) makes a database of it; [`Database::begin_backup`] can do more.
    ///
    /// # Errors
    /// When the directory cannot be written, storage fails or what it holds is damaged. Nothing new is in the directory then.
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<BackupSummary> {
        self.begin_backup()?.write_to(directory, BackupKind::Full, &mut |_| ControlFlow::Continue(()))
    }

    /// Begins a backup of everything as it is now: to a stream or into a directory, in full or what changed since another one.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let home = tempfile::tempdir().expect("a directory");
    /// # let (path, backups, elsewhere) = (home.path().join("data"), home.path().join("backups"), home.path().join("again"));
    /// use std::ops::ControlFlow;
    ///
    /// use braid::{BackupKind, Database, Options, Structure};
    ///
    /// let db = Options::new().retain_log_bytes(64 << 20).open(&path)?;
    /// let users = db.table("users", Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// db.backup(&backups)?;
    /// users.put("grace", "1906")?;
    /// let go_on = &mut |_| ControlFlow::Continue(());
    /// let since = db.begin_backup()?.write_to(&backups, BackupKind::Incremental, go_on)?;
    /// assert_eq!((since.pairs, since.changes), (0, 1));
    ///
    /// Options::new().restore(&backups, &elsewhere, &mut |_| ControlFlow::Continue(()))?;
    /// let again = Database::open(&elsewhere)?;
    /// assert_eq!(again.open_table("users")?.get("grace")?.as_deref(), Some(&b"1906"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the log cannot be flushed.
    pub fn begin_backup(&self) -> Result<Backup> {
        let engine = self.engine();
        let (snapshot, tables) = {
            // No table comes or goes, so those that are live are those of the snapshot.
            let _schema = engine.schema.lock();
            (self.snapshot(), engine.catalog.live())
        };
        make_durable(engine)?;
        let handle = self.handle();
        let tables = tables.into_iter().map(|core| Table { handle: Arc::clone(handle), core }).collect();
        let mut id = [0; 16];
        rand::rng().fill_bytes(&mut id);
        let database = engine.superblock.lock().current().database;
        let point = BackupPoint { database, id, seq: snapshot.seq() };
        Ok(Backup { database: self.clone(), snapshot, tables, point })
    }
}

impl Backup {
    /// The last commit that it has.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.snapshot.seq()
    }

    /// What it is of: to compare with, say.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// How long ago it was begun.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.snapshot.age()
    }

    /// Writes everything to a stream. A chain of backups is restored from one stream when they come one behind the other.
    ///
    /// # Errors
    /// When the stream fails, as [`Range::next_pair`](crate::Range::next_pair), or [`Error::Stopped`]. What was written by then is no backup: a restore of it
    /// says that it is cut off.
    pub fn stream(&self, out: impl Write + Send, report: BackupReport<'_>) -> Result<BackupSummary> {
        self.write(None, ToStream(out), report)
    }

    /// Writes what changed since another backup of this database to a stream, out of the log: it has to reach back that far
    /// ([`Options::retain_log_bytes`](crate::Options::retain_log_bytes)). What was loaded since is copied from its tables.
    ///
    /// # Errors
    /// [`Error::BackupGap`] when the log does not reach back that far, [`Error::BackupChain`] when the other one is not of this database's past, and as
    /// [`Backup::stream`].
    pub fn stream_since(
        &self, since: &BackupPoint, out: impl Write + Send, report: BackupReport<'_>,
    ) -> Result<BackupSummary> {
        self.write(Some(since), ToStream(out), report)
    }

    /// Writes a file into a directory of backups, which is created where it is missing. The file has its name when it is whole and durable.
    ///
    /// # Errors
    /// As [`Backup::stream`] and [`Backup::stream_since`]; [`Error::NoBackup`] when there is none to be continued; when another process writes backups to the
    /// directory. Nothing new is in the directory then.
    pub fn write_to(
        &self, directory: impl AsRef<Path>, kind: BackupKind, report: BackupReport<'_>,
    ) -> Result<BackupSummary> {
        let directory = Directory::open(directory.as_ref(), self.database.psync().backend())?;
        if kind == BackupKind::Full {
            return self.write_file(&directory, None, report);
        }
        let continued = directory.newest().and_then(|since| self.write_file(&directory, Some(&since), report));
        match continued {
            Err(Error::BackupGap { .. } | Error::BackupChain { .. } | Error::NoBackup { .. })
                if kind == BackupKind::IncrementalOrFull =>
            {
                self.write_file(&directory, None, report)
            }
            written => written,
        }
    }

    fn write_file(
        &self, directory: &Directory, since: Option<&BackupPoint>, report: BackupReport<'_>,
    ) -> Result<BackupSummary> {
        let mut unfinished = directory.begin(since.is_some())?;
        let mut summary = self.write(since, unfinished.sink()?, report)?;
        summary.file = Some(unfinished.finish()?);
        Ok(summary)
    }

    fn write(
        &self, since: Option<&BackupPoint>, sink: impl encoder::Sink, report: BackupReport<'_>,
    ) -> Result<BackupSummary> {
        let BackupPoint { database, id, seq } = self.point;
        let header = Header { database, id, continues: since.map(|since| (since.id, since.seq)), seq };
        let changes = since.map(|since| self.changes_since(since)).transpose()?;
        let total_bytes = if since.is_none() { Some(self.total_bytes()?) } else { None };
        let write = |encoder: &mut Encoder<'_>, memory: &Memory| match changes {
            Some(changes) => self.write_changes(changes, encoder, memory),
            None => self.write_tables(encoder, memory),
        };
        let (counts, bytes, documents) = encoder::run(&header, sink, total_bytes, report, write)?;
        Ok(BackupSummary {
            point: self.point.clone(),
            incremental: since.is_some(),
            tables: counts.tables,
            pairs: counts.pairs + documents,
            changes: counts.changes - documents,
            bytes,
            file: None,
        })
    }

    fn write_tables(&self, encoder: &mut Encoder<'_>, memory: &Memory) -> Result<u64> {
        self.tables.iter().map(|table| self.write_table(table, encoder, memory)).sum()
    }

    /// About the bytes of a full backup.
    fn total_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for Table { core, .. } in &self.tables {
            bytes += core.state.load_full().view.stats()?.run_bytes + core.documents.stats().live_bytes;
        }
        Ok(bytes)
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Backup").field("point", &self.point).finish_non_exhaustive()
    }
}

/// Makes everything durable that is visible.
fn make_durable(engine: &Engine) -> Result<()> {
    if !engine.options.read_only {
        return engine.flush_log();
    }
    // Nobody writes, but somebody may have left what the device does not have yet.
    let mut flushes = Vec::new();
    for (directory, kind) in [("wal", StreamKind::Wal), ("doc", StreamKind::Doc)] {
        for name in engine.store.list(directory)? {
            let file = engine.store.open_existing(kind, &format!("{directory}/{name}"), false)?;
            flushes.push(Request::flush(&file, 0));
        }
    }
    engine.store.psync().run_all(flushes)?;
    Ok(())
}

/// An error of the file system, as psync tells its own.
fn path_error<'a>(operation: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> Error + 'a {
    move |error| Error::Io(psync::Error::Path { operation, path: path.to_owned(), source: Arc::new(error) })
}
