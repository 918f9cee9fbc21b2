//! A table: its handle, and single and batched reads.

use std::{sync::Arc, time::SystemTime};

use crate::{
    engine::{Engine, handle::Handle, learned},
    error::{Error, Result},
    format::TableSettings,
    handles::{stats::TableStats, transaction::TransactionOptions},
    read::{
        pin::Pin,
        pinned::Pinned,
        point::{self, Value},
        then::Then,
    },
    tables::catalog::TableCore,
    words::{durability::Durability, structure::Structure},
};

/// A handle of one table. Cheap to clone; keeps its database open.
///
/// Keys and values are bytes: text, arrays, slices and vectors are taken as they are.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let users = db.table("users", braid::Structure::BTree)?;
/// users.put("ada", "1815")?;
/// users.put("grace", "1906")?;
/// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// for pair in users.range("b"..) {
///     let (name, born) = pair?;
///     assert_eq!((&*name, &*born), (&b"grace"[..], &b"1906"[..]));
/// }
/// users.delete("ada")?;
/// assert!(!users.contains_key("ada")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Table {
    pub(crate) handle: Arc<Handle>,
    pub(crate) core: Arc<TableCore>,
    /// The durability of writes through this handle, in place of that of the database.
    pub(crate) durability: Option<Durability>,
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

    /// The same table, whose handle writes with this durability in place of that of the database: in every call that
    /// says no other, but for batches and transactions.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use std::time::Duration;
    ///
    /// let visits = db.table("visits", braid::Structure::BTree)?;
    /// let quick = visits.with_durability(braid::Durability::Os);
    /// quick.put_expiring("ada", [1], Duration::from_secs(60))?; // survives the process, and not yet a power cut
    /// quick.update("ada", |count| Some(vec![count?[0] + 1]))?;
    /// visits.put("grace", [1])?; // with this one, all before it are durable
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self { durability: Some(durability), ..self.clone() }
    }

    /// The durability of writes through this handle.
    pub(crate) fn durability(&self) -> Durability {
        self.durability.unwrap_or(self.engine().options.durability)
    }

    /// Options of a transaction that writes to this table alone.
    pub(crate) fn transaction_options(&self) -> TransactionOptions {
        let options = TransactionOptions::new();
        self.durability.map_or(options, |durability| options.durability(durability))
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

    /// Time at which the value of `key` expires. None without an expiry, and for an absent key.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use std::time::{Duration, SystemTime};
    /// let offers = db.table("offers", braid::Structure::BTree)?;
    /// let end = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    /// offers.put_expiring("apples", "2 for 1", end)?;
    /// offers.put("pears", "3 for 2")?;
    /// assert_eq!((offers.expiry("apples")?, offers.expiry("pears")?), (Some(end), None));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        point::expiry(self.engine(), &self.core, key.as_ref(), None)
    }

    /// Whether there is a value of `key`. A large value is not read.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// assert!(users.contains_key("ada")? && !users.contains_key("grace")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        point::contains(self.engine(), &self.core, key.as_ref(), None)
    }

    /// The value of `key`.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let counts = db.table("counts", braid::Structure::BTree)?;
    /// counts.put("visits", 7_u64.to_be_bytes())?;
    /// let visits = counts.get("visits")?.and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?)));
    /// assert_eq!((visits, counts.get("absent")?), (Some(7), None));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the table cannot have the key, storage fails, stored data is damaged, or the table was dropped.
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

    /// Puts the value of `key` in the place of what `value` holds, whose memory is used again. False for an absent key;
    /// `value` is empty then.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// let mut value = Vec::new();
    /// for name in ["ada", "grace"] {
    ///     println!("{name} is known: {}", users.get_into(name, &mut value)?);
    /// }
    /// assert!(value.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        Ok(self.get_with(key, |found| value.extend_from_slice(found))?.is_some())
    }

    /// The value of `key`, to be kept without a copy if found in the cache: see [`Pinned`].
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let pages = db.table("pages", braid::Structure::BTree)?;
    /// pages.put("/", vec![7; 1 << 20])?;
    /// let page = pages.get_pinned("/")?.expect("it was put");
    /// pages.delete("/")?;
    /// assert_eq!(page.len(), 1 << 20); // as of its read
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// let found = users.get_many(&["grace", "ada"])?;
    /// assert_eq!(found, [None, Some(b"1815".to_vec())]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        point::read_many(self.engine(), &self.core, &keys, None)
    }

    /// As [`Table::get_many`], each value to be kept without a copy if it is a large one and cached: see [`Pinned`].
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let pages = db.table("pages", braid::Structure::BTree)?;
    /// pages.put("large", vec![7; 1 << 20])?;
    /// let found = pages.get_many_pinned(&["large", "absent"])?;
    /// let bytes: Vec<usize> = found.iter().flatten().map(|page| page.len()).collect();
    /// assert_eq!(bytes, [1 << 20]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_many_pinned<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Pinned>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.get_many_pinned_at(&keys, None)
    }

    /// As [`Table::get_many_pinned`], now or as of `then`.
    pub(crate) fn get_many_pinned_at(&self, keys: &[&[u8]], then: Option<&dyn Then>) -> Result<Vec<Option<Pinned>>> {
        point::read_many_as(self.engine(), &self.core, keys, then, Pinned::owned, Pinned::document)
    }

    /// Shape and size of the table.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// db.drain()?; // the structure has it now
    /// let stats = users.stats()?;
    /// assert_eq!((stats.entries, stats.waiting_operations), (1, 0));
    /// assert_eq!(stats.figure("leaves"), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When storage fails.
    pub fn stats(&self) -> Result<TableStats> {
        let state = self.core.state.load_full();
        self.engine().check_live(&self.core)?;
        TableStats::of(self.engine(), &self.core, &state, &learned::learned(self.engine()))
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Table").field("name", &self.name()).field("structure", &self.structure()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, path::Path};

    use index::Stored;
    use psync::sim::SimDisk;

    use super::*;
    use crate::{
        apply::{choice::Choice, round},
        handles::batch::WriteBatch,
        options::Options,
        structures::documents::Document,
        words::durability::Durability,
    };

    #[test]
    fn a_commit_over_two_sections_is_seen_whole_or_not_at_all_while_one_of_them_is_frozen() {
        let options = Options::new().background(false).leaf_pages(1);
        let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = database.table("table", Structure::BTree).expect("created");
        let (core, engine) = (&table.core, table.engine());
        let fences: Vec<Vec<u8>> = (1..16).map(|fence| vec![fence]).collect();
        let state = core.state.load_full();
        core.hold().replace_state(Arc::new(state.active.recut(&[], &fences, 2)), None, Arc::clone(&state.view));
        let (low, high) = ([1], [15]);
        table.put(low, b"old").expect("put");
        table.put(high, b"old").expect("put");
        let interrupted = Cell::new(false);
        let visible = || {
            if !interrupted.replace(true) {
                let choice = Choice { table: Arc::clone(core), sections: vec![0] };
                round::run(engine, &mut engine.upkeep.lock(), &[choice]).expect("runs");
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
        for &structure in Structure::ALL {
            let options = Options::new().background(false).segment_bytes(64 << 10);
            let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
            let table = database.table("table", structure).expect("created");
            table.put("key", [7; 5000]).expect("put");
            database.checkpoint().expect("a checkpoint");
            let engine = table.engine();
            let (held, at) = point::moment(engine, &table.core, None).expect("a state");
            let mut document = None;
            let documents = engine.structures.documents();
            let read =
                |document| documents.read(table.core.id, &table.core.documents, &document).map(Document::into_vec);
            held.view
                .look(b"key", at, &mut |seen| document = seen.value.map(|value| value.to_stored()))
                .expect("found");
            let Some(Stored::Document(document)) = document else { panic!("a document") };
            let moved = table.compact().expect("compacts");
            assert_eq!(moved.documents, 1);
            assert_eq!(read(document).expect("read"), [7; 5000]);
            drop(held);
            table.put("other", [8; 5000]).expect("put");
            database.checkpoint().expect("a checkpoint");
            database.drop_caches();
            assert!(read(document).is_err(), "it is gone, once nobody holds a state that has it");
            assert_eq!(table.get("key").expect("read").as_deref(), Some(&[7; 5000][..]));
        }
    }
}
