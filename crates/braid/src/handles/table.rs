//! A table: single and batched reads and writes.

use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
    time::SystemTime,
};

use index::Bounds;

use crate::{
    engine::{Engine, handle::Handle, learned},
    error::{Error, Result},
    format::TableSettings,
    handles::{batch::WriteBatch, database::Database, load::Loader, range::Range, stats::TableStats},
    read::{
        pin::Pin,
        pinned::Pinned,
        point::{self, Value},
        then::Then,
    },
    tables::catalog::TableCore,
    words::{clock::Expires, durability::Durability, structure::Structure},
};

/// A handle of one table. Cheap to clone; keeps its database open.
#[derive(Clone)]
pub struct Table {
    pub(crate) handle: Arc<Handle>,
    pub(crate) core: Arc<TableCore>,
}

impl Table {
    /// Name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Structure of the table.
    #[must_use]
    pub fn structure(&self) -> Structure {
        self.core.structure
    }

    /// Settings chosen when the table was created, with the number of retained states as set last.
    #[must_use]
    pub fn settings(&self) -> TableSettings {
        self.core.settings()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    /// Fails when the table is of another database than `pin`.
    pub(crate) fn check_own(&self, pin: &Pin) -> Result<()> {
        if !std::ptr::eq(self.engine(), &*pin.handle().engine) {
            return Err(Error::ForeignTable { name: self.name().to_owned() });
        }
        Ok(())
    }

    /// Sets `key` to `value`, with the durability of the database.
    ///
    /// # Errors
    /// Outside the limits, on a full disk, when a transaction keeps the key locked for too long, or when the database
    /// no longer writes: see [`crate::ErrorKind`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.engine().options.durability)
    }

