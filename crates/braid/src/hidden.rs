//! What range deletes hide from a walk.

use std::{ops::Bound, sync::Arc};

use index::{Bounds, Direction, Fragment, Horizon, RangeTombstones, Seq};

use crate::key_range::KeyRange;

/// The range deletes that a walk comes to.
pub(crate) struct Hidden {
    tombstones: Arc<RangeTombstones>,
    at: Seq,
}

impl Hidden {
    /// What a walk within `bounds` at `at` does not see of what `tombstones` delete, nor of what is `deleted` besides; none where that is nothing.
    pub(crate) fn new(
        tombstones: &Arc<RangeTombstones>, deleted: Option<&RangeTombstones>, bounds: &Bounds, at: Seq,
    ) -> Option<Self> {
        let hidden = match deleted {
            None => Self { tombstones: Arc::clone(tombstones), at },
            Some(deleted) => {
                // As if it had been deleted right behind what the walk sees.
                let (mut all, after) = (tombstones.seen_at(at), Seq(at.0.saturating_add(1)));
                let horizon = Horizon { visible: Seq::MAX, ..Horizon::default() };
                deleted
                    .fragments()
                    .iter()
                    .for_each(|fragment| all.add(&fragment.low, fragment.high.as_deref(), after, &horizon));
                Self { tombstones: Arc::new(all), at: after }
            }
        };
        if hidden.tombstones.is_empty() {
            return None;
        }
        let KeyRange { low, high } = KeyRange::of(bounds)?;
        (!hidden.tombstones.within(&low, high.as_deref()).is_empty()).then_some(hidden)
    }

    /// Whether a version is hidden.
    pub(crate) fn hides(&self, key: &[u8], seq: Seq) -> bool {
        self.tombstones.hides(key, seq, self.at)
    }

    /// What is left of `bounds` without the keys at both ends under which all of the structure is hidden.
    pub(crate) fn clip(&self, bounds: &Bounds) -> Bounds {
        let Some(mut range) = KeyRange::of(bounds) else { return bounds.clone() };
        while let Some(bare) = self.bare(self.tombstones.of_key(&range.low)) {
            match &bare.high {
                Some(high) if index::is_below(high, range.high.as_deref()) => range.low.clone_from(high),
                _ => return nothing(range.low),
            }
        }
        while let Some(bare) =
            self.bare(self.tombstones.within(&range.low, range.high.as_deref()).last().map(|last| &**last))
        {
            let ends_there = match (&bare.high, &range.high) {
                (None, _) => true,
                (Some(end), Some(high)) => high <= end,
                (Some(_), None) => false,
            };
            if !ends_there {
                break;
            }
            range.high = Some(bare.low.clone());
        }
        range.to_bounds()
    }

    /// What comes of `bounds` in this direction behind the keys that are hidden with `key`, if all of the structure is hidden there.
    pub(crate) fn behind(&self, key: &[u8], bounds: &Bounds, direction: Direction) -> Option<Bounds> {
        let bare = self.bare(self.tombstones.of_key(key))?;
        let rest = match (direction, &bare.high) {
            (Direction::Forward, None) => return Some(nothing(key.to_vec())),
            (Direction::Forward, Some(high)) => {
                Bounds { lower: Bound::Included(high.clone()), upper: bounds.upper.clone() }
            }
            (Direction::Backward, _) => {
                Bounds { lower: bounds.lower.clone(), upper: Bound::Excluded(bare.low.clone()) }
            }
        };
        Some(if rest.is_empty() { nothing(key.to_vec()) } else { self.clip(&rest) })
    }

    /// Up to where nothing is hidden behind `key` in this direction, if there is an end to it; none at all where something is right there.
    #[expect(clippy::option_option, reason = "whether there is such a stretch, and whether it ends")]
    pub(crate) fn free_until(&self, key: &[u8], direction: Direction) -> Option<Option<&[u8]>> {
        let (low, high) = match self.tombstones.of_key(key) {
            Some(fragment) if fragment.newest_at(self.at).is_some() => return None,
            Some(fragment) => (Some(&fragment.low), fragment.high.as_ref()),
            None => {
                let before = self.tombstones.last_begun(key).and_then(|fragment| fragment.high.as_ref());
                (before, self.tombstones.first_above(key).map(|fragment| &fragment.low))
            }
        };
        Some(match direction {
            Direction::Forward => high.map(Vec::as_slice),
            Direction::Backward => low.map(Vec::as_slice),
        })
    }

    fn bare<'a>(&self, fragment: Option<&'a Fragment>) -> Option<&'a Fragment> {
        fragment.filter(|fragment| fragment.is_bare(self.at))
    }
}

/// No keys.
fn nothing(at: Vec<u8>) -> Bounds {
    Bounds { lower: Bound::Included(at.clone()), upper: Bound::Excluded(at) }
}
