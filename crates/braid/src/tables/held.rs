//! The lock of a table, as a value.
//!
//! Whoever has a [`HeldTable`] is the only one to change the structure of the table, its view, and which queues it has.
//! Commits go on adding to the active queues, and range tombstones come with them.
//!
//! Locks are taken in the order upkeep ([`crate::engine::upkeep`]), stretches ([`crate::engine::stretches`]), tables,
//! superblock. Who changes a structure while a database serves has the first or the second one too.

use std::{ops::Deref, sync::Arc};

use index::{RangeTombstones, Seq, View};
use parking_lot::MutexGuard;

use crate::{
    opq::{Frozen, Sections},
    tables::catalog::TableCore,
};

/// A table that is held.
pub(crate) struct HeldTable<'a> {
    table: &'a TableCore,
    _one: MutexGuard<'a, ()>,
}

impl Deref for HeldTable<'_> {
    type Target = TableCore;

    fn deref(&self) -> &TableCore {
        self.table
    }
}

impl TableCore {
    /// Holds the table, once nobody else does.
    pub(crate) fn hold(&self) -> HeldTable<'_> {
        HeldTable { table: self, _one: self.held.lock() }
    }

    /// Whether somebody holds the table now.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_locked()
    }
}

/// Holds all of these tables, of which no two are the same.
pub(crate) fn hold_all(tables: &[Arc<TableCore>]) -> Vec<HeldTable<'_>> {
    tables.iter().map(|table| table.hold()).collect()
}

impl HeldTable<'_> {
    /// Makes another state current.
    pub(crate) fn replace_state(&self, active: Arc<Sections>, frozen: Option<Arc<Frozen>>, view: Arc<dyn View>) {
        self.replace_state_and(active, frozen, view, |_| {});
    }

    /// Makes another state current, and changes its range tombstones if there are any.
    pub(crate) fn replace_state_and(
        &self, active: Arc<Sections>, frozen: Option<Arc<Frozen>>, view: Arc<dyn View>,
        change: impl FnOnce(&mut RangeTombstones),
    ) {
        self.table.put_changed(active, frozen, view, change);
    }

    /// Makes another state current, with other range tombstones; no operation waits in it.
    pub(crate) fn replace_whole(&self, active: Arc<Sections>, view: Arc<dyn View>, tombstones: RangeTombstones) {
        self.table.put_whole(active, view, tombstones);
    }

    /// Makes another state current, whose structure has the versions `written` now.
    pub(crate) fn replace_applied<'a, W: Iterator<Item = (&'a [u8], Seq)>>(
        &self, active: Arc<Sections>, frozen: Option<Arc<Frozen>>, view: Arc<dyn View>, written: impl Fn() -> W,
    ) {
        self.table.put_applied(active, frozen, view, written);
    }
}
