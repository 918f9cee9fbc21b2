//! What is to be swept ([`crate::upkeep::sweep`]).

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use doclog::SegmentId;
use index::{Seq, TableId};
use parking_lot::Mutex;

use crate::{
    engine::{Engine, signal::Signal},
    tables::catalog::TableCore,
};

/// Fragments of a table's range tombstones at which they are swept at once with all that is between them, and what waits is applied for them.
pub(crate) const MANY_FRAGMENTS: usize = 512;
/// A table may have so many before more range deletes have to wait.
pub(crate) const FRAGMENTS_MAX: usize = 8 * MANY_FRAGMENTS;

/// Keys of a table that are to be swept.
pub(crate) struct Sweep {
    pub(crate) table: Arc<TableCore>,
    pub(crate) low: Vec<u8>,
    /// Where they end, if they do.
    pub(crate) high: Option<Vec<u8>>,
    /// Of these only what is in some files of the structure.
    pub(crate) only: Option<Arc<BTreeSet<SegmentId>>>,
}

impl PartialEq for Sweep {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
            && (&self.low, &self.high, &self.only) == (&other.low, &other.high, &other.only)
    }
}

/// What is to be swept, in the order in which it was asked for.
#[derive(Default)]
pub(crate) struct Sweeps {
    pub(crate) asked: Mutex<VecDeque<Sweep>>,
    /// The oldest range delete that waits for older snapshots to go; 0 where none does.
    pub(crate) waits: AtomicU64,
    /// Range tombstones are looked at first in the next turn.
    pub(crate) tombstones_first: AtomicBool,
    /// Stretches that were swept for range tombstones.
    pub(crate) swept: AtomicU64,
    pub(crate) relief: Mutex<Relief>,
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

/// What gives space back to a round that found none.
#[derive(Default)]
pub(crate) struct Relief {
    pub(crate) left: VecDeque<Sweep>,
    /// There was no space for these.
    pub(crate) again: VecDeque<Sweep>,
    /// Of range deletes up to this one all are, or were, among them.
    pub(crate) through: Seq,
}

impl Sweeps {
    /// No snapshot is older than `oldest` any more: wakes the worker if something waits for that.
    pub(crate) fn wake_waiting(&self, oldest: Seq, signal: &Signal) {
        let waits = self.waits.load(Ordering::Relaxed);
        if waits > 0 && waits <= oldest.0 && self.waits.swap(0, Ordering::Relaxed) > 0 {
            signal.kick();
        }
    }

    /// Notes that a range delete waits for older snapshots to go. Whether it does: the `oldest` is looked at after that is noted, so that
    /// whoever lets go of it later finds the note.
    pub(crate) fn wait_for(&self, delete: Option<Seq>, oldest: impl FnOnce() -> Seq) -> bool {
        self.waits.store(delete.map_or(0, |delete| delete.0), Ordering::Relaxed);
        delete.is_none_or(|delete| oldest() < delete)
    }

    /// Stretches that were swept for range tombstones, ever: while it grows, their number will fall.
    pub(crate) fn swept(&self) -> u64 {
        self.swept.load(Ordering::Relaxed)
    }
}

impl Sweeps {
    /// These tables are being compacted, as long as there is what this returns.
    pub(crate) fn compacting(&self, tables: &[Arc<TableCore>]) -> Compacting<'_> {
        let tables: Vec<_> = tables.iter().map(|table| table.id).collect();
        self.compacted.lock().extend_from_slice(&tables);
        Compacting(self, tables)
    }

    /// Whether one is.
    pub(crate) fn is_compacted(&self, table: &TableCore) -> bool {
        self.compacted.lock().contains(&table.id)
    }

    /// Forgets what of a table was asked for: all of it is about to be rewritten.
    pub(crate) fn forget(&self, table: &Arc<TableCore>) {
        self.asked.lock().retain(|sweep| !Arc::ptr_eq(&sweep.table, table));
    }

    /// Forgets the files of a table's structure that were asked for.
    pub(crate) fn forget_files(&self, table: &Arc<TableCore>) {
        self.asked.lock().retain(|sweep| sweep.only.is_none() || !Arc::ptr_eq(&sweep.table, table));
    }

    /// Whether anything is to be swept.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.asked.lock().is_empty()
    }
}

impl Engine {
    /// Has the keys from `low` to below `high` swept; where they wait already, that is enough.
    pub(crate) fn sweep(&self, table: &Arc<TableCore>, low: &[u8], high: Option<&[u8]>) {
        if table.is_damaged() {
            return;
        }
        let mut asked = self.sweeps.asked.lock();
        let has = |sweep: &Sweep| {
            let ends_there = |end: &Vec<u8>| high.is_some_and(|high| high <= end.as_slice());
            Arc::ptr_eq(&sweep.table, table)
                && sweep.only.is_none()
                && sweep.low.as_slice() <= low
                && sweep.high.as_ref().is_none_or(ends_there)
        };
        if !asked.iter().any(has) {
            let (low, high) = (low.to_vec(), high.map(<[u8]>::to_vec));
            asked.push_back(Sweep { table: Arc::clone(table), low, high, only: None });
            drop(asked);
            self.signal.kick();
        }
    }

    /// Has files of a table's structure swept, instead of those that wait already.
    pub(crate) fn sweep_files(&self, table: &Arc<TableCore>, files: BTreeSet<SegmentId>) {
        if table.is_damaged() || files.is_empty() {
            return;
        }
        self.sweeps.forget_files(table);
        let (low, only) = (Vec::new(), Some(Arc::new(files)));
        self.sweeps.asked.lock().push_back(Sweep { table: Arc::clone(table), low, high: None, only });
        self.signal.kick();
    }
}
