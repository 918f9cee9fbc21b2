//! Key ranges in which walks have found nothing, for later walks.
//!
//! 1. A consumer that takes the first of a queue of jobs, again and again, walks over every job that was deleted and
//!    not applied yet. So a walk that has passed over many keys notes where they were, and the next walk goes on behind
//!    them.
//! 2. A gap is a range delete that no user asked for, of the moment of the walk. It hides versions of that moment or
//!    older, and nothing newer. So a gap stays right under all later writes, and walks of older moments do not see it.
//! 3. A gap is for walks whose time is not before that of the walk that noted it, because both must take the same
//!    versions for expired.
//! 4. Where the structure gets something newer, gaps are cut. So the structure has nothing visible under the rest of a
//!    gap.
//!
//! Gaps are few, and in memory only. No version is dropped because of a gap.

use std::{collections::BTreeMap, sync::Arc};

use index::{Horizon, Moment, RangeTombstones, Seq, Time};

use crate::words::key_range::{KeyRange, behind};

/// Most fragments of gaps. When there are so many, all gaps are forgotten before another is noted. Also the most pairs
/// of seq and time.
const GAPS_MAX: usize = 64;

/// The gaps of a table.
#[derive(Clone, Default)]
pub(crate) struct Gaps {
    tombstones: Arc<RangeTombstones>,
    /// Pairs `(seq, time)`: gaps from `seq` on are only for walks whose time is `time` or later. Both rise.
    times: Vec<(Seq, Time)>,
}

impl Gaps {
    /// A reader at `at` sees nothing within `range`, and the structure has nothing newer there.
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

    /// Notes that the structure has versions of these keys now, of commits of these seqs.
    pub(crate) fn outgrow<'a>(&mut self, written: impl Iterator<Item = (&'a [u8], Seq)>) {
        if seeded::on(seeded::Bug::GapKept) {
            return;
        }
        let oldest = self.tombstones.fragments().iter().map(|gap| gap.newest()).min().unwrap_or(Seq::MAX);
        // By the low end of a gap: the lowest and the highest of these keys in the gap.
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

    /// The gaps as range tombstones, and the seq at which a walk at `at` looks at them; none without gaps.
    pub(crate) fn seen_at(&self, at: Moment) -> Option<(&Arc<RangeTombstones>, Seq)> {
        let too_late = self.times.iter().find(|(_, time)| *time > at.now);
        let seen = too_late.map_or(Seq::MAX, |&(seq, _)| Seq(seq.0.saturating_sub(1))).min(seq_behind(at));
        (!self.is_empty()).then_some((&self.tombstones, seen))
    }

    /// Whether there are no gaps.
    pub(crate) fn is_empty(&self) -> bool {
        self.tombstones.is_empty()
    }
}

/// The seq of a gap that a walk at `at` notes, as if the range had been deleted right behind the moment of the walk.
fn seq_behind(at: Moment) -> Seq {
    Seq(at.seq.0.saturating_add(1))
}
