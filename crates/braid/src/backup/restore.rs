//! Restores a chain of backups into a new database.
//!
//! 1. One thread reads and checks blocks ahead of the thread that applies them to the new database.
//! 2. The pairs of a table are loaded: packed, in long writes, without the log. Changes are committed in batches, in
//!    their order.
//! 3. The database is made as `….restoring` beside its destination, closed, and then renamed. A leftover of that name
//!    is removed by the next restore to the same destination.
//!
//! Invariant: the first backup of a chain continues none, each later one continues the backup before, and the counts in
//! each match its contents.

use std::{
    collections::HashMap,
    fmt, fs,
    io::{self, BufReader, Read},
    ops::{Bound, ControlFlow},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use codec::Fields;
use index::Seq;
use index::{Expiry, TableId};
use psync::Psync;

use super::{
    directory::{chain, sync_parent},
    format::{BLOCK_HEADER_BYTES, Change, Counts, HEADER_BYTES, Header, Pair, kind},
    path_error::path_error,
    reader::{Block, Part, Reader, corrupt},
    sink::STREAM,
};
use crate::{
    commit::VALUE_BYTES_MAX,
    error::{Error, Result, shown},
    format::{CreateTable, decode_table},
    handles::{batch::WriteBatch, database::Database, load::Loader, table::Table},
    open,
    options::{Options, TableOptions},
    words::durability::Durability,
};

/// Blocks read ahead.
const BLOCKS_AHEAD: usize = 8;
/// About the bytes of changes that are committed together.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;
const RESTORING: &str = "restoring";

/// Progress of a restore.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RestoreProgress {
    /// Pairs and changes so far.
    pub records: u64,
    /// Bytes of backups so far.
    pub bytes: u64,
    /// Bytes of all backups together; none for a stream.
    pub total_bytes: Option<u64>,
}

/// Called after each block. [`ControlFlow::Break`] ends the restore with [`Error::Stopped`].
pub type RestoreReport<'a> = &'a mut dyn FnMut(RestoreProgress) -> ControlFlow<()>;

/// Summary of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreSummary {
    /// The last restored commit, as a seq of the database that was backed up.
    pub seq: Seq,
    /// Backups in the chain.
    pub backups: u64,
    /// Loaded pairs, in the order of their keys.
    pub pairs: u64,
    /// Changes applied after the load, including pairs whose values were documents.
    pub changes: u64,
    /// Bytes of backups.
    pub bytes: u64,
}

impl Options {
    /// Restores backups into a new database in `to`, a new or empty directory.
    ///
    /// If `from` is a directory, the source is its newest chain of backups; if `from` is a file, all backups in the
    /// file. These options apply to the restore only: the database can be opened with any options later.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use std::ops::ControlFlow;
    /// # let (backups, again) = (directory.path().join("backups"), directory.path().join("again"));
    /// # db.table("users", braid::Structure::BTree)?.put("ada", "1815")?;
    /// db.backup(&backups)?;
    /// let restored = braid::Options::new().restore(&backups, &again, &mut |_| ControlFlow::Continue(()))?;
    /// assert_eq!((restored.backups, restored.pairs), (1, 1));
    /// assert!(braid::Database::open(&again)?.open_table("users")?.contains_key("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoBackup`]; [`Error::Occupied`] when `to` is not empty; [`Error::Corrupt`], with file and offset, when
    /// a backup is damaged or cut off; [`Error::BackupChain`] when a backup does not continue the one before;
    /// [`Error::Stopped`]; or when the database can't be made. `to` is then as before.
    pub fn restore(
        self, from: impl AsRef<Path>, to: impl AsRef<Path>, report: RestoreReport<'_>,
    ) -> Result<RestoreSummary> {
        let files = chain(from.as_ref())?;
        let mut total_bytes = 0;
        for file in &files {
            total_bytes += fs::metadata(file).map_err(path_error("look at", file))?.len();
        }
        self.make_at(to.as_ref(), |options, path| {
            let open = |file: &PathBuf| {
                let opened = fs::File::open(file).map_err(path_error("open", file))?;
                Ok(Source { name: file.display().to_string(), stream: BufReader::with_capacity(READ_BYTES, opened) })
            };
            let sources = files.iter().map(open).collect::<Result<Vec<_>>>()?;
            make(options, Psync::new(options.backend)?, path, sources, Some(total_bytes), report)
        })
    }

