//! The change feed: committed changes, in order, read from the log.
//!
//! 1. [`Changes`] remembers the last seq that was shown. While a newer seq is visible, the next records come from the
//!    log ([`wal::Reader`]): 1 MiB at a time, decoded and kept until they are shown.
//! 2. Records that are not visible yet wait in memory with the others. A lazy commit can be visible before its record
//!    is written; the feed then has the log written first.
//! 3. A value in a document log is read when its change is due. The values of the next visible changes are read with
//!    it, up to [`WINDOW_BYTES`], with one psync per table.
//! 4. [`Changes::wait`] sleeps until the publisher has a newer seq.
//!
//! Invariants:
//! - A change is shown once, whole, in the order of seqs, and only when visible.
//! - An operation on a table that had been dropped before is not shown, because that operation had no effect.
//! - A gap in the log is reported as [`Error::ChangesGone`]. No change is left out silently: a record that does not
//!   check stays in the way.
//!
//! Left to others: how long the log, and the documents and tables named in the log, are kept
//! ([`crate::engine::retention`]).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, SystemTime},
};

use index::{DocPointer, Seq, TableId};
use wal::Reader;

use crate::{
    engine::{
        Engine,
        handle::{Hold, Kind},
    },
    error::{Error, Result, convert::malformed_record},
    format::{
        CreateTable, RollBack, TableSettings,
        decoded::{Ahead, Draft, Value, What, decode},
    },
    handles::database::Database,
    tables::catalog::TableCore,
    words::{clock::system_time, structure::Structure},
};

/// Most bytes of documents that are read together, unless a single change has more.
const WINDOW_BYTES: u64 = 8 << 20;

/// A table, as named by a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedTable {
    /// Id of the table, never given twice in a database.
    pub id: u32,
    /// Name of the table. A table created under the same name after a drop has another id.
    pub name: Arc<str>,
}

/// An operation of a commit on a key or a range of keys: see the example of [`Database::changes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOperation {
    /// The key has this value from now on.
    Put {
        /// Table of the key.
        table: ChangedTable,
        /// The key.
        key: Vec<u8>,
        /// The value, of any length.
        value: Vec<u8>,
        /// Time at which the value expires, if at all. The expiry itself is not shown as a change.
        expiry: Option<SystemTime>,
    },
    /// The key is deleted from now on, if present.
    Delete {
        /// Table of the key.
        table: ChangedTable,
        /// The key.
        key: Vec<u8>,
    },
    /// All keys of a range are deleted from now on, present or not. This operation comes before the other operations of
    /// its commit on the table.
    DeleteRange {
        /// Table of the keys.
        table: ChangedTable,
        /// First key of the range, included.
        from: Vec<u8>,
        /// End of the range, excluded. None for a range without an upper end.
        to: Option<Vec<u8>>,
    },
}

/// Kind of a change.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::{Change, ChangeEvent, Seq};
///
/// db.table("users", braid::Structure::BTree)?;
/// db.drop_table("users")?;
/// let mut told = Vec::new();
/// for change in db.changes(Seq(0))? {
///     let Change { seq, event, .. } = change?;
///     match event {
///         ChangeEvent::Commit(operations) => told.push(format!("{}: {}", seq.0, operations.len())),
///         ChangeEvent::TableCreated { table, .. } => told.push(format!("{} begins", table.name)),
///         ChangeEvent::TableDropped { table } => told.push(format!("{} ends", table.name)),
///         other => panic!("{other:?} needs a new copy of the table"),
///     }
/// }
/// assert_eq!(told, ["users begins", "users ends"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeEvent {
    /// A commit. At most one operation for each key of a table, besides those on ranges. All became visible together.
    Commit(Vec<ChangeOperation>),
    /// A table was created, empty.
    TableCreated {
        /// The table.
        table: ChangedTable,
        /// Its structure.
        structure: Structure,
        /// Settings of the table. To give a copy the same settings, use
        /// [`TableOptions::settings`](crate::TableOptions::settings).
        settings: TableSettings,
    },
    /// A table was dropped, with all its contents.
    TableDropped {
        /// The table.
        table: ChangedTable,
    },
    /// A load of a table ended ([`Table::load`](crate::Table::load)). The loaded pairs are not in the log. A follower
    /// has to copy the table and then continue with the changes after this one. A load that failed at its very end is
    /// shown too; the table is then empty.
    Loaded {
        /// The table, which was empty before.
        table: ChangedTable,
    },
    /// A table went back to an older state ([`Table::roll_back`](crate::Table::roll_back)). The present contents are
    /// not in the log. A follower has to replace its copy of the table by a new copy, and then continue with the
    /// changes after this one. A rollback that failed at its very end is shown too; the table is then unchanged.
    RolledBack {
        /// The table.
        table: ChangedTable,
        /// The seq of the state.
        to: Seq,
    },
}

