//! Snapshots, as users hold them.

use std::{
    fmt,
    ops::RangeBounds,
    sync::Arc,
    time::{Duration, SystemTime},
};

use index::{Bounds, Seq};

use crate::{
    error::Result,
    handles::{database::Database, range::Range, table::Table},
    read::{pin::Pin, pinned::Pinned, point, then::Then},
    words::key_range::{prefix_bounds, range_bounds},
};

/// All tables as they were at one moment. A snapshot is cheap to take and to clone, and keeps its database open. Older
/// versions of keys stay as long as the snapshot, or a range from the snapshot, exists: [`crate::Stats::snapshots`]
/// tells how much space that may take.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let users = db.table("users", braid::Structure::BTree)?;
/// users.put("ada", "1815")?;
/// let then = db.snapshot();
/// users.put("ada", "1852")?;
/// assert_eq!(then.get(&users, "ada")?.as_deref(), Some(&b"1815"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    pin: Arc<Pin>,
}

impl Database {
    /// A snapshot of all tables as they are now. The cost does not depend on the size of the database.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { pin: Pin::take(self.handle()) }
    }
}

impl Snapshot {
    /// The last commit that the snapshot sees.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.pin.seq()
    }

    /// The time since the snapshot was taken.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.pin.taken.elapsed()
    }

    /// The value that `key` of `table` had.
    ///
    /// # Errors
    /// As [`Table::get`], and when the table is of another database. A table that was dropped since is still readable.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        table.check_own(&self.pin)?;
        table.get_at(key.as_ref(), Some(&*self.pin))
    }

    /// Shows the value that `key` of `table` had to `look`, without a copy where the value is in memory: see
    /// [`Table::get_with`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_with<R>(
        &self, table: &Table, key: impl AsRef<[u8]>, look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        table.check_own(&self.pin)?;
        table.get_with_at(key.as_ref(), Some(&*self.pin), look)
    }

    /// The value that `key` of `table` had, to be kept without a copy where the value is in memory.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_pinned(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        table.check_own(&self.pin)?;
        table.get_pinned_at(key.as_ref(), Some(&*self.pin))
    }

    /// Whether `key` of `table` had a value. A large value is not read.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains_key(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        table.check_own(&self.pin)?;
        point::contains(table.engine(), &table.core, key.as_ref(), Some(&*self.pin))
    }

    /// Time at which the value that `key` of `table` had expires. None without an expiry, and for an absent key.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use std::time::Duration;
    /// let sessions = db.table("sessions", braid::Structure::BTree)?;
    /// sessions.put_expiring("token", "ada", Duration::from_secs(60))?;
    /// let then = db.snapshot();
    /// sessions.put("token", "ada")?;
    /// assert!(then.expiry(&sessions, "token")?.is_some() && sessions.expiry("token")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn expiry(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        table.check_own(&self.pin)?;
        point::expiry(table.engine(), &table.core, key.as_ref(), Some(&*self.pin))
    }

    /// The values that many keys of `table` had, read as one batch.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        table.check_own(&self.pin)?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        point::read_many(table.engine(), &table.core, &keys, Some(&*self.pin))
    }

    /// As [`Snapshot::get_many`], each value to be kept without a copy if it is a large one and cached.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let pages = db.table("pages", braid::Structure::BTree)?;
    /// pages.put("/", vec![7; 1 << 20])?;
    /// let then = db.snapshot();
    /// pages.delete("/")?;
    /// let found = then.get_many_pinned(&pages, &["/", "/absent"])?;
    /// assert_eq!(found.iter().flatten().map(|page| page.len()).sum::<usize>(), 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_many_pinned<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<Vec<Option<Pinned>>> {
        table.check_own(&self.pin)?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        table.get_many_pinned_at(&keys, Some(&*self.pin))
    }

    /// The pairs that `table` had within `range`. Where the table is of another database, the range shows that error.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// users.put("grace", "1906")?;
    /// let then = db.snapshot();
    /// users.delete("grace")?;
    /// let late = then.range(&users, "b"..).collect::<braid::Result<Vec<_>>>()?;
    /// assert_eq!(late, [(b"grace".to_vec(), b"1906".to_vec())]);
    /// assert_eq!((then.iter(&users).count(), users.iter().count()), (2, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, table: &Table, range: impl RangeBounds<K>) -> Range {
        self.walk(table, range_bounds(&range))
    }

    /// The pairs that `table` had whose keys begin with `prefix`.
    #[must_use]
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Range {
        self.walk(table, prefix_bounds(prefix.as_ref()))
    }

    /// Every pair that `table` had.
    #[must_use]
    pub fn iter(&self, table: &Table) -> Range {
        self.walk(table, Bounds::all())
    }

    fn then(&self) -> Arc<dyn Then> {
        Arc::<Pin>::clone(&self.pin)
    }

    /// The pin of the snapshot.
    pub(crate) fn pin(&self) -> &Pin {
        &self.pin
    }

    fn walk(&self, table: &Table, bounds: Bounds) -> Range {
        match table.check_own(&self.pin) {
            Ok(()) => Range::new(table.clone(), bounds, Some(self.then())),
            Err(error) => Range::failed(table.clone(), error),
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Snapshot").field("seq", &self.pin.seq().0).finish_non_exhaustive()
    }
}
