//! A walk through several runs at once: key by key, with all versions of each.
//!
//! The walks of the runs are kept in the order of their current keys, and alike ones with the newer run first. A walk
//! that has gone on is put back at its place, which is searched for among the others.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use doclog::DocPointer;
use index::{Bounds, Direction, Expiry, Operation, Payload, Result, Seq, Update, head};
use psync::BLOCK;

use crate::runs::{Run, RunScan};
use crate::scan::Pace;
use crate::shared::Shared;

/// A version of the current key.
#[derive(Clone, Debug)]
struct OfKey {
    run: usize,
    file: u64,
    seq: Seq,
    value: Value,
    expiry: Option<Expiry>,
}

/// Its value.
#[derive(Clone, Debug)]
enum Value {
    /// In the bytes of the current key.
    Inline(Range<usize>),
    Document(DocPointer),
    None,
}

/// A walk that has a current version.
#[derive(Clone, Copy)]
struct Place {
    /// The head of its key, to compare most keys by.
    head: u64,
    walk: usize,
}

/// A walk through runs, before its first key.
pub(crate) struct Merged {
    direction: Direction,
    walks: Vec<RunScan>,
    /// Those that have a current version, in reverse: the first key comes last.
    order: Vec<Place>,
    key: Vec<u8>,
    versions: Vec<OfKey>,
    bytes: Vec<u8>,
}

impl Merged {
    /// A walk through the keys within `bounds`, in this direction. `runs` are the oldest first.
    ///
    /// # Errors
    /// When a read fails, or what was read does not check.
    pub(crate) fn new(shared: &Arc<Shared>, runs: &[Run], bounds: &Bounds, direction: Direction) -> Result<Self> {
        Self::with_pace(shared, runs, bounds, direction, Pace::SHORT, None)
    }

    /// As [`Merged::new`], at this pace; and keys may be left out that a reader at `passes` does not see.
    pub(crate) fn with_pace(
        shared: &Arc<Shared>, runs: &[Run], bounds: &Bounds, direction: Direction, pace: Pace, passes: Option<Seq>,
    ) -> Result<Self> {
        // What the oldest run hides is in itself.
        let oldest = runs.iter().position(|run| !run.slices().is_empty());
        let walk = |(index, run)| {
            let passes = passes.filter(|_| Some(index) == oldest);
            RunScan::new(shared, run, bounds, direction, pace, passes)
        };
        let walks = runs.iter().enumerate().map(walk).collect::<Result<Vec<_>>>()?;
        let order = Vec::with_capacity(walks.len());
        let mut merged = Self { direction, walks, order, key: Vec::new(), versions: Vec::new(), bytes: Vec::new() };
        for walk in 0..merged.walks.len() {
            merged.step(walk)?;
        }
        Ok(merged)
    }

    /// Moves a walk, which is not in the order, on to its next version, and puts it at its place.
    fn step(&mut self, walk: usize) -> Result<()> {
        if self.walks[walk].advance()? {
            let place = Place { head: head(self.walks[walk].key()), walk };
            let at = self.order.partition_point(|other| self.compare(*other, place).is_gt());
            self.order.insert(at, place);
        }
        Ok(())
    }

    /// Which of two walks comes first.
    fn compare(&self, one: Place, other: Place) -> Ordering {
        let heads = match self.direction {
            Direction::Forward => one.head.cmp(&other.head),
            Direction::Backward => other.head.cmp(&one.head),
        };
        heads
            .then_with(|| self.direction.order(self.walks[one.walk].key(), self.walks[other.walk].key()))
            .then_with(|| other.walk.cmp(&one.walk))
    }

    /// Moves to the next key; false at the end.
    ///
    /// # Errors
    /// As [`Merged::new`].
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.versions.clear();
        self.bytes.clear();
        let Some(first) = self.order.last() else { return Ok(false) };
        self.key.clear();
        self.key.extend_from_slice(self.walks[first.walk].key());
        let head = first.head;
        while let Some(Place { walk, .. }) =
            self.order.pop_if(|place| place.head == head && self.walks[place.walk].key() == self.key)
        {
            self.take(walk);
            self.step(walk)?;
        }
        Ok(true)
    }

    /// Copies the current version of a walk.
    fn take(&mut self, walk: usize) {
        let Some(Update { seq, operation, .. }) = self.walks[walk].current() else { return };
        let value = match operation {
            Operation::Put(Payload::Inline(value), _) => {
                let begin = self.bytes.len();
                self.bytes.extend_from_slice(value);
                Value::Inline(begin..self.bytes.len())
            }
            Operation::Put(Payload::Document(document), _) => Value::Document(document),
            Operation::Delete => Value::None,
        };
        let file = self.walks[walk].file();
        self.versions.push(OfKey { run: walk, file, seq, value, expiry: operation.expiry() });
    }

    /// The numbers of the files that have the versions of the current key.
    pub(crate) fn files(&self) -> impl Iterator<Item = u64> {
        self.versions.iter().map(|version| version.file)
    }

    /// Bytes that were read ahead, about.
    pub(crate) fn held_bytes(&self) -> usize {
        self.walks.iter().map(RunScan::ahead).sum::<usize>() * BLOCK
    }

    /// About so many bytes are read ahead from here on.
    pub(crate) fn keep_within(&mut self, bytes: usize) {
        let blocks = bytes / BLOCK / self.walks.len().max(1);
        self.walks.iter_mut().for_each(|walk| walk.keep_within(blocks));
    }

    /// The current key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The versions of the current key, each with the index of its run among those of the walk, of which a higher one
    /// is newer. Forward those of the newest run come first, and of each run the newest first; backward those of the
    /// newest run first, and of each run the oldest first.
    pub(crate) fn versions(&self) -> impl DoubleEndedIterator<Item = (usize, Update<'_>)> + ExactSizeIterator {
        self.versions.iter().map(|OfKey { run, seq, value, expiry, .. }| {
            let operation = match value {
                Value::Inline(range) => Operation::Put(Payload::Inline(&self.bytes[range.clone()]), *expiry),
                Value::Document(document) => Operation::Put(Payload::Document(*document), *expiry),
                Value::None => Operation::Delete,
            };
            (*run, Update { key: &self.key, seq: *seq, operation })
        })
    }

    /// The newest version of the current key at or below `at`: in the newest run that has one.
    pub(crate) fn newest(&self, at: Seq) -> Option<Update<'_>> {
        let mut versions = self.versions().filter(|(_, update)| update.seq <= at);
        match self.direction {
            Direction::Forward => versions.next().map(|(_, update)| update),
            Direction::Backward => {
                let (run, first) = versions.next()?;
                let of_run = versions.take_while(|(other, _)| *other == run);
                Some(of_run.last().map_or(first, |(_, update)| update))
            }
        }
    }
}
