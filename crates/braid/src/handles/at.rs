//! A table as it was at a retained state.

use std::{ops::RangeBounds, sync::Arc, time::SystemTime};

use arc_swap::Guard;
use index::{Bounds, Moment, Seq};

use crate::{
    error::Result,
    handles::{range::Range, table::Table},
    read::{pinned::Pinned, point, then::Then},
    tables::{
        catalog::{TableCore, TableState},
        history::CommitHeader,
        retained::Opened,
    },
    words::key_range::{prefix_bounds, range_bounds},
};

impl Then for Opened {
    fn of(&self, _: &TableCore) -> Result<(Guard<Arc<TableState>>, Moment)> {
        Ok((Guard::from_inner(Arc::clone(&self.state)), Moment { seq: self.header.seq, now: self.header.time }))
    }
}

/// A table as of a retained state: see [`Table::at`]. Cheap to clone; keeps the database open and the state readable.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// # use braid::{Structure, TableOptions};
/// let pages = db.table_with("pages", Structure::Append, &TableOptions::new().history(10))?;
/// pages.put("/", "first")?;
/// db.checkpoint()?; // retains a state
/// pages.delete("/")?;
/// let then = pages.at(pages.history()[0].seq)?;
/// assert_eq!(then.iter().count(), 1);
/// assert_eq!(then.get("/")?.as_deref(), Some(&b"first"[..]));
/// assert_eq!(then.header().keys, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TableAt {
    table: Table,
    opened: Arc<Opened>,
}

impl Table {
    /// Opens the state of `seq`, one of [`Table::history`].
    ///
    /// The open state stays readable after it is no longer retained, and after the table is dropped. While the state is
    /// open, no space of the table is released.
    ///
    /// # Errors
    /// [`crate::Error::NoSuchState`] when no state of that seq is retained; when the table was dropped.
    pub fn at(&self, seq: Seq) -> Result<TableAt> {
        // The state is opened before the check for a drop, so that space freed by a later drop waits for this reader.
        let opened = Arc::new(self.core.open_state(seq)?);
        self.engine().check_live(&self.core)?;
        Ok(TableAt { table: self.clone(), opened })
    }
}

impl TableAt {
    /// Header of the state.
    #[must_use]
    pub fn header(&self) -> CommitHeader {
        self.opened.commit_header
    }

    /// The value of `key` in the state.
    ///
    /// # Errors
    /// When storage fails, or stored data is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.table.get_at(key.as_ref(), Some(&*self.opened))
    }

    /// Passes the value of `key` in the state to `look`, without a copy if found in memory: see [`Table::get_with`].
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.table.get_with_at(key.as_ref(), Some(&*self.opened), look)
    }

    /// The value of `key` in the state, to be kept without a copy if found in memory.
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.table.get_pinned_at(key.as_ref(), Some(&*self.opened))
    }

    /// Whether there is a value of `key` in the state. A large value is not read.
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        point::contains(self.table.engine(), &self.table.core, key.as_ref(), Some(&*self.opened))
    }

    /// The values of many keys in the state, read as one batch.
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        point::read_many(self.table.engine(), &self.table.core, &keys, Some(&*self.opened))
    }

    /// As [`TableAt::get_many`], each value to be kept without a copy if it is a large one and cached.
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn get_many_pinned<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Pinned>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.table.get_many_pinned_at(&keys, Some(&*self.opened))
    }

    /// Time at which the value of `key` in the state expires. None without an expiry, and for a key absent from the
    /// state.
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        point::expiry(self.table.engine(), &self.table.core, key.as_ref(), Some(&*self.opened))
    }

    /// The pairs of the state with keys within `range`.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        self.walk(range_bounds(&range))
    }

    /// The pairs of the state with keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.walk(prefix_bounds(prefix.as_ref()))
    }

    /// Every pair of the state.
    #[must_use]
    pub fn iter(&self) -> Range {
        self.walk(Bounds::all())
    }

    fn walk(&self, bounds: Bounds) -> Range {
        let then: Arc<dyn Then> = Arc::<Opened>::clone(&self.opened);
        Range::new(self.table.clone(), bounds, Some(then))
    }
}

impl std::fmt::Debug for TableAt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, seq) = (self.table.name(), self.opened.header.seq.0);
        formatter.debug_struct("TableAt").field("table", &name).field("seq", &seq).finish()
    }
}
