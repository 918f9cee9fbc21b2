//! Runs a transaction until it commits.
//!
//! 1. After a conflict the work runs anew, after a short random wait that grows.
//! 2. After [`LOCK_AFTER`] conflicts, the keys that were changed by others are locked before the work runs, in the
//!    order of keys. Locks are passed on in turn, so each of many transactions over one key gets there.
//! 3. A run that shows one more such key is progress. Runs that show none are bounded.

use std::{collections::BTreeSet, time::Duration};

use super::{Transaction, TransactionOptions, conflict::Conflict};
use crate::{
    commit::validate::Changed,
    engine::recent::LockKey,
    error::{Error, Result},
    handles::database::Database,
    words::unforeseen,
};

/// Most times that [`Database::run`] begins anew without having learned of another contended key.
const RUN_ATTEMPTS: u32 = 100;
/// The turn at a contended key is waited for this many times as long as for a lock.
const PATIENCE: u32 = 30;
/// Conflicts after which keys are locked.
const LOCK_AFTER: u32 = 3;
const FIRST_BACKOFF: Duration = Duration::from_micros(50);
/// Number of times that the wait doubles.
const BACKOFF_DOUBLINGS: u32 = 8;

impl Database {
    /// Runs `work` in a transaction and commits. After a conflict with another transaction, `work` runs anew, also
    /// where it met the conflict itself, in [`Transaction::get_for_update`], and returned an error for it. Side effects
    /// of `work` happen on each run.
    ///
    /// After a few conflicts the keys that others changed are locked before `work` runs. So a transaction over keys
    /// that many threads change gets its turn, and does not give up.
    ///
    /// A lock is the transaction's, not the thread's. A plain [`Table::put`](crate::Table::put) or
    /// [`Table::update`](crate::Table::update) inside `work`, of a key that its transaction has locked, waits for
    /// [`Options::lock_timeout`](crate::Options::lock_timeout) and fails with [`Error::LockTimeout`]: write through the
    /// transaction.
    ///
    /// `work` may fail with any error that can be made from [`Error`]. Where nothing names the type, name it with the
    /// value: `Ok::<_, braid::Error>(..)`.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let counts = db.table("counts", braid::Structure::BTree)?;
    /// let count = db.run(|tx| {
    ///     let count = tx.get(&counts, "visits")?.map_or(0, |count| count[0]) + 1;
    ///     tx.put(&counts, "visits", [count])?;
    ///     Ok::<_, braid::Error>(count)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An error of its own rolls back:
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// #[derive(Debug)]
    /// enum Refused {
    ///     Poor(u8),
    ///     Store(braid::Error),
    /// }
    /// impl From<braid::Error> for Refused {
    ///     fn from(error: braid::Error) -> Self {
    ///         Self::Store(error)
    ///     }
    /// }
    /// let accounts = db.table("accounts", braid::Structure::BTree)?;
    /// accounts.put("ada", [2])?;
    /// let taken = db.run(|tx| {
    ///     let has = tx.get(&accounts, "ada")?.map_or(0, |balance| balance[0]);
    ///     tx.put(&accounts, "ada", [has.checked_sub(3).ok_or(Refused::Poor(has))?])?;
    ///     Ok(())
    /// });
    /// assert!(matches!(taken, Err(Refused::Poor(2))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `work`; the error of the commit; the last conflict, after `work` was begun anew a hundred times in
    /// vain, which hardly anything but conflicts over ranges comes to; [`Error::LockTimeout`], for contended keys after
    /// thirty times the lock timeout.
    pub fn run<T, E: From<Error>>(&self, work: impl FnMut(&mut Transaction) -> Result<T, E>) -> Result<T, E> {
        self.run_with(TransactionOptions::new(), work)
    }

    /// As [`Database::run`], with options, as in the example of [`TransactionOptions`].
    ///
    /// # Errors
    /// As [`Database::run`] and [`Database::begin_with`].
    pub fn run_with<T, E: From<Error>>(
        &self, options: TransactionOptions, mut work: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut conflicts, mut fruitless, mut keys) = (0, 0, BTreeSet::new());
        loop {
            let (error, conflict) = match self.attempt(options, &mut work, &keys, conflicts >= LOCK_AFTER) {
                Ok(value) => return Ok(value),
                Err(refused) => refused,
            };
            let Some(Conflict { changed }) = conflict.filter(|_| fruitless < RUN_ATTEMPTS) else { return Err(error) };
            conflicts += 1;
            let has_learned = changed.is_some_and(|key| keys.insert(key));
            if conflicts < LOCK_AFTER || !has_learned {
                let longest = FIRST_BACKOFF * (1 << fruitless.min(BACKOFF_DOUBLINGS));
                let nanoseconds = u64::try_from(longest.as_nanos()).expect("milliseconds");
                std::thread::sleep(Duration::from_nanos(unforeseen::numbers().below(nanoseconds)));
                fruitless += 1;
            }
        }
    }

    /// Runs `work` once, with these keys locked if they are to be.
    fn attempt<T, E: From<Error>>(
        &self, options: TransactionOptions, work: &mut impl FnMut(&mut Transaction) -> Result<T, E>,
        keys: &BTreeSet<LockKey>, locks: bool,
    ) -> Result<T, (E, Option<Conflict>)> {
        let mut changed = None;
        let begun = self.begin_with(options).and_then(|mut transaction| {
            if locks {
                transaction.lock_ahead(keys)?;
            }
            Ok(transaction)
        });
        let mut transaction = begun.map_err(|error| of_store(error, None))?;
        let value = work(&mut transaction).map_err(|error| (error, transaction.conflict.get_mut().take()))?;
        let placed = transaction.place(&mut changed);
        let settled = placed.and_then(|submitted| transaction.settle(&submitted));
        settled.map(|_| value).map_err(|error| of_store(error, changed))
    }
}

fn of_store<E: From<Error>>(error: Error, changed: Changed) -> (E, Option<Conflict>) {
    let conflict = Conflict::of(&error, changed);
    (error.into(), conflict)
}

impl Transaction {
    /// Locks keys before anything is read, in the order of all keys, so that two transactions do not wait for each
    /// other here. The snapshot is then newer than their newest commits.
    fn lock_ahead(&mut self, keys: &BTreeSet<LockKey>) -> Result<()> {
        for (id, key) in keys {
            let table = self.engine().catalog.read().by_id(*id).map(|table| table.name.clone());
            if let Some(name) = table {
                let timeout = self.lock_timeout().saturating_mul(PATIENCE);
                self.lock_within(&name, (*id, key.clone()), timeout)?;
            }
        }
        self.renew_snapshot(keys.iter().map(|(table, key)| (*table, key.as_slice())))
    }
}
