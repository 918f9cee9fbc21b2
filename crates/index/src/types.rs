//! Keys, versions, bounds and batches.

use std::cmp::Ordering;
use std::num::NonZeroU64;
use std::ops::Bound;

use doclog::DocPointer;
use space::Class;

use crate::{Fragment, RangeTombstones};

/// Position of a commit in the one order of all commits; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Above every commit.
    pub const MAX: Self = Self(u64::MAX);
}

/// A time in whole milliseconds since the beginning of 1970 (UTC); 0 is before everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// From when on a value is not there any more: a [`Time`] that is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(NonZeroU64);

impl Expiry {
    /// Bytes of an encoded expiry.
    pub const BYTES: usize = 8;

    /// At so many milliseconds since the beginning of 1970; none at 0.
    #[must_use]
    #[inline]
    pub const fn at(millis: u64) -> Option<Self> {
        match NonZeroU64::new(millis) {
            Some(millis) => Some(Self(millis)),
            None => None,
        }
    }

    /// Milliseconds since the beginning of 1970.
    #[must_use]
    #[inline]
    pub const fn millis(self) -> u64 {
        self.0.get()
    }

    /// Whether the value is not there any more.
    #[must_use]
    #[inline]
    pub const fn is_over(self, now: Time) -> bool {
        self.0.get() <= now.0
    }

    /// As it stands on storage: little-endian.
    #[must_use]
    #[inline]
    pub const fn encode(self) -> [u8; Self::BYTES] {
        self.0.get().to_le_bytes()
    }

    /// The expiry that `bytes` begin with; none where there is none.
    #[must_use]
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::at(u64::from_le_bytes(*bytes.first_chunk()?))
    }
}

/// What a reader looks at: the commits up to a seq, as they are at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The last commit that is seen.
    pub seq: Seq,
    /// What expires by then is not there any more.
    pub now: Time,
}

impl From<Seq> for Moment {
    /// At a time when nothing has expired.
    fn from(seq: Seq) -> Self {
        Self { seq, now: Time(0) }
    }
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
    /// The key has this value from now on, until it expires where that is said.
    Put(Payload<'a>, Option<Expiry>),
    /// The key is gone from now on.
    Delete,
}

impl<'a> Operation<'a> {
    /// What it puts, if that is there at `now`.
    #[must_use]
    #[inline]
    pub fn shown(&self, now: Time) -> Option<Payload<'a>> {
        match self {
            Self::Put(payload, expiry) if expiry.is_none_or(|expiry| !expiry.is_over(now)) => Some(*payload),
            _ => None,
        }
    }

    /// When what it puts expires, if it does.
    #[must_use]
    #[inline]
    pub const fn expiry(&self) -> Option<Expiry> {
        match self {
            Self::Put(_, expiry) => *expiry,
            Self::Delete => None,
        }
    }

    /// The document that it refers to.
    #[must_use]
    #[inline]
    pub const fn document(&self) -> Option<DocPointer> {
        match self {
            Self::Put(Payload::Document(document), _) => Some(*document),
            _ => None,
        }
    }
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
    /// The class of the space that it takes, where it does not mostly delete and may have more for that.
    fn class(&self) -> Class {
        Class::Normal
    }
}

/// The updates of another batch, side by side: a structure looks at each several times, and where they are kept that may take a search.
pub struct Collected<'a> {
    batch: &'a dyn Batch,
    updates: Vec<Update<'a>>,
}

impl<'a> Collected<'a> {
    /// Those of `batch`.
    #[must_use]
    pub fn of(batch: &'a dyn Batch) -> Self {
        Self { batch, updates: (0..batch.len()).map(|index| batch.get(index)).collect() }
    }
}

impl Batch for Collected<'_> {
    fn len(&self) -> usize {
        self.updates.len()
    }

    fn get(&self, index: usize) -> Update<'_> {
        self.updates[index]
    }

    fn through(&self) -> Seq {
        self.batch.through()
    }

    fn class(&self) -> Class {
        self.batch.class()
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
    /// Its value, or none where the key was deleted or the value is not there any more.
    pub value: Option<Stored>,
    /// When the value expires, if it does.
    pub expiry: Option<Expiry>,
}

impl Found {
    /// What a lookup at `now` finds of a version.
    #[must_use]
    #[inline]
    pub fn of(update: &Update<'_>, now: Time) -> Self {
        let value = update.operation.shown(now).map(|payload| payload.to_stored());
        Self { seq: update.seq, value, expiry: update.operation.expiry() }
    }
}

/// Bytes in memory that do not change as long as they are kept.
pub trait Image: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

/// The newest version that a lookup saw, borrowed.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The commit that made it.
    pub seq: Seq,
    /// Its value, or none where the key was deleted or the value is not there any more.
    pub value: Option<Payload<'a>>,
    /// When the value expires, if it does.
    pub expiry: Option<Expiry>,
    /// Gives the image that an inline value lies in, to be kept; none where it lies in what goes with the lookup.
    pub home: Option<&'a dyn Fn() -> std::sync::Arc<dyn Image>>,
}

impl<'a> Seen<'a> {
    /// What a lookup at `now` sees of a version.
    #[must_use]
    #[inline]
    pub fn of(update: &Update<'a>, now: Time) -> Self {
        let Update { seq, operation, .. } = update;
        Self { seq: *seq, value: operation.shown(now), expiry: operation.expiry(), home: None }
    }
}

