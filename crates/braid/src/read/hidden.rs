//! The versions that range deletes hide from a walk.

use std::{ops::Bound, sync::Arc};

use index::{Bounds, Direction, Fragment, Horizon, Moment, RangeTombstones, Seq};

use crate::{opq::Passed, tables::gaps::Gaps, words::key_range::KeyRange};

/// The range deletes within the bounds of a walk.
pub(crate) struct Hidden {
    layers: Vec<Layer>,
}

/// Range tombstones, and the seq at which a walk looks at them.
struct Layer {
    tombstones: Arc<RangeTombstones>,
    at: Seq,
}

impl Hidden {
    /// The keys that a walk within `bounds` at `at` does not see: those under `tombstones`, those `deleted` besides,
    /// and those that `gaps` say are gone. None if nothing is hidden.
    pub(crate) fn new(
        tombstones: &Arc<RangeTombstones>, deleted: Option<&RangeTombstones>, gaps: Option<&Gaps>, bounds: &Bounds,
        at: Moment,
    ) -> Option<Self> {
        if tombstones.is_empty() && deleted.is_none() && gaps.is_none_or(Gaps::is_empty) {
            return None;
        }
        let own = match deleted {
            None => Layer { tombstones: Arc::clone(tombstones), at: at.seq },
            Some(deleted) => {
                // As if `deleted` had been deleted right behind the moment of the walk.
                let (mut all, after) = (tombstones.seen_at(at.seq), Seq(at.seq.0.saturating_add(1)));
                let horizon = Horizon { visible: Seq::MAX, ..Horizon::default() };
                deleted
                    .fragments()
                    .iter()
                    .for_each(|fragment| all.add(&fragment.low, fragment.high.as_deref(), after, &horizon));
                Layer { tombstones: Arc::new(all), at: after }
            }
        };
        let gaps = gaps.and_then(|gaps| gaps.seen_at(at)).map(|(gaps, at)| Layer { tombstones: Arc::clone(gaps), at });
        let KeyRange { low, high } = KeyRange::of(bounds)?;
        let mut layers: Vec<Layer> = gaps.into_iter().chain([own]).collect();
        layers.retain(|layer| !layer.tombstones.within(&low, high.as_deref()).is_empty());
        (!layers.is_empty()).then_some(Self { layers })
    }

    /// Whether a version is hidden.
    pub(crate) fn hides(&self, key: &[u8], seq: Seq) -> bool {
        self.layers.iter().any(|layer| layer.tombstones.hides(key, seq, layer.at))
    }

    /// The stretch that is hidden with `key`, if `key` is hidden, for a walk in this direction.
    pub(crate) fn passed(&self, key: &[u8], direction: Direction) -> Option<Passed<'_>> {
        self.layers.iter().find_map(|layer| {
            let fragment = layer.tombstones.of_key(key)?;
            let before = fragment.newest_at(layer.at)?;
            let end = match direction {
                Direction::Forward => fragment.high.as_deref(),
                Direction::Backward => Some(fragment.low.as_slice()).filter(|low| !low.is_empty()),
            };
            Some(Passed { before, end })
        })
    }

    /// The rest of `bounds`, without the keys at both ends under which all of the structure is hidden.
    pub(crate) fn clip(&self, bounds: &Bounds) -> Bounds {
        let Some(mut range) = KeyRange::of(bounds) else { return bounds.clone() };
        loop {
            let mut is_less = false;
            for layer in &self.layers {
                let Some(clipped) = layer.clip(&mut range) else { return nothing(range.low) };
                is_less |= clipped;
            }
            if !is_less || self.layers.len() == 1 {
                return range.to_bounds();
            }
        }
    }

    /// The rest of `bounds` in this direction behind the keys that are hidden with `key`; none unless all of the
    /// structure is hidden there.
    pub(crate) fn behind(&self, key: &[u8], bounds: &Bounds, direction: Direction) -> Option<Bounds> {
        let bare = self.layers.iter().find_map(|layer| layer.bare(layer.tombstones.of_key(key)))?;
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

    /// The end of the stretch behind `key` in this direction in which nothing is hidden. The inner option is none if
    /// the stretch has no end, the outer if something is hidden at `key` itself.
    #[expect(clippy::option_option, reason = "whether there is such a stretch, and whether it ends")]
    pub(crate) fn free_until(&self, key: &[u8], direction: Direction) -> Option<Option<&[u8]>> {
        let ends: Option<Vec<_>> = self.layers.iter().map(|layer| layer.free_until(key, direction)).collect();
        Some(ends?.into_iter().flatten().min_by(|one, other| direction.order(one, other)))
    }
}

impl Layer {
    /// Removes the keys at both ends of `range` under which all of the structure is hidden; returns whether there were
    /// any. None if nothing is left.
    fn clip(&self, range: &mut KeyRange) -> Option<bool> {
        let mut is_less = false;
        while let Some(bare) = self.bare(self.tombstones.of_key(&range.low)) {
            let high = bare.high.as_ref().filter(|high| index::is_below(high, range.high.as_deref()))?;
            range.low.clone_from(high);
            is_less = true;
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
            is_less = true;
        }
        Some(is_less)
    }

    #[expect(clippy::option_option, reason = "as of all layers")]
    fn free_until(&self, key: &[u8], direction: Direction) -> Option<Option<&[u8]>> {
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

/// Empty bounds at a key.
fn nothing(at: Vec<u8>) -> Bounds {
    Bounds { lower: Bound::Included(at.clone()), upper: Bound::Excluded(at) }
}
