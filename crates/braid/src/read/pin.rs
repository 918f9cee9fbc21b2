//! A hold on one moment, for its readers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use arc_swap::Guard;
use index::{Moment, Seq, Time};

use crate::{
    engine::handle::{Handle, Hold, Kind},
    error::Result,
    read::then::Then,
    tables::catalog::{TableCore, TableState},
};

/// A hold on one moment: the versions visible at that moment stay until the pin is released.
pub(crate) struct Pin {
    handle: Hold,
    moment: Moment,
    pub(crate) taken: Instant,
    released: AtomicBool,
}

impl Pin {
    /// Pins the visible moment.
    pub(crate) fn take(handle: &Arc<Handle>) -> Arc<Self> {
        Self::take_as_of(handle, None)
    }

    /// Pins the visible seq with the time of `other`, which is held.
    pub(crate) fn take_at_time_of(other: &Self) -> Arc<Self> {
        Self::take_as_of(&other.handle, Some(other.moment.now))
    }

    fn take_as_of(handle: &Arc<Handle>, now: Option<Time>) -> Arc<Self> {
        let moment = handle.engine.take_snapshot(now);
        let handle = Hold::new(handle, Kind::Pin);
        Arc::new(Self { handle, moment, taken: Instant::now(), released: AtomicBool::new(false) })
    }

    /// The pinned seq.
    pub(crate) const fn seq(&self) -> Seq {
        self.moment.seq
    }

    /// The handle that the pin was taken through.
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Releases the moment: no reader needs it any more, though the pin still exists.
    pub(crate) fn release(&self) {
        if !self.released.swap(true, Ordering::Relaxed) {
            self.handle.engine.release(self.moment);
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.release();
    }
}

impl Then for Pin {
    fn of(&self, table: &TableCore) -> Result<(Guard<Arc<TableState>>, Moment)> {
        // The state is held before the table is checked to be live, and before later drops and rollbacks are looked up.
        // So the files that a later drop or rollback frees wait for this reader.
        let state = table.state.load();
        let live = self.handle.engine.check_live(table);
        match table.last_at(self.seq()) {
            Some(last) => Ok((Guard::from_inner(last), self.moment)),
            None => live.map(|()| (state, self.moment)),
        }
    }
}
