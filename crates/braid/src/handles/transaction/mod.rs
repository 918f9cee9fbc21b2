//! Transactions: reads of one moment, and writes that commit together unless another commit is in conflict with them.
//!
//! 1. A transaction reads its snapshot and its own writes ([`writes`], [`range`]). Before the commit nothing of the
//!    transaction is in the log or in a queue, so a rollback only forgets the writes.
//! 2. The commit is checked first, in one step with getting its seq ([`crate::commit::validate`]); otherwise it is a
//!    commit like any other. The check depends on the isolation:
//!    - Snapshot isolation: no other commit since the begin has written a key that the transaction wrote.
//!    - Serializable: in addition, nothing that the transaction read has changed since ([`reads`]). So serializable
//!      transactions are as if they ran one after the other, in the order of their seqs.
//! 3. A transaction can lock a key before the commit ([`Transaction::get_for_update`]). Commits of that key by others
//!    then wait.
//!
//! A transaction that only reads takes no lock, waits for no other transaction and is in the way of none, because its
//! snapshot is a prefix of the order of commits. A serializable transaction that was not begun read-only is the
//! exception: its begin may wait until earlier commits are visible.

mod conflict;
mod end;
mod locks;
mod options;
mod range;
mod renewal;
mod run;
mod writes;

use std::{
    collections::HashSet,
    fmt,
    ops::RangeBounds,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use index::{Bounds, Seq};
use parking_lot::Mutex;

pub use options::{Isolation, TransactionOptions};
pub use range::TransactionRange;
pub use writes::Savepoint;

use conflict::Conflict;
use writes::Writes;

use crate::{
    commit::{
        check_expires, check_pair,
        reads::{self, Reads},
    },
    engine::{
        Engine,
        recent::{LockKey, Owner},
    },
    error::{Error, Result},
    handles::{database::Database, table::Table},
    read::{pin::Pin, pinned::Pinned, point},
    structures::pool::Taker,
    tables::catalog::TableState,
    words::{
        clock::{Expires, system_time},
        key_range::{KeyRange, prefix_bounds, range_bounds},
    },
};

/// A transaction over any tables of a database. Dropping it rolls it back.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let accounts = db.table("accounts", braid::Structure::BTree)?;
/// accounts.put("ada", [10])?;
/// accounts.put("grace", [0])?;
/// db.run(|tx| {
///     let from = tx.get(&accounts, "ada")?.unwrap_or(vec![0])[0];
///     let to = tx.get(&accounts, "grace")?.unwrap_or(vec![0])[0];
///     tx.put(&accounts, "ada", [from - 3])?;
///     tx.put(&accounts, "grace", [to + 3])
/// })?;
/// assert_eq!(accounts.get("grace")?, Some(vec![3]));
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    pin: Arc<Pin>,
    owner: Owner,
    options: TransactionOptions,
    writes: Writes,
    /// Reads and ranges that no other commit may have changed, besides the written keys: the reads of a serializable
    /// transaction, and the ranges that the transaction deletes.
    reads: Option<Mutex<Reads>>,
    locks: HashSet<LockKey>,
    /// The conflict that was met last, if nothing went well since.
    conflict: Mutex<Option<Conflict>>,
    /// Bytes that the transaction holds of the budget of all transactions.
    held: AtomicU64,
    /// Some read has used the snapshot.
    has_read: AtomicBool,
    /// The error of a read that could not be noted.
    too_large: Mutex<Option<Error>>,
    /// States in which renewed documents are, from the commit on.
    renewed: Mutex<Vec<Arc<TableState>>>,
}

