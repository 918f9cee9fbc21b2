//! Single writes of a table, and conditional ones.

use std::ops::RangeBounds;

use index::Seq;

use crate::{
    error::{Error, Result},
    handles::{batch::WriteBatch, database::Database, table::Table},
    words::{clock::Expires, durability::Durability},
};

impl Table {
    /// Sets `key` to `value`, with the durability of the database. Returns the seq of the commit, its number in the
    /// order of all commits.
    ///
    /// # Errors
    /// Outside the limits, on a full disk, when a transaction keeps the key locked for too long, or when the database
    /// no longer writes: see [`crate::ErrorKind`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Seq> {
        self.put_with(key, value, self.engine().options.durability)
    }

    /// Sets `key` to `value`, with the given durability.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, durability: Durability) -> Result<Seq> {
        let mut batch = WriteBatch::new();
        batch.put(self, key, value);
        self.engine().commit(&batch, durability)
    }

    /// Sets `key` to `value` until the value expires: after a [`Duration`](std::time::Duration) from the commit on, or
    /// at a [`SystemTime`](std::time::SystemTime).
    ///
    /// An expired value counts as deleted. Later writes of the key replace both value and expiry, also writes without
    /// an expiry. The space of expired values is released over time. Snapshots taken before the expiry see the value as
    /// long as they exist.
    ///
    /// # Errors
    /// As [`Table::put`]; [`Error::Option`] for an expiry after a duration of zero.
    pub fn put_expiring(
        &self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: impl Into<Expires>,
    ) -> Result<Seq> {
        let mut batch = WriteBatch::new();
        batch.put_expiring(self, key, value, expires);
        self.engine().commit(&batch, self.engine().options.durability)
    }

    /// Deletes `key`. An absent key is no error.
    ///
    /// # Errors
    /// As [`Table::put`], but a full disk does not refuse a delete while the reserve for deletes lasts.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Seq> {
        self.delete_with(key, self.engine().options.durability)
    }

    /// Deletes `key`, with the given durability.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<Seq> {
        let mut batch = WriteBatch::new();
        batch.delete(self, key);
        self.engine().commit(&batch, durability)
    }

    /// Deletes every key within `range`. The cost does not depend on the number of keys, because their space is
    /// released in the background.
    ///
    /// # Errors
    /// As [`Table::delete`]; [`Error::TooManyRangeDeletes`] while too many range deletes of the table are kept for
    /// older snapshots and transactions.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Seq> {
        let mut batch = WriteBatch::new();
        batch.delete_range(self, range);
        self.engine().commit(&batch, self.engine().options.durability)
    }

    /// Deletes every key that begins with `prefix`, in the same way as [`Table::delete_range`].
    ///
    /// # Errors
    /// As [`Table::delete_range`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Seq> {
        let mut batch = WriteBatch::new();
        batch.delete_prefix(self, prefix);
        self.engine().commit(&batch, self.engine().options.durability)
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
}

/// Outcome of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The write was done.
    Done,
    /// Nothing was written, because the key has another value than expected: this one, or none.
    Refused(Option<Vec<u8>>),
}
