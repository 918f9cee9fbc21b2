//! Operations that commit together.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    ops::{Range, RangeBounds},
    sync::{Arc, Weak},
};

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry as TableEntry};
use index::{Bounds, Expiry, Horizon, RangeTombstones, Seq};

use crate::{
    commit::{
        item::{BatchOperation, Item},
        settle::Submitted,
    },
    engine::{Engine, handle::Handle},
    error::{Error, Result},
    handles::table::Table,
    tables::catalog::TableCore,
    words::{
        clock::{Expires, system_time},
        durability::Durability,
        key_range::{KeyRange, prefix_bounds, range_bounds},
    },
};

#[derive(Clone)]
struct Entry {
    table: usize,
    operation: BatchOperation,
    expires: Option<Expires>,
    key: Range<usize>,
    value: Range<usize>,
}

impl Entry {
    fn is_point(&self) -> bool {
        self.operation != BatchOperation::DeleteRange
    }
}

/// A table that a batch has operations for. It does not keep the database open.
#[derive(Clone)]
struct Target {
    core: Arc<TableCore>,
    handle: Weak<Handle>,
}

/// Operations on any tables of one database that become durable and visible together, or not at all.
///
/// A later operation replaces an earlier one of the same batch on the same key. A later range delete replaces the
/// earlier operations on keys in its range.
///
/// A batch may be as long as memory allows ([`Options::memory_bytes`](crate::Options::memory_bytes)): twice its bytes
/// in the log, and 160 bytes for each operation, fit in the write buffer and half of the cache. It may always have a
/// segment of the log, 16 MiB, and never more than 1 GiB. A value above 2 KiB counts as 28 bytes. While a batch longer
/// than a segment, or one whose operations take as much memory, is written, other writers wait, and the process may
/// take up to twice the length of the batch beyond `memory_bytes`.
///
/// A batch can be written again, and to no other database than that of its tables. Unlike other handles, it does not
/// keep that database open.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::{Durability, Structure, WriteBatch};
///
/// let users = db.table("users", Structure::BTree)?;
/// let mut batch = WriteBatch::new();
/// for name in ["ada", "grace"] {
///     batch.put(&users, name, "active");
/// }
/// let first = db.write(&batch)?; // with the durability of the database
/// batch.clear(); // keeps its memory
/// batch.delete(&users, "ada");
/// batch.set_durability(Durability::Os);
/// assert!(db.write(&batch)? > first);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct WriteBatch {
    tables: Vec<Target>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    durability: Option<Durability>,
}

