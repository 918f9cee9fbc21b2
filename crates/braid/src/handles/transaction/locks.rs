//! Keys that a transaction locks before it commits.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use index::TableId;

use crate::{
    commit::{
        not_locked,
        validate::{self, Changed},
    },
    engine::recent::LockKey,
    error::{Error, Result},
    handles::{
        table::Table,
        transaction::{Transaction, conflict::Conflict, writes},
    },
    read::pin::Pin,
};

impl Transaction {
    /// Locks `key` until the transaction ends and returns its newest value. No other commit can write the key
    /// meanwhile, so this transaction's commit is in no conflict over the key. Waits for another holder of the lock.
    ///
    /// The effect on the snapshot depends on earlier reads:
    ///
    /// - A transaction that has read nothing yet gets a new snapshot, as of now, for all its reads.
    /// - A transaction that has read keeps its snapshot, and is in conflict where the key was changed since the begin.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// # use std::time::Duration;
    /// # let db = braid::Options::new().lock_timeout(Duration::from_millis(20)).open(&path)?;
    /// let stock = db.table("stock", braid::Structure::BTree)?;
    /// stock.put("apples", [3])?;
    /// let mut tx = db.begin()?;
    /// let left = tx.get_for_update(&stock, "apples")?.map_or(0, |count| count[0]);
    /// // Other transactions and plain writes of the key wait, here in vain for the lock timeout.
    /// assert!(matches!(stock.put("apples", [9]), Err(braid::Error::LockTimeout { .. })));
    /// tx.put(&stock, "apples", [left - 1])?;
    /// tx.commit()?; // in no conflict over the key
    /// assert_eq!(stock.get("apples")?, Some(vec![2]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LockTimeout`], [`Error::Deadlock`], [`Error::Conflict`]; as [`Transaction::get`] and
    /// [`Transaction::put`].
    pub fn get_for_update(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        let found = self.get_many_for_update(table, &[key])?;
        Ok(found.into_iter().next().flatten())
    }

    /// Locks many keys at once and returns their newest values. The keys are locked in key order, so two transactions
    /// that lock the same keys in one call each do not wait for each other.
    ///
    /// As [`Transaction::get_for_update`]. A separate call for a second key keeps the snapshot of the first call, so
    /// that second key is either unchanged or in conflict.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let accounts = db.table("accounts", braid::Structure::BTree)?;
    /// accounts.put("ada", [10])?;
    /// let mut tx = db.begin()?;
    /// let balances = tx.get_many_for_update(&accounts, &["ada", "grace"])?;
    /// assert_eq!(balances, [Some(vec![10]), None]);
    /// tx.put(&accounts, "ada", [7])?;
    /// tx.put(&accounts, "grace", [3])?;
    /// tx.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`].
    pub fn get_many_for_update<K: AsRef<[u8]>>(&mut self, table: &Table, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut sorted: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        sorted.sort_unstable();
        sorted.dedup();
        self.lock_for_update(table, &sorted)?;
        self.get_many(table, keys)
    }

    /// Locks keys, which rise, and makes sure that the snapshot has their newest versions.
    pub(super) fn lock_for_update(&mut self, table: &Table, keys: &[&[u8]]) -> Result<()> {
        let mut changed = None;
        let locked = self.lock_newest(table, keys, &mut changed);
        self.noting(locked, changed)
    }

    /// Notes whether the outcome is a conflict, and over which key.
    pub(super) fn noting(&mut self, outcome: Result<()>, changed: Changed) -> Result<()> {
        *self.conflict.get_mut() = outcome.as_ref().err().and_then(|error| Conflict::of(error, changed));
        outcome
    }

    /// As `lock_for_update`. Sets `changed` to a key of which the snapshot has not the newest version.
    fn lock_newest(&mut self, table: &Table, keys: &[&[u8]], changed: &mut Changed) -> Result<()> {
        for key in keys {
            self.check_write(table, key, None)?;
            self.lock(table.name(), (table.core.id, key.to_vec()))?;
        }
        table.core.check_not_loading()?;
        let (engine, core) = (self.engine(), &table.core);
        if !self.has_read.load(Ordering::Relaxed) {
            return self.renew_snapshot(keys.iter().map(|key| (core.id, *key)));
        }
        if core.loaded() > self.pin.seq() {
            return Err(Error::conflict(table.name(), "the whole", None));
        }
        keys.iter().try_for_each(|key| validate::look_up_one(engine, self.pin.seq(), core, key, changed))
    }

    /// Takes a new snapshot, which has every commit of some locked keys.
    pub(super) fn renew_snapshot<'a>(&mut self, locked: impl Iterator<Item = (TableId, &'a [u8])>) -> Result<()> {
        let engine = self.engine();
        let newest = locked.map(|(table, key)| engine.recent.newest(engine.recent.place(table, key))).max();
        validate::wait_until_visible(engine, newest.unwrap_or_default())?;
        self.pin = Pin::take(self.pin.handle());
        Ok(())
    }

    /// Takes this transaction's turn among those that remove pairs at an end of a table, and a snapshot in which all
    /// before are done. Nothing was read yet. The lock is that of a key which no table can have.
    pub(crate) fn lock_pops(&mut self, table: &Table) -> Result<()> {
        self.check_table(table)?;
        let turn = (table.core.id, Vec::new());
        let locked = self.lock(table.name(), turn.clone());
        self.noting(locked, Some(turn))?;
        self.renew_snapshot(std::iter::empty())
    }

    /// Locks a key of the table called `name`.
    pub(super) fn lock(&mut self, name: &str, key: LockKey) -> Result<()> {
        self.lock_within(name, key, self.lock_timeout())
    }

    pub(super) fn lock_within(&mut self, name: &str, key: LockKey, timeout: Duration) -> Result<()> {
        if self.locks.contains(&key) {
            return Ok(());
        }
        let bytes = writes::cost(&key.1, None);
        self.hold(bytes)?;
        let locked = self.engine().recent.lock(key.clone(), self.owner, Instant::now().checked_add(timeout));
        if let Err(refused) = locked {
            self.let_go(bytes);
            return Err(not_locked(refused, name, &key.1, timeout));
        }
        self.locks.insert(key);
        Ok(())
    }

    pub(super) fn lock_timeout(&self) -> Duration {
        self.options.lock_timeout.unwrap_or(self.engine().options.lock_timeout)
    }
}
