//! The change feed: what was committed, in order, out of the log.
//!
//! 1. [`Changes`] remembers the last seq that it showed. Where more is visible, it takes the next records from the log ([`wal::Reader`]): 1 MiB at a
//!    time, decoded and kept until they are shown.
//! 2. What the log has and nobody may see yet waits with the rest. A lazy commit can be visible and not written: it is written first.
//! 3. Values that lie in document logs are read when the first of them is due: those of the next visible changes with it, up to
//!    [`WINDOW_BYTES`], one psync a table.
//! 4. [`Changes::wait`] sleeps until the publisher has something newer.
//!
//! Invariants: a change is shown when it is visible, once, whole, in the order of seqs; an operation on a table that had been dropped before
//! is not shown, for it did nothing. What the log lacks is told by [`Error::ChangesGone`], and nothing is left out in silence: a record that does not
//! check stays in the way.
//!
//! Left to others: how long the log, and the documents and tables that it names, are kept ([`crate::engine::retention`]).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, SystemTime},
};

use index::{DocPointer, Seq, TableId};
use wal::Reader;

use crate::{
    engine::{Engine, handle::Handle},
    error::{Error, Result, convert::malformed_record},
    format::{
        CreateTable, RollBack, TableSettings,
        decoded::{Ahead, Draft, Value, What, decode},
    },
    handles::database::Database,
    tables::catalog::TableCore,
    words::{clock::system_time, structure::Structure},
};

/// Documents that are read together are at most so many bytes, unless a single change has more.
const WINDOW_BYTES: u64 = 8 << 20;

/// A table, as a change names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTable {
    /// Its id, never given twice in a database.
    pub id: u32,
    /// Its name. A table of the same name that is made after it was dropped has another id.
    pub name: Arc<str>,
}

/// What a commit did to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOperation {
    /// The key has this value from now on.
    Put {
        /// Whose key.
        table: ChangedTable,
        /// The key.
        key: Vec<u8>,
        /// The value, however long.
        value: Vec<u8>,
        /// When it expires, if it does; that is no change of its own.
        expiry: Option<SystemTime>,
    },
    /// The key is gone from now on, if it was there.
    Delete {
        /// Whose key.
        table: ChangedTable,
        /// The key.
        key: Vec<u8>,
    },
    /// All keys of a range are gone from now on, whatever there was. It comes before the other operations of its commit on the table.
    DeleteRange {
        /// Whose keys.
        table: ChangedTable,
        /// The first of them.
        from: Vec<u8>,
        /// Where they end: the first that stays; none where all go that come behind `from`.
        to: Option<Vec<u8>>,
    },
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeEvent {
    /// A commit: its operations, at most one for each key of a table, besides those on ranges. They became visible together.
    Commit(Vec<ChangeOperation>),
    /// A table began, empty.
    TableCreated {
        /// The table.
        table: ChangedTable,
        /// Its structure.
        structure: Structure,
        /// What was chosen for it: a copy gets it by [`TableOptions::settings`](crate::TableOptions::settings).
        settings: TableSettings,
    },
    /// A table ended, with everything in it.
    TableDropped {
        /// The table.
        table: ChangedTable,
    },
    /// A load of a table ended ([`Table::load`](crate::Table::load)). What it brought is not in the log: whoever follows has to copy the table, and goes on
    /// with the changes behind this one. A load that failed at its very end shows too; the table is empty then.
    Loaded {
        /// The table, which was empty before.
        table: ChangedTable,
    },
    /// A table went back to an older state ([`Table::roll_back`](crate::Table::roll_back)). What it is like now is not in the log: whoever follows has to copy the
    /// table in place of the one that he has, and goes on with the changes behind this one. A rollback that failed at its very end shows too; the table is as it was then.
    RolledBack {
        /// The table.
        table: ChangedTable,
        /// The seq of the state.
        to: Seq,
    },
}

/// Something that happened to a database at one place in the order of commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its place.
    pub seq: Seq,
    /// What happened.
    pub event: ChangeEvent,
}

/// The changes of a database behind some seq, in order: see [`Database::changes`].
///
/// As an iterator it ends when everything visible was shown, and goes on when there is more: it may be asked again, and
/// [`Changes::wait`] sleeps until then. After an error the next call tries the same change again.
///
/// It keeps the database open, but nothing of the log: if that is trimmed away from under it, it says [`Error::ChangesGone`].
pub struct Changes {
    handle: Arc<Handle>,
    reader: Reader,
    /// The last seq that was shown.
    shown: Seq,
    /// Everything up to here is visible.
    visible: Seq,
    /// What was read and not shown.
    ahead: VecDeque<Ahead>,
    names: HashMap<TableId, Arc<str>>,
}