impl WriteBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` of `table` to `value`. Limits are checked when the batch is written.
    pub fn put(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(table, BatchOperation::Put, key.as_ref(), value.as_ref(), None);
    }

    /// Sets `key` of `table` to `value` until the value expires, counted from the write of the batch: as
    /// [`Table::put_expiring`].
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use std::time::Duration;
    /// # let sessions = db.table("sessions", braid::Structure::BTree)?;
    /// let mut batch = braid::WriteBatch::new();
    /// batch.put_expiring(&sessions, "token", "ada", Duration::from_secs(1800));
    /// db.write(&batch)?; // half an hour begins here
    /// assert!(sessions.expiry("token")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_expiring(
        &mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: impl Into<Expires>,
    ) {
        self.push(table, BatchOperation::Put, key.as_ref(), value.as_ref(), Some(expires.into()));
    }

    /// Sets `key` of `table` to `value`, until the expiry if one is given.
    pub(crate) fn put_until(&mut self, table: &Table, key: &[u8], value: &[u8], expiry: Option<Expiry>) {
        let expires = expiry.map(|expiry| Expires::At(system_time(expiry)));
        self.push(table, BatchOperation::Put, key, value, expires);
    }

    /// Deletes `key` of `table`. An absent key is no error.
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) {
        self.push(table, BatchOperation::Delete, key.as_ref(), &[], None);
    }

    /// Deletes every key of `table` within `range`, however many: keys that were put before, also in this batch, but
    /// not keys that are put later.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # let events = db.table("events", braid::Structure::BTree)?;
    /// events.put("2024-01", "")?;
    /// events.put("2025-01", "")?;
    /// let mut batch = braid::WriteBatch::new();
    /// batch.delete_range(&events, .."2025");
    /// batch.put(&events, "2024-02", "stays: it was put later");
    /// db.write(&batch)?;
    /// assert_eq!(events.iter().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, table: &Table, range: impl RangeBounds<K>) {
        self.delete_within(table, &range_bounds(&range));
    }

    /// Deletes every key of `table` that begins with `prefix`, in the same way as `WriteBatch::delete_range`.
    pub fn delete_prefix(&mut self, table: &Table, prefix: impl AsRef<[u8]>) {
        self.delete_within(table, &prefix_bounds(prefix.as_ref()));
    }

    fn delete_within(&mut self, table: &Table, bounds: &Bounds) {
        if let Some(KeyRange { low, high }) = KeyRange::of(bounds) {
            self.push(table, BatchOperation::DeleteRange, &low, high.as_deref().unwrap_or_default(), None);
        }
    }

    /// Number of operations in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the batch has no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the keys and values in the batch.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// When the commit of the batch counts as done, in place of the durability of the database.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{Durability, WriteBatch};
    ///
    /// let events = db.table("events", braid::Structure::BTree)?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(&events, "1", "seen");
    /// let mut other = batch.clone();
    /// other.put(&events, "2", "paid");
    /// batch.set_durability(Durability::Os); // the clone keeps that of the database
    /// assert!(db.write(&batch)? < db.write(&other)?);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn set_durability(&mut self, durability: Durability) {
        self.durability = Some(durability);
    }

    /// The durability that was set.
    #[must_use]
    pub const fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// Removes every operation, but keeps the memory for later ones, and the durability.
    pub fn clear(&mut self) {
        self.tables.clear();
        self.entries.clear();
        self.bytes.clear();
    }

    fn push(&mut self, table: &Table, operation: BatchOperation, key: &[u8], value: &[u8], expires: Option<Expires>) {
        let known = self.tables.iter().rposition(|known| Arc::ptr_eq(&known.core, &table.core));
        let table = known.unwrap_or_else(|| {
            self.tables.push(Target { core: Arc::clone(&table.core), handle: Arc::downgrade(&table.handle) });
            self.tables.len() - 1
        });
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.entries.push(Entry { table, operation, expires, key: start..middle, value: middle..self.bytes.len() });
    }

    /// Fails for a batch with tables of another database, or of another opening of this one.
    pub(crate) fn check_own(&self, handle: &Arc<Handle>) -> Result<()> {
        match self.tables.iter().find(|table| !std::ptr::eq(table.handle.as_ptr(), Arc::as_ptr(handle))) {
            Some(foreign) => Err(Error::ForeignTable { name: foreign.core.name.clone() }),
            None => Ok(()),
        }
    }

    fn item(&self, entry: &Entry) -> Item<'_> {
        Item {
            table: &self.tables[entry.table].core,
            operation: entry.operation,
            expires: entry.expires,
            key: &self.bytes[entry.key.clone()],
            value: &self.bytes[entry.value.clone()],
        }
    }

    /// The range deletes, and then the last operation of each key, unless a later range delete covers the key.
    pub(crate) fn last_items(&self) -> Vec<Item<'_>> {
        if self.rises() {
            return self.entries.iter().map(|entry| self.item(entry)).collect();
        }
        let (mut ranges, points) = self.last_points();
        ranges.extend(points);
        ranges
    }

    /// Whether there is only one operation, or all are on single keys in ascending order: then none replaces another.
    fn rises(&self) -> bool {
        let place = |entry: &Entry| (entry.table, &self.bytes[entry.key.clone()]);
        let is_single = self.entries.len() == 1;
        is_single
            || self.entries.iter().all(Entry::is_point)
                && self.entries.is_sorted_by(|one, next| place(one) < place(next))
    }

    /// The range deletes, and the other operations that count.
    fn last_points(&self) -> (Vec<Item<'_>>, Vec<Item<'_>>) {
        let mut ranges = Vec::new();
        // Range tombstones by table. The seq of each is its position in the batch.
        let mut deleted: HashMap<usize, RangeTombstones> = HashMap::new();
        for (seq, entry) in (0..).map(Seq).zip(&self.entries) {
            let item = self.item(entry);
            if !item.is_point() {
                deleted.entry(entry.table).or_default().add(
                    item.key,
                    item.high(),
                    seq,
                    &Horizon { visible: Seq::MAX, ..Horizon::default() },
                );
                ranges.push(item);
            }
        }
        let key = |position: usize| &self.bytes[self.entries[position].key.clone()];
        let place = |position: usize| (self.entries[position].table, key(position));
        let is_deleted = |position: usize| {
            let deleted = deleted.get(&self.entries[position].table);
            let newest = deleted.and_then(|deleted| deleted.newest(key(position), Seq::MAX));
            newest.is_some_and(|range| range > Seq(position as u64))
        };
        // From the last operation backwards: the first operation met of a key is the one that counts.
        let hasher = DefaultHashBuilder::default();
        let mut met: HashTable<usize> = HashTable::with_capacity(self.entries.len());
        let mut points = Vec::with_capacity(self.entries.len());
        for position in (0..self.entries.len()).rev().filter(|&position| self.entries[position].is_point()) {
            let hash = hasher.hash_one(place(position));
            let slot =
                met.entry(hash, |&other| place(other) == place(position), |&other| hasher.hash_one(place(other)));
            if let TableEntry::Vacant(vacant) = slot {
                vacant.insert(position);
                points.push(position);
            }
        }
        let points = points.into_iter().rev().filter(|&position| deleted.is_empty() || !is_deleted(position));
        (ranges, points.map(|position| self.item(&self.entries[position])).collect())
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WriteBatch").field("operations", &self.len()).field("bytes", &self.bytes()).finish()
    }
}

impl Engine {
    /// Writes a batch whose tables are this engine's.
    pub(crate) fn commit(&self, batch: &WriteBatch, durability: Durability) -> Result<Seq> {
        self.settle(&self.submit(batch, durability)?)
    }

    /// Gives a batch its place in the order of commits. Its tables are this engine's.
    pub(crate) fn submit(&self, batch: &WriteBatch, durability: Durability) -> Result<Submitted> {
        self.submit_items(&batch.last_items(), durability, self.options.lock_timeout, None)
    }
}
