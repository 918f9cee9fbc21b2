//! Backups: the whole database at one seq, or the changes since another backup, taken while reads and writes continue.
//!
//! 1. [`Database::begin_backup`] takes a snapshot, lists the tables that exist at the snapshot, and makes the log
//!    durable up to the seq of the snapshot. The seq has to be durable because a later backup continues this one there,
//!    so no crash may take the seq back.
//! 2. The contents become blocks (`blocks`), with the bytes of `format`. A full backup has the contents of all tables,
//!    an incremental one the changes in the log since the continued backup (`content`). Up to four threads walk a table
//!    (`stretches`); after that, values that are documents are copied in the order of their places (`documents`). One
//!    more thread checksums and writes blocks (`encoder`).
//! 3. The blocks go to a stream, or to a file in a directory (`directory`). The file gets its name only when whole and
//!    durable (`file`).
//! 4. A restore (`restore`) reads blocks (`reader`), checks each, and applies them to a new database: tables by loads,
//!    changes by commits.
//!
//! Invariants:
//!
//! - Memory is bounded by some blocks, the requests in flight of a scan, and one value.
//! - An interrupted backup is never taken for a whole one.
//! - A restored database exists as a whole or not at all.
//!
//! Left to others: snapshots, walks, documents, loads and the change feed, on which backups are built. Structures and
//! files of the database are unknown here.

mod blocks;
mod content;
mod directory;
mod documents;
mod encoder;
mod file;
mod format;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod path_error;
mod point;
mod progress;
mod reader;
mod restore;
mod sink;
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
use encoder::Encoder;
use format::Header;
use index::Seq;
use psync::Request;
use sink::{Sink, ToStream};
use space::StreamKind;

use crate::{
    engine::Engine,
    error::{Error, Result},
    handles::{database::Database, snapshot::Snapshot, table::Table},
    words::unforeseen,
};

pub use point::BackupPoint;
pub use progress::{BackupProgress, BackupReport};
pub use restore::{RestoreProgress, RestoreReport, RestoreSummary};

/// The kind of a backup in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackupKind {
    /// The whole database.
    Full,
    /// The changes since the newest backup in the directory.
    Incremental,
    /// The changes, or the whole database when no backup can be continued.
    IncrementalOrFull,
}

/// Summary of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupSummary {
    /// The point at which the next backup can continue this one.
    pub point: BackupPoint,
    /// Whether the backup is incremental.
    pub incremental: bool,
    /// Tables that begin in the backup.
    pub tables: u64,
    /// Pairs of tables.
    pub pairs: u64,
    /// Changes, for an incremental backup.
    pub changes: u64,
    /// Bytes of the backup.
    pub bytes: u64,
    /// The file, for a backup in a directory.
    pub file: Option<PathBuf>,
}

/// A backup that has begun. The value holds a snapshot of the moment of the backup. See [`Database::begin_backup`].
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// # use std::ops::ControlFlow;
/// # let again = directory.path().join("again");
/// let users = db.table("users", braid::Structure::BTree)?;
/// users.put("ada", "1815")?;
/// let backup = db.begin_backup()?;
/// users.put("grace", "1906")?; // later: not in it
/// let mut stream = Vec::new();
/// backup.stream(&mut stream, &mut |_| ControlFlow::Continue(()))?;
/// braid::Options::new().restore_stream(&*stream, &again, &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!(braid::Database::open(&again)?.open_table("users")?.iter().count(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Backup {
    database: Database,
    snapshot: Snapshot,
    /// The tables that exist at the snapshot.
    tables: Vec<Table>,
    point: BackupPoint,
}

