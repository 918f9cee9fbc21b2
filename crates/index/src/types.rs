//! Keys, versions, bounds and batches.

use std::cmp::Ordering;
use std::num::NonZeroU64;
use std::ops::Bound;

use doclog::DocPointer;
use space::Class;

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

    /// The document, if the value is in one.
    #[must_use]
    pub const fn document(&self) -> Option<DocPointer> {
        match self {
            Self::Inline(_) => None,
            Self::Document(document) => Some(*document),
        }
    }
}

impl Stored {
    /// The same payload, borrowed.
    #[must_use]
    pub fn as_payload(&self) -> Payload<'_> {
        match self {
            Self::Inline(value) => Payload::Inline(value),
            Self::Document(document) => Payload::Document(*document),
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
    /// The version of `key`, as it was when nothing had expired.
    #[must_use]
    pub fn update<'a>(&'a self, key: &'a [u8]) -> Update<'a> {
        let put = |stored: &'a Stored| Operation::Put(stored.as_payload(), self.expiry);
        Update { key, seq: self.seq, operation: self.value.as_ref().map_or(Operation::Delete, put) }
    }

    /// The same result, borrowed.
    #[must_use]
    pub fn seen(&self) -> Seen<'_> {
        let value = self.value.as_ref().map(Stored::as_payload);
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

impl Pair {
    /// The same pair, borrowed.
    #[must_use]
    pub fn borrowed(&self) -> PairRef<'_> {
        PairRef { key: &self.key, seq: self.seq, value: self.value.as_payload(), expiry: self.expiry }
    }
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
    /// The other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }

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

    /// No key.
    #[must_use]
    pub const fn none() -> Self {
        Self { lower: Bound::Excluded(Vec::new()), upper: Bound::Excluded(Vec::new()) }
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

    /// Whether there may be keys within below `high`; there may be where it is none.
    #[must_use]
    pub fn begins_below(&self, high: Option<&[u8]>) -> bool {
        match &self.lower {
            Bound::Included(lower) | Bound::Excluded(lower) => crate::is_below(lower, high),
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

#[cfg(test)]
mod tests {
    use super::*;

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
