//! Keys, versions, bounds and batches.

use std::cmp::Ordering;
use std::ops::Bound;

use doclog::DocPointer;

use crate::{Fragment, RangeTombstones};

/// Position of a commit in the one order of all commits; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Above every commit.
    pub const MAX: Self = Self(u64::MAX);
}

/// Identity of a table, never given twice in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// What a version holds, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// Where the value is in the document log.
    Document(DocPointer),
}

/// What an update does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The key has this value from now on.
    Put(Payload<'a>),
    /// The key is gone from now on.
    Delete,
}

/// One version of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The commit that made it.
    pub seq: Seq,
    /// What it did.
    pub operation: Operation<'a>,
}

/// A batch of updates in key order; equal keys in rising seq order.
///
/// Of each key, batches bring the versions in the order of their seqs. Those of other keys may be older or younger, so a queue may be
/// applied in parts, in any order, each with a redo of its own, as long as all its versions of a key are in one part.
/// After a crash those versions come again, in batches that need not be the same, that no [`Batch::through`] covered whose redo is in the log.
/// One whose document was reported dropped may be among them, but no version may be left out whose document was not, unless
/// the caller drops it. A version that may come again is not written again with another document before: which of the two
/// is the last would be unknown.
pub trait Batch: Sync {
    /// How many updates.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The update at `index`, below `len`.
    fn get(&self, index: usize) -> Update<'_>;
    /// All versions up to this one, of the keys that the batch is about, are in this batch or in an earlier one, and none comes again once
    /// the redo of this one is in the log.
    fn through(&self) -> Seq;
    /// Whether it may use space that is kept for deletes, because deletes wait behind it.
    fn is_urgent(&self) -> bool {
        false
    }
}

/// What a version holds, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The value itself.
    Inline(Vec<u8>),
    /// Where the value is in the document log.
    Document(DocPointer),
}

impl Payload<'_> {
    /// A copy of it.
    #[must_use]
    pub fn to_stored(&self) -> Stored {
        match self {
            Self::Inline(value) => Stored::Inline(value.to_vec()),
            Self::Document(document) => Stored::Document(*document),
        }
    }
}

/// The newest version that a lookup saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The commit that made it.
    pub seq: Seq,
    /// Its value, or none where the key was deleted.
    pub value: Option<Stored>,
}

/// A key and its live value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The key.
    pub key: Vec<u8>,
    /// The commit that made the value.
    pub seq: Seq,
    /// The value.
    pub value: Stored,
}

/// A key and its live value, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The commit that made the value.
    pub seq: Seq,
    /// The value.
    pub value: Payload<'a>,
}

impl PairRef<'_> {
    /// A copy of it.
    #[must_use]
    pub fn to_pair(&self) -> Pair {
        Pair { key: self.key.to_vec(), seq: self.seq, value: self.value.to_stored() }
    }
}

/// Which way a cursor walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Rising keys.
    Forward,
    /// Falling keys.
    Backward,
}

impl Direction {
    /// Compares two keys: the lesser is the one that a walk in this direction meets first.
    #[must_use]
    pub fn order(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Self::Forward => one.cmp(other),
            Self::Backward => other.cmp(one),
        }
    }
}

/// The first eight bytes of a key, padded with zeros, as a number that sorts as they do.
#[must_use]
#[inline]
pub fn head(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Where it begins.
    pub lower: Bound<Vec<u8>>,
    /// Where it ends.
    pub upper: Bound<Vec<u8>>,
}

impl Bounds {
    /// Every key.
    #[must_use]
    pub const fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Whether `key` is at or above the lower bound.
    #[must_use]
    pub fn above_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => key >= lower.as_slice(),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// Whether `key` is at or below the upper bound.
    #[must_use]
    pub fn below_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// Whether `key` is within.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.above_lower(key) && self.below_upper(key)
    }

    /// Whether no key can be within.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Included(lower) | Bound::Excluded(lower), Bound::Excluded(upper))
            | (Bound::Excluded(lower), Bound::Included(upper)) => lower >= upper,
            _ => false,
        }
    }
}

/// Which older versions must stay.
#[derive(Clone, Debug, Default)]
pub struct Horizon {
    /// Seqs of live snapshots, rising.
    pub snapshots: Vec<Seq>,
    /// Range deletes: those up to `visible` hide versions.
    pub tombstones: RangeTombstones,
    /// Commits up to this one are visible; none of the snapshots to come is older.
    pub visible: Seq,
}

impl Horizon {
    /// Whether a version of seq `older`, shadowed by the next newer version of its key at seq `newer`, can still be seen.
    #[must_use]
    pub fn sees(&self, older: Seq, newer: Seq) -> bool {
        let first = self.snapshots.partition_point(|snapshot| *snapshot < older);
        self.snapshots.get(first).is_some_and(|snapshot| *snapshot < newer)
    }

    /// Whether a version of `key` is hidden by a range delete from everybody.
    #[must_use]
    pub fn is_hidden(&self, key: &[u8], seq: Seq) -> bool {
        let Some(fragment) = self.tombstones.of_key(key) else { return false };
        let delete = fragment.seqs.iter().copied().rfind(|delete| *delete > seq);
        delete.is_some_and(|delete| delete <= self.visible && !self.sees(seq, delete))
    }

    /// Whether everything that a structure has from `low` to below `high` is hidden by range deletes from everybody.
    #[must_use]
    pub fn is_bare(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        let covers = |fragment: &Fragment| match (&fragment.high, high) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(high)) => high <= end.as_slice(),
        };
        let hides = |fragment: &Fragment| {
            let newest = fragment.newest();
            fragment.is_bare(self.visible) && self.snapshots.first().is_none_or(|oldest| *oldest >= newest)
        };
        self.tombstones.of_key(low).is_some_and(|fragment| covers(fragment) && hides(fragment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_between_two_versions_sees_the_older() {
        let horizon = Horizon { snapshots: vec![Seq(5), Seq(9)], ..Horizon::default() };
        assert!(horizon.sees(Seq(5), Seq(6)));
        assert!(horizon.sees(Seq(3), Seq(6)));
        assert!(!horizon.sees(Seq(6), Seq(9)));
        assert!(!horizon.sees(Seq(10), Seq(12)));
    }

    #[test]
    fn bounds_that_hold_nothing_are_empty() {
        let between = |lower, upper| Bounds { lower, upper };
        let key = || vec![1u8];
        assert!(between(Bound::Included(key()), Bound::Excluded(key())).is_empty());
        assert!(!between(Bound::Included(key()), Bound::Included(key())).is_empty());
        assert!(between(Bound::Excluded(key()), Bound::Included(key())).is_empty());
        assert!(!Bounds::all().is_empty());
    }
}
