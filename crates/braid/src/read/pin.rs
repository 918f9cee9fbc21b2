//! A hold on one moment, by who reads at it.

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
    engine::handle::Handle,
    error::Result,
    read::then::Then,
    tables::catalog::{TableCore, TableState},
};

/// A hold on one moment: the versions that it sees stay until it goes.
pub(crate) struct Pin {
    handle: Arc<Handle>,
    moment: Moment,
    pub(crate) taken: Instant,
    released: AtomicBool,
}

impl Pin {
    /// Holds what is visible now.
    pub(crate) fn take(handle: &Arc<Handle>) -> Arc<Self> {
        Self::take_as_of(handle, None)
    }

    /// Holds what is visible now, as it was at the time of `other`, which is held.
    pub(crate) fn take_at_time_of(other: &Self) -> Arc<Self> {
        Self::take_as_of(&other.handle, Some(other.moment.now))
    }

    fn take_as_of(handle: &Arc<Handle>, now: Option<Time>) -> Arc<Self> {
        let moment = handle.engine.snapshots.take(&handle.engine, now);
        Arc::new(Self { handle: Arc::clone(handle), moment, taken: Instant::now(), released: AtomicBool::new(false) })
    }

    /// The seq that it holds.
    pub(crate) const fn seq(&self) -> Seq {
        self.moment.seq
    }

    /// The handle that it was taken through.
    pub(crate) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Nobody reads what it holds any more, though it is still there.
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
        // Held before it is asked whether the table is live, and before what came of it since: what a later drop or rollback frees waits for this reader.
        let state = table.state.load();
        let live = self.handle.engine.check_live(table);
        match table.last_at(self.seq()) {
            Some(last) => Ok((Guard::from_inner(last), self.moment)),
            None => live.map(|()| (state, self.moment)),
        }
    }
}
