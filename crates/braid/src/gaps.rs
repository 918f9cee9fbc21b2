//! Keys under which walks have found nothing, for the walks behind them.
//!
//! 1. Who takes the first of a queue of jobs, again and again, walks over every job that was deleted and not applied yet. So a walk that has passed over many notes
//!    where they were, and the next one goes on behind them.
//! 2. A gap is a range delete that nobody asked for, of the moment of the walk: it hides what is of that moment or older, and nothing newer. So it stays right
//!    whatever is written, and to walks of older moments it is not there.
//! 3. What a walk took for expired, others have to take for that too: gaps are for walks whose time is not before that of any who noted one.
//!
//! Gaps are few, and in memory only. No version is dropped for them.

use std::sync::Arc;

use index::{Horizon, Moment, RangeTombstones, Seq, Time};

use crate::key_range::KeyRange;

/// More are forgotten.
const GAPS_MAX: usize = 64;

/// The gaps of a table.
#[derive(Clone, Default)]
pub(crate) struct Gaps {
    /// The latest time at which one was found.
    now: Time,
    tombstones: Arc<RangeTombstones>,
}

impl Gaps {
    /// Nothing of what a reader at `at` sees is within `range`, and the structure has nothing newer there.
    pub(crate) fn note(&mut self, range: &KeyRange, at: Moment) {
        let (low, high, behind) = (&range.low, range.high.as_deref(), Seq(at.seq.0.saturating_add(1)));
        if self.tombstones.within(low, high).iter().any(|gap| gap.newest() > behind) {
            return;
        }
        if self.tombstones.fragments().len() >= GAPS_MAX {
            *self = Self::default();
        }
        // Only the newest of a key counts.
        let horizon = Horizon { visible: Seq::MAX, ..Horizon::default() };
        Arc::make_mut(&mut self.tombstones).add(low, high, behind, &horizon);
        self.now = self.now.max(at.now);
    }

    /// The structure may have versions of these keys, of commits of these seqs.
    pub(crate) fn outgrow<'a>(&mut self, written: impl Iterator<Item = (&'a [u8], Seq)>) {
        if seeded::on(seeded::Bug::GapKept) {
            return;
        }
        let gaps = Arc::make_mut(&mut self.tombstones);
        written.for_each(|(key, seq)| gaps.outgrow(key, seq));
    }

    /// What is hidden from a walk at `at`, in the terms of range deletes: none where nothing is.
    pub(crate) fn seen_at(&self, at: Moment) -> Option<(&Arc<RangeTombstones>, Seq)> {
        let is_seen = !self.is_empty() && at.now >= self.now;
        is_seen.then(|| (&self.tombstones, Seq(at.seq.0.saturating_add(1))))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.tombstones.is_empty()
    }
}
