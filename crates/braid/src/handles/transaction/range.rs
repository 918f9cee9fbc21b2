//! Ranges in a transaction: the pairs of its snapshot, merged with its own writes.

use std::{
    cmp::Ordering,
    iter::Peekable,
    ops::{Bound::Included, RangeBounds},
    sync::atomic,
};

use index::{Bounds, Direction};

use super::{
    Transaction,
    writes::{Written, WrittenRange},
};
use crate::{
    error::{Error, Result},
    handles::{
        range::{
            Range,
            limit::{Limit, from_key},
        },
        table::Table,
    },
    words::key_range::{prefix_bounds, range_bounds},
};

type Pair = (Vec<u8>, Vec<u8>);

/// A walk over the transaction's own writes.
enum Own<'a> {
    Forward(Peekable<WrittenRange<'a>>),
    Backward(Peekable<std::iter::Rev<WrittenRange<'a>>>),
}

impl<'a> Own<'a> {
    fn peek(&mut self) -> Option<(&'a Vec<u8>, &'a Written)> {
        match self {
            Self::Forward(range) => range.peek().copied(),
            Self::Backward(range) => range.peek().copied(),
        }
    }

    fn next(&mut self) -> Option<(&'a Vec<u8>, &'a Written)> {
        match self {
            Self::Forward(range) => range.next(),
            Self::Backward(range) => range.next(),
        }
    }
}

/// A range of pairs as a transaction sees them, in key order. Made by [`Transaction::range`]. Pairs can be taken from
/// both ends.
///
/// A range borrows its transaction, which cannot write as long as the range lives. To write meanwhile, collect the
/// pairs first, or walk through a [`Snapshot`](crate::Snapshot). A snapshot shows none of the transaction's own writes,
/// and what it shows is not noted as read.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let jobs = db.table("jobs", braid::Structure::BTree)?;
/// jobs.put("1", "waits")?;
/// jobs.put("2", "done")?;
/// db.run(|tx| {
///     let all = tx.iter(&jobs).collect::<braid::Result<Vec<_>>>()?; // ends the borrow
///     for (number, _) in all.iter().filter(|(_, state)| state == b"done") {
///         tx.delete(&jobs, number)?;
///     }
///     Ok::<_, braid::Error>(())
/// })?;
/// assert_eq!(jobs.iter().count(), 1);
/// # Ok(())
/// # }
/// ```
pub struct TransactionRange<'a> {
    transaction: &'a Transaction,
    table: Table,
    /// The bounds of the range.
    whole: Bounds,
    /// Those of the walk, which begins elsewhere after a seek.
    bounds: Bounds,
    direction: Direction,
    below: Range,
    own: Option<Own<'a>>,
    /// The next pair of the snapshot, already read.
    peeked: Option<Pair>,
    /// The last key of the snapshot that was read, where reads are noted.
    seen: Option<Vec<u8>>,
    begun: bool,
    ended: bool,
    /// The range from the other end, once something was taken there.
    other: Option<Box<Self>>,
    limit: Limit,
    /// The next pair, which was not shown because of the limit.
    held: Option<Pair>,
    /// The last key that this end has shown, once the other end was used.
    shown: Option<Vec<u8>>,
}

impl Transaction {
    /// The pairs within `range`, the transaction's own writes among them, in key order; [`TransactionRange::rev`]
    /// reverses the order. Where the table is of another database, the range shows that error.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// let mut tx = db.begin()?;
    /// tx.put(&users, "alan", "1912")?;
    /// let mut range = tx.range(&users, "a".."b").rev();
    /// assert_eq!(range.next().transpose()?, Some((b"alan".to_vec(), b"1912".to_vec()))); // its own write
    /// assert_eq!(range.next().transpose()?, Some((b"ada".to_vec(), b"1815".to_vec())));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, table: &Table, range: impl RangeBounds<K>) -> TransactionRange<'_> {
        self.walk(table, range_bounds(&range))
    }

    /// The pairs whose keys begin with `prefix`, likewise.
    #[must_use]
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> TransactionRange<'_> {
        self.walk(table, prefix_bounds(prefix.as_ref()))
    }

    /// Every pair, likewise.
    #[must_use]
    pub fn iter(&self, table: &Table) -> TransactionRange<'_> {
        self.walk(table, Bounds::all())
    }

    /// Every pair of the snapshot, without the transaction's own writes. The read is not noted.
    pub(crate) fn snapshot_of(&self, table: &Table) -> Range {
        Range::new(table.clone(), Bounds::all(), Some(self.pin.clone()))
    }

    fn walk(&self, table: &Table, bounds: Bounds) -> TransactionRange<'_> {
        if let Err(error) = table.check_own(&self.pin) {
            let below = Range::failed(table.clone(), error);
            return TransactionRange::new(self, table.clone(), Bounds::none(), below);
        }
        self.has_read.store(true, atomic::Ordering::Relaxed);
        let below = Range::new(table.clone(), bounds.clone(), Some(self.pin.clone()));
        let below = below.without(self.writes.deleted(table.core.id));
        TransactionRange::new(self, table.clone(), bounds, below)
    }
}

