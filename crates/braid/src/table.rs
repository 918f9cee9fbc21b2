//! A table: single and batched reads and writes.

use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
    time::SystemTime,
};

use arc_swap::Guard;
use index::{Bounds, DocPointer, Found, Fragment, Image, Moment, Payload, Seen, Seq, Stored};

use crate::{
    Database, Durability, Error, Expires, Loader, Pinned, Range, Result, Structure, TableSettings, WriteBatch,
    catalog::{TableCore, TableState},
    clock::system_time,
    database::Handle,
    documents::Document,
    engine::Engine,
    learned,
    stats::TableStats,
};

/// An earlier moment, for readers that look at what was then.
pub(crate) trait Then: Send + Sync {
    /// What there was of a table, and the moment to look at in that.
    fn of(&self, table: &Table) -> Result<(Guard<Arc<TableState>>, Moment)>;
}

/// A handle of one table. Cheap to clone; keeps its database open.
#[derive(Clone)]
pub struct Table {
    pub(crate) handle: Arc<Handle>,
    pub(crate) core: Arc<TableCore>,
}

impl Table {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its structure.
    #[must_use]
    pub fn structure(&self) -> Structure {
        self.core.structure
    }

    /// What was chosen for it when it was created.
    #[must_use]
    pub fn settings(&self) -> TableSettings {
        self.core.settings()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    /// Sets `key` to `value`, with the durability of the database.
    ///
    /// # Errors
    /// Outside the limits, on a full disk, when a transaction keeps the key locked for too long, or when the database does not write any more: see
    /// [`crate::ErrorKind`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.engine().options.durability)
    }

