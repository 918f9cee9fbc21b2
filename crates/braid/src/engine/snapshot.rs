//! Snapshots: the database as it was at one moment, which is a seq and a time, for as long as somebody holds it.
//!
//! 1. Taking one is reading the visible seq and the clock and noting both in [`Snapshots`], in one step.
//! 2. A reader with a snapshot takes its table's newest state, like any reader, and looks at the snapshot's moment in it.
//! 3. Whoever drops older versions (rounds, compactions, sweeps) asks for the [`Engine::horizon`] first, and keeps what it sees.
//!
//! Invariant: who asks for the horizon has fixed before which commits it merges, all of them visible by then. So a snapshot that is
//! noted too late to be in the horizon is of a seq from which on it sees the newest of what is merged, and of a time at which all has expired that the
//! merge finds expired: and that is kept for everybody. One of an earlier time ([`Pin::take_at_time_of`]) is in the horizon by another of that time, with an
//! older seq: of what is younger than that, at least that it was there is kept.

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

/// What is held of older states. What a round finds shadowed is kept while one of these sees it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SnapshotStats {
    /// Snapshots and transactions, each seq once.
    pub open: u64,
    /// Seq of the oldest.
    pub oldest_seq: Option<u64>,
    /// Age of the oldest, in seconds.
    pub oldest_seconds: f64,
    /// Bytes of keys and values committed since the oldest was taken: older versions that are kept for all of them take at most about as many as
    /// what replaced them, or as the largest values that were replaced.
    pub written_since_oldest_bytes: u64,
}

impl Snapshots {
    /// Notes one more snapshot of what is visible now, as it is at `now`, or else at this very time.
    pub(crate) fn take(&self, engine: &Engine, now: Option<Time>) -> Moment {
        let mut held = self.held.lock();
        let moment = Moment { seq: engine.publisher.visible(), now: now.unwrap_or_else(|| engine.clock.now()) };
        let first = || Held { count: 0, since: Instant::now(), user_bytes: engine.counters.user_bytes() };
        held.entry(moment).or_insert_with(first).count += 1;
        moment
    }

    /// One snapshot of `moment` less. Where it was the last one of the oldest seq: which is the oldest now.
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

    /// Every seq that is held, rising.
    pub(crate) fn seqs(&self) -> Vec<Seq> {
        self.held.lock().keys().map(|moment| moment.seq).collect()
    }

    /// Everything that is held, and what time it is.
    fn moments(&self, clock: &Clock) -> (Vec<Moment>, Time) {
        // The time is asked while nobody can take a snapshot, so that none that is missing here is of an earlier one.
        let held = self.held.lock();
        (held.keys().copied().collect(), clock.now())
    }

    /// The oldest seq that is held.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        self.held.lock().first_key_value().map(|(moment, _)| moment.seq)
    }

    /// What is held.
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

/// A hold of the engine's own on what is visible: what it sees stays until it goes.
pub(crate) struct Hold<'a> {
    engine: &'a Engine,
    moment: Moment,
}

impl Hold<'_> {
    /// What it holds.
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
    /// Holds what is visible now.
    pub(crate) fn hold(&self) -> Hold<'_> {
        Hold { engine: self, moment: self.snapshots.take(self, None) }
    }

    /// Forgets what only snapshots see of a table that are not there any more.
    pub(crate) fn forget_last(&self, table: &TableCore) {
        let visible = self.publisher.visible();
        table.forget_last(visible, self.snapshots.oldest());
    }

    pub(crate) fn release(&self, moment: Moment) {
        if let Some(oldest) = self.snapshots.release(moment) {
            self.sweeps.wake_waiting(oldest, &self.signal);
        }
    }

    /// What has to stay of a table, for who has fixed by now what it merges.
    pub(crate) fn horizon(&self, table: &TableCore) -> Horizon {
        self.horizon_at(table, || self.publisher.visible())
    }

    fn horizon_at(&self, table: &TableCore, visible: impl FnOnce() -> Seq) -> Horizon {
        // A range delete is there before it is visible, so none that counts is missing; a snapshot that comes after this look sees them all.
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
        // Who looks is interrupted by a delete.
        let horizon = engine.horizon_at(&table.core, || {
            table.delete_range("a".."z").expect("deleted");
            engine.publisher.visible()
        });
        assert!(horizon.visible > put && horizon.is_hidden(b"key", put));
    }
}