/// A change of a database at one place in the order of commits: see the example of [`Database::changes`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Place in the order of commits.
    pub seq: Seq,
    /// Kind and contents of the change.
    pub event: ChangeEvent,
}

/// The changes of a database after some seq, in order: see [`Database::changes`].
///
/// The iterator ends when every visible change was shown. A later call continues with newer changes, and
/// [`Changes::wait`] sleeps until there are any. After an error the next call tries the same change again.
///
/// A feed keeps the database open, but does not hold the log. When the log is trimmed past the feed, the next call
/// returns [`Error::ChangesGone`].
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// # use std::time::Duration;
/// let users = db.table("users", braid::Structure::BTree)?;
/// let mut feed = db.changes(db.seq())?; // only what comes from now on
/// assert!(feed.next().is_none());
/// let seq = users.put("ada", "1815")?;
/// assert!(feed.wait(Duration::from_secs(1))?, "there is a change now");
/// assert_eq!(feed.next().transpose()?.map(|change| change.seq), Some(seq));
/// # Ok(())
/// # }
/// ```
pub struct Changes {
    handle: Hold,
    reader: Reader,
    /// The last seq that was shown.
    shown: Seq,
    /// Every seq up to this one is visible.
    visible: Seq,
    /// Records that were read and not shown yet.
    ahead: VecDeque<Ahead>,
    names: HashMap<TableId, Arc<str>>,
}