    /// Sets `key` to `value`, with a durability of its own.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(self, key, value);
        self.engine().commit(&batch, durability).map(drop)
    }

    /// Sets `key` to `value` until it expires, which counts as deleted from then on: after a [`Duration`](std::time::Duration) from its commit on, or at a
    /// [`SystemTime`]. Later writes of the key, also such as do not expire, replace value and expiry. What has expired gives its space back
    /// by and by; snapshots that were taken before see it as long as they are there.
    ///
    /// # Errors
    /// As [`Table::put`]; [`Error::Option`] where it is to expire after nothing.
    pub fn put_expiring(
        &self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: impl Into<Expires>,
    ) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put_expiring(self, key, value, expires);
        self.engine().commit(&batch, self.engine().options.durability).map(drop)
    }

    /// When the value of `key` expires; none where it does not, or there is none.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        self.expiry_at(key.as_ref(), None)
    }

    /// When the value of `key` expires, now or as it was `then`.
    pub(crate) fn expiry_at(&self, key: &[u8], then: Option<&dyn Then>) -> Result<Option<SystemTime>> {
        let (state, at) = self.reading(then)?;
        let mut expiry = None;
        look(&state, key, at, &mut |seen| expiry = seen.expiry.filter(|_| seen.value.is_some()))?;
        Ok(expiry.map(system_time))
    }

    /// Deletes `key`; a key that is not there stays so.
    ///
    /// # Errors
    /// As [`Table::put`], but a full disk does not refuse it while the reserve for deletes lasts.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, self.engine().options.durability)
    }

    /// Deletes `key`, with a durability of its own.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(self, key);
        self.engine().commit(&batch, durability).map(drop)
    }

    /// Deletes every key within `range`: it costs the same however many there are, and what they took comes back in the background.
    ///
    /// # Errors
    /// As [`Table::delete`]; [`Error::TooManyRangeDeletes`] while too many of the table's wait for snapshots that are older.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_range(self, range);
        self.engine().commit(&batch, self.engine().options.durability).map(drop)
    }

    /// Deletes every key that begins with `prefix`, likewise.
    ///
    /// # Errors
    /// As [`Table::delete_range`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_prefix(self, prefix);
        self.engine().commit(&batch, self.engine().options.durability).map(drop)
    }

    /// Sets `key` to `new`, or deletes it where that is none, if its value is `expected`: none means that it is not there. Nobody
    /// else's commit of the key comes between.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn compare_and_swap(&self, key: impl AsRef<[u8]>, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        let key = key.as_ref();
        let database = Database::of(&self.handle);
        loop {
            let mut transaction = database.begin()?;
            let found = transaction.get(self, key)?;
            if found.as_deref() != expected {
                return Ok(Swap::Refused(found));
            }
            match new {
                Some(new) => transaction.put(self, key, new)?,
                None => transaction.delete(self, key)?,
            }
            match transaction.commit() {
                Ok(_) => return Ok(Swap::Done),
                // Somebody else changed the key, and may have set it to what is expected.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets `key` to `value` if it is not there.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Swap> {
        self.compare_and_swap(key, None, Some(value.as_ref()))
    }

    /// Fills the table, which must be empty, with pairs whose keys rise: packed, in long sequential writes, past the log. It is durable
    /// when this returns, and nobody sees any of it before. Returns the number of pairs. [`Table::loader`] takes them one by one.
    ///
    /// # Errors
    /// As [`Table::loader`], [`Loader::push`] and [`Loader::finish`]; the table is empty then.
    pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, sorted: impl IntoIterator<Item = (K, V)>) -> Result<u64> {
        let mut loader = self.loader()?;
        for (key, value) in sorted {
            loader.push(key, value)?;
        }
        loader.finish()
    }

    /// Begins a load of the table, which must be empty. Until it ends, all other writes to the table are refused with
    /// [`crate::Error::Loading`]; reads find it empty.
    ///
    /// # Errors
    /// [`crate::Error::NotEmpty`], [`crate::Error::Loading`], or what keeps the database from writing.
    pub fn loader(&self) -> Result<Loader> {
        Loader::begin(self)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// When storage fails, what it holds is damaged, or the table was dropped.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.get_at(key.as_ref(), None)
    }

    /// Shows the value of `key` to `look`, if there is one, and gives what that returns. Where the value is in the cache it is neither copied nor
    /// is any memory allocated for it, and threads that do this at the same time write to no memory of one another.
    ///
    /// `look` may do whatever it likes with the database, but the longer it takes the longer what it looks at stays.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// let length = users.get_with("ada", |value| value.len())?;
    /// assert_eq!(length, Some(4));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.get_with_at(key.as_ref(), None, look)
    }

    /// The value of `key`, to be kept without a copy where it is in the cache: see [`Pinned`].
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.get_pinned_at(key.as_ref(), None)
    }

    /// The value of `key`, now or as it was `then`.
    pub(crate) fn get_at(&self, key: &[u8], then: Option<&dyn Then>) -> Result<Option<Vec<u8>>> {
        self.read(key, then, |value| match value {
            Value::There(value, _) => value.to_vec(),
            Value::Copied(value) => value,
            Value::Document(document) => document.into_vec(),
        })
    }

    /// As [`Table::get_with`], now or as it was `then`.
    pub(crate) fn get_with_at<R>(
        &self, key: &[u8], then: Option<&dyn Then>, look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.read(key, then, |value| match value {
            Value::There(value, _) => look(value),
            Value::Copied(value) => look(&value),
            Value::Document(document) => look(&document),
        })
    }

    /// As [`Table::get_pinned`], now or as it was `then`.
    pub(crate) fn get_pinned_at(&self, key: &[u8], then: Option<&dyn Then>) -> Result<Option<Pinned>> {
        self.read(key, then, |value| match value {
            Value::There(value, home) => Pinned::of(value, home),
            Value::Copied(value) => Pinned::owned(value),
            Value::Document(document) => Pinned::document(document),
        })
    }

    /// Gives the value of `key` to `take`, now or as it was `then`. No lock is held meanwhile.
    fn read<R>(&self, key: &[u8], then: Option<&dyn Then>, take: impl FnOnce(Value<'_>) -> R) -> Result<Option<R>> {
        self.core.traffic.looked_up(1);
        // As long as the state is held, the document of a version that was found in it stays where it is.
        let (state, at) = self.reading(then)?;
        let (mut take, mut taken, mut document) = (Some(take), None, None);
        let mut give = |value: Value<'_>| taken = take.take().map(|take| take(value));
        match waiting(&state, key, at)? {
            Waiting::Decided(found) => match found.and_then(|found| found.value) {
                Some(Stored::Inline(value)) => give(Value::Copied(value)),
                Some(Stored::Document(pointer)) => document = Some(pointer),
                None => {}
            },
            Waiting::Below => state.view.look(key, at, &mut |seen| match seen.value {
                Some(Payload::Inline(value)) => give(Value::There(value, seen.home)),
                Some(Payload::Document(pointer)) => document = Some(pointer),
                None => {}
            })?,
        }
        if let Some(pointer) = document {
            give(Value::Document(self.engine().trees.documents().read(&self.core, &pointer)?));
        }
        Ok(taken)
    }

    /// The values of many keys, in their order, read as one batch: level by level, and all documents at once (MPSearch, PIO §3.1.1).
    /// They are of one moment: no commit is seen in part.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.get_many_at(&keys, None)
    }

    /// The pairs whose keys are within `range`, in key order; [`Range::rev`] turns it round. The range sees one moment, however
    /// long it is walked.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        Range::new(self.clone(), range_bounds(&range), None)
    }

    /// The pairs whose keys begin with `prefix`.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        Range::new(self.clone(), prefix_bounds(prefix.as_ref()), None)
    }

    /// Every pair.
    #[must_use]
    pub fn iter(&self) -> Range {
        Range::new(self.clone(), Bounds::all(), None)
    }

    /// Shape and size of the table.
    ///
    /// # Errors
    /// When storage fails.
    pub fn stats(&self) -> Result<TableStats> {
        let state = self.core.state.load_full();
        self.engine().check_live(&self.core)?;
        TableStats::of(self.engine(), &self.core, &state, &learned::learned(self.engine()))
    }

    /// What a reader that begins now reads for a while, or one that looks at what was `then`.
    pub(crate) fn moment(&self, then: Option<&dyn Then>) -> Result<(Arc<TableState>, Moment)> {
        self.reading(then).map(|(state, at)| (Guard::into_inner(state), at))
    }

    /// What a reader that begins now reads at once, or one that looks at what was `then`.
    fn reading(&self, then: Option<&dyn Then>) -> Result<(Guard<Arc<TableState>>, Moment)> {
        // The state is held before it is asked whether the table is live: what a later drop frees waits for this reader.
        match then {
            Some(then) => then.of(self),
            None => {
                let engine = self.engine();
                let moment = self.core.moment(|| engine.publisher.visible(), || engine.clock.now());
                engine.check_live(&self.core)?;
                Ok(moment)
            }
        }
    }

    /// The values of many keys, now or as they were `then`.
    pub(crate) fn get_many_at(&self, keys: &[&[u8]], then: Option<&dyn Then>) -> Result<Vec<Option<Vec<u8>>>> {
        self.core.traffic.looked_up(keys.len());
        let (state, at) = self.moment(then)?;
        let found = find_many(&state, keys, at)?;
        self.values(found)
    }

    fn documents(&self, pointers: &[DocPointer]) -> Result<Vec<Vec<u8>>> {
        self.engine().trees.documents().read_many(&self.core, pointers)
    }

    fn values(&self, found: Vec<Option<Found>>) -> Result<Vec<Option<Vec<u8>>>> {
        let pointers: Vec<DocPointer> = found
            .iter()
            .filter_map(|found| match found.as_ref()?.value.as_ref()? {
                Stored::Document(document) => Some(*document),
                Stored::Inline(_) => None,
            })
            .collect();
        let documents = if pointers.is_empty() { Vec::new() } else { self.documents(&pointers)? };
        let mut documents = documents.into_iter();
        let value = |found: Option<Found>| match found?.value? {
            Stored::Inline(value) => Some(value),
            Stored::Document(_) => documents.next(),
        };
        Ok(found.into_iter().map(value).collect())
    }
}