    /// As [`Options::restore`], from a stream of backups, one directly behind the other.
    ///
    /// # Errors
    /// As [`Options::restore`].
    pub fn restore_stream(
        self, from: impl Read + Send, to: impl AsRef<Path>, report: RestoreReport<'_>,
    ) -> Result<RestoreSummary> {
        self.make_at(to.as_ref(), |options, path| {
            let source = Source { name: STREAM.to_owned(), stream: from };
            make(options, Psync::new(options.backend)?, path, vec![source], None, report)
        })
    }

    /// As [`Options::restore_stream`], on the storage of `psync`, and directly in `to` instead of beside `to`.
    ///
    /// # Errors
    /// As [`Options::restore`].
    #[doc(hidden)]
    pub fn restore_on(self, psync: Psync, from: impl Read + Send, to: &Path) -> Result<RestoreSummary> {
        let source = Source { name: STREAM.to_owned(), stream: from };
        make(&self, psync, to, vec![source], None, &mut |_| ControlFlow::Continue(()))
    }

    /// Makes a new database in `to`, a new or empty directory, and calls `fill` on this database. Afterwards `to` holds
    /// the whole database or nothing.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// use braid::{Database, Durability, Options, Structure};
    ///
    /// let count = Options::new().durability(Durability::Os).build(&path, |db| {
    ///     let squares = db.table("squares", Structure::BTree)?;
    ///     squares.load((0..100_u32).map(|number| (number.to_be_bytes(), (number * number).to_be_bytes())))
    /// })?;
    /// assert_eq!(count, 100);
    /// assert_eq!(Database::open(&path)?.tables().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `fill`; [`Error::Occupied`] when `to` is not empty; or when the database can't be made. `to` is
    /// then as before.
    pub fn build<T, E: From<Error>>(
        self, to: impl AsRef<Path>, fill: impl FnOnce(&Database) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.make_at(to.as_ref(), |options, path| {
            let db = options.clone().read_only(false).create(true).open(path)?;
            let filled = fill(&db)?;
            db.close()?;
            Ok(filled)
        })
    }

    /// Calls `make` with a path beside `to`, then renames the result to `to`.
    fn make_at<T, E: From<Error>>(
        self, to: &Path, make: impl FnOnce(&Self, &Path) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        check_vacant(to)?;
        let path = beside(to);
        remove(&path)?;
        let made = make(&self, &path).and_then(|made| {
            fs::rename(&path, to).map_err(path_error("rename", &path))?;
            sync_parent(to)?;
            Ok(made)
        });
        if made.is_err() {
            // A restore that began here meanwhile holds the lock, so its files stay. After any other failure to remove
            // them, the next restore removes them.
            let _ = remove(&path);
        }
        made
    }
}

/// Path of the unfinished database whose destination is `to`.
fn beside(to: &Path) -> PathBuf {
    let mut path = to.as_os_str().to_owned();
    path.push(".");
    path.push(RESTORING);
    path.into()
}

/// Fails when `to` is not empty.
fn check_vacant(to: &Path) -> Result<()> {
    let found = match fs::read_dir(to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(path_error("list", to)(error)),
        Ok(mut entries) => entries.next().transpose().map_err(path_error("list", to))?,
    };
    found
        .map_or(Ok(()), |entry| Err(Error::Occupied { path: to.to_owned(), found: format!("{:?}", entry.file_name()) }))
}

