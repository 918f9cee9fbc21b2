//! Pending sweeps ([`crate::upkeep::sweep`]).

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use index::{Chosen, Seq, TableId};
use parking_lot::Mutex;

use crate::{engine::signal::Signal, tables::catalog::TableCore};

/// From this many range tombstone fragments of a table on, one sweep takes them all, with everything between them.
/// Waiting operations that keep them from being swept are applied first.
pub(crate) const MANY_FRAGMENTS: usize = 512;
/// Fragments of a table beyond which further range deletes have to wait.
pub(crate) const FRAGMENTS_MAX: usize = 8 * MANY_FRAGMENTS;

/// Most pieces of a table with expired values that are requested at a time.
pub(crate) const PIECES_MAX: usize = 256;

/// Keys of a table to be swept.
pub(crate) struct Sweep {
    pub(crate) table: Arc<TableCore>,
    pub(crate) low: Vec<u8>,
    /// The end of the keys, if there is one.
    pub(crate) high: Option<Vec<u8>>,
    /// Restricts the sweep to content that the structure has chosen.
    pub(crate) chosen: Option<Chosen>,
}

impl PartialEq for Sweep {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
            && (&self.low, &self.high, &self.chosen) == (&other.low, &other.high, &other.chosen)
    }
}

/// Pending sweeps, in the order in which they were requested.
#[derive(Default)]
pub(crate) struct Sweeps {
    pub(crate) asked: Mutex<VecDeque<Sweep>>,
    /// The oldest range delete that waits for older snapshots to go; 0 where none waits.
    pub(crate) waits: AtomicU64,
    /// Stretches that were swept for range tombstones.
    pub(crate) swept: AtomicU64,
    /// Tables that are being compacted.
    compacted: Mutex<Vec<TableId>>,
}

/// A compaction that is under way, until this is dropped.
pub(crate) struct Compacting<'a>(&'a Sweeps, Vec<TableId>);

impl Drop for Compacting<'_> {
    fn drop(&mut self) {
        let mut compacted = self.0.compacted.lock();
        for table in &self.1 {
            if let Some(place) = compacted.iter().position(|other| other == table) {
                compacted.swap_remove(place);
            }
        }
    }
}

/// Sweeps that give space back to a round that found the disk full.
#[derive(Default)]
pub(crate) struct Relief {
    pub(crate) left: VecDeque<Sweep>,
    /// Sweeps that found no space.
    pub(crate) again: VecDeque<Sweep>,
    /// All range deletes up to this one are, or were, among them.
    pub(crate) through: Seq,
    /// Deletes that were applied ahead of the puts they wait with, by table.
    pub(crate) ahead: HashMap<TableId, Ahead>,
}

/// How far deletes of a table were applied ahead of the puts they wait with: pass after pass, in key order.
#[derive(Default)]
pub(crate) struct Ahead {
    /// All deletes up to this one were.
    pub(crate) through: Seq,
    /// All deletes up to this one are applied in this pass, and so far those below the key; there is no pass if it is
    /// empty.
    pub(crate) newest: Seq,
    pub(crate) next: Vec<u8>,
}

impl Sweeps {
    /// Notes that no snapshot is older than `oldest`. Wakes the worker if a range delete waits for that.
    pub(crate) fn wake_waiting(&self, oldest: Seq, signal: &Signal) {
        let waits = self.waits.load(Ordering::Relaxed);
        if waits > 0 && waits <= oldest.0 && self.waits.swap(0, Ordering::Relaxed) > 0 {
            signal.kick();
        }
    }

    /// Notes the range delete that waits for older snapshots to go, if there is one. False where that wait is already
    /// over.
    ///
    /// `oldest` is called after the note is made, so a later release of a snapshot finds the note.
    pub(crate) fn wait_for(&self, delete: Option<Seq>, oldest: impl FnOnce() -> Seq) -> bool {
        self.waits.store(delete.map_or(0, |delete| delete.0), Ordering::Relaxed);
        delete.is_none_or(|delete| oldest() < delete)
    }

    /// Stretches that were ever swept for range tombstones. While this grows, the number of tombstones will fall.
    pub(crate) fn swept(&self) -> u64 {
        self.swept.load(Ordering::Relaxed)
    }
}

impl Sweeps {
    /// Marks these tables as being compacted, until the returned guard is dropped.
    pub(crate) fn compacting(&self, tables: &[Arc<TableCore>]) -> Compacting<'_> {
        let tables: Vec<_> = tables.iter().map(|table| table.id).collect();
        self.compacted.lock().extend_from_slice(&tables);
        Compacting(self, tables)
    }

    /// Whether the table is being compacted.
    pub(crate) fn is_compacted(&self, table: &TableCore) -> bool {
        self.compacted.lock().contains(&table.id)
    }

    /// Forgets all requests for a table, because the whole table is about to be rewritten.
    pub(crate) fn forget(&self, table: &Arc<TableCore>) {
        self.asked.lock().retain(|sweep| !Arc::ptr_eq(&sweep.table, table));
    }

    /// Forgets the requests for what a table's structure has chosen.
    pub(crate) fn forget_chosen(&self, table: &Arc<TableCore>) {
        self.asked.lock().retain(|sweep| sweep.chosen.is_none() || !Arc::ptr_eq(&sweep.table, table));
    }

    /// Whether a sweep is pending.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.asked.lock().is_empty()
    }
}