impl Database {
    /// Writes a full backup of the current state, as a new file in a directory of backups.
    ///
    /// The directory is created if missing. Reads and writes continue meanwhile.
    /// [`Options::restore`](crate::Options::restore) makes a database of the backup. [`Database::begin_backup`] has
    /// more choices.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use std::ops::ControlFlow;
    /// # let (backups, again) = (directory.path().join("backups"), directory.path().join("again"));
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// let backup = db.backup(&backups)?;
    /// assert_eq!((backup.tables, backup.pairs), (1, 1));
    /// braid::Options::new().restore(&backups, &again, &mut |_| ControlFlow::Continue(()))?;
    /// let again = braid::Database::open(&again)?;
    /// assert_eq!(again.open_table("users")?.get("ada")?, users.get("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the directory cannot be written, the storage fails, or its contents are damaged. The directory then has no
    /// new backup.
    pub fn backup(&self, directory: impl AsRef<Path>) -> Result<BackupSummary> {
        self.begin_backup()?.write_to(directory, BackupKind::Full, &mut |_| ControlFlow::Continue(()))
    }

    /// Begins a backup of the current state: full or incremental, to a stream or into a directory.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let home = tempfile::tempdir().expect("a directory");
    /// # let (path, backups) = (home.path().join("data"), home.path().join("backups"));
    /// # let elsewhere = home.path().join("again");
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
            // The lock keeps tables from being created or dropped, so the live tables are those of the snapshot.
            let _schema = engine.schema.lock();
            (self.snapshot(), engine.catalog.live())
        };
        make_durable(engine)?;
        let handle = self.handle();
        let tables =
            tables.into_iter().map(|core| Table { handle: Arc::clone(handle), core, durability: None }).collect();
        let id = unforeseen::bytes();
        let database = engine.superblock.lock().current().database;
        let point = BackupPoint { database, id, seq: snapshot.seq() };
        Ok(Backup { database: self.clone(), snapshot, tables, point })
    }
}

impl Backup {
    /// The last commit in the backup.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.snapshot.seq()
    }

    /// The snapshot of the backup, for comparisons for example.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Time since the backup began.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.snapshot.age()
    }

    /// Writes the whole database to a stream. To restore a chain of backups from one stream, write them one directly
    /// behind the other.
    ///
    /// # Errors
    /// When the stream fails, as [`Range::next_pair`](crate::Range::next_pair), or [`Error::Stopped`]. The bytes
    /// written until then are no backup: a restore reports them as cut off.
    pub fn stream(&self, out: impl Write + Send, report: BackupReport<'_>) -> Result<BackupSummary> {
        self.write(None, ToStream(out), report)
    }

    /// Writes the changes since another backup of this database to a stream.
    ///
    /// The changes come from the log, which has to reach back to that backup
    /// ([`Options::retain_log_bytes`](crate::Options::retain_log_bytes)). Contents loaded since then are copied from
    /// their tables.
    ///
    /// # Errors
    /// [`Error::BackupGap`] when the log does not reach back that far; [`Error::BackupChain`] when the other backup is
    /// not from the past of this database; and as [`Backup::stream`].
    pub fn stream_since(
        &self, since: &BackupPoint, out: impl Write + Send, report: BackupReport<'_>,
    ) -> Result<BackupSummary> {
        self.write(Some(since), ToStream(out), report)
    }

    /// Writes a file into a directory of backups, which is created if missing. The file gets its name only when whole
    /// and durable.
    ///
    /// # Errors
    /// As [`Backup::stream`] and [`Backup::stream_since`]; [`Error::NoBackup`] when there is none to continue; when
    /// another process writes backups to the directory. The directory then has no new backup.
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

    fn write(&self, since: Option<&BackupPoint>, sink: impl Sink, report: BackupReport<'_>) -> Result<BackupSummary> {
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
            bytes += core.state.load_full().view.stats()?.entry_bytes + core.documents.stats().live_bytes;
        }
        Ok(bytes)
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Backup").field("point", &self.point).finish_non_exhaustive()
    }
}

/// Makes all visible commits durable.
fn make_durable(engine: &Engine) -> Result<()> {
    if !engine.options.read_only {
        return engine.flush_log();
    }
    // This database writes nothing, but an earlier writer may have left bytes that the device does not have yet.
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