/// Removes the leftover of a restore. Fails when the directory holds foreign files or another process holds its lock.
fn remove(path: &Path) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(path_error("list", path))?,
    };
    for entry in entries {
        let name = entry.map_err(path_error("list", path))?.file_name();
        let is_ours = name.to_str().is_some_and(open::is_ours);
        if !is_ours {
            return Err(Error::Occupied { path: path.to_owned(), found: format!("{name:?}") });
        }
    }
    let psync = Psync::new(None)?;
    let lock = psync.lock(&path.join(open::LOCK), false);
    if let Err(psync::Error::Locked { holder, .. }) = lock {
        let holder = holder.map_or_else(|| "that did not leave its id".to_owned(), |pid| pid.to_string());
        return Err(Error::Locked { path: path.to_owned(), holder });
    }
    fs::remove_dir_all(path).map_err(path_error("remove", path))
}

/// A source of backups: a file or a stream.
struct Source<R> {
    name: String,
    stream: R,
}

/// Makes the database, fills and closes it.
fn make<R: Read + Send>(
    options: &Options, psync: Psync, path: &Path, sources: Vec<Source<R>>, total_bytes: Option<u64>,
    report: RestoreReport<'_>,
) -> Result<RestoreSummary> {
    let options = options.clone().read_only(false).create(true);
    let db = options.open_on(psync, path)?;
    let mut restore = Restore::new(&db, total_bytes, report);
    let (out, parts) = sync_channel(BLOCKS_AHEAD);
    let (back, emptied) = sync_channel(BLOCKS_AHEAD + 2);
    let summary = thread::scope(|scope| {
        let reading = thread::Builder::new().name("braid-restore".into());
        let reading = reading.spawn_scoped(scope, move || read(sources, &out, &emptied));
        let reading = reading.map_err(|error| Error::Option {
            option: "threads",
            problem: format!("the thread that reads backups could not be started: {error}"),
        })?;
        let taken = restore.take_all(&parts, &back);
        // The closed channel ends the thread.
        drop(parts);
        let read = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // An error in applying comes first, because those blocks stood before the one that could not be read.
        taken.and(read)?;
        restore.finish()
    })?;
    db.close()?;
    Ok(summary)
}

/// Reads all sources, until the end or until the channel is closed.
fn read<R: Read>(sources: Vec<Source<R>>, out: &SyncSender<(String, Part)>, emptied: &Receiver<Vec<u8>>) -> Result<()> {
    for Source { name, stream } in sources {
        let mut reader = Reader::new(stream, &name);
        let memory = || emptied.try_recv().unwrap_or_default();
        let show = |part| out.send((name.clone(), part)).map_err(|_| stopped());
        reader.all(memory, show)?;
    }
    Ok(())
}

fn stopped() -> Error {
    Error::Stopped { what: "the restore" }
}

/// A long value, of which some pieces are still to come.
struct Long {
    /// None for a pair of the table being loaded.
    table: Option<TableId>,
    key: Vec<u8>,
    value: Vec<u8>,
    bytes: usize,
    expiry: Option<Expiry>,
}

/// Applies backups to a database.
struct Restore<'a> {
    db: &'a Database,
    /// Keyed by their ids in the database that was backed up.
    tables: HashMap<TableId, Table>,
    /// The table that began last.
    current: Option<TableId>,
    loader: Option<Loader>,
    batch: WriteBatch,
    long: Option<Long>,
    /// The backup being restored.
    header: Option<Header>,
    counts: Counts,
    summary: RestoreSummary,
    total_bytes: Option<u64>,
    report: RestoreReport<'a>,
}

impl<'a> Restore<'a> {
    fn new(db: &'a Database, total_bytes: Option<u64>, report: RestoreReport<'a>) -> Self {
        let summary = RestoreSummary { seq: Seq(0), backups: 0, pairs: 0, changes: 0, bytes: 0 };
        Self {
            db,
            tables: HashMap::new(),
            current: None,
            loader: None,
            batch: WriteBatch::new(),
            long: None,
            header: None,
            counts: Counts::default(),
            summary,
            total_bytes,
            report,
        }
    }