impl Database {
    /// Begins a transaction under snapshot isolation.
    ///
    /// A transaction that is in conflict is begun anew. [`Database::run`] does that by itself; by hand it is a loop:
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let counts = db.table("counts", braid::Structure::BTree)?;
    /// let seq = loop {
    ///     let mut tx = db.begin()?;
    ///     let count = tx.get(&counts, "visits")?.map_or(0, |count| count[0]);
    ///     tx.put(&counts, "visits", [count + 1])?;
    ///     match tx.commit() {
    ///         Err(error) if error.is_retryable() => continue, // another commit was first
    ///         committed => break committed?,
    ///     }
    /// };
    /// assert_eq!((counts.get("visits")?, db.seq()), (Some(vec![1]), seq));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No error is possible at present.
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(TransactionOptions::new())
    }

    /// Begins a transaction with options, as in the examples of [`TransactionOptions`].
    ///
    /// # Errors
    /// No error is possible at present.
    pub fn begin_with(&self, options: TransactionOptions) -> Result<Transaction> {
        let engine = self.engine();
        let reads = (options.isolation == Isolation::Serializable && !options.read_only).then(Mutex::default);
        if reads.is_some() {
            let floor = engine.recent.watch(|| Seq(engine.wal.last_seq()));
            // After this wait the ring reaches back to the snapshot. A failed wait means that nothing becomes visible
            // any more; the transaction can still read.
            let _ = engine.publisher.wait(floor);
        }
        Ok(Transaction {
            pin: Pin::take(self.handle()),
            owner: engine.recent.new_owner(),
            options,
            writes: Writes::default(),
            reads,
            locks: HashSet::new(),
            conflict: Mutex::new(None),
            held: AtomicU64::new(0),
            has_read: AtomicBool::new(false),
            too_large: Mutex::new(None),
            renewed: Mutex::default(),
        })
    }
}

impl Transaction {
    fn engine(&self) -> &Engine {
        &self.pin.handle().engine
    }

