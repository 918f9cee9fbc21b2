//! Single writes of a table, and conditional ones.

use std::ops::RangeBounds;

use index::Seq;

use crate::{
    commit::check_expires,
    error::Result,
    handles::{batch::WriteBatch, database::Database, table::Table},
    words::{clock::Expires, durability::Durability},
};

impl Table {
    /// Sets `key` to `value`, with the durability of the database. Returns the seq of the commit, its number in the
    /// order of all commits.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// let first = users.put("ada", "1815")?;
    /// let second = users.put("ada", "1852")?; // in place of the value before
    /// assert!(second > first);
    /// assert_eq!(users.get("ada")?, Some(b"1852".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Outside the limits, on a full disk, when a transaction keeps the key locked for too long, or when the database
    /// no longer writes: see [`crate::ErrorKind`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Seq> {
        self.put_with(key, value, self.durability())
    }

    /// Sets `key` to `value`, with the given durability.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use braid::Durability;
    /// let events = db.table("events", braid::Structure::BTree)?;
    /// events.put_with("1", "seen", Durability::Os)?; // no flush
    /// events.put_with("2", "paid", Durability::Sync)?; // a flush, which makes both durable
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// use std::time::Duration;
    /// # let clock = braid::ManualClock::new(std::time::SystemTime::now());
    /// # let db = braid::Options::new().clock(clock.clone()).open(&path)?;
    ///
    /// let sessions = db.table("sessions", braid::Structure::BTree)?;
    /// sessions.put_expiring("token", "ada", Duration::from_secs(1800))?;
    /// sessions.put_expiring("other", "grace", db.now() + Duration::from_secs(3600))?;
    /// clock.advance(Duration::from_secs(1800)); // a `ManualClock`
    /// assert_eq!((sessions.get("token")?, sessions.get("other")?), (None, Some(b"grace".to_vec())));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::put`]; [`crate::Error::Option`] for an expiry after a duration of zero.
    pub fn put_expiring(
        &self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: impl Into<Expires>,
    ) -> Result<Seq> {
        let mut batch = WriteBatch::new();
        batch.put_expiring(self, key, value, expires);
        self.engine().commit(&batch, self.durability())
    }

    /// Gives the value of `key` another expiry, as [`Table::put_expiring`] does with a new value. Returns whether there
    /// is a value. A value that is a document is neither read nor written again, however long it is. No other commit of
    /// the key comes between.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use std::time::Duration;
    ///
    /// let sessions = db.table("sessions", braid::Structure::BTree)?;
    /// let hour = Duration::from_secs(3600);
    /// sessions.put_expiring("ada", vec![0; 1 << 20], hour)?;
    /// assert!(sessions.renew("ada", 2 * hour)?); // writes a few bytes
    /// assert!(!sessions.renew("grace", hour)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::put_expiring`].
    pub fn renew(&self, key: impl AsRef<[u8]>, expires: impl Into<Expires>) -> Result<bool> {
        let mut transaction = Database::of(&self.handle).begin_with(self.transaction_options())?;
        let is_there = transaction.renew(self, key, expires)?;
        if is_there {
            transaction.commit()?;
        }
        Ok(is_there)
    }

    /// Deletes `key`. An absent key is no error.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// users.delete("ada")?;
    /// users.delete("ada")?;
    /// assert_eq!(users.get("ada")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::put`], but a full disk does not refuse a delete while the reserve for deletes lasts.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Seq> {
        self.delete_with(key, self.durability())
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
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let events = db.table("events", braid::Structure::BTree)?;
    /// for hour in 0..24_u32 {
    ///     events.put(hour.to_be_bytes(), "seen")?;
    /// }
    /// events.delete_range(..12_u32.to_be_bytes())?;
    /// assert_eq!(events.iter().count(), 12);
    /// events.delete_range::<&[u8]>(..)?; // bounds that name no key: their type has to be named
    /// assert!(events.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::delete`]; [`crate::Error::TooManyRangeDeletes`] while too many range deletes of the table are kept
    /// for older snapshots and transactions.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Seq> {
        let mut batch = WriteBatch::new();
        batch.delete_range(self, range);
        self.engine().commit(&batch, self.durability())
    }

    /// Deletes every key that begins with `prefix`, in the same way as [`Table::delete_range`].
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let files = db.table("files", braid::Structure::BTree)?;
    /// files.put("src/lib.rs", "")?;
    /// files.put("srcs", "")?;
    /// files.delete_prefix("src/")?;
    /// assert_eq!(files.iter().count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::delete_range`].
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Seq> {
        let mut batch = WriteBatch::new();
        batch.delete_prefix(self, prefix);
        self.engine().commit(&batch, self.durability())
    }

    /// Sets `key` to `new` if its present value is `expected`. With no `new` the key is deleted; no `expected` means an
    /// absent key. No other commit of the key comes between the comparison and the write. The new value expires when
    /// the one that it replaces would have.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::Swap;
    ///
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "draft")?;
    /// assert_eq!(users.compare_and_swap("ada", Some(b"draft"), Some(b"final"))?, Swap::Done);
    /// assert_eq!(users.compare_and_swap("ada", Some(b"draft"), None)?, Swap::Refused(Some(b"final".to_vec())));
    /// assert_eq!(users.compare_and_swap("ada", Some(b"final"), None)?, Swap::Done); // deleted
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn compare_and_swap(&self, key: impl AsRef<[u8]>, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.swap(key.as_ref(), expected, new, None)
    }

    /// As [`Table::compare_and_swap`], with a new expiry: as [`Table::put_expiring`].
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use std::time::Duration;
    ///
    /// let leases = db.table("leases", braid::Structure::BTree)?;
    /// let minute = Duration::from_secs(60);
    /// let taken = leases.put_if_absent_expiring("printer", "ada", minute)?;
    /// assert_eq!(taken, braid::Swap::Done);
    /// let longer = leases.compare_and_swap_expiring("printer", Some(b"ada"), b"ada", 2 * minute)?;
    /// assert_eq!(longer, braid::Swap::Done);
    /// assert!(matches!(leases.put_if_absent("printer", "grace")?, braid::Swap::Refused(Some(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::put_expiring`].
    pub fn compare_and_swap_expiring(
        &self, key: impl AsRef<[u8]>, expected: Option<&[u8]>, new: &[u8], expires: impl Into<Expires>,
    ) -> Result<Swap> {
        self.swap(key.as_ref(), expected, Some(new), Some(expires.into()))
    }

    /// Sets `key` to `value` if the key is absent.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use braid::Swap;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// assert_eq!(users.put_if_absent("ada", "1815")?, Swap::Done);
    /// assert_eq!(users.put_if_absent("ada", "1852")?, Swap::Refused(Some(b"1815".to_vec())));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Swap> {
        self.swap(key.as_ref(), None, Some(value.as_ref()), None)
    }

    /// Sets `key` to `value` if the key is absent, until the value expires: as [`Table::put_expiring`].
    /// [`Table::compare_and_swap_expiring`] has an example.
    ///
    /// # Errors
    /// As [`Table::put_expiring`].
    pub fn put_if_absent_expiring(
        &self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: impl Into<Expires>,
    ) -> Result<Swap> {
        self.swap(key.as_ref(), None, Some(value.as_ref()), Some(expires.into()))
    }

    /// Sets `key` to `new` if its value is `expected`, with an expiry, or else with that of the value before.
    fn swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>, expires: Option<Expires>) -> Result<Swap> {
        check_expires(expires)?;
        // A first look, which waits for nobody.
        let found = self.get(key)?;
        if found.as_deref() != expected {
            return Ok(Swap::Refused(found));
        }
        let mut transaction = Database::of(&self.handle).begin_with(self.transaction_options())?;
        let found = transaction.get_for_update(self, key)?;
        if found.as_deref() != expected {
            return Ok(Swap::Refused(found));
        }
        match new {
            Some(new) => {
                let kept = if expires.is_none() { transaction.expiry(self, key)? } else { None };
                transaction.put_until(self, key, new, expires.or(kept.map(Expires::At)))?;
            }
            None => transaction.delete(self, key)?,
        }
        transaction.commit()?;
        Ok(Swap::Done)
    }
}

/// Outcome of a conditional write.
///
/// A write that was refused says what is there, so that it can be tried again from that:
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use braid::Swap;
///
/// let counts = db.table("counts", braid::Structure::BTree)?;
/// let mut expected: Option<Vec<u8>> = None;
/// let count = loop {
///     let next = expected.as_ref().map_or(1, |count| count[0] + 1);
///     match counts.compare_and_swap("visits", expected.as_deref(), Some(&[next]))? {
///         Swap::Done => break next,
///         Swap::Refused(found) => expected = found,
///     }
/// };
/// assert_eq!(counts.get("visits")?, Some(vec![count])); // `Table::update` does the same
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The write was done.
    Done,
    /// Nothing was written, because the key has another value than expected: this one, or none.
    Refused(Option<Vec<u8>>),
}