/// A value that was read.
enum Value<'a> {
    /// Where it lies, and what gives what it lies in.
    There(&'a [u8], Option<&'a dyn Fn() -> Arc<dyn Image>>),
    Copied(Vec<u8>),
    Document(Document),
}

/// What the queues, and range deletes, say of a key.
enum Waiting {
    /// What there is of it.
    Decided(Option<Found>),
    /// The structure has it or nobody.
    Below,
}

fn waiting(state: &TableState, key: &[u8], at: Moment) -> Result<Waiting> {
    if !state.tombstones.is_empty() {
        return Ok(Waiting::Decided(find_many(state, &[key], at)?.pop().flatten()));
    }
    let frozen = || state.frozen.as_ref().and_then(|frozen| frozen.sections().get(key, at));
    Ok(match state.active.get(key, at).or_else(frozen) {
        Some(found) => Waiting::Decided(Some(found)),
        None => Waiting::Below,
    })
}

/// Shows the newest version of `key` at or below the seq of `at`, if there is one.
fn look(state: &TableState, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()> {
    match waiting(state, key, at)? {
        Waiting::Decided(found) => found.iter().for_each(|found| show(&found.seen())),
        Waiting::Below => state.view.look(key, at, show)?,
    }
    Ok(())
}

/// The newest versions of keys at or below the seq of `at`: queues first, what they leave undecided in the structure, as one batch.
fn find_many(state: &TableState, keys: &[&[u8]], at: Moment) -> Result<Vec<Option<Found>>> {
    let mut found: Vec<Option<Found>> = vec![None; keys.len()];
    state.active.get_many(keys, at, &mut found);
    if let Some(frozen) = &state.frozen {
        frozen.sections().get_many(keys, at, &mut found);
    }
    hide(state, keys, at.seq, &mut found, |fragment| fragment.is_bare(at.seq));
    let undecided: Vec<usize> = (0..keys.len()).filter(|&i| found[i].is_none()).collect();
    if undecided.len() == keys.len() {
        state.view.get_many(keys, at, &mut found)?;
    } else if !undecided.is_empty() {
        let rest: Vec<&[u8]> = undecided.iter().map(|&i| keys[i]).collect();
        let mut below = vec![None; rest.len()];
        state.view.get_many(&rest, at, &mut below)?;
        undecided.iter().zip(below).for_each(|(&i, slot)| found[i] = slot);
    }
    hide(state, keys, at.seq, &mut found, |_| true);
    Ok(found)
}

/// Puts range deletes in place of what they hide, and in place of what was not found where `is_all` says that there is nothing else.
fn hide(state: &TableState, keys: &[&[u8]], at: Seq, found: &mut [Option<Found>], is_all: impl Fn(&Fragment) -> bool) {
    if state.tombstones.is_empty() {
        return;
    }
    for (key, slot) in keys.iter().zip(found) {
        let Some(fragment) = state.tombstones.of_key(key) else { continue };
        let Some(delete) = fragment.newest_at(at) else { continue };
        if slot.as_ref().map_or_else(|| is_all(fragment), |found| found.seq < delete) {
            *slot = Some(Found { seq: delete, value: None, expiry: None });
        }
    }
}

/// What became of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// It was done.
    Done,
    /// The key has another value than was expected: this one, or none. Nothing was written.
    Refused(Option<Vec<u8>>),
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Table").field("name", &self.name()).field("structure", &self.structure()).finish()
    }
}