impl Database {
    /// Changes committed after `from`, in order, and later ones as they come: for following the database from outside.
    ///
    /// `Seq(0)` is before the first commit. To resume, even after a close or a crash, pass the seq of the last change
    /// that was handled. Commits, and the creation and drop of tables, are changes, each with its own seq. Compactions
    /// and checkpoints are not changes.
    ///
    /// The feed goes back as far as the log. [`Options::retain_log_bytes`](crate::Options::retain_log_bytes) sets how
    /// far that is at least; [`LogStats::oldest_seq`](crate::LogStats::oldest_seq) is the present limit.
    ///
    /// Only visible changes are shown. A crash cannot undo a commit under
    /// [`Durability::Sync`](crate::Durability::Sync). A commit with a weaker durability can be lost in a power cut
    /// after the feed, or any other reader, has shown it; its seq can then be given to another commit.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use std::collections::BTreeMap;
    ///
    /// use braid::{ChangeEvent, ChangeOperation, Seq};
    ///
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// users.put("grace", "1906")?;
    /// users.delete("ada")?;
    /// let mut copy = BTreeMap::new();
    /// let mut feed = db.changes(Seq(0))?; // from the first commit on
    /// for change in feed.by_ref() {
    ///     let ChangeEvent::Commit(operations) = change?.event else { continue };
    ///     for operation in operations {
    ///         match operation {
    ///             ChangeOperation::Put { key, value, .. } => drop(copy.insert(key, value)),
    ///             ChangeOperation::Delete { key, .. } => drop(copy.remove(&key)),
    ///             ChangeOperation::DeleteRange { .. } => unimplemented!("copy again"),
    ///         }
    ///     }
    /// }
    /// assert_eq!(copy, BTreeMap::from([(b"grace".to_vec(), b"1906".to_vec())]));
    /// assert_eq!(feed.seq(), db.seq()); // where to go on later
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ChangesGone`] when the log begins after the change that follows `from`; the error names the oldest seq.
    /// [`Error::ChangesAhead`] when `from` is above the newest visible seq.
    pub fn changes(&self, from: Seq) -> Result<Changes> {
        let engine = self.engine();
        let visible = engine.publisher.visible();
        if from > visible {
            return Err(Error::ChangesAhead { after: from.0, newest: visible.0 });
        }
        let oldest = engine.retention.kept().seq;
        if from.0.saturating_add(1) < oldest.0 {
            return Err(Error::ChangesGone { after: from.0, oldest: oldest.0 });
        }
        Ok(Changes {
            handle: Hold::new(self.handle(), Kind::Changes),
            reader: Reader::new(from.0),
            shown: from,
            visible,
            ahead: VecDeque::new(),
            names: HashMap::new(),
        })
    }
}

impl Changes {
    /// The last seq that was shown, to resume from later.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.shown
    }

    /// Waits until a change is visible that was not shown yet, for at most `longest`. Returns whether there is one.
    ///
    /// # Errors
    /// When no further change will come, because a write failed or the database was closed.
    pub fn wait(&self, longest: Duration) -> Result<bool> {
        let engine = &self.handle.engine;
        engine.publisher.wait_above(self.shown, longest).map_err(|()| {
            let failed = engine.health.check().err();
            failed.unwrap_or(Error::Closed)
        })
    }

    fn next_change(&mut self) -> Result<Option<Change>> {
        if self.shown >= self.visible {
            self.visible = self.handle.engine.publisher.visible();
            if self.shown >= self.visible {
                return Ok(None);
            }
        }
        while self.ahead.is_empty() {
            self.read_ahead()?;
        }
        if self.ahead.front().is_none_or(|next| next.seq > self.visible) {
            return Ok(None);
        }
        self.complete()?;
        let Some(next) = self.ahead.pop_front() else { return Ok(None) };
        self.shown = next.seq;
        let event = self.event(next.what)?;
        Ok(Some(Change { seq: next.seq, event }))
    }

    /// Reads more of the log, which has a visible record that was not read yet.
    fn read_ahead(&mut self) -> Result<()> {
        let engine = &self.handle.engine;
        let end = engine.publisher.between(|_, frontier| frontier);
        if engine.wal.written() < end {
            engine.wal.write_through(end)?;
        }
        let (reader, ahead) = (&mut self.reader, &mut self.ahead);
        let more = reader.read(&engine.wal, &mut |record| ahead.push_back(decode(&engine.path, record)));
        match more.map_err(Error::from) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let found = format!("none behind seq {}", reader.seen());
                Err(malformed_record(&engine.path, end, format!("the record of seq {}", self.visible.0), found))
            }
            // The documents kept can begin at a later seq than the log.
            Err(Error::ChangesGone { .. }) => {
                let oldest = engine.retention.kept().seq.0;
                Err(Error::ChangesGone { after: self.shown.0, oldest })
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the next change complete: void operations removed, table names noted, documents read.
    fn complete(&mut self) -> Result<()> {
        let engine = &self.handle.engine;
        let Some(next) = self.ahead.front_mut() else { return Ok(()) };
        let seq = next.seq;
        match &mut next.what {
            What::Malformed(error) => return Err(error.clone()),
            What::Create(record) => drop(self.names.insert(record.id, record.name.as_str().into())),
            What::Drop(table) | What::Load(table) | What::RollBack(RollBack { table, .. }) => {
                let table = find(engine, *table, seq)?;
                note_name(&mut self.names, &table);
            }
            What::Commit(drafts) => {
                strike_void(engine, seq, drafts)?;
                for row in drafts.chunk_by(|one, other| one.table == other.table) {
                    if !self.names.contains_key(&row[0].table) {
                        let table = find(engine, row[0].table, seq)?;
                        note_name(&mut self.names, &table);
                    }
                }
                if drafts.iter().any(Draft::is_document) {
                    self.fetch_documents()?;
                }
            }
        }
        Ok(())
    }

    /// Reads the documents of the next change, and with them those of the changes behind it.
    fn fetch_documents(&mut self) -> Result<()> {
        let mut bytes = 0_u64;
        let fits = |next: &&Ahead| {
            bytes = next.document_bytes().saturating_add(bytes);
            next.seq <= self.visible && bytes <= WINDOW_BYTES
        };
        let count = self.ahead.iter().take_while(fits).count().max(1);
        let fetched = fetch(&self.handle.engine, self.ahead.range_mut(..count));
        // A failure in the documents of another change must not fail this one.
        if fetched.is_ok() || count == 1 { fetched } else { fetch(&self.handle.engine, self.ahead.range_mut(..1)) }
    }

    fn table(&self, id: TableId) -> ChangedTable {
        ChangedTable { id: id.0, name: self.names.get(&id).cloned().unwrap_or_default() }
    }

    /// The event of a record that is complete.
    fn event(&self, what: What) -> Result<ChangeEvent> {
        Ok(match what {
            What::Malformed(error) => return Err(error),
            What::Create(record) => {
                let CreateTable { id, structure, settings, .. } = record;
                ChangeEvent::TableCreated { table: self.table(id), structure, settings }
            }
            What::Drop(table) => ChangeEvent::TableDropped { table: self.table(table) },
            What::Load(table) => ChangeEvent::Loaded { table: self.table(table) },
            What::RollBack(RollBack { table, to }) => ChangeEvent::RolledBack { table: self.table(table), to },
            What::Commit(drafts) => {
                let operation = |Draft { table, key, value, expiry }| {
                    let table = self.table(table);
                    match value {
                        Value::Here(value) => {
                            ChangeOperation::Put { table, key, value, expiry: expiry.map(system_time) }
                        }
                        Value::Deleted => ChangeOperation::Delete { table, key },
                        Value::RangeDeleted(to) => ChangeOperation::DeleteRange { table, from: key, to },
                        Value::Document(_) => unreachable!("the documents of a complete change are there"),
                    }
                };
                ChangeEvent::Commit(drafts.into_iter().map(operation).collect())
            }
        })
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    /// The next visible change. None when every visible change was shown; there may be more later.
    fn next(&mut self) -> Option<Self::Item> {
        self.next_change().transpose()
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Changes").field("shown", &self.shown).finish_non_exhaustive()
    }
}

/// The table named by the record of `seq`, live or dropped.
fn find(engine: &Engine, id: TableId, seq: Seq) -> Result<Arc<TableCore>> {
    let missing = || {
        let (expected, found) = (format!("a table that seq {} can name", seq.0), format!("table {}", id.0));
        gone_or(engine, seq, malformed_record(&engine.path, engine.wal.written(), expected, found))
    };
    engine.catalog.any_by_id(id).ok_or_else(missing)
}

/// The error for a missing table or document of the record of `seq`: no longer kept, or else `reason`.
fn gone_or(engine: &Engine, seq: Seq, reason: Error) -> Error {
    let oldest = engine.retention.kept().seq;
    if seq < oldest { Error::ChangesGone { after: seq.0 - 1, oldest: oldest.0 } } else { reason }
}

fn note_name(names: &mut HashMap<TableId, Arc<str>>, table: &TableCore) {
    names.entry(table.id).or_insert_with(|| table.name.as_str().into());
}

/// Removes the operations that had no effect, because their table had been dropped before.
fn strike_void(engine: &Engine, seq: Seq, drafts: &mut Vec<Draft>) -> Result<()> {
    let mut void = Vec::new();
    for row in drafts.chunk_by(|one, other| one.table == other.table) {
        if find(engine, row[0].table, seq)?.was_dropped_before(seq) {
            void.push(row[0].table);
        }
    }
    if !void.is_empty() {
        drafts.retain(|draft| !void.contains(&draft.table));
    }
    Ok(())
}

/// Replaces the document pointers of these changes by the documents: one psync per table.
fn fetch<'a>(engine: &Engine, changes: impl Iterator<Item = &'a mut Ahead>) -> Result<()> {
    let mut changes: Vec<_> = changes.collect();
    let mut pointers: BTreeMap<TableId, (Seq, Vec<DocPointer>)> = BTreeMap::new();
    for Ahead { seq, what } in &mut changes {
        let What::Commit(drafts) = what else { continue };
        strike_void(engine, *seq, drafts)?;
        for draft in drafts {
            if let Value::Document(document) = draft.value {
                pointers.entry(draft.table).or_insert_with(|| (*seq, Vec::new())).1.push(document);
            }
        }
    }
    let mut documents = BTreeMap::new();
    for (id, (seq, pointers)) in pointers {
        let read = find(engine, id, seq)?.documents.read_many(&pointers);
        let read = read.map_err(|error| gone_or(engine, seq, error.into()))?;
        documents.insert(id, read.into_iter());
    }
    for change in changes {
        let What::Commit(drafts) = &mut change.what else { continue };
        for draft in drafts.iter_mut().filter(|draft| draft.is_document()) {
            let document = documents.get_mut(&draft.table).and_then(Iterator::next);
            draft.value = Value::Here(document.expect("a document for each pointer, in their order"));
        }
    }
    Ok(())
}
