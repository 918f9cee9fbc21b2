//! Horizons: what the readers of a moment can still see.

use crate::{Expiry, Fragment, Moment, RangeTombstones, Seq, Time};

/// Decides which older versions must stay, and which values no reader sees any more.
#[derive(Clone, Debug, Default)]
pub struct Horizon {
    /// The moments of live snapshots: each seq once, and neither seq nor time falls ([`Horizon::new`]).
    pub snapshots: Vec<Moment>,
    /// No reader without a snapshot looks at an earlier time.
    pub now: Time,
    /// Range tombstones. Those up to `visible` hide versions.
    pub tombstones: RangeTombstones,
    /// Commits up to this one are visible. No later snapshot is older.
    pub visible: Seq,
}

impl Horizon {
    /// The horizon of live snapshots, in the order of their seqs, and of readers that begin at `now` or later.
    #[must_use]
    pub fn new(mut snapshots: Vec<Moment>, now: Time) -> Self {
        // Among the snapshots of one seq and of later ones, the earliest time counts, because the snapshot of that time
        // sees every value that any of them sees.
        let mut earliest = now;
        for snapshot in snapshots.iter_mut().rev() {
            earliest = earliest.min(snapshot.now);
            snapshot.now = earliest;
        }
        snapshots.dedup_by_key(|snapshot| snapshot.seq);
        Self { snapshots, now, ..Self::default() }
    }

    /// Whether there are no snapshots.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.snapshots.is_empty()
    }

    /// The oldest seq that a snapshot looks at.
    #[must_use]
    pub fn oldest(&self) -> Option<Seq> {
        self.snapshots.first().map(|snapshot| snapshot.seq)
    }

    /// Whether a snapshot can still see a version of seq `older` whose key has its next newer version at seq `newer`.
    #[must_use]
    pub fn sees(&self, older: Seq, newer: Seq) -> bool {
        self.first_within(older, Some(newer)).is_some()
    }

    /// Whether the value has expired for every reader that sees its version. The version has seq `seq`, and the next
    /// newer version of the key, if there is one, has seq `newer`.
    #[must_use]
    pub fn is_over(&self, expiry: Expiry, seq: Seq, newer: Option<Seq>) -> bool {
        let earliest = self.first_within(seq, newer).map_or(self.now, |snapshot| snapshot.now);
        expiry.is_over(earliest)
    }

    /// Whether a range tombstone hides this version of `key` from every reader.
    #[must_use]
    pub fn is_hidden(&self, key: &[u8], seq: Seq) -> bool {
        let Some(fragment) = self.tombstones.of_key(key) else { return false };
        let delete = fragment.seqs.iter().copied().rfind(|delete| *delete > seq);
        delete.is_some_and(|delete| delete <= self.visible && !self.sees(seq, delete))
    }

    /// Whether range tombstones hide the whole content of the structure from `low` to below `high` from every reader.
    #[must_use]
    pub fn is_bare(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        let covers = |fragment: &Fragment| match (&fragment.high, high) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(high)) => high <= end.as_slice(),
        };
        let hides = |fragment: &Fragment| {
            let newest = fragment.newest();
            fragment.is_bare(self.visible) && self.oldest().is_none_or(|oldest| oldest >= newest)
        };
        self.tombstones.of_key(low).is_some_and(|fragment| covers(fragment) && hides(fragment))
    }

    /// The first snapshot with a seq from `from` on and below `to`. No other of them has an earlier time.
    fn first_within(&self, from: Seq, to: Option<Seq>) -> Option<&Moment> {
        let first = self.snapshots.partition_point(|snapshot| snapshot.seq < from);
        self.snapshots.get(first).filter(|snapshot| to.is_none_or(|to| snapshot.seq < to))
    }
}

impl FromIterator<Seq> for Horizon {
    /// The horizon of snapshots with these rising seqs, at a time when nothing has expired.
    fn from_iter<I: IntoIterator<Item = Seq>>(seqs: I) -> Self {
        Self::new(seqs.into_iter().map(Moment::from).collect(), Time(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_between_two_versions_sees_the_older() {
        let horizon: Horizon = [Seq(5), Seq(9)].into_iter().collect();
        assert!(horizon.sees(Seq(5), Seq(6)));
        assert!(horizon.sees(Seq(3), Seq(6)));
        assert!(!horizon.sees(Seq(6), Seq(9)));
        assert!(!horizon.sees(Seq(10), Seq(12)));
    }

    #[test]
    fn a_value_is_over_when_the_earliest_of_those_who_see_it_is_behind_its_expiry() {
        let moment = |seq, now| Moment { seq: Seq(seq), now: Time(now) };
        // One snapshot that begins later but looks at an earlier time, and two of one seq.
        let horizon = Horizon::new(vec![moment(5, 30), moment(9, 40), moment(9, 50), moment(12, 35)], Time(60));
        let is_over =
            |at, seq, newer: Option<u64>| horizon.is_over(Expiry::at(at).expect("not 0"), Seq(seq), newer.map(Seq));
        assert!(is_over(30, 5, None) && !is_over(31, 5, None));
        assert!(is_over(35, 6, None) && !is_over(36, 6, None));
        assert!(is_over(60, 13, None) && !is_over(61, 13, None));
        // Only readers that begin now see this version.
        assert!(is_over(60, 6, Some(9)) && !is_over(61, 6, Some(9)));
        assert!(horizon.sees(Seq(6), Seq(10)) && !horizon.sees(Seq(6), Seq(9)));
    }
}