/// The seqs of the newest versions of many keys of a table; none where there is no version.
pub(crate) fn newest_many(engine: &Engine, table: &TableCore, keys: &[&[u8]]) -> Result<Vec<Option<Seq>>> {
    // Held before it is asked whether the table is live, as in [`Table::moment`].
    let state = table.state.load_full();
    engine.check_live(table)?;
    let found = find_many(&state, keys, Seq::MAX.into())?;
    Ok(found.into_iter().map(|found| found.map(|found| found.seq)).collect())
}

/// The keys within `range`.
pub(crate) fn range_bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Bounds {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    Bounds { lower: owned(range.start_bound()), upper: owned(range.end_bound()) }
}

/// The keys that begin with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> Bounds {
    let upper = successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    Bounds { lower: Bound::Included(prefix.to_vec()), upper }
}

/// The least key above every key that begins with `prefix`.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut successor = prefix[..=last].to_vec();
    successor[last] += 1;
    Some(successor)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, path::Path};

    use psync::sim::SimDisk;

    use super::*;
    use crate::{Options, choice::Choice, round};

    #[test]
    fn a_commit_over_two_sections_is_seen_whole_or_not_at_all_while_one_of_them_is_frozen() {
        let options = Options::new().background(false).leaf_pages(1);
        let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = database.table("table", Structure::BTree).expect("created");
        let (core, engine) = (&table.core, table.engine());
        let fences: Vec<Vec<u8>> = (1..16).map(|fence| vec![fence]).collect();
        let state = core.state.load_full();
        core.replace_state(Arc::new(state.active.recut(&[], &fences, 2)), None, Arc::clone(&state.view));
        let (low, high) = ([1], [15]);
        table.put(low, b"old").expect("put");
        table.put(high, b"old").expect("put");
        let interrupted = Cell::new(false);
        let visible = || {
            if !interrupted.replace(true) {
                let choice = Choice { table: Arc::clone(core), sections: vec![0] };
                round::run(engine, &[choice]).expect("runs");
                let mut batch = WriteBatch::new();
                batch.put(&table, low, b"new");
                batch.put(&table, high, b"new");
                engine.commit(&batch, Durability::Sync).expect("commits");
            }
            engine.publisher.visible()
        };
        let (state, at) = core.moment(visible, || engine.clock.now());
        let seen = [&low, &high].map(|key| {
            let waiting = state.active.get(key, at);
            let value = waiting.and_then(|found| found.value);
            matches!(value, Some(Stored::Inline(value)) if value == b"new")
        });
        assert_eq!(seen[0], seen[1], "low and high key of one commit");
    }

    #[test]
    fn a_document_that_was_found_can_be_read_though_it_is_moved_before_that() {
        for structure in Structure::ALL {
            let options = Options::new().background(false).segment_bytes(64 << 10);
            let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
            let table = database.table("table", structure).expect("created");
            table.put("key", [7; 5000]).expect("put");
            database.checkpoint().expect("a checkpoint");
            let (held, at) = table.reading(None).expect("a state");
            let mut document = None;
            look(&held, b"key", at, &mut |seen| document = seen.value.map(|value| value.to_stored())).expect("found");
            let Some(Stored::Document(document)) = document else { panic!("a document") };
            let moved = table.compact(&mut |_| std::ops::ControlFlow::Continue(())).expect("compacts");
            assert_eq!(moved.documents, 1);
            assert_eq!(table.documents(&[document]).expect("read"), [vec![7; 5000]]);
            drop(held);
            table.put("other", [8; 5000]).expect("put");
            database.checkpoint().expect("a checkpoint");
            database.drop_caches();
            assert!(table.documents(&[document]).is_err(), "it is gone, once nobody holds a state that has it");
            assert_eq!(table.get("key").expect("read").as_deref(), Some(&[7; 5000][..]));
        }
    }

    #[test]
    fn the_successor_of_a_prefix_is_the_next_that_does_not_begin_with_it() {
        assert_eq!(successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(successor(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(successor(&[255]), None);
        assert_eq!(successor(&[]), None);
    }
}
