//! Ranges in a transaction: the pairs of its snapshot, merged with its own writes.

use std::{cmp::Ordering, iter::Peekable, ops::RangeBounds, sync::atomic};

use index::{Bounds, Direction};

use super::{
    Transaction,
    writes::{Written, WrittenRange},
};
use crate::{
    error::Result,
    handles::{range::Range, table::Table},
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

/// A range of pairs as a transaction sees them, in key order. Made by [`Transaction::range`].
pub struct TransactionRange<'a> {
    transaction: &'a Transaction,
    table: Table,
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
}

impl Transaction {
    /// The pairs within `range`, the transaction's own writes among them, in key order; [`TransactionRange::rev`]
    /// reverses the order.
    ///
    /// # Errors
    /// When the table is of another database.
    pub fn range<K: AsRef<[u8]>>(&self, table: &Table, range: impl RangeBounds<K>) -> Result<TransactionRange<'_>> {
        self.walk(table, range_bounds(&range))
    }

    /// The pairs whose keys begin with `prefix`, likewise.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<TransactionRange<'_>> {
        self.walk(table, prefix_bounds(prefix.as_ref()))
    }

    /// Every pair, likewise.
    ///
    /// # Errors
    /// As [`Transaction::range`].
    pub fn iter(&self, table: &Table) -> Result<TransactionRange<'_>> {
        self.walk(table, Bounds::all())
    }

    fn walk(&self, table: &Table, bounds: Bounds) -> Result<TransactionRange<'_>> {
        table.check_own(&self.pin)?;
        self.has_read.store(true, atomic::Ordering::Relaxed);
        let below = Range::new(table.clone(), bounds.clone(), Some(self.pin.clone()));
        let below = below.without(self.writes.deleted(table.core.id));
        Ok(TransactionRange::new(self, table.clone(), bounds, below))
    }
}

impl<'a> TransactionRange<'a> {
    fn new(transaction: &'a Transaction, table: Table, bounds: Bounds, below: Range) -> Self {
        Self {
            transaction,
            table,
            bounds,
            direction: Direction::Forward,
            below,
            own: None,
            peeked: None,
            seen: None,
            begun: false,
            ended: false,
        }
    }

    /// The same pairs in reverse order. Call this before the first pair is taken; later the call changes nothing.
    #[must_use]
    pub fn rev(mut self) -> Self {
        if self.begun {
            return self;
        }
        self.below.turn();
        self.direction = self.direction.reversed();
        self
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
        use std::ops::Bound::Included;
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
        let step = self.step();
        if step.is_err() {
            (self.ended, self.peeked, self.own) = (true, None, None);
        }
        step.transpose()
    }
}

impl Drop for TransactionRange<'_> {
    fn drop(&mut self) {
        if let Some(walked) = self.walked() {
            self.transaction.note_range(&self.table, walked);
        }
    }
}

impl std::fmt::Debug for TransactionRange<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TransactionRange").field("table", &self.table).field("bounds", &self.bounds).finish()
    }
}
