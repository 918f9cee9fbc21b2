//! Snapshots: the database at one moment, which is a seq and a time, for as long as the snapshot is held.
//!
//! 1. Taking a snapshot reads the visible seq and the clock, and registers both in [`Snapshots`], in one step.
//! 2. A reader with a snapshot takes its table's newest state, like any reader, and looks at the snapshot's moment in
//!    that state.
//!
//! Left to others: which versions stay for the snapshots ([`crate::engine::horizon`]).

use std::{collections::BTreeMap, time::Instant};

use index::{Moment, Seq, Time};
use parking_lot::Mutex;

use crate::words::clock::Clock;

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
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
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
    /// Registers one more snapshot of a moment. `moment` is called while no other snapshot is taken or released, and
    /// `user_bytes`, the bytes committed so far, for the first snapshot of the moment.
    pub(crate) fn take(&self, moment: impl FnOnce() -> Moment, user_bytes: impl FnOnce() -> u64) -> Moment {
        let mut held = self.held.lock();
        let moment = moment();
        let first = || Held { count: 0, since: Instant::now(), user_bytes: user_bytes() };
        held.entry(moment).or_insert_with(first).count += 1;
        moment
    }

    /// Unregisters one snapshot of `moment`. Where that was the last one of the oldest seq, returns the seq that is the
    /// oldest now.
    pub(super) fn release(&self, moment: Moment) -> Option<Seq> {
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
    pub(super) fn moments(&self, clock: &Clock) -> (Vec<Moment>, Time) {
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
