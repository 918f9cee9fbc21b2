//! Keys under which walks have found nothing, for the walks behind them.
//!
//! 1. Who takes the first of a queue of jobs, again and again, walks over every job that was deleted and not applied yet. So a walk that has passed over many notes
//!    where they were, and the next one goes on behind them.
//! 2. A gap is a range delete that nobody asked for, of the moment of the walk: it hides what is of that moment or older, and nothing newer. So it stays right
//!    whatever is written, and to walks of older moments it is not there.
//! 3. What a walk took for expired, others have to take for that too: a gap is for walks whose time is not before that of the walk that noted it.
//! 4. Where the structure gets something newer, gaps are cut: so under what is left of one it has nothing that is seen.
//!
//! Gaps are few, and in memory only. No version is dropped for them.

use std::{collections::BTreeMap, sync::Arc};

use index::{Horizon, Moment, RangeTombstones, Seq, Time};

use crate::words::key_range::{KeyRange, behind};

/// More are forgotten.
const GAPS_MAX: usize = 64;

/// The gaps of a table.
#[derive(Clone, Default)]
pub(crate) struct Gaps {
    tombstones: Arc<RangeTombstones>,
    /// From which time on gaps are there, by the oldest of their moments that it holds for; both rise.
    times: Vec<(Seq, Time)>,
}

impl Gaps {
    /// Nothing of what a reader at `at` sees is within `range`, and the structure has nothing newer there.
    pub(crate) fn note(&mut self, range: &KeyRange, at: Moment) {
        let (low, high, seq) = (&range.low, range.high.as_deref(), seq_behind(at));
        if self.tombstones.within(low, high).iter().any(|gap| gap.newest() > seq) {
            return;
        }
        if self.tombstones.fragments().len() >= GAPS_MAX {
            *self = Self::default();
        }
        let horizon = Horizon { visible: Seq::MAX, ..Horizon::default() };
        Arc::make_mut(&mut self.tombstones).add(low, high, seq, &horizon);
        self.note_time(seq, at.now);
    }

    fn note_time(&mut self, seq: Seq, time: Time) {
        if time == Time(0) || self.times.iter().any(|&(older, later)| older <= seq && later >= time) {
            return;
        }
        self.times.retain(|&(newer, earlier)| newer < seq || earlier > time);
        let place = self.times.partition_point(|&(older, _)| older < seq);
        self.times.insert(place, (seq, time));
        if self.times.len() > GAPS_MAX {
            self.times[1].0 = self.times[0].0;
            self.times.remove(0);
        }
    }

    /// The structure has versions of these keys now, of commits of these seqs.
    pub(crate) fn outgrow<'a>(&mut self, written: impl Iterator<Item = (&'a [u8], Seq)>) {
        if seeded::on(seeded::Bug::GapKept) {
            return;
        }
        let oldest = self.tombstones.fragments().iter().map(|gap| gap.newest()).min().unwrap_or(Seq::MAX);
        // By the low end of a gap: the lowest and the highest of these keys in it.
        let mut newer: BTreeMap<&[u8], (&[u8], &[u8])> = BTreeMap::new();
        for (key, seq) in written.filter(|(_, seq)| *seq >= oldest) {
            if let Some(gap) = self.tombstones.of_key(key).filter(|gap| gap.newest() <= seq) {
                let (lowest, highest) = newer.entry(&gap.low).or_insert((key, key));
                (*lowest, *highest) = (key.min(*lowest), key.max(*highest));
            }
        }
        let newer: Vec<_> = newer.into_values().collect();
        let gaps = Arc::make_mut(&mut self.tombstones);
        newer.into_iter().for_each(|(lowest, highest)| gaps.clear(lowest, Some(&behind(highest)), Seq::MAX));
    }

    /// What is hidden from a walk at `at`, in the terms of range deletes: none where nothing is.
    pub(crate) fn seen_at(&self, at: Moment) -> Option<(&Arc<RangeTombstones>, Seq)> {
        let too_late = self.times.iter().find(|(_, time)| *time > at.now);
        let seen = too_late.map_or(Seq::MAX, |&(seq, _)| Seq(seq.0.saturating_sub(1))).min(seq_behind(at));
        (!self.is_empty()).then_some((&self.tombstones, seen))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.tombstones.is_empty()
    }
}

/// The seq of a gap that a walk at `at` notes: as if what it saw had been deleted right behind that.
fn seq_behind(at: Moment) -> Seq {
    Seq(at.seq.0.saturating_add(1))
}