impl Database {
    /// What was committed after `from`, in order, and what will be: to follow the database from outside. `Seq(0)` is before the first commit; to go on
    /// later, also after the database was closed or crashed, give the seq of the last change that was dealt with. Commits, and tables that come and go,
    /// are changes, each with a seq of its own; compactions and checkpoints are none.
    ///
    /// It goes back as far as the log does: [`Options::retain_log_bytes`](crate::Options::retain_log_bytes) says how far that is at least, and
    /// [`LogStats::oldest_seq`](crate::LogStats::oldest_seq) how far it is now.
    ///
    /// What is shown is visible. Under [`Durability::Sync`](crate::Durability::Sync) a crash cannot take it back; a commit with less can be lost in a power cut
    /// after it was shown, as after anybody else saw it, and its seq be given to another.
    ///
    /// # Errors
    /// [`Error::ChangesGone`] when the log begins later, and with which seq; [`Error::ChangesAhead`] when there is no seq `from`.
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
            handle: Arc::clone(self.handle()),
            reader: Reader::new(from.0),
            shown: from,
            visible,
            ahead: VecDeque::new(),
            names: HashMap::new(),
        })
    }
}

impl Changes {
    /// The last seq that was shown: where to go on later.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.shown
    }

    /// Waits until there is a change that was not shown, at most so long. Whether there is one.
    ///
    /// # Errors
    /// When there will be none any more, because a write failed or the database was closed.
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
        self.settle()?;
        let Some(next) = self.ahead.pop_front() else { return Ok(None) };
        self.shown = next.seq;
        let event = self.event(next.what)?;
        Ok(Some(Change { seq: next.seq, event }))
    }

    /// Reads more of the log, in which there is a visible record that was not read.
    fn read_ahead(&mut self) -> Result<()> {
        let engine = &self.handle.engine;
        let end = engine.publisher.between(|_, frontier| frontier);
        let log_error = |error| engine.log_error(error);
        if engine.wal.written() < end {
            engine.wal.write_through(end).map_err(log_error)?;
        }
        let (reader, ahead) = (&mut self.reader, &mut self.ahead);
        let more = reader.read(&engine.wal, &mut |record| ahead.push_back(decode(&engine.path, record)));
        match more.map_err(log_error) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let found = format!("none behind seq {}", reader.seen());
                Err(malformed_record(&engine.path, end, format!("the record of seq {}", self.visible.0), found))
            }
            // Documents may be gone from further on than the log.
            Err(Error::ChangesGone { .. }) => {
                let oldest = engine.retention.kept().seq.0;
                Err(Error::ChangesGone { after: self.shown.0, oldest })
            }
            Err(error) => Err(error),
        }
    }

    /// Sees to it that everything is there which the next change is made of.
    fn settle(&mut self) -> Result<()> {
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
        // What keeps another change from being whole is no matter of this one.
        if fetched.is_ok() || count == 1 { fetched } else { fetch(&self.handle.engine, self.ahead.range_mut(..1)) }
    }

    fn table(&self, id: TableId) -> ChangedTable {
        ChangedTable { id: id.0, name: self.names.get(&id).cloned().unwrap_or_default() }
    }

    /// The event of a record that was settled.
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
                        Value::Document(_) => unreachable!("the documents of a settled change are there"),
                    }
                };
                ChangeEvent::Commit(drafts.into_iter().map(operation).collect())
            }
        })
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    /// The next visible change; none when everything visible was shown. There may be more later.
    fn next(&mut self) -> Option<Self::Item> {
        self.next_change().transpose()
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Changes").field("shown", &self.shown).finish_non_exhaustive()
    }
}

/// The table that the record of `seq` names, live or dropped.
fn find(engine: &Engine, id: TableId, seq: Seq) -> Result<Arc<TableCore>> {
    let missing = || {
        let (expected, found) = (format!("a table that seq {} can name", seq.0), format!("table {}", id.0));
        gone_or(engine, seq, malformed_record(&engine.path, engine.wal.written(), expected, found))
    };
    engine.catalog.any_by_id(id).ok_or_else(missing)
}

/// What the record of `seq` names is not there: because it is not kept any more, or for the reason given.
fn gone_or(engine: &Engine, seq: Seq, reason: Error) -> Error {
    let oldest = engine.retention.kept().seq;
    if seq < oldest { Error::ChangesGone { after: seq.0 - 1, oldest: oldest.0 } } else { reason }
}

fn note_name(names: &mut HashMap<TableId, Arc<str>>, table: &TableCore) {
    names.entry(table.id).or_insert_with(|| table.name.as_str().into());
}

/// Takes the operations out that did nothing, because their table had been dropped before.
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

/// Puts the documents of these changes in the place of their pointers: those of a table come in one psync.
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
