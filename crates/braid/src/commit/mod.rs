//! The path of a commit.
//!
//! 1. `Engine::submit_items` checks the batch, is admitted ([`crate::engine::pressure`]) and writes large values to the
//!    document logs.
//! 2. The commit takes log space together with its seq. That and the check of a transaction are one step
//!    ([`crate::engine::recent`]).
//! 3. `Engine::settle` makes the record as safe as asked ([`crate::commit::settle`]). One flush serves all commits that
//!    wait for one.
//! 4. [`crate::engine::publish::Publisher`] carries the changes out in seq order ([`crate::commit::carry_out`]).
//!
//! Invariants: a record names only documents that are written, and the log's flush flushes these documents too; no
//! operation enters a queue before its record is as safe as its durability says.

pub(crate) mod carry_out;
pub(crate) mod item;
mod long;
pub(crate) mod pacing;
pub(crate) mod reads;
pub(crate) mod schema;
pub(crate) mod settle;
pub(crate) mod validate;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use doclog::DocPointer;
use index::{Expiry, Operation, Payload, Seq, TableId};
use smallvec::SmallVec;

use crate::{
    commit::{
        item::{BatchOperation, Item},
        settle::Submitted,
        validate::Check,
    },
    engine::{
        Engine,
        pressure::Refusal,
        publish::Change,
        recent::{Deadline, LockKey, NotLocked, Owner, Place, Places, Stripes, Turn},
        sweeps::FRAGMENTS_MAX,
    },
    error::{Error, Result, shown},
    format::{self, kind},
    tables::{catalog::TableCore, inline::LOGGED_BYTES, usage},
    words::{
        clock::{Clock, Expires},
        durability::Durability,
    },
};

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: u64 = 512 << 20;
/// From so many bytes on, values that are documents for the structure of their table are written as documents by their
/// commit: once, and not to the log too. Bytes count per commit and table. With fewer, a document write would be short,
/// and one more file to flush.
const DOCUMENT_BYTES_MIN: usize = 64 << 10;