impl Found {
    /// The same, borrowed.
    #[must_use]
    pub fn seen(&self) -> Seen<'_> {
        let value = self.value.as_ref().map(|value| match value {
            Stored::Inline(value) => Payload::Inline(value),
            Stored::Document(document) => Payload::Document(*document),
        });
        Seen { seq: self.seq, value, expiry: self.expiry, home: None }
    }
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
    /// When the value expires, if it does.
    pub expiry: Option<Expiry>,
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
    /// When the value expires, if it does.
    pub expiry: Option<Expiry>,
}

impl PairRef<'_> {
    /// A copy of it.
    #[must_use]
    pub fn to_pair(&self) -> Pair {
        Pair { key: self.key.to_vec(), seq: self.seq, value: self.value.to_stored(), expiry: self.expiry }
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

/// Which part of a key space has `key`, where parts begin at rising keys, the first of all of them at the empty one: `heads` are their [`head`]s, and `low` says
/// where a part begins.
#[must_use]
#[inline]
pub fn part_of<'a>(heads: &[u64], low: impl Fn(usize) -> &'a [u8], key: &[u8]) -> usize {
    let head = head(key);
    let first = heads.partition_point(|other| *other < head);
    let alike = heads[first..].iter().take_while(|other| **other == head).count();
    let (mut begun, mut end) = (first, first + alike);
    while begun < end {
        let middle = begun.midpoint(end);
        if low(middle) <= key { begun = middle + 1 } else { end = middle }
    }
    begun - 1
}

/// Bytes that two keys share at their beginning.
#[must_use]
pub fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
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

    /// Whether `key` lies where a walk in this direction, which begins at an end of these bounds, has still to go behind `after`, or from that end on.
    #[must_use]
    pub fn is_ahead(&self, key: &[u8], direction: Direction, after: Option<&[u8]>) -> bool {
        let is_behind_begin = match direction {
            Direction::Forward => self.above_lower(key),
            Direction::Backward => self.below_upper(key),
        };
        is_behind_begin && after.is_none_or(|after| direction.order(after, key).is_lt())
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

/// Which older versions must stay, and which values nobody sees any more.
#[derive(Clone, Debug, Default)]
pub struct Horizon {
    /// What live snapshots look at: each seq once, and neither seq nor time falls ([`Horizon::new`]).
    pub snapshots: Vec<Moment>,
    /// Nobody who is no snapshot looks at an earlier time.
    pub now: Time,
    /// Range deletes: those up to `visible` hide versions.
    pub tombstones: RangeTombstones,
    /// Commits up to this one are visible; none of the snapshots to come is older.
    pub visible: Seq,
}

impl Horizon {
    /// That of live snapshots, which come in the order of their seqs, and of readers who begin at `now` or later.
    #[must_use]
    pub fn new(mut snapshots: Vec<Moment>, now: Time) -> Self {
        // Of those that look at one seq, and of later ones, the earliest time counts: it sees what any of them sees.
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

    /// Whether a version of seq `older`, shadowed by the next newer version of its key at seq `newer`, can still be seen.
    #[must_use]
    pub fn sees(&self, older: Seq, newer: Seq) -> bool {
        self.first_within(older, Some(newer)).is_some()
    }

    /// Whether the value of a version of `seq`, shadowed by one at seq `newer` where there is one, is not there any more for anybody who sees that
    /// version.
    #[must_use]
    pub fn is_over(&self, expiry: Expiry, seq: Seq, newer: Option<Seq>) -> bool {
        let earliest = self.first_within(seq, newer).map_or(self.now, |snapshot| snapshot.now);
        expiry.is_over(earliest)
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
            fragment.is_bare(self.visible) && self.oldest().is_none_or(|oldest| oldest >= newest)
        };
        self.tombstones.of_key(low).is_some_and(|fragment| covers(fragment) && hides(fragment))
    }

    /// The first of the snapshots from `from` on and below `to`, which has the earliest time of them.
    fn first_within(&self, from: Seq, to: Option<Seq>) -> Option<&Moment> {
        let first = self.snapshots.partition_point(|snapshot| snapshot.seq < from);
        self.snapshots.get(first).filter(|snapshot| to.is_none_or(|to| snapshot.seq < to))
    }
}

impl FromIterator<Seq> for Horizon {
    /// That of snapshots of these seqs, which rise, at a time when nothing has expired.
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
        // One that begins later but looks at an earlier time, and two of one seq.
        let horizon = Horizon::new(vec![moment(5, 30), moment(9, 40), moment(9, 50), moment(12, 35)], Time(60));
        let is_over =
            |at, seq, newer: Option<u64>| horizon.is_over(Expiry::at(at).expect("not 0"), Seq(seq), newer.map(Seq));
        assert!(is_over(30, 5, None) && !is_over(31, 5, None));
        assert!(is_over(35, 6, None) && !is_over(36, 6, None));
        assert!(is_over(60, 13, None) && !is_over(61, 13, None));
        // Nobody sees it but who begins now.
        assert!(is_over(60, 6, Some(9)) && !is_over(61, 6, Some(9)));
        assert!(horizon.sees(Seq(6), Seq(10)) && !horizon.sees(Seq(6), Seq(9)));
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
