//! A table as it was at a retained state.

use std::{ops::RangeBounds, sync::Arc, time::SystemTime};

use arc_swap::Guard;
use index::{Bounds, Moment, Seq};

use crate::{
    error::Result,
    handles::{
        range::Range,
        table::{Table, prefix_bounds, range_bounds},
    },
    read::{pinned::Pinned, point, then::Then},
    tables::{
        catalog::{TableCore, TableState},
        history::{CommitHeader, Opened},
    },
};

impl Then for Opened {
    fn of(&self, _: &TableCore) -> Result<(Guard<Arc<TableState>>, Moment)> {
        Ok((Guard::from_inner(Arc::clone(&self.state)), Moment { seq: self.header.seq, now: self.header.time }))
    }
}

/// A table as it was at a state that was retained: see [`Table::at`]. Cheap to clone; keeps its database open, and the state there.
#[derive(Clone)]
pub struct TableAt {
    table: Table,
    opened: Arc<Opened>,
}

impl Table {
    /// Opens the state of `seq`, one of [`Table::history`]. It goes on being there when it is not retained any more, and when the table is dropped; as long as it is open
    /// nothing of the table gives its space back.
    ///
    /// # Errors
    /// [`crate::Error::NoSuchState`] when none of that seq is retained; when the table was dropped.
    pub fn at(&self, seq: Seq) -> Result<TableAt> {
        // Held before it is asked whether the table is live: what a later drop frees waits for this reader.
        let opened = Arc::new(self.core.open_state(seq)?);
        self.engine().check_live(&self.core)?;
        Ok(TableAt { table: self.clone(), opened })
    }
}

impl TableAt {
    /// Which state it is.
    #[must_use]
    pub fn header(&self) -> CommitHeader {
        self.opened.commit_header
    }

    /// The value that `key` had.
    ///
    /// # Errors
    /// When storage fails, or what it holds is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.table.get_at(key.as_ref(), Some(&*self.opened))
    }

    /// Shows the value that `key` had to `look`, without a copy where it is in memory: see [`Table::get_with`].
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, look: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.table.get_with_at(key.as_ref(), Some(&*self.opened), look)
    }

    /// The value that `key` had, to be kept without a copy where it is in memory.
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.table.get_pinned_at(key.as_ref(), Some(&*self.opened))
    }

    /// The values that many keys had, read as one batch.
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        point::read_many(self.table.engine(), &self.table.core, &keys, Some(&*self.opened))
    }

    /// When the value that `key` had expires; none where it does not, or there was none.
    ///
    /// # Errors
    /// As [`TableAt::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        point::expiry(self.table.engine(), &self.table.core, key.as_ref(), Some(&*self.opened))
    }

    /// The pairs that there were within `range`.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        self.walk(range_bounds(&range))
    }

    /// The pairs that there were whose keys begin with `prefix`.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.walk(prefix_bounds(prefix.as_ref()))
    }

    /// Every pair that there was.
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
