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

/// The time from which a value is no longer there: a [`Time`] that is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(NonZeroU64);

impl Expiry {
    /// Bytes of an encoded expiry.
    pub const BYTES: usize = 8;

    /// An expiry at `millis` milliseconds since the beginning of 1970; none at 0.
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

    /// Whether the value has expired at `now`.
    #[must_use]
    #[inline]
    pub const fn is_over(self, now: Time) -> bool {
        self.0.get() <= now.0
    }

    /// The encoding on storage: little-endian.
    #[must_use]
    #[inline]
    pub const fn encode(self) -> [u8; Self::BYTES] {
        self.0.get().to_le_bytes()
    }

    /// The expiry at the start of `bytes`; none where there is none.
    #[must_use]
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::at(u64::from_le_bytes(*bytes.first_chunk()?))
    }
}

/// A reader's position: all commits up to a seq, as they are at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The last visible commit.
    pub seq: Seq,
    /// Values that expire at this time or before are not there.
    pub now: Time,
}

impl From<Seq> for Moment {
    /// A moment at a time when nothing has expired.
    fn from(seq: Seq) -> Self {
        Self { seq, now: Time(0) }
    }
}

/// Identity of a table, assigned only once in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// The content of a version, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The place of the value in the document log.
    Document(DocPointer),
}

/// The effect of an update on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The key has this value from now on, until the expiry if there is one.
    Put(Payload<'a>, Option<Expiry>),
    /// The key is gone from now on.
    Delete,
}

impl<'a> Operation<'a> {
    /// The value that the operation puts, unless it has expired at `now`.
    #[must_use]
    #[inline]
    pub fn shown(&self, now: Time) -> Option<Payload<'a>> {
        match self {
            Self::Put(payload, expiry) if expiry.is_none_or(|expiry| !expiry.is_over(now)) => Some(*payload),
            _ => None,
        }
    }

    /// The expiry of the value, if there is one.
    #[must_use]
    #[inline]
    pub const fn expiry(&self) -> Option<Expiry> {
        match self {
            Self::Put(_, expiry) => *expiry,
            Self::Delete => None,
        }
    }

    /// The document that the operation refers to.
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
    /// The commit that made this version.
    pub seq: Seq,
    /// The operation of that commit on the key.
    pub operation: Operation<'a>,
}

/// A batch of updates in key order; equal keys in rising seq order.
///
/// Batches bring the versions of each key in the order of their seqs. Versions of other keys may be older or younger.
/// So a queue may be applied in parts, in any order, each with a redo of its own, as long as all its versions of a key
/// are in one part.
///
/// After a crash, versions come again unless [`Batch::through`] of a batch whose redo is in the log covers them. The
/// batches need not be the same as before. Three rules hold for them:
///
/// - A version whose document was reported dropped may come again.
/// - A version whose document was not reported dropped must come again, unless the caller drops the document.
/// - A version that may come again is not written with another document before that, because the last of the two would
///   be unknown.
pub trait Batch: Sync {
    /// Number of updates.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The update at `index`, below `len`.
    fn get(&self, index: usize) -> Update<'_>;
    /// Every version up to this seq, of the keys that the batch covers, is in this batch or in an earlier one. No such
    /// version comes again once the redo of this batch is in the log.
    fn through(&self) -> Seq;
    /// The class of the space that the batch takes. A batch that mostly deletes may be given a class with more space
    /// (`class_of`).
    fn class(&self) -> Class {
        Class::Normal
    }
}

/// The updates of another batch, side by side. A structure looks at each update several times, and a look at the
/// original batch may take a search.
pub struct Collected<'a> {
    batch: &'a dyn Batch,
    updates: Vec<Update<'a>>,
}

impl<'a> Collected<'a> {
    /// Collects the updates of `batch`.
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

/// The content of a version, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The value itself.
    Inline(Vec<u8>),
    /// The place of the value in the document log.
    Document(DocPointer),
}

impl Payload<'_> {
    /// An owned copy.
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
    /// The commit that made this version.
    pub seq: Seq,
    /// The value; none where the key was deleted or the value has expired.
    pub value: Option<Stored>,
    /// When the value expires, if it does.
    pub expiry: Option<Expiry>,
}

impl Found {
    /// The result of a lookup at `now` that meets this version.
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
    /// The commit that made this version.
    pub seq: Seq,
    /// The value; none where the key was deleted or the value has expired.
    pub value: Option<Payload<'a>>,
    /// When the value expires, if it does.
    pub expiry: Option<Expiry>,
    /// Returns the image of an inline value, to be kept. None where the value is in memory that ends with the lookup.
    pub home: Option<&'a dyn Fn() -> std::sync::Arc<dyn Image>>,
}

impl<'a> Seen<'a> {
    /// The borrowed result of a lookup at `now` that meets this version.
    #[must_use]
    #[inline]
    pub fn of(update: &Update<'a>, now: Time) -> Self {
        let Update { seq, operation, .. } = update;
        Self { seq: *seq, value: operation.shown(now), expiry: operation.expiry(), home: None }
    }
}

impl Found {
    /// The same result, borrowed.
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
    /// An owned copy.
    #[must_use]
    pub fn to_pair(&self) -> Pair {
        Pair { key: self.key.to_vec(), seq: self.seq, value: self.value.to_stored(), expiry: self.expiry }
    }
}

/// The direction of a cursor.
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

/// The index of the part of a key space that contains `key`. Parts begin at rising keys, and the first part begins at
/// the empty key. `heads` are the [`head`]s of these keys, and `low` gives the first key of a part.
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
    /// The lower end.
    pub lower: Bound<Vec<u8>>,
    /// The upper end.
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

    /// Whether a walk in this direction still has `key` ahead. The walk begins at an end of these bounds and has passed
    /// `after`, or is at that end where `after` is none.
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
