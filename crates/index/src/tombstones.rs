//! Range tombstones: deletes of all keys of a range, whether the structure has them or not.
//!
//! 1. A set of range tombstones is cut into disjoint [`Fragment`]s in key order, so that binary search finds the
//!    fragment of a key. A fragment has the seqs of the deletes that cover its keys, as many as some reader may still
//!    have to tell apart.
//! 2. A fragment acts as a tombstone of every key in its range: a version with a lower seq than a delete is hidden
//!    from every reader that sees the delete. A version of the same seq is not hidden, because the range deletes of
//!    a commit come before its other operations.
//! 3. A fragment is *bare* if its newest seq is above every version that the structure has under its keys. A reader
//!    that sees that seq need not look there. The fragment ceases to be bare when the structure gets a newer version
//!    ([`RangeTombstones::outgrow`]).
//! 4. A key range that was rewritten without its hidden versions needs its tombstones no more
//!    ([`RangeTombstones::clear`]).
//!
//! Invariants: fragments are in key order, do not overlap, and are not empty; the seqs of a fragment fall; neighbours
//! that touch differ.

mod add;

use std::sync::Arc;

use crate::Seq;

/// Keys that are covered by the same range deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The least key.
    pub low: Vec<u8>,
    /// The end, exclusive; none if the range has no end.
    pub high: Option<Vec<u8>>,
    /// The deletes, newest first.
    pub seqs: Vec<Seq>,
    /// Whether the structure may have versions with a seq at or above the newest delete.
    pub is_overgrown: bool,
}

impl Fragment {
    /// The newest delete.
    #[must_use]
    pub fn newest(&self) -> Seq {
        self.seqs[0]
    }

    /// The newest delete that a reader at `at` sees.
    #[must_use]
    pub fn newest_at(&self, at: Seq) -> Option<Seq> {
        self.seqs.iter().copied().find(|seq| *seq <= at)
    }

    /// Whether a reader at `at` sees nothing that the structure has under these keys.
    #[must_use]
    pub fn is_bare(&self, at: Seq) -> bool {
        !self.is_overgrown && self.newest() <= at
    }

    /// Whether `key` is below the end of the fragment.
    #[must_use]
    pub fn ends_above(&self, key: &[u8]) -> bool {
        is_below(key, self.high.as_deref())
    }

    fn joins(&self, next: &Self) -> bool {
        self.high.as_ref() == Some(&next.low) && (&self.seqs, self.is_overgrown) == (&next.seqs, next.is_overgrown)
    }
}

/// Whether `key` is below an end, if there is one.
#[must_use]
pub fn is_below(key: &[u8], high: Option<&[u8]>) -> bool {
    high.is_none_or(|high| key < high)
}

/// The range tombstones of a table at one moment. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    fragments: Vec<Arc<Fragment>>,
}

impl RangeTombstones {
    /// Builds a set from stored fragments; none if the fragments are not as [`RangeTombstones::fragments`] gives them.
    #[must_use]
    pub fn from_fragments(fragments: Vec<Fragment>) -> Option<Self> {
        let tombstones = Self { fragments: fragments.into_iter().map(Arc::new).collect() };
        tombstones.is_sound().then_some(tombstones)
    }