impl Engine {
    /// Gives the items, as one commit, their place in the order of commits, unless a transaction's check finds a
    /// conflict. Waits for locked keys as long as `timeout`.
    pub(crate) fn submit_items(
        &self, items: &[Item<'_>], durability: Durability, timeout: Duration, mut check: Option<&mut Check<'_>>,
    ) -> Result<Submitted> {
        let (mut deadline, mut turns) = (None, Vec::new());
        let mut owner = check.as_ref().map_or(Owner::NONE, |check| check.owner());
        loop {
            if let Some(check) = &mut check {
                // Before any write and without holding `writing`, because this check may read a lot.
                check.look(self, items)?;
            }
            let writing = self.writing.read();
            match self.try_commit(items, durability, check.as_deref_mut(), owner)? {
                Tried::Placed(submitted) => return Ok(submitted),
                Tried::Locked(locked) => {
                    // The holder of the key may have to commit before the key is released.
                    drop(writing);
                    turns.clear();
                    if owner == Owner::NONE {
                        owner = self.recent.new_owner();
                    }
                    let deadline = *deadline.get_or_insert_with(|| Instant::now().checked_add(timeout));
                    turns = self.wait_for_turns(items, locked, owner, deadline, timeout, check.is_none())?;
                }
            }
        }
    }

    /// Waits until it is a commit's turn at all of its keys, in their order. A locked key is free on the way, and not
    /// for long where many want it, so that a commit of several such keys would not get through otherwise.
    ///
    /// A `plain` commit gives way where it is in a circle of waits, and then waits for the key in question alone.
    fn wait_for_turns(
        &self, items: &[Item<'_>], locked: Locked, owner: Owner, deadline: Deadline, timeout: Duration, plain: bool,
    ) -> Result<Vec<Turn<'_>>> {
        let tables =
            |id| items.iter().map(|item| item.table).find(|table| table.id == id).map_or("", |table| &table.name);
        let met = (items[locked.item].table.id, locked.key);
        let points = items.iter().filter(|item| item.is_point());
        let mut keys: Vec<LockKey> = points.map(|item| (item.table.id, item.key.to_vec())).collect();
        keys.push(met);
        keys.sort_unstable();
        keys.dedup();
        let mut turns = Vec::with_capacity(keys.len());
        for key in keys {
            let wait = || self.recent.wait_for_turn(key.clone(), owner, deadline);
            let mut waited = wait();
            let gives_way = plain && matches!(waited, Err(NotLocked::Deadlock));
            if gives_way {
                turns.clear();
                waited = wait();
            }
            turns.extend(waited.map_err(|refused| not_locked(refused, tables(key.0), &key.1, timeout))?);
            if gives_way {
                break;
            }
        }
        Ok(turns)
    }

    fn try_commit(
        &self, items: &[Item<'_>], durability: Durability, check: Option<&mut Check<'_>>, owner: Owner,
    ) -> Result<Tried> {
        self.check_writable()?;
        self.check_tables(items)?;
        if items.is_empty() {
            return Ok(Tried::Placed(Submitted::nothing(self.publisher.visible())));
        }
        let inline = Inline::of(items);
        let record_bytes = self.check_limits(items, &inline)?;
        if let Some(check) = &check {
            check.look_for_loads(items)?;
        }
        self.check_range_deletes(items)?;
        if let Some(locked) = self.locked_document(items, &inline, owner) {
            return Ok(Tried::Locked(locked));
        }
        let bytes = items.iter().map(|item| item.key.len() + item.value.len()).sum::<usize>();
        // Document bytes are counted where documents are written.
        let turn = self.admit(record_bytes, reclaims(items))?;
        let room = self.take_room(record_bytes, items.len(), reclaims(items))?;
        let documents = self.find_room_for_documents(items, &inline)?;
        let payload = Arc::new(encode(items, &documents, record_bytes, &self.clock));
        match self.place(items, &payload, durability, check, owner) {
            Ok(Placed::At(position)) => {
                self.counters.committed(items.len(), bytes);
                self.keep_written(items, &documents);
                let submitted = Submitted::at(position, durability, turn);
                if let Some(room) = room {
                    self.settle_at_once(&submitted)?;
                    room.end();
                }
                Ok(Tried::Placed(submitted))
            }
            Ok(Placed::Locked(locked)) => {
                abandon(items, &documents);
                Ok(Tried::Locked(locked))
            }
            Err(error) => {
                abandon(items, &documents);
                Err(error)
            }
        }
    }

    /// Keeps short documents in lent memory: with fewer of them, they would be in a queue.
    fn keep_written(&self, items: &[Item<'_>], documents: &[Option<DocPointer>]) {
        let is_short = |item: &Item<'_>| item.operation == BatchOperation::Put && item.value.len() <= LOGGED_BYTES;
        let short = items.iter().zip(documents).filter(|(item, _)| is_short(item));
        for (item, pointer) in short {
            if let Some(pointer) = pointer {
                self.structures.documents().put_written(item.table.id, pointer, item.value);
            }
        }
    }

    fn check_tables(&self, items: &[Item<'_>]) -> Result<()> {
        let mut last: Option<&Arc<TableCore>> = None;
        for table in items.iter().map(|item| item.table) {
            if last.is_none_or(|last| !Arc::ptr_eq(last, table)) {
                self.check_live(table)?;
                table.check_not_loading()?;
                last = Some(table);
            }
        }
        Ok(())
    }

    /// Gives a commit its place in the order of all commits, in one step with the check of its transaction.
    fn place(
        &self, items: &[Item<'_>], payload: &Arc<Vec<u8>>, durability: Durability, mut check: Option<&mut Check<'_>>,
        owner: Owner,
    ) -> Result<Placed> {
        let (reclaims, mut made_room) = (reclaims(items), false);
        let deletes_ranges = items.iter().any(|item| !item.is_point());
        let points = items.iter().filter(|item| item.is_point());
        let places: Places = points.map(|item| self.recent.place(item.table.id, item.key)).collect();
        let mut rising = places.clone();
        rising.sort_unstable();
        let mut of_all = rising.clone();
        if let Some(check) = &check {
            check.add_places(self, &mut of_all);
            of_all.sort_unstable();
        }
        loop {
            let needs_all = deletes_ranges || check.as_ref().is_some_and(|check| check.needs_all());
            let mut stripes = if needs_all { self.recent.hold_all() } else { self.recent.hold(&of_all) };
            if let Some(locked) = locked(&stripes, items, &places, owner) {
                return Ok(Placed::Locked(locked));
            }
            let confirmed = check.as_mut().map(|check| check.confirm(self, &stripes, &of_all)).transpose()?;
            if confirmed == Some(false) {
                drop(stripes);
                if let Some(check) = &mut check {
                    check.look_again(self, items)?;
                }
                continue;
            }
            // Announced before the stripes are released, so that a transaction that finds the commit there can wait for
            // it.
            let announce = &mut |position: &wal::Position| {
                self.announce(position, Change::Commit(Arc::clone(payload)), durability);
            };
            let position = match self.append_once(kind::COMMIT, payload, reclaims, announce) {
                Ok(position) => position,
                Err(error @ wal::Error::Full { .. }) if !made_room => {
                    drop(stripes);
                    made_room = true;
                    self.make_room_in_log(error)?;
                    continue;
                }
                Err(error) => return Err(self.write_error(error.into())),
            };
            stripes.note(&rising, deletes_ranges, Seq(position.seq), payload);
            drop(stripes);
            // Otherwise rounds before the return of this commit would keep the versions that its own pin sees.
            if let Some(check) = &check {
                check.release();
            }
            return Ok(Placed::At(position));
        }
    }

    /// Fails when a key, a value or the whole batch is outside the limits; returns the most bytes that the record
    /// takes.
    fn check_limits(&self, items: &[Item<'_>], inline: &Inline) -> Result<u64> {
        let mut bytes = format::COMMIT_TIME_BYTES as u64;
        for item in items {
            if item.is_point() {
                check_pair(item.table, item.key, item.value)?;
            }
            check_expires(item.expires)?;
            bytes += inline.record_bytes(item) as u64;
        }
        let limit = self.commit_bytes_max(items.len());
        if bytes > limit {
            let inline = items.iter().map(|item| item.table.logged_bytes()).max().unwrap_or(LOGGED_BYTES);
            return Err(Error::BatchTooLarge { bytes, limit, inline });
        }
        Ok(bytes)
    }

    /// Delays range deletes that would be too many for a table, as long as sweeps make progress on their number.
    fn check_range_deletes(&self, items: &[Item<'_>]) -> Result<()> {
        let ranges = || items.iter().filter(|item| !item.is_point());
        let mut last: Option<&Arc<TableCore>> = None;
        for table in ranges().map(|item| item.table) {
            if last.replace(table).is_some_and(|last| Arc::ptr_eq(last, table)) {
                continue;
            }
            let own = ranges().filter(|item| Arc::ptr_eq(item.table, table)).count();
            let count = || table.state.load().tombstones.fragments().len();
            let fits = || count() + own <= FRAGMENTS_MAX;
            // A fragment may take many stretches to be swept.
            let progress = || (count(), self.sweeps.swept());
            let mut before = None;
            while own <= FRAGMENTS_MAX && !fits() && before != Some(progress()) {
                before = Some(progress());
                self.ask(false)?;
            }
            if !fits() {
                return Err(Error::TooManyRangeDeletes { table: table.name.clone(), own, limit: FRAGMENTS_MAX });
            }
        }
        Ok(())
    }

    /// Admits a commit. Returns the time at which it may count as done, if that is later.
    pub(crate) fn admit(&self, bytes: u64, reclaims: bool) -> Result<Option<Instant>> {
        self.work_inline();
        match self.pressure.admit(bytes, reclaims) {
            Ok(turn) => Ok(turn),
            Err(Refusal::FullDisk(problem)) => {
                self.signal.kick();
                Err(Error::DiskFull { path: self.path.clone(), problem })
            }
            Err(Refusal::Closed) => {
                self.health.check()?;
                Err(Error::Closed)
            }
        }
    }

    /// Writes documents. On a full disk, tries again as long as the bytes of segments become fewer, and once where a
    /// stretch of a compaction ended meanwhile.
    fn find_room_for_documents(&self, items: &[Item<'_>], inline: &Inline) -> Result<Vec<Option<DocPointer>>> {
        let (mut least, mut is_excused) = (u64::MAX, false);
        loop {
            let ended = self.stretches.ended();
            match self.write_documents(items, inline) {
                Err(error) if error.is_no_space() => {
                    least = least.min(usage::segment_bytes(&self.catalog));
                    self.cleaning.want_room();
                    let asked = self.ask(false);
                    let left = usage::segment_bytes(&self.catalog);
                    // The copies of a stretch count too, and their old places go later. That excuses one try.
                    let is_beside = self.stretches.ended() != ended && !is_excused;
                    if asked.is_err() || (left >= least && !is_beside) {
                        return Err(error);
                    }
                    is_excused |= left >= least;
                    least = least.min(left);
                }
                outcome => return outcome,
            }
        }
    }

    /// Writes the values that do not go to the log, all values of one table in one psync.
    fn write_documents(&self, items: &[Item<'_>], inline: &Inline) -> Result<Vec<Option<DocPointer>>> {
        let mut pointers: Vec<_> = items.iter().map(Item::kept_document).collect();
        let is_document = |item: &Item<'_>| inline.is_document(item);
        let coming: u64 = items.iter().filter(|item| is_document(item)).map(|item| item.value.len() as u64).sum();
        if coming > 0 {
            self.make_reserves(coming)?;
        }
        let mut done = 0;
        while let Some(first) = (done..items.len()).find(|&i| is_document(&items[i]) && pointers[i].is_none()) {
            let table = items[first].table;
            let members: Vec<usize> = (first..items.len())
                .filter(|&i| is_document(&items[i]) && Arc::ptr_eq(items[i].table, table))
                .collect();
            let values: Vec<&[u8]> = members.iter().map(|&i| items[i].value).collect();
            let write = || {
                let packed = table.documents.pack(&values)?;
                let delay = table.document_pace.wait(packed.stored_bytes());
                if !delay.is_zero() {
                    self.pressure.note_cleaning_delay(delay);
                }
                self.structures.append_documents(&table.documents, &packed)
            };
            match write() {
                Ok(written) => members.iter().zip(written).for_each(|(&i, pointer)| pointers[i] = Some(pointer)),
                Err(error) => {
                    abandon(items, &pointers);
                    return Err(self.write_error(error));
                }
            }
            self.unflushed.note(table);
            done = first + 1;
        }
        Ok(pointers)
    }

    pub(crate) fn append(&self, kind: u8, payload: &[u8], reclaims: bool) -> Result<wal::Position> {
        let append = || self.append_once(kind, payload, reclaims, &mut |_| {});
        let position = match append() {
            Err(error @ wal::Error::Full { .. }) => {
                self.make_room_in_log(error)?;
                append()
            }
            position => position,
        };
        position.map_err(|error| self.write_error(error.into()))
    }

    fn append_once(
        &self, kind: u8, payload: &[u8], reclaims: bool, announce: wal::Announce<'_>,
    ) -> std::result::Result<wal::Position, wal::Error> {
        self.wal.append_announced(kind, &[payload], true, claim(reclaims), announce)
    }

    /// Makes room in the log: a checkpoint trims the log, and the part that is kept only for others goes first. So the
    /// append need not fail because the log is `full`.
    fn make_room_in_log(&self, full: wal::Error) -> Result<()> {
        self.retention.yield_space();
        let ticket = self.signal.post(true);
        self.work_inline();
        self.signal.answer(ticket).map_err(|_| self.write_error(full.into()))
    }

    /// A locked item, if the commit has a document, which would otherwise be written in vain. All items are checked
    /// again when they get their place.
    fn locked_document(&self, items: &[Item<'_>], inline: &Inline, owner: Owner) -> Option<Locked> {
        if !items.iter().any(|item| inline.is_document(item)) {
            return None;
        }
        let is_locked = |item: &Item<'_>| item.is_point() && self.recent.is_locked(item.table.id, item.key, owner);
        items.iter().position(is_locked).map(|item| Locked { item, key: items[item].key.to_vec() })
    }
}

/// A locked key, and the index of its item.
struct Locked {
    item: usize,
    key: Vec<u8>,
}

/// The first key of some items that another owner than `owner` has locked; `places` are those of the items with a
/// single key.
fn locked(stripes: &Stripes<'_>, items: &[Item<'_>], places: &Places, owner: Owner) -> Option<Locked> {
    if stripes.are_unlocked() {
        return None;
    }
    let mut places = places.iter();
    for (index, item) in items.iter().enumerate() {
        let key = if item.is_point() {
            let is_locked = |place: &&Place| stripes.is_locked(item.table.id, item.key, **place, owner);
            places.next().filter(is_locked).map(|_| item.key.to_vec())
        } else {
            stripes.locked_within(item.table.id, item.key, item.high(), owner)
        };
        if let Some(key) = key {
            return Some(Locked { item: index, key });
        }
    }
    None
}

/// The outcome of an attempt to commit.
enum Tried {
    Placed(Submitted),
    /// Another owner has locked a key.
    Locked(Locked),
}

/// The place of a commit, if any.
enum Placed {
    At(wal::Position),
    /// Another owner has locked a key.
    Locked(Locked),
}

/// Decides which values of a commit go to the log. Values over the limit of their table never do
/// ([`crate::tables::inline`]). If the commit brings many documents to a table, values that are documents for its
/// structure do not either.
struct Inline {
    /// Tables with many such documents, and the bytes of these.
    documents: SmallVec<[(TableId, usize); 2]>,
}

impl Inline {
    fn of(items: &[Item<'_>]) -> Self {
        let mut documents: SmallVec<[(TableId, usize); 2]> = SmallVec::new();
        for item in items {
            if item.operation != BatchOperation::Put || item.value.len() <= item.table.inline_bytes() {
                continue;
            }
            match documents.iter_mut().rev().find(|(table, _)| *table == item.table.id) {
                Some((_, bytes)) => *bytes += item.value.len(),
                None => documents.push((item.table.id, item.value.len())),
            }
        }
        documents.retain(|(_, bytes)| *bytes >= DOCUMENT_BYTES_MIN);
        Self { documents }
    }

    /// Whether the value is to be written to the document log. What a renewal keeps is there already.
    fn is_document(&self, item: &Item<'_>) -> bool {
        if item.operation != BatchOperation::Put {
            return false;
        }
        let brings_many = || self.documents.iter().any(|(table, _)| *table == item.table.id);
        let length = item.value.len();
        length > item.table.logged_bytes() || (length > item.table.inline_bytes() && brings_many())
    }

    /// Most bytes that an operation takes in a log record.
    fn record_bytes(&self, item: &Item<'_>) -> usize {
        let value = if self.is_document(item) { DocPointer::BYTES } else { 4 + item.value.len() };
        let expiry = if item.expires.is_some() { Expiry::BYTES } else { 0 };
        7 + item.key.len() + expiry + value
    }
}

/// How far the record of a commit that only deletes, or another one, may go on a full disk.
const fn claim(reclaims: bool) -> wal::Claim {
    if reclaims { wal::Claim::Delete } else { wal::Claim::Put }
}

/// Whether a commit only deletes.
fn reclaims(items: &[Item<'_>]) -> bool {
    items.iter().all(Item::deletes)
}

/// Fails when a key or a value is outside the limits.
#[inline]
pub(crate) fn check_pair(table: &TableCore, key: &[u8], value: &[u8]) -> Result<()> {
    table.check_key(key)?;
    if value.len() as u64 > VALUE_BYTES_MAX {
        let length = value.len() as u64;
        return Err(Error::ValueLength { table: table.name.clone(), length, limit: VALUE_BYTES_MAX });
    }
    Ok(())
}

/// Fails when a value is to expire after no time.
pub(crate) fn check_expires(expires: Option<Expires>) -> Result<()> {
    match expires {
        Some(Expires::After(duration)) if duration.is_zero() => {
            Err(Error::Option { option: "expires", problem: "a value needs more than no time until it expires".into() })
        }
        _ => Ok(()),
    }
}

/// The record of a commit, of at most so many bytes.
fn encode(items: &[Item<'_>], documents: &[Option<DocPointer>], bytes_max: u64, clock: &Clock) -> Vec<u8> {
    let mut payload = Vec::with_capacity(usize::try_from(bytes_max).unwrap_or(0));
    let mut now = clock.of_commit();
    if let Some(now) = now {
        format::put_commit_time(&mut payload, now);
    }
    for (item, document) in items.iter().zip(documents) {
        let expiry = item.expires.map(|expires| expires.expiry(*now.get_or_insert_with(|| clock.now())));
        let operation = match (item.operation, document) {
            (BatchOperation::DeleteRange, _) => {
                format::put_delete_range(&mut payload, item.table.id, item.key, item.high());
                continue;
            }
            (BatchOperation::Delete, _) => Operation::Delete,
            (BatchOperation::Put | BatchOperation::Renew, Some(document)) => {
                Operation::Put(Payload::Document(*document), expiry)
            }
            (BatchOperation::Put, None) => Operation::Put(Payload::Inline(item.value), expiry),
            (BatchOperation::Renew, None) => unreachable!("a renewal keeps a document"),
        };
        format::put_operation(&mut payload, item.table.id, item.key, operation);
    }
    payload
}

/// Gives back the documents of a commit that does not happen.
fn abandon(items: &[Item<'_>], documents: &[Option<DocPointer>]) {
    for (item, document) in items.iter().zip(documents) {
        if let Some(document) = document.filter(|_| item.operation == BatchOperation::Put) {
            item.table.documents.abandon(&document);
        }
    }
}

/// The database's error for a lock that was not granted.
pub(crate) fn not_locked(refused: NotLocked, table: &str, key: &[u8], waited: Duration) -> Error {
    let (table, key) = (table.to_owned(), shown(key));
    match refused {
        NotLocked::TimedOut => Error::LockTimeout { table, key, waited },
        NotLocked::Deadlock => Error::Deadlock { table, key },
    }
}