    fn take_all(&mut self, parts: &Receiver<(String, Part)>, back: &SyncSender<Vec<u8>>) -> Result<()> {
        for (name, part) in parts {
            match part {
                Part::Header(header) => self.begin(header, &name)?,
                Part::Block(block) => {
                    self.block(&block, &name)?;
                    // The channel has room for all payloads that exist.
                    let _ = back.try_send(block.payload);
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, header: Header, name: &str) -> Result<()> {
        let refuse = |problem: String| Err(Error::BackupChain { file: name.to_owned(), problem });
        match (self.header, header.continues) {
            (None, Some(_)) => return refuse("it is incremental, and nothing is before it".into()),
            (Some(_), None) => return refuse("it is a full one".into()),
            (Some(before), Some(continued)) if (before.id, before.seq) != continued => {
                return refuse(format!("it continues another one, of seq {}", continued.1.0));
            }
            _ => {}
        }
        self.header = Some(header);
        self.counts = Counts::default();
        self.summary.backups += 1;
        self.summary.seq = header.seq;
        self.summary.bytes += HEADER_BYTES as u64;
        Ok(())
    }

    fn block(&mut self, block: &Block, name: &str) -> Result<()> {
        let malformed = |expected: &str| {
            let found = format!("type {}, {} bytes", block.kind, block.payload.len());
            corrupt(name, block.offset, "a block that makes no sense where it is", expected.into(), found)
        };
        if self.long.is_some() != (block.kind == kind::VALUE) {
            return Err(malformed("the rest of a long value behind it, and no other"));
        }
        let known = match block.kind {
            kind::TABLE => self.table(block, name)?,
            kind::PAIRS => self.pairs(&block.payload)?,
            kind::VALUE => self.piece(&block.payload)?,
            kind::CHANGES => self.changes(&block.payload)?,
            kind::DROPPED => self.dropped(&block.payload)?,
            _ => self.end(&block.payload)?,
        };
        known.ok_or_else(|| malformed("what this version writes"))?;
        self.summary.bytes += (BLOCK_HEADER_BYTES + block.payload.len()) as u64;
        let records = self.summary.pairs + self.summary.changes + self.counts.pairs + self.counts.changes;
        let progress = RestoreProgress { records, bytes: self.summary.bytes, total_bytes: self.total_bytes };
        if (self.report)(progress).is_break() { Err(stopped()) } else { Ok(()) }
    }

    fn table(&mut self, block: &Block, name: &str) -> Result<Option<()>> {
        let Some(begin) = CreateTable::decode(&block.payload) else { return Ok(None) };
        self.commit_all()?;
        self.counts.tables += 1;
        if let Some(before) = self.tables.remove(&begin.id) {
            self.db.drop_table(before.name())?;
        }
        if self.db.open_table(&begin.name).is_ok() {
            return Ok(None);
        }
        let given = Some(begin.structure_settings.as_slice()).filter(|given| !given.is_empty());
        if given.is_some_and(|given| (begin.structure.facts().describe)(given).is_none()) {
            let expected = format!("settings that a table with structure `{}` can have", begin.structure);
            let found = format!("{} bytes, \"{}\"", begin.structure_settings.len(), shown(&begin.structure_settings));
            return Err(corrupt(name, block.offset, "settings of a structure", expected, found));
        }
        let options = TableOptions::new().settings(begin.settings);
        let table = self.db.table_given(&begin.name, begin.structure, &options, given)?;
        self.tables.insert(begin.id, table);
        self.current = Some(begin.id);
        Ok(Some(()))
    }

    fn dropped(&mut self, payload: &[u8]) -> Result<Option<()>> {
        let Some(table) = decode_table(payload).and_then(|id| self.tables.remove(&id)) else { return Ok(None) };
        self.commit_all()?;
        self.current = None;
        self.counts.changes += 1;
        self.db.drop_table(table.name())?;
        Ok(Some(()))
    }

    fn pairs(&mut self, payload: &[u8]) -> Result<Option<()>> {
        let mut fields = Fields(payload);
        while !fields.end() {
            let Some(pair) = Pair::decode(&mut fields) else { return Ok(None) };
            self.counts.pairs += 1;
            let begun = match pair.value {
                Some(value) => self.load(pair.key, value, pair.expiry)?,
                None => self.begin_long(None, &pair),
            };
            if begun.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    fn load(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<Option<()>> {
        if self.loader.is_none() {
            let Some(table) = self.current.and_then(|id| self.tables.get(&id)) else { return Ok(None) };
            self.loader = Some(table.loader()?);
        }
        let Some(loader) = &mut self.loader else { return Ok(None) };
        loader.push_until(key, value, expiry)?;
        Ok(Some(()))
    }

    fn changes(&mut self, payload: &[u8]) -> Result<Option<()>> {
        if self.loader.is_some() {
            self.commit_all()?;
        }
        self.current = None;
        let mut fields = Fields(payload);
        while !fields.end() {
            let Some(change) = Change::decode(&mut fields) else { return Ok(None) };
            self.counts.changes += 1;
            let begun = match change {
                Change::Put(table, Pair { key, value: Some(value), expiry, .. }) => {
                    self.put(table, key, value, expiry)?
                }
                Change::Put(table, pair) => self.begin_long(Some(table), &pair),
                Change::Delete(table, key) => self.tables.get(&table).map(|table| self.batch.delete(table, key)),
                Change::DeleteRange(table, low, high) => self.tables.get(&table).map(|table| {
                    let high = high.map_or(Bound::Unbounded, Bound::Excluded);
                    self.batch.delete_range::<&[u8]>(table, (Bound::Included(low), high));
                }),
            };
            if begun.is_none() {
                return Ok(None);
            }
            self.commit_from(BATCH_BYTES)?;
        }
        Ok(Some(()))
    }

    fn put(&mut self, table: TableId, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<Option<()>> {
        self.commit_from(BATCH_BYTES.saturating_sub(value.len()))?;
        Ok(self.tables.get(&table).map(|table| self.batch.put_until(table, key, value, expiry)))
    }

    fn begin_long(&mut self, table: Option<TableId>, pair: &Pair<'_>) -> Option<()> {
        let bytes =
            usize::try_from(pair.value_bytes).ok().filter(|&bytes| bytes > 0 && bytes as u64 <= VALUE_BYTES_MAX)?;
        let (key, expiry) = (pair.key.to_vec(), pair.expiry);
        self.long = Some(Long { table, key, value: Vec::new(), bytes, expiry });
        Some(())
    }

    fn piece(&mut self, payload: &[u8]) -> Result<Option<()>> {
        let Some(mut long) = self.long.take() else { return Ok(None) };
        if payload.is_empty() || payload.len() > long.bytes - long.value.len() {
            return Ok(None);
        }
        long.value.extend_from_slice(payload);
        if long.value.len() < long.bytes {
            self.long = Some(long);
            return Ok(Some(()));
        }
        match long.table {
            None => self.load(&long.key, &long.value, long.expiry),
            Some(table) => self.put(table, &long.key, &long.value, long.expiry),
        }
    }

    fn end(&mut self, payload: &[u8]) -> Result<Option<()>> {
        self.commit_all()?;
        self.current = None;
        self.summary.pairs += self.counts.pairs;
        self.summary.changes += self.counts.changes;
        let same = Counts::decode(payload) == Some(self.counts);
        self.counts = Counts::default();
        Ok(same.then_some(()))
    }

    /// Finishes the load, and commits the pending changes.
    fn commit_all(&mut self) -> Result<()> {
        if let Some(loader) = self.loader.take() {
            loader.finish()?;
        }
        self.commit_from(1)
    }

    /// Commits the pending changes once they reach this many bytes.
    fn commit_from(&mut self, bytes: usize) -> Result<()> {
        if self.batch.bytes() < bytes.max(1) {
            return Ok(());
        }
        self.db.write_with(&self.batch, Durability::Os)?;
        self.batch.clear();
        Ok(())
    }

    fn finish(&mut self) -> Result<RestoreSummary> {
        if self.header.is_none() {
            return Err(Error::ForeignBackup { file: STREAM.to_owned(), reason: "nothing is in it".into() });
        }
        Ok(self.summary.clone())
    }
}

impl fmt::Debug for Restore<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Restore").field("summary", &self.summary).finish_non_exhaustive()
    }
}