impl<'a> TransactionRange<'a> {
    fn new(transaction: &'a Transaction, table: Table, bounds: Bounds, below: Range) -> Self {
        Self {
            transaction,
            table,
            whole: bounds.clone(),
            bounds,
            direction: below.direction(),
            below,
            own: None,
            peeked: None,
            seen: None,
            begun: false,
            ended: false,
            other: None,
            limit: Limit::None,
            held: None,
            shown: None,
        }
    }

    /// The same pairs in reverse order, to be called before the first pair is taken. Later the range shows an error in
    /// place of its next pair.
    #[must_use]
    pub fn rev(mut self) -> Self {
        if self.begun || self.other.is_some() {
            self.below.stop(Error::RangeBegun);
            (self.begun, self.peeked, self.own, self.held, self.ended) = (true, None, None, None, false);
            (self.other, self.limit) = (None, Limit::None);
        } else {
            self.below.turn();
            self.direction = self.direction.reversed();
        }
        self
    }

    /// Goes to `key`: the next pair is the first at or behind it, in the order of the range, and within its bounds, as
    /// [`Range::seek`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        self.note_walked();
        self.below.seek(key);
        self.bounds = from_key(&self.whole, key, self.direction);
        (self.own, self.peeked, self.seen, self.shown, self.held) = (None, None, None, None, None);
        (self.begun, self.ended) = (false, false);
        if let Some(other) = &mut self.other {
            other.limit = Limit::Behind(key.to_vec());
        }
    }

    fn note_walked(&self) {
        if let Some(walked) = self.walked() {
            self.transaction.note_range(&self.table, walked);
        }
    }

    /// The range from the other end.
    fn other(&mut self) -> &mut Self {
        if self.other.is_none() {
            let below = self.below.within(self.whole.clone(), self.direction.reversed());
            let mut other = Self::new(self.transaction, self.table.clone(), self.whole.clone(), below);
            let begin = || Limit::at_begin(&self.bounds, self.direction);
            let is_through = self.begun && self.ended && self.own.is_none() && self.peeked.is_none();
            let shown = || self.shown.clone().map_or_else(begin, Limit::Before);
            other.limit = if is_through { Limit::Through } else { shown() };
            self.other = Some(Box::new(other));
        }
        self.other.as_mut().expect("it is there now")
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            let own = self.transaction.writes.range(self.table.core.id, &self.bounds);
            self.own = own.map(|range| match self.direction {
                Direction::Forward => Own::Forward(range.peekable()),
                Direction::Backward => Own::Backward(range.rev().peekable()),
            });
        }
    }

    fn fill(&mut self) -> Result<()> {
        if self.peeked.is_none() && !self.ended {
            self.peeked = self.below.next().transpose()?;
            match &self.peeked {
                Some((key, _)) if self.transaction.noted_reads().is_some() => self.seen = Some(key.clone()),
                Some(_) => {}
                None => self.ended = true,
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<Pair>> {
        self.begin();
        loop {
            self.fill()?;
            let own = self.own.as_mut().and_then(Own::peek);
            let order = match (&self.peeked, own) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((below, _)), Some((own, _))) => self.direction.order(below, own),
            };
            if order == Ordering::Less {
                return Ok(self.peeked.take());
            }
            if order == Ordering::Equal {
                self.peeked = None;
            }
            let written = self.own.as_mut().and_then(Own::next);
            if let Some((key, Some(put))) = written {
                return Ok(Some((key.clone(), put.value.clone())));
            }
        }
    }

    /// The part of the range that was read.
    fn walked(&self) -> Option<Bounds> {
        if self.ended {
            return Some(self.bounds.clone());
        }
        let seen = Included(self.seen.clone()?);
        let Bounds { lower, upper } = self.bounds.clone();
        Some(match self.direction {
            Direction::Forward => Bounds { lower, upper: seen },
            Direction::Backward => Bounds { lower: seen, upper },
        })
    }
}

impl Iterator for TransactionRange<'_> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.held.take().map_or_else(|| self.step(), |pair| Ok(Some(pair)));
        match &step {
            Ok(Some((key, _))) if self.limit.excludes(key, self.direction) => {
                self.held = step.ok().flatten();
                return None;
            }
            Ok(Some((key, _))) => {
                self.shown.get_or_insert_default().clone_from(key);
                if let Some(other) = &mut self.other {
                    other.limit = Limit::Before(key.clone());
                }
            }
            _ => (self.begun, self.ended, self.peeked, self.own) = (true, true, None, None),
        }
        step.transpose()
    }
}

impl DoubleEndedIterator for TransactionRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = self.other().next();
        if let Some(Ok((key, _))) = &next {
            self.limit = Limit::Before(key.clone());
        }
        next
    }
}

impl std::iter::FusedIterator for TransactionRange<'_> {}

impl Drop for TransactionRange<'_> {
    fn drop(&mut self) {
        self.note_walked();
    }
}

impl std::fmt::Debug for TransactionRange<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TransactionRange").field("table", &self.table).field("bounds", &self.bounds).finish()
    }
}