    /// Sets `key` to `value`, with the given durability.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(self, key, value);
        self.engine().commit(&batch, durability).map(drop)
    }

    /// Sets `key` to `value` until the value expires: after a [`Duration`](std::time::Duration) from the commit on, or
    /// at a [`SystemTime`].
    ///
    /// An expired value counts as deleted. Later writes of the key replace both value and expiry, also writes without
    /// an expiry. The space of expired values is released over time. Snapshots taken before the expiry see the value as
    /// long as they exist.
    ///
    /// # Errors
    /// As [`Table::put`]; [`Error::Option`] for an expiry after a duration of zero.
    pub fn put_expiring(
        &self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: impl Into<Expires>,
    ) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put_expiring(self, key, value, expires);
        self.engine().commit(&batch, self.engine().options.durability).map(drop)
    }

    /// Time at which the value of `key` expires. None without an expiry, and for an absent key.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        point::expiry(self.engine(), &self.core, key.as_ref(), None)
    }

    /// Deletes `key`. An absent key is no error.
    ///
    /// # Errors
    /// As [`Table::put`], but a full disk does not refuse a delete while the reserve for deletes lasts.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, self.engine().options.durability)
    }

    /// Deletes `key`, with the given durability.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(self, key);
        self.engine().commit(&batch, durability).map(drop)
    }

    /// Deletes every key within `range`. The cost does not depend on the number of keys, because their space is
    /// released in the background.
    ///
    /// # Errors
    /// As [`Table::delete`]; [`Error::TooManyRangeDeletes`] while too many range deletes of the table are kept for
    /// older snapshots and transactions.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_range(self, range);
        self.engine().commit(&batch, self.engine().options.durability).map(drop)
    }

    /// Deletes every key that begins with `prefix`, in the same way as [`Table::delete_range`].
    ///
    /// # Errors
    /// As [`Table::delete_range`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_prefix(self, prefix);
        self.engine().commit(&batch, self.engine().options.durability).map(drop)
    }

    /// Sets `key` to `new` if its present value is `expected`. With no `new` the key is deleted; no `expected` means an
    /// absent key. No other commit of the key comes between the comparison and the write.
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
                // Another commit changed the key, perhaps to the expected value: compare again.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets `key` to `value` if the key is absent.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Swap> {
        self.compare_and_swap(key, None, Some(value.as_ref()))
    }

    /// Fills the table, which must be empty, with pairs in ascending key order: packed, in long sequential writes, past
    /// the log. The pairs are durable when this returns, and no reader sees any of them before they are durable.
    /// Returns the number of pairs. [`Table::loader`] takes the pairs one by one.
    ///
    /// # Errors
    /// As [`Table::loader`], [`Loader::push`] and [`Loader::finish`]; the table is then empty.
    pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, sorted: impl IntoIterator<Item = (K, V)>) -> Result<u64> {
        let mut loader = self.loader()?;
        for (key, value) in sorted {
            loader.push(key, value)?;
        }
        loader.finish()
    }

    /// Begins a load of the table, which must be empty. Until the load ends, all other writes to the table are refused
    /// with [`crate::Error::Loading`], and reads find the table empty.
    ///
    /// # Errors
    /// [`crate::Error::NotEmpty`], [`crate::Error::Loading`], or when the database no longer writes.
    pub fn loader(&self) -> Result<Loader> {
        Loader::begin(self)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// When storage fails, stored data is damaged, or the table was dropped.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.get_at(key.as_ref(), None)
    }

    /// Passes the value of `key` to `look`, if the key is present, and returns the result of `look`. A value in the
    /// cache is neither copied nor is any memory allocated for it. Threads that do this at the same time write to no
    /// memory of one another.
    ///
    /// `look` may use the database freely. The value, and the state of the table that was read, are held until `look`
    /// returns.
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

    /// The value of `key`, to be kept without a copy if found in the cache: see [`Pinned`].
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.get_pinned_at(key.as_ref(), None)
    }

    /// The value of `key`, now or as of `then`.
    pub(crate) fn get_at(&self, key: &[u8], then: Option<&dyn Then>) -> Result<Option<Vec<u8>>> {
        point::read(self.engine(), &self.core, key, then, |value| match value {
            Value::There(value, _) => value.to_vec(),
            Value::Copied(value) => value,
            Value::Document(document) => document.into_vec(),
        })
    }

    /// As [`Table::get_with`], now or as of `then`.
    pub(crate) fn get_with_at<R>(
        &self, key: &[u8], then: Option<&dyn Then>, look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        point::read(self.engine(), &self.core, key, then, |value| match value {
            Value::There(value, _) => look(value),
            Value::Copied(value) => look(&value),
            Value::Document(document) => look(&document),
        })
    }

    /// As [`Table::get_pinned`], now or as of `then`.
    pub(crate) fn get_pinned_at(&self, key: &[u8], then: Option<&dyn Then>) -> Result<Option<Pinned>> {
        point::read(self.engine(), &self.core, key, then, |value| match value {
            Value::There(value, home) => Pinned::of(value, home),
            Value::Copied(value) => Pinned::owned(value),
            Value::Document(document) => Pinned::document(document),
        })
    }

    /// The values of many keys, in the order of `keys`, read as one batch: level by level, and all documents at once
    /// (MPSearch, PIO §3.1.1). All values are of one moment: no commit is seen in part.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        point::read_many(self.engine(), &self.core, &keys, None)
    }

    /// The pairs with keys within `range`, in key order; [`Range::rev`] reverses the order. The range sees one moment,
    /// however long the walk takes.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        Range::new(self.clone(), range_bounds(&range), None)
    }

    /// The pairs with keys that begin with `prefix`.
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
}

/// Outcome of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The write was done.
    Done,
    /// Nothing was written, because the key has another value than expected: this one, or none.
    Refused(Option<Vec<u8>>),
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Table").field("name", &self.name()).field("structure", &self.structure()).finish()
    }
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

    use index::Stored;
    use psync::sim::SimDisk;

    use super::*;
    use crate::{
        apply::{choice::Choice, round},
        options::Options,
    };

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
            let engine = table.engine();
            let (held, at) = point::moment(engine, &table.core, None).expect("a state");
            let mut document = None;
            let read = |document| engine.trees.documents().read_many(table.core.id, &table.core.documents, &[document]);
            held.view
                .look(b"key", at, &mut |seen| document = seen.value.map(|value| value.to_stored()))
                .expect("found");
            let Some(Stored::Document(document)) = document else { panic!("a document") };
            let moved = table.compact(&mut |_| std::ops::ControlFlow::Continue(())).expect("compacts");
            assert_eq!(moved.documents, 1);
            assert_eq!(read(document).expect("read"), [vec![7; 5000]]);
            drop(held);
            table.put("other", [8; 5000]).expect("put");
            database.checkpoint().expect("a checkpoint");
            database.drop_caches();
            assert!(read(document).is_err(), "it is gone, once nobody holds a state that has it");
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
