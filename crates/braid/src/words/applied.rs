//! The commits that the structure of a table has, by key.
//!
//! Rounds take one part of the key space after the other, so each part of a structure has the commits up to a seq of
//! its own. [`AppliedThrough`] is that seq as a function of the key. The function is a list of steps, each from its own
//! key up to the key of the next step. Every flush-end and every checkpoint contains the steps, so that after a crash
//! exactly the operations that the structure lacks are replayed.
//!
//! Invariants: the first step begins at the empty key, below every other; the keys of steps rise; the seqs of
//! neighbours differ.

use index::{Seq, head};

use crate::words::verifies::VERIFIES;

/// The seq up to which a structure has all commits, for every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedThrough {
    steps: Vec<(Vec<u8>, Seq)>,
    /// The first bytes of the steps' keys, as numbers.
    heads: Vec<u64>,
    /// The newest seq of all steps.
    newest: Seq,
}

impl AppliedThrough {
    /// All commits up to `seq`, for every key.
    pub(crate) fn new(seq: Seq) -> Self {
        Self { steps: vec![(Vec::new(), seq)], heads: vec![0], newest: seq }
    }

    /// From stored steps; none if they break the invariants, so that [`AppliedThrough::steps`] cannot have returned
    /// them.
    pub(crate) fn from_steps(steps: Vec<(Vec<u8>, Seq)>) -> Option<Self> {
        let mut applied = Self { steps, heads: Vec::new(), newest: Seq(0) };
        applied.derive();
        applied.is_sound().then_some(applied)
    }

    /// Every step: its first key, and its seq.
    pub(crate) fn steps(&self) -> &[(Vec<u8>, Seq)] {
        &self.steps
    }

    /// The seq up to which the structure has all commits of `key`.
    pub(crate) fn at(&self, key: &[u8]) -> Seq {
        self.steps[self.step_of(key)].1
    }

    /// Whether the structure lacks an operation on `key` of the commit `seq`. Most replayed operations are newer than
    /// all of the structure, which takes no search.
    pub(crate) fn lacks(&self, key: &[u8], seq: Seq) -> bool {
        seq > self.newest || seq > self.at(key)
    }

    /// The number of the step that contains `key`.
    pub(crate) fn step_of(&self, key: &[u8]) -> usize {
        index::part_of(&self.heads, |step| &self.steps[step].0, key)
    }

    /// The steps that have keys from `low` to below `high`.
    pub(crate) fn steps_between(&self, low: &[u8], high: Option<&[u8]>) -> &[(Vec<u8>, Seq)] {
        let end = high.map_or(self.steps.len(), |high| self.steps.partition_point(|(key, _)| key.as_slice() < high));
        self.steps.get(self.step_of(low)..end).unwrap_or_default()
    }

    /// The newest seq of all keys: the structure has nothing newer.
    pub(crate) const fn newest(&self) -> Seq {
        self.newest
    }

    /// Sets the seq of the keys from `low` to below `high`, which then have everything up to `seq`.
    pub(crate) fn cover(&mut self, low: &[u8], high: Option<&[u8]>, seq: Seq) {
        let behind = high.map(|high| (high.to_vec(), self.at(high)));
        let first = self.steps.partition_point(|(key, _)| key.as_slice() < low);
        let end = high.map_or(self.steps.len(), |high| self.steps.partition_point(|(key, _)| key.as_slice() <= high));
        self.steps.splice(first..end, std::iter::once((low.to_vec(), seq)).chain(behind));
        self.join();
    }

    /// Raises every key to at least `seq`.
    pub(crate) fn raise(&mut self, seq: Seq) {
        self.steps.iter_mut().for_each(|(_, step)| *step = seq.max(*step));
        self.join();
    }

    fn join(&mut self) {
        self.steps.dedup_by(|later, earlier| later.1 == earlier.1);
        assert!(!VERIFIES || self.is_sound(), "steps rise: {:?}", self.steps);
        self.derive();
    }

    /// Whether the steps keep the invariants.
    fn is_sound(&self) -> bool {
        let begins = self.steps.first().is_some_and(|(key, _)| key.is_empty());
        begins && self.steps.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1)
    }

    /// Whether no key has less than it has by `before`.
    pub(crate) fn is_no_less_than(&self, before: &Self) -> bool {
        let keys = self.steps.iter().chain(&before.steps).map(|(key, _)| key);
        keys.into_iter().all(|key| self.at(key) >= before.at(key))
    }

    /// Derives the other fields from the steps.
    fn derive(&mut self) {
        self.heads.clear();
        self.heads.extend(self.steps.iter().map(|(key, _)| head(key)));
        self.newest = self.steps.iter().map(|(_, seq)| *seq).max().unwrap_or(Seq(0));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_seq_for_each_key(
            changes in prop::collection::vec((0u8..20, prop::option::of(1u8..20), 1u64..30, any::<bool>()), 0..30),
        ) {
            let mut model = [0u64; 20];
            let mut applied = AppliedThrough::new(Seq(0));
            for (low, length, seq, raise) in changes {
                if raise {
                    applied.raise(Seq(seq));
                    model.iter_mut().for_each(|known| *known = seq.max(*known));
                    continue;
                }
                let high = length.map(|length| low + length);
                // The model has one-byte keys, so the part below key 0 belongs to its first key.
                let first = if low == 0 { vec![] } else { vec![low] };
                applied.cover(&first, high.map(|high| [high]).as_ref().map(|high| &high[..]), Seq(seq));
                let end = high.map_or(20, |high| usize::from(high).min(20));
                model[usize::from(low)..end].fill(seq);
            }
            for (key, seq) in (0u8..).zip(model) {
                prop_assert_eq!(applied.at(&[key]), Seq(seq));
                for asked in [seq.saturating_sub(1), seq, seq + 1, u64::MAX] {
                    prop_assert_eq!(applied.lacks(&[key], Seq(asked)), asked > seq);
                }
            }
            prop_assert_eq!(AppliedThrough::from_steps(applied.steps().to_vec()), Some(applied));
        }
    }
}
