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

use std::{
    collections::BTreeMap,
    fmt,
    ops::RangeBounds,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::Guard;
use index::{Bounds, Horizon, Moment, RangeTombstones, Seq, Time};
use parking_lot::Mutex;
use serde::Serialize;

use crate::{
    Database, Error, Pinned, Range, Result, Table,
    catalog::{TableCore, TableState},
    clock::Clock,
    database::Handle,
    engine::Engine,
    table::{Then, prefix_bounds, range_bounds},
};

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
    fn take(&self, engine: &Engine, now: Option<Time>) -> Moment {
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

/// A hold on one moment: the versions that it sees stay until it goes.
pub(crate) struct Pin {
    handle: Arc<Handle>,
    moment: Moment,
    taken: Instant,
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

    /// Fails when `table` is not of its database.
    pub(crate) fn check_own(&self, table: &Table) -> Result<()> {
        if !std::ptr::eq(table.engine(), &*self.handle.engine) {
            return Err(Error::ForeignTable { name: table.name().to_owned() });
        }
        Ok(())
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.release();
    }
}

impl Then for Pin {
    fn of(&self, table: &Table) -> Result<(Guard<Arc<TableState>>, Moment)> {
        // Held before it is asked whether the table is live, and before what came of it since: what a later drop or rollback frees waits for this reader.
        let state = table.core.state.load();
        let live = self.handle.engine.check_live(&table.core);
        match table.core.last_at(self.seq()) {
            Some(last) => Ok((Guard::from_inner(last), self.moment)),
            None => live.map(|()| (state, self.moment)),
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

/// All tables as they were at one moment. Cheap to take and to clone; keeps its database open. Older versions of keys stay for as long as
/// it, or a range from it, is there: [`crate::Stats::snapshots`] says what that may take.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let users = db.table("users", braid::Structure::BTree)?;
/// users.put("ada", "1815")?;
/// let then = db.snapshot();
/// users.put("ada", "1852")?;
/// assert_eq!(then.get(&users, "ada")?.as_deref(), Some(&b"1815"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    pin: Arc<Pin>,
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

    fn release(&self, moment: Moment) {
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

impl Database {
    /// Everything as it is now, for as long as the snapshot is there. It costs the same whatever the database holds.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { pin: Pin::take(self.handle()) }
    }
}

impl Snapshot {
    /// The last commit that it sees.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.pin.seq()
    }

    /// How long ago it was taken.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.pin.taken.elapsed()
    }

    /// The value that `key` of `table` had.
    ///
    /// # Errors
    /// As [`Table::get`], and when the table is of another database. One that was dropped since is still there.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.pin.check_own(table)?;
        table.get_at(key.as_ref(), Some(&*self.pin))
    }

    /// Shows the value that `key` of `table` had to `look`, without a copy where it is in memory: see [`Table::get_with`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_with<R>(
        &self, table: &Table, key: impl AsRef<[u8]>, look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.pin.check_own(table)?;
        table.get_with_at(key.as_ref(), Some(&*self.pin), look)
    }

    /// The value that `key` of `table` had, to be kept without a copy where it is in memory.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_pinned(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.pin.check_own(table)?;
        table.get_pinned_at(key.as_ref(), Some(&*self.pin))
    }

    /// The values that many keys of `table` had, read as one batch.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        self.pin.check_own(table)?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        table.get_many_at(&keys, Some(&*self.pin))
    }

    /// The pairs that `table` had within `range`.
    ///
    /// # Errors
    /// When the table is of another database.
    pub fn range<K: AsRef<[u8]>>(&self, table: &Table, range: impl RangeBounds<K>) -> Result<Range> {
        self.walk(table, range_bounds(&range))
    }

    /// The pairs that `table` had whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.walk(table, prefix_bounds(prefix.as_ref()))
    }

    /// Every pair that `table` had.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn iter(&self, table: &Table) -> Result<Range> {
        self.walk(table, Bounds::all())
    }

    fn then(&self) -> Arc<dyn Then> {
        Arc::<Pin>::clone(&self.pin)
    }

    /// What it holds.
    pub(crate) fn pin(&self) -> &Pin {
        &self.pin
    }

    fn walk(&self, table: &Table, bounds: Bounds) -> Result<Range> {
        self.pin.check_own(table)?;
        Ok(Range::new(table.clone(), bounds, Some(self.then())))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Snapshot").field("seq", &self.pin.seq().0).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use crate::{Options, Structure};

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