    /// Whether the fragments keep the invariants.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_one = |fragment: &Arc<Fragment>| {
            let falls = fragment.seqs.windows(2).all(|pair| pair[0] > pair[1]);
            is_below(&fragment.low, fragment.high.as_deref()) && !fragment.seqs.is_empty() && falls
        };
        let follows = |pair: &[Arc<Fragment>]| {
            let apart = pair[0].high.as_ref().is_some_and(|high| *high <= pair[1].low);
            apart && !pair[0].joins(&pair[1])
        };
        self.fragments.iter().all(is_one) && self.fragments.windows(2).all(follows)
    }

    /// All fragments, in key order.
    #[must_use]
    pub fn fragments(&self) -> &[Arc<Fragment>] {
        &self.fragments
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Number of fragments that begin at or below `key`.
    fn begun(&self, key: &[u8]) -> usize {
        self.fragments.partition_point(|fragment| fragment.low.as_slice() <= key)
    }

    /// The fragment that covers `key`.
    #[must_use]
    pub fn of_key(&self, key: &[u8]) -> Option<&Fragment> {
        let last = self.fragments[..self.begun(key)].last()?;
        last.ends_above(key).then_some(&**last)
    }

    /// The first fragment that begins above `key`.
    #[must_use]
    pub fn first_above(&self, key: &[u8]) -> Option<&Fragment> {
        self.fragments.get(self.begun(key)).map(|fragment| &**fragment)
    }

    /// The last fragment that begins at or below `key`, whether the fragment covers `key` or not.
    #[must_use]
    pub fn last_begun(&self, key: &[u8]) -> Option<&Fragment> {
        self.fragments[..self.begun(key)].last().map(|fragment| &**fragment)
    }

    /// The newest delete of `key` that a reader at `at` sees.
    #[must_use]
    pub fn newest(&self, key: &[u8], at: Seq) -> Option<Seq> {
        self.of_key(key)?.newest_at(at)
    }

    /// Whether a version of `key` of the commit `seq` is hidden from a reader at `at`.
    #[must_use]
    pub fn hides(&self, key: &[u8], seq: Seq, at: Seq) -> bool {
        self.newest(key, at).is_some_and(|newest| seq < newest)
    }

    /// Fragments that cover some of the keys from `low` to below `high`.
    #[must_use]
    pub fn within(&self, low: &[u8], high: Option<&[u8]>) -> &[Arc<Fragment>] {
        let first = self.fragments.partition_point(|fragment| !fragment.ends_above(low));
        let end = high.map_or(self.fragments.len(), |high| {
            self.fragments.partition_point(|fragment| fragment.low.as_slice() < high)
        });
        &self.fragments[first..end.max(first)]
    }

    /// Removes deletes up to `through` from the keys from `low` to below `high`, because the structure has rewritten
    /// these keys without the versions that those deletes hide.
    pub fn clear(&mut self, low: &[u8], high: Option<&[u8]>, through: Seq) {
        for fragment in self.take(low, high) {
            let seqs: Vec<Seq> = fragment.seqs.iter().copied().filter(|seq| *seq > through).collect();
            if !seqs.is_empty() {
                self.push(Fragment { seqs, ..(*fragment).clone() });
            }
        }
        self.sort();
    }

    /// Notes that the structure now has a version of `key` of the commit `seq`.
    pub fn outgrow(&mut self, key: &[u8], seq: Seq) {
        let begun = self.begun(key);
        let Some(last) = self.fragments[..begun].last_mut() else { return };
        if last.ends_above(key) && !last.is_overgrown && last.newest() <= seq {
            Arc::make_mut(last).is_overgrown = true;
            self.sort();
        }
    }

    /// The tombstones as a reader at `at` sees them, each fragment with one seq.
    #[must_use]
    pub fn seen_at(&self, at: Seq) -> Self {
        let seen = |fragment: &Arc<Fragment>| {
            let newest = fragment.newest_at(at)?;
            Some(Arc::new(Fragment { seqs: vec![newest], is_overgrown: !fragment.is_bare(at), ..(**fragment).clone() }))
        };
        let mut seen = Self { fragments: self.fragments.iter().filter_map(seen).collect() };
        seen.sort();
        seen
    }

    /// Takes out the fragments that cover the keys from `low` to below `high`. Fragments that go beyond these keys are
    /// cut.
    fn take(&mut self, low: &[u8], high: Option<&[u8]>) -> Vec<Arc<Fragment>> {
        if !is_below(low, high) {
            return Vec::new();
        }
        self.cut(low);
        high.iter().for_each(|high| self.cut(high));
        let first = self.fragments.partition_point(|fragment| fragment.low.as_slice() < low);
        let count = self.fragments[first..].partition_point(|fragment| is_below(&fragment.low, high));
        self.fragments.drain(first..first + count).collect()
    }

    /// Cuts the fragment that begins below `key` and goes beyond `key`.
    fn cut(&mut self, key: &[u8]) {
        let index = self.fragments.partition_point(|fragment| fragment.low.as_slice() < key);
        let Some(last) = self.fragments[..index].last_mut().filter(|last| last.ends_above(key)) else { return };
        let above = Fragment { low: key.to_vec(), ..(**last).clone() };
        Arc::make_mut(last).high = Some(key.to_vec());
        self.fragments.insert(index, Arc::new(above));
    }

    /// Adds a fragment. [`RangeTombstones::sort`] puts the fragment in its place.
    fn push(&mut self, fragment: Fragment) {
        self.fragments.push(Arc::new(fragment));
    }

    /// Sorts the fragments, and joins those that touch and are alike.
    fn sort(&mut self) {
        self.fragments.sort_by(|one, other| one.low.cmp(&other.low));
        self.fragments.dedup_by(|next, joined| {
            let joins = joined.joins(next);
            if joins {
                Arc::make_mut(joined).high.clone_from(&next.high);
            }
            joins
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Horizon;

    const KEYS: u8 = 12;

    #[derive(Clone, Debug)]
    enum Step {
        Delete(u8, Option<u8>),
        /// The structure has a newer version of this key.
        Outgrow(u8),
        /// Deletions that no snapshot tells apart are cleared away.
        Clear(u8, Option<u8>),
        Snapshot,
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = || (0..KEYS, prop::option::of(1..KEYS));
        prop_oneof![
            4 => range().prop_map(|(low, high)| Step::Delete(low, high)),
            2 => (0..KEYS).prop_map(Step::Outgrow),
            2 => range().prop_map(|(low, high)| Step::Clear(low, high)),
            1 => Just(Step::Snapshot),
            1 => (0..4_usize).prop_map(Step::Release),
        ]
    }

    fn has(low: u8, high: Option<u8>, key: u8) -> bool {
        key >= low && high.is_none_or(|high| key < high)
    }

    proptest! {
        #[test]
        fn they_agree_with_a_list_of_deletes_for_each_key(steps in prop::collection::vec(step(), 0..40)) {
            let mut tombstones = RangeTombstones::default();
            let mut model: Vec<Vec<Seq>> = vec![Vec::new(); KEYS.into()];
            let mut grown = vec![Seq(0); usize::from(KEYS)];
            let mut snapshots: Vec<Seq> = Vec::new();
            for (step, seq) in steps.into_iter().zip((1..).map(Seq)) {
                let end = |high: Option<u8>| high.map(|high| vec![high]);
                match step {
                    Step::Delete(low, high) => {
                        let horizon =
                            Horizon { visible: Seq(seq.0 - 1), ..snapshots.iter().copied().collect() };
                        let mut keys = (0..KEYS).filter(|&key| has(low, high, key)).peekable();
                        if keys.peek().is_some() {
                            tombstones.add(&[low], end(high).as_deref(), seq, &horizon);
                        }
                        keys.for_each(|key| model[usize::from(key)].push(seq));
                    }
                    Step::Outgrow(key) => {
                        tombstones.outgrow(&[key], seq);
                        grown[usize::from(key)] = seq;
                    }
                    Step::Clear(low, high) => {
                        let through = snapshots.first().copied().unwrap_or(seq);
                        tombstones.clear(&[low], end(high).as_deref(), through);
                        for key in (0..KEYS).filter(|&key| has(low, high, key)) {
                            model[usize::from(key)].retain(|delete| *delete > through);
                        }
                    }
                    Step::Snapshot => snapshots.push(seq),
                    Step::Release(index) => drop((index < snapshots.len()).then(|| snapshots.remove(index))),
                }
                let stored = tombstones.fragments().iter().map(|fragment| (**fragment).clone()).collect();
                prop_assert_eq!(RangeTombstones::from_fragments(stored), Some(tombstones.clone()));
                for (key, deletes) in (0..KEYS).zip(&model) {
                    // A reader of now, and the holders of snapshots.
                    for &at in snapshots.iter().chain([&seq]) {
                        let expected = deletes.iter().copied().rfind(|delete| *delete <= at);
                        prop_assert_eq!(tombstones.newest(&[key], at), expected, "key {} at {:?}", key, at);
                    }
                    let bare = tombstones.of_key(&[key]).is_some_and(|fragment| fragment.is_bare(seq));
                    let is_bare = deletes.last().is_some_and(|newest| *newest > grown[usize::from(key)]);
                    prop_assert!(!bare || is_bare, "key {} is bare", key);
                }
            }
        }
    }

    #[test]
    fn neighbours_that_touch_and_are_alike_are_one() {
        let mut tombstones = RangeTombstones::default();
        tombstones.add(b"a", Some(b"c"), Seq(5), &Horizon::default());
        tombstones.add(b"c", Some(b"f"), Seq(5), &Horizon::default());
        assert_eq!(tombstones.fragments().len(), 1);
        tombstones.outgrow(b"b", Seq(5));
        assert!(!tombstones.of_key(b"b").is_some_and(|fragment| fragment.is_bare(Seq::MAX)));
        tombstones.clear(b"b", Some(b"d"), Seq(4));
        assert_eq!(tombstones.fragments().len(), 1, "nothing was cleared");
        tombstones.clear(b"b", Some(b"d"), Seq(5));
        assert_eq!(tombstones.fragments().len(), 2);
        assert!(tombstones.hides(b"a", Seq(4), Seq(5)) && !tombstones.hides(b"a", Seq(5), Seq(5)));
        assert!(!tombstones.hides(b"a", Seq(4), Seq(4)) && !tombstones.hides(b"c", Seq(1), Seq(9)));
    }

    #[test]
    fn what_is_not_in_order_is_refused() {
        let fragment = |low: &[u8], high: &[u8], seqs: &[u64]| Fragment {
            low: low.to_vec(),
            high: Some(high.to_vec()),
            seqs: seqs.iter().copied().map(Seq).collect(),
            is_overgrown: false,
        };
        let refused = |fragments: Vec<Fragment>| RangeTombstones::from_fragments(fragments).is_none();
        assert!(refused(vec![fragment(b"b", b"b", &[1])]) && refused(vec![fragment(b"a", b"b", &[])]));
        assert!(refused(vec![fragment(b"a", b"b", &[1, 2])]));
        assert!(refused(vec![fragment(b"a", b"c", &[1]), fragment(b"b", b"d", &[2])]));
        assert!(refused(vec![fragment(b"a", b"b", &[1]), fragment(b"b", b"d", &[1])]));
        assert!(!refused(vec![fragment(b"a", b"b", &[2]), fragment(b"b", b"d", &[1])]));
    }
}
