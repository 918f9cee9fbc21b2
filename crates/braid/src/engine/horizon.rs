//! Horizons: which versions stay for the moments that are held.
//!
//! A merge that drops older versions (round, compaction, sweep) asks for the [`Engine::horizon`] first, and keeps all
//! versions that the horizon sees.
//!
//! Invariant. A merge runs in this order: (1) it fixes its input; (2) every commit of the input is visible; (3) the
//! merge reads the *horizon*, that is all held moments and `now`. A snapshot `s` registered after (3) therefore has
//! `s.seq ≥` every input seq and `s.time ≥ now`. `s` needs only the newest input version of each key, which a merge
//! keeps for every reader. A value that the merge finds expired has expired for `s` as well.
//!
//! The exception is `Pin::take_at_time_of`, which registers a newer seq with the *older* time of a pin `p`. `p` is held
//! meanwhile, so its time is in the horizon. Of versions newer than `p.seq` the merge keeps at least the fact that the
//! key was written.

use index::{Horizon, Moment, RangeTombstones, Seq, Time};

use crate::{engine::Engine, tables::catalog::TableCore};

/// A pin of the engine's own on the visible state: the versions that the pin sees stay until the pin goes.
pub(crate) struct Hold<'a> {
    engine: &'a Engine,
    moment: Moment,
}

impl Hold<'_> {
    /// The moment that is held.
    pub(crate) const fn moment(&self) -> Moment {
        self.moment
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.engine.release(self.moment);
    }
}

impl Engine {
    /// Registers one more snapshot of the visible state, at the time `now`, or else at the clock's.
    pub(crate) fn take_snapshot(&self, now: Option<Time>) -> Moment {
        let moment = || Moment { seq: self.publisher.visible(), now: now.unwrap_or_else(|| self.clock.now()) };
        self.snapshots.take(moment, || self.counters.user_bytes())
    }

    /// Holds the visible state.
    pub(crate) fn hold(&self) -> Hold<'_> {
        Hold { engine: self, moment: self.take_snapshot(None) }
    }

    /// Forgets the older states of `table` that no snapshot can see any more.
    pub(crate) fn forget_last(&self, table: &TableCore) {
        let visible = self.publisher.visible();
        table.forget_last(visible, self.snapshots.oldest());
    }

    pub(crate) fn release(&self, moment: Moment) {
        if let Some(oldest) = self.snapshots.release(moment) {
            self.sweeps.wake_waiting(oldest, &self.signal);
        }
    }

    /// The horizon of a table, for a merge that has fixed its input by now.
    pub(crate) fn horizon(&self, table: &TableCore) -> Horizon {
        self.horizon_at(table, || self.publisher.visible())
    }

    fn horizon_at(&self, table: &TableCore, visible: impl FnOnce() -> Seq) -> Horizon {
        // A range delete is registered before it becomes visible, so no delete that counts is missing here. A snapshot
        // taken after this look sees all of these deletes.
        let visible = visible();
        let tombstones = RangeTombstones::clone(&table.state.load().tombstones);
        let (mut moments, now) = self.snapshots.moments(&self.clock);
        if seeded::on(seeded::Bug::ExpiredForAll) {
            moments.iter_mut().for_each(|moment| moment.now = now);
        }
        Horizon { tombstones, visible, ..Horizon::new(moments, now) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use crate::{options::Options, words::structure::Structure};

    #[test]
    fn a_horizon_has_every_range_delete_that_is_visible_in_it() {
        let options = Options::new().background(false);
        let database = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = database.table("table", Structure::BTree).expect("created");
        let engine = table.engine();
        table.put("key", "value").expect("put");
        let put = engine.publisher.visible();
        // A delete comes in the middle of the look.
        let horizon = engine.horizon_at(&table.core, || {
            table.delete_range("a".."z").expect("deleted");
            engine.publisher.visible()
        });
        assert!(horizon.visible > put && horizon.is_hidden(b"key", put));
    }
}