    /// The last commit of others that the transaction sees.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.pin.seq()
    }

    /// The value of `key`: the transaction's own write, or else the value in its snapshot.
    ///
    /// # Errors
    /// As [`Table::get`], and when the table is of another database. [`Error::TransactionTooLarge`] when reads are
    /// noted and there is no room to note this one.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        table.check_own(&self.pin)?;
        match self.writes.get(table.core.id, key) {
            Some(written) => Ok(writes::value_of(written).map(<[u8]>::to_vec)),
            None => {
                self.note_key(table, key)?;
                table.get_at(key, Some(&*self.pin))
            }
        }
    }

    /// Shows the value of `key` in `table` to `look`, without a copy where the value is in memory: see
    /// [`Table::get_with`]. The transaction's own write is shown, if there is one.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_with<R>(
        &self, table: &Table, key: impl AsRef<[u8]>, look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let key = key.as_ref();
        table.check_own(&self.pin)?;
        match self.writes.get(table.core.id, key) {
            Some(written) => Ok(writes::value_of(written).map(look)),
            None => {
                self.note_key(table, key)?;
                table.get_with_at(key, Some(&*self.pin), look)
            }
        }
    }

    /// The value of `key` in `table`, to be kept without a copy where the value is in memory. The transaction's own
    /// write is returned, if there is one, as a copy.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_pinned(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        let key = key.as_ref();
        table.check_own(&self.pin)?;
        match self.writes.get(table.core.id, key) {
            Some(written) => Ok(writes::value_of(written).map(|value| Pinned::owned(value.to_vec()))),
            None => {
                self.note_key(table, key)?;
                table.get_pinned_at(key, Some(&*self.pin))
            }
        }
    }

    /// The values of many keys. Keys without a write of the transaction's own are read as one batch.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        table.check_own(&self.pin)?;
        let own = |key: &K| self.writes.get(table.core.id, key.as_ref());
        let below: Vec<&[u8]> = keys.iter().filter(|key| own(key).is_none()).map(AsRef::as_ref).collect();
        below.iter().try_for_each(|key| self.note_key(table, key))?;
        let mut below = point::read_many(table.engine(), &table.core, &below, Some(&*self.pin))?.into_iter();
        let value = |key| match own(key) {
            Some(written) => writes::value_of(written).map(<[u8]>::to_vec),
            None => below.next().flatten(),
        };
        Ok(keys.iter().map(value).collect())
    }

    /// Whether there is a value of `key`. A large value is not read.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// let mut tx = db.begin()?;
    /// tx.put(&users, "ada", "1815")?;
    /// assert!(tx.contains_key(&users, "ada")? && !users.contains_key("ada")?, "others do not see it yet");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains_key(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        table.check_own(&self.pin)?;
        match self.writes.get(table.core.id, key) {
            Some(written) => Ok(written.is_some()),
            None => {
                self.note_key(table, key)?;
                point::contains(table.engine(), &table.core, key, Some(&*self.pin))
            }
        }
    }

    /// Time at which the value of `key` expires. None without an expiry, and for an absent key. For a value of the
    /// transaction's own that expires after some time, that time is counted from now, and by the commit from then.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use std::time::Duration;
    /// let sessions = db.table("sessions", braid::Structure::BTree)?;
    /// sessions.put_expiring("token", "ada", Duration::from_secs(60))?;
    /// let mut tx = db.begin()?;
    /// assert!(tx.expiry(&sessions, "token")?.is_some());
    /// tx.put(&sessions, "token", "ada")?;
    /// assert_eq!(tx.expiry(&sessions, "token")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn expiry(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        let key = key.as_ref();
        table.check_own(&self.pin)?;
        match self.writes.get(table.core.id, key) {
            Some(written) => {
                let expires = written.as_ref().and_then(|put| put.expires);
                Ok(expires.map(|expires| system_time(expires.expiry(self.engine().clock.now()))))
            }
            None => {
                self.note_key(table, key)?;
                match self.writes.renewed(table.core.id, key) {
                    Some(expires) => Ok(Some(system_time(expires.expiry(self.engine().clock.now())))),
                    None => point::expiry(table.engine(), &table.core, key, Some(&*self.pin)),
                }
            }
        }
    }

    /// Sets `key` to `value` when the transaction commits.
    ///
    /// # Errors
    /// A key or value outside the limits; [`Error::TransactionTooLarge`] when there is no room in memory for the write,
    /// and then the transaction is as before.
    pub fn put(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.set(table, key.as_ref(), Some(value.as_ref()), None)
    }

    /// Sets `key` to `value` until the expiry, counted from the commit on: as [`Table::put_expiring`]. The transaction
    /// itself sees the value until then.
    ///
    /// # Errors
    /// As [`Transaction::put`]; [`Error::Option`] where the value is to expire after a time of zero.
    pub fn put_expiring(
        &mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: impl Into<Expires>,
    ) -> Result<()> {
        self.put_until(table, key.as_ref(), value.as_ref(), Some(expires.into()))
    }

    /// Sets `key` to `value` when the transaction commits, until the expiry if there is one.
    pub(crate) fn put_until(
        &mut self, table: &Table, key: &[u8], value: &[u8], expires: Option<Expires>,
    ) -> Result<()> {
        check_expires(expires)?;
        self.set(table, key, Some(value), expires)
    }

    /// Deletes `key` when the transaction commits.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<()> {
        self.set(table, key.as_ref(), None, None)
    }

    /// Deletes every key within `range` when the transaction commits. The delete covers the transaction's earlier puts,
    /// not its later ones. The transaction is in conflict where others commit a key of the range meanwhile.
    ///
    /// The check for such a conflict costs little in a young transaction. Where others have committed between the begin
    /// and this call, the commit walks the range twice.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let events = db.table("events", braid::Structure::BTree)?;
    /// events.put("2024-01", "")?;
    /// events.put("2025-01", "")?;
    /// let mut tx = db.begin()?;
    /// tx.delete_range(&events, .."2025")?;
    /// tx.put(&events, "2024-02", "stays: it was put later")?;
    /// assert_eq!(tx.iter(&events).count(), 2);
    /// tx.commit()?;
    /// assert_eq!(events.iter().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, table: &Table, range: impl RangeBounds<K>) -> Result<()> {
        self.delete_within(table, &range_bounds(&range))
    }

    /// Deletes every key that begins with `prefix` when the transaction commits, likewise.
    ///
    /// # Errors
    /// As [`Transaction::delete_range`].
    pub fn delete_prefix(&mut self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_within(table, &prefix_bounds(prefix.as_ref()))
    }

    fn delete_within(&mut self, table: &Table, bounds: &Bounds) -> Result<()> {
        self.check_table(table)?;
        let Some(range) = KeyRange::of(bounds) else { return Ok(()) };
        let noted = reads::range_cost(bounds);
        let most = self.writes.cost_of_delete(table.core.id, &range) + noted;
        self.hold(most)?;
        let held = self.writes.bytes() + most;
        self.writes.delete_range(table, &range);
        self.let_go(held - noted - self.writes.bytes());
        if self.reads.is_none() {
            // From here on the commits of others are kept in the ring, because the check of the range needs them.
            self.engine().recent.watch(|| Seq(self.engine().wal.last_seq()));
        }
        self.reads.get_or_insert_default().lock().add_range(&table.core, range.to_bounds());
        Ok(())
    }

    fn set(&mut self, table: &Table, key: &[u8], value: Option<&[u8]>, expires: Option<Expires>) -> Result<()> {
        self.check_write(table, key, value)?;
        self.write(key, value.map_or(0, <[u8]>::len), |writes| writes.set(table, key, value, expires))
    }

    /// Has `write` write `key`, with a value of so many bytes, if there is room for it.
    fn write(&mut self, key: &[u8], value_bytes: usize, write: impl FnOnce(&mut Writes)) -> Result<()> {
        // The old write may be kept for a savepoint, so the memory of both is held until that is known.
        let most = 2 * writes::cost(key, None) + value_bytes as u64;
        self.hold_as(most, self.has_only_locks())?;
        let held = self.writes.bytes() + most;
        write(&mut self.writes);
        self.let_go(held - self.writes.bytes());
        Ok(())
    }

    fn check_table(&self, table: &Table) -> Result<()> {
        table.check_own(&self.pin)?;
        if self.options.read_only {
            return Err(Error::ReadOnlyTransaction);
        }
        self.engine().check_writable()
    }

    fn check_write(&self, table: &Table, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.check_table(table)?;
        check_pair(&table.core, key, value.unwrap_or_default())
    }

    /// The noted reads, where the isolation notes them.
    fn noted_reads(&self) -> Option<&Mutex<Reads>> {
        self.reads.as_ref().filter(|_| self.options.isolation == Isolation::Serializable)
    }

    fn note_key(&self, table: &Table, key: &[u8]) -> Result<()> {
        self.has_read.store(true, Ordering::Relaxed);
        let Some(reads) = self.noted_reads() else { return Ok(()) };
        if reads.lock().add_key(&table.core, key) {
            self.hold(reads::key_cost(key)).inspect_err(|error| *self.too_large.lock() = Some(error.clone()))?;
        }
        Ok(())
    }

    /// Notes the walked part of a range. This cannot fail here: without room, the commit fails.
    fn note_range(&self, table: &Table, walked: Bounds) {
        let Some(reads) = self.noted_reads().filter(|_| !walked.is_empty()) else { return };
        match self.hold(reads::range_cost(&walked)) {
            Ok(()) => reads.lock().add_range(&table.core, walked),
            Err(error) => *self.too_large.lock() = Some(error),
        }
    }

    fn hold(&self, bytes: u64) -> Result<()> {
        self.hold_as(bytes, self.held.load(Ordering::Relaxed) == 0)
    }

    /// Whether the transaction holds nothing but locks.
    fn has_only_locks(&self) -> bool {
        let locks = || self.locks.iter().map(|(_, key)| writes::cost(key, None)).sum::<u64>();
        self.writes.is_empty() && self.held.load(Ordering::Relaxed) == locks()
    }

    /// Takes `bytes` of the budget of all transactions. What a transaction needs first of all is always granted: a
    /// write `by itself` is checked against the limits of a commit only, as a plain write is.
    fn hold_as(&self, bytes: u64, by_itself: bool) -> Result<()> {
        let engine = self.engine();
        let budget = &engine.transactions;
        if !budget.take(bytes, by_itself) {
            let (own, held) = (self.held.load(Ordering::Relaxed), budget.held());
            let error = Error::TransactionTooLarge { bytes, own, held, limit: budget.limit() };
            *self.conflict.lock() = Conflict::of(&error, None);
            return Err(error);
        }
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.balance();
        Ok(())
    }

    fn let_go(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.engine().transactions.give(bytes);
    }

    /// Has the buffer pool give the memory that all transactions need, or get it back.
    fn balance(&self) {
        let engine = self.engine();
        engine.transactions.balance(|bytes| engine.take_from_pool(Taker::Transactions, bytes));
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let engine = self.engine();
        self.locks.iter().for_each(|key| engine.recent.unlock(key));
        if self.reads.is_some() {
            engine.recent.ring().unwatch();
        }
        engine.transactions.give(self.held.load(Ordering::Relaxed));
        self.balance();
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Transaction").field("seq", &self.seq().0).field("options", &self.options).finish()
    }
}
