//! Snapshots: the database at one moment, which is a seq and a time, for as long as the snapshot is held.
//!
//! 1. Taking a snapshot reads the visible seq and the clock, and registers both in [`Snapshots`], in one step.
//! 2. A reader with a snapshot takes its table's newest state, like any reader, and looks at the snapshot's moment in
//!    that state.
//! 3. A merge that drops older versions (round, compaction, sweep) asks for the [`Engine::horizon`] first, and keeps
//!    all versions that the horizon sees.
//!
//! Invariant. A merge runs in this order: (1) it fixes its input; (2) every commit of the input is visible; (3) the
//! merge reads the *horizon*, that is all held moments and `now`. A snapshot `s` registered after (3) therefore has
//! `s.seq ≥` every input seq and `s.time ≥ now`. `s` needs only the newest input version of each key, which a merge
//! keeps for every reader. A value that the merge finds expired has expired for `s` as well.
//!
//! The exception is `Pin::take_at_time_of`, which registers a newer seq with the *older* time of a pin `p`. `p` is held
//! meanwhile, so its time is in the horizon. Of versions newer than `p.seq` the merge keeps at least the fact that the
//! key was written.

use std::{collections::BTreeMap, time::Instant};

use index::{Horizon, Moment, RangeTombstones, Seq, Time};
use parking_lot::Mutex;
use serde::Serialize;

use crate::{engine::Engine, tables::catalog::TableCore, words::clock::Clock};

/// Snapshots of one moment.
struct Held {
    count: usize,
    since: Instant,
    /// Bytes that had been committed when the first of them was taken.
    user_bytes: u64,
}

/// The snapshots that are held, those of transactions included.
#[derive(Default)]
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<Moment, Held>>,
}

/// Statistics of the older states that snapshots hold. A shadowed version is kept while a snapshot sees that version.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SnapshotStats {
    /// Open snapshots and transactions; those of one seq count once.
    pub open: u64,
    /// Seq of the oldest.
    pub oldest_seq: Option<u64>,
    /// Age of the oldest, in seconds.
    pub oldest_seconds: f64,
    /// Bytes of keys and values committed since the oldest was taken. The older versions that are kept for all of them
    /// take at most about as many bytes as their replacements, or as the largest replaced values.
    pub written_since_oldest_bytes: u64,
}

impl Snapshots {
    /// Registers one more snapshot of the visible state, at the time `now`, or else at the clock's.
    pub(crate) fn take(&self, engine: &Engine, now: Option<Time>) -> Moment {
        let mut held = self.held.lock();
        let moment = Moment { seq: engine.publisher.visible(), now: now.unwrap_or_else(|| engine.clock.now()) };
        let first = || Held { count: 0, since: Instant::now(), user_bytes: engine.counters.user_bytes() };
        held.entry(moment).or_insert_with(first).count += 1;
        moment
    }

    /// Unregisters one snapshot of `moment`. Where that was the last one of the oldest seq, returns the seq that is the
    /// oldest now.
    fn release(&self, moment: Moment) -> Option<Seq> {
        let mut held = self.held.lock();
        let of_moment = held.get_mut(&moment)?;
        of_moment.count -= 1;
        if of_moment.count > 0 {
            return None;
        }
        let was_oldest = held.first_key_value().is_some_and(|(first, _)| *first == moment);
        held.remove(&moment);
        let oldest = held.first_key_value().map_or(Seq::MAX, |(first, _)| first.seq);
        (was_oldest && oldest > moment.seq).then_some(oldest)
    }

    /// Every held seq, rising.
    pub(crate) fn seqs(&self) -> Vec<Seq> {
        self.held.lock().keys().map(|moment| moment.seq).collect()
    }

    /// Every held moment, and the current time.
    fn moments(&self, clock: &Clock) -> (Vec<Moment>, Time) {
        // The clock is read while no snapshot can be taken, so a snapshot that is missing here has no earlier time.
        let held = self.held.lock();
        (held.keys().copied().collect(), clock.now())
    }

    /// The oldest seq that is held.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        self.held.lock().first_key_value().map(|(moment, _)| moment.seq)
    }

    /// Statistics of the held snapshots.
    pub(crate) fn stats(&self, user_bytes: u64) -> SnapshotStats {
        let held = self.held.lock();
        let Some((moment, oldest)) = held.first_key_value() else { return SnapshotStats::default() };
        let (mut open, mut last) = (0, None);
        for moment in held.keys() {
            open += u64::from(last.replace(moment.seq) != Some(moment.seq));
        }
        SnapshotStats {
            open,
            oldest_seq: Some(moment.seq.0),
            oldest_seconds: oldest.since.elapsed().as_secs_f64(),
            written_since_oldest_bytes: user_bytes.saturating_sub(oldest.user_bytes),
        }
    }
}

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
    /// Holds the visible state.
    pub(crate) fn hold(&self) -> Hold<'_> {
        Hold { engine: self, moment: self.snapshots.take(self, None) }
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
