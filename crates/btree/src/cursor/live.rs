//! The live pairs of a leaf, or of a part of one, in key order.
//!
//! 0. A leaf in which everything counts, as after a load, is not listed at all: its runs follow one another in key order, and each is [`Rows`] of
//!    one shape and one seq.
//! 1. Runs that follow one another in key order, as those of a leaf that was written in one piece, are one sorted sequence. The
//!    longest such sequence is taken as it is.
//! 2. The entries of all other runs, which appends made and which are few, are sorted.
//! 3. Of each key of either the newest version at or below the scan's seq is kept; of two equal versions the later run's.
//! 4. The two are merged: stretches of the one between two entries of the other are copied. Tombstones go.
//!
//! Entries are compared by the eight bytes after what all keys of the leaf begin with, and by more only where these are equal.
//! Steps 3 and 4 look only at leaves that have what they are about. All lists are used again for the next leaf.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use index::{Bounds, Direction, PairRef, Seq, Show};

use crate::format::Damage;
use crate::format::run::{EntryPlace, EntryWord, Row, Run};
use crate::leaf::{Visible, first_that};
use crate::node::{head, partition_point};

/// Where a version is in the bytes of its leaf.
#[derive(Clone, Copy)]
struct Slot {
    /// The eight bytes of the key after what all keys begin with.
    head: u64,
    seq: u64,
    key_at: u32,
    key_length: u16,
    word: EntryWord,
}

impl Slot {
    #[inline]
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let at = self.key_at as usize;
        &bytes[at..at + usize::from(self.key_length)]
    }

    /// In the bytes of its leaf. It is not a tombstone.
    #[inline]
    fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let value_at = self.key_at as usize + usize::from(self.key_length);
        &bytes[value_at..value_at + self.word.value_length()]
    }

    #[inline]
    fn pair<'a>(&self, bytes: &'a [u8]) -> PairRef<'a> {
        PairRef { key: self.key(bytes), seq: Seq(self.seq), value: self.word.payload(self.value(bytes)) }
    }

    #[inline(always)]
    fn show(&self, bytes: &[u8], show: &mut Show<'_>) -> ControlFlow<()> {
        self.word.show(self.key(bytes), Seq(self.seq), self.value(bytes), show)
    }

    #[inline]
    fn order_keys(&self, other: &Self, bytes: &[u8]) -> Ordering {
        if self.head == other.head { self.order_equal_heads(other, bytes) } else { self.head.cmp(&other.head) }
    }

    #[cold]
    fn order_equal_heads(&self, other: &Self, bytes: &[u8]) -> Ordering {
        self.key(bytes).cmp(other.key(bytes))
    }

    /// Of two versions of a key, the greater counts. A later run lies behind an earlier one.
    fn version(&self) -> (u64, u32) {
        (self.seq, self.key_at)
    }
}

/// Entries in key order.
#[derive(Default)]
struct Sequence {
    slots: Vec<Slot>,
    /// Whether heads do not rise strictly, or a seq is above the scan's.
    has_versions: bool,
    has_tombstones: bool,
}

impl Sequence {
    fn clear(&mut self) {
        self.slots.clear();
        self.has_versions = false;
        self.has_tombstones = false;
    }

    /// Adds the entries of a run within `bounds`; none where it is malformed.
    fn add(&mut self, start: usize, run: &Run<'_>, prefix: usize, bounds: &Bounds, at: Seq) -> Option<()> {
        let entries = within(run, bounds)?;
        self.slots.reserve(entries.len());
        let (mut rises, mut newest, mut tombstones) = (true, 0, false);
        let (mut is_first, mut before) = self.slots.last().map_or((true, 0), |slot| (false, slot.head));
        for index in entries {
            let EntryPlace { seq, key_at, key_length, word } = run.place(index)?;
            let (from, to) = (usize::from(key_at) + prefix, usize::from(key_at) + usize::from(key_length));
            let head = head(run.bytes().get(from..to)?);
            let key_at = u32::try_from(start + usize::from(key_at)).ok()?;
            rises &= is_first | (before < head);
            (is_first, before) = (false, head);
            newest = newest.max(seq);
            tombstones |= word.is_tombstone();
            self.slots.push(Slot { head, seq, key_at, key_length, word });
        }
        self.has_versions |= !rises || newest > at.0;
        self.has_tombstones |= tombstones;
        Some(())
    }

    /// Sorts entries that were added out of order.
    fn sort(&mut self, bytes: &[u8]) {
        let order =
            |one: &Slot, other: &Slot| one.order_keys(other, bytes).then_with(|| one.version().cmp(&other.version()));
        self.slots.sort_unstable_by(order);
        self.has_versions = true;
    }

    /// Keeps the newest version at or below `at` of each key, be it a tombstone.
    fn keep_newest(&mut self, bytes: &[u8], at: Seq) {
        if !self.has_versions {
            return;
        }
        let mut kept = 0;
        for index in 0..self.slots.len() {
            let slot = self.slots[index];
            if slot.seq > at.0 {
                continue;
            }
            let again = kept > 0 && self.slots[kept - 1].order_keys(&slot, bytes) == Ordering::Equal;
            kept -= usize::from(again);
            self.slots[kept] = slot;
            kept += 1;
        }
        self.slots.truncate(kept);
    }
}

/// Merges two lists that have a key once each; of what both have the newer version counts. `other` is the shorter one: what lies between
/// two of its entries is copied in one piece.
fn merge(one: &[Slot], other: &[Slot], bytes: &[u8], merged: &mut Vec<Slot>) {
    merged.reserve(one.len() + other.len());
    let mut next = 0;
    for right in other {
        let begin = next;
        while one.get(next).is_some_and(|left| left.head < right.head) {
            next += 1;
        }
        while one.get(next).is_some_and(|left| left.order_keys(right, bytes) == Ordering::Less) {
            next += 1;
        }
        merged.extend_from_slice(&one[begin..next]);
        match one.get(next).filter(|left| left.order_keys(right, bytes) == Ordering::Equal) {
            Some(left) => {
                merged.push(if left.version() > right.version() { *left } else { *right });
                next += 1;
            }
            None => merged.push(*right),
        }
    }
    merged.extend_from_slice(&one[next..]);
}

/// Pairs of one run that all count.
struct Rows {
    /// How many pairs of the leaf are before them.
    first: usize,
    count: usize,
    /// Where in the leaf the first row begins.
    start: usize,
    row: Row,
}

impl Rows {
    /// Those of a run within `bounds`, if all its entries count.
    fn of(start: usize, run: &Run<'_>, bounds: &Bounds, at: Seq, first: usize) -> Option<Self> {
        let row = run.row().filter(|row| row.seq <= at)?;
        let entries = within(run, bounds)?;
        let start = start + row.first + entries.start * row.bytes();
        Some(Self { first, count: entries.len(), start, row })
    }

    fn pair<'a>(&self, index: usize, bytes: &'a [u8]) -> PairRef<'a> {
        let at = self.start + (index - self.first) * self.row.bytes();
        self.row.pair(&bytes[at..at + self.row.bytes()])
    }
}

/// The live pairs of a leaf.
#[derive(Default)]
pub(super) struct Live {
    /// All of them, where the leaf has nothing else.
    rows: Vec<Rows>,
    slots: Vec<Slot>,
    len: usize,
    /// Entries of the longest sequence of runs, and those of all others.
    long: Sequence,
    rest: Sequence,
}

impl Live {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.slots.clear();
        self.len = 0;
    }

    /// The pair at `index`, in key order, in the bytes of the leaf that it was filled from.
    #[inline]
    pub(super) fn pair<'a>(&self, index: usize, bytes: &'a [u8]) -> PairRef<'a> {
        if self.rows.is_empty() {
            return self.slots[index].pair(bytes);
        }
        self.rows[self.rows.partition_point(|rows| rows.first <= index) - 1].pair(index, bytes)
    }

    /// Shows some pairs; how many, until `show` has enough.
    pub(super) fn show(
        &self, pairs: Range<usize>, direction: Direction, bytes: &[u8], show: &mut Show<'_>,
    ) -> (usize, ControlFlow<()>) {
        if self.rows.is_empty() {
            let slots = self.slots[pairs].iter();
            return match direction {
                Direction::Forward => show_all(slots, |slot| slot.show(bytes, show)),
                Direction::Backward => show_all(slots.rev(), |slot| slot.show(bytes, show)),
            };
        }
        if direction == Direction::Backward {
            return show_all(pairs.rev(), |index| show(self.pair(index, bytes)));
        }
        let mut shown = 0;
        for rows in &self.rows {
            let end = rows.first + rows.count;
            let (from, to) = (pairs.start.clamp(rows.first, end), pairs.end.clamp(rows.first, end));
            let stride = rows.row.bytes();
            let start = rows.start + (from - rows.first) * stride;
            let pairs = bytes[start..start + (to - from) * stride].chunks_exact(stride);
            let (more, flow) = show_all(pairs, |row| rows.row.show(row, show));
            shown += more;
            if flow.is_break() {
                return (shown, flow);
            }
        }
        (shown, ControlFlow::Continue(()))
    }

    /// Lists the pairs of a leaf, in place of what was there.
    pub(super) fn fill(&mut self, leaf: &Visible<'_>, bounds: &Bounds, at: Seq) -> Result<(), Damage> {
        self.clear();
        let survey = Survey::of(leaf)?;
        if survey.sequence.len() == survey.runs && self.fill_rows(leaf, bounds, at).is_some() {
            return Ok(());
        }
        self.clear();
        self.fill_slots(leaf, &survey, bounds, at)?;
        self.len = self.slots.len();
        Ok(())
    }

    /// None where not everything counts.
    fn fill_rows(&mut self, leaf: &Visible<'_>, bounds: &Bounds, at: Seq) -> Option<()> {
        for (start, _, run) in leaf.runs() {
            let rows = Rows::of(start, &run, bounds, at, self.len)?;
            self.len += rows.count;
            self.rows.push(rows);
        }
        Some(())
    }

    fn fill_slots(&mut self, leaf: &Visible<'_>, survey: &Survey, bounds: &Bounds, at: Seq) -> Result<(), Damage> {
        self.long.clear();
        self.rest.clear();
        for (number, (start, base, run)) in leaf.runs().enumerate() {
            // A run that begins above the scan's seq has nothing for it.
            if base <= at {
                let to = if survey.sequence.contains(&number) { &mut self.long } else { &mut self.rest };
                to.add(start, &run, survey.prefix, bounds, at).ok_or_else(|| leaf.malformed(start))?;
            }
        }
        let bytes = leaf.bytes();
        self.long.keep_newest(bytes, at);
        if self.rest.slots.is_empty() {
            std::mem::swap(&mut self.slots, &mut self.long.slots);
        } else {
            self.rest.sort(bytes);
            self.rest.keep_newest(bytes, at);
            merge(&self.long.slots, &self.rest.slots, bytes, &mut self.slots);
        }
        if self.long.has_tombstones || self.rest.has_tombstones {
            self.slots.retain(|slot| !slot.word.is_tombstone());
        }
        Ok(())
    }

    /// How many of the pairs after `shown` others come before `until` in this direction.
    pub(super) fn before(&self, until: &[u8], shown: usize, direction: Direction, bytes: &[u8]) -> usize {
        match direction {
            Direction::Forward => self.below(shown..self.len, bytes, |key| key < until) - shown,
            Direction::Backward => {
                let left = self.len - shown;
                left - self.below(0..left, bytes, |key| key <= until)
            }
        }
    }

    /// The first of some pairs whose key is not `below`, as all after it are not.
    fn below(&self, pairs: Range<usize>, bytes: &[u8], below: impl Fn(&[u8]) -> bool) -> usize {
        pairs.start + partition_point(pairs.len(), |index| below(self.pair(pairs.start + index, bytes).key))
    }
}

/// Shows pairs, each with `show`, until it has enough; how many.
#[inline]
fn show_all<T>(pairs: impl Iterator<Item = T>, mut show: impl FnMut(T) -> ControlFlow<()>) -> (usize, ControlFlow<()>) {
    let mut shown = 0;
    for pair in pairs {
        shown += 1;
        if show(pair).is_break() {
            return (shown, ControlFlow::Break(()));
        }
    }
    (shown, ControlFlow::Continue(()))
}

fn ends<'a>(run: &Run<'a>) -> Option<(&'a [u8], &'a [u8])> {
    Some((run.key(0)?.0, run.key(run.count() - 1)?.0))
}

/// The entries of a run whose keys are within bounds; none where it is malformed.
fn within(run: &Run<'_>, bounds: &Bounds) -> Option<Range<usize>> {
    let (first, last) = ends(run)?;
    let from = if bounds.above_lower(first) { 0 } else { first_that(run, |key| bounds.above_lower(key))? };
    let to = if bounds.below_upper(last) { run.count() } else { first_that(run, |key| !bounds.below_upper(key))? };
    Some(from..to)
}

/// What the first and last keys of its runs say of a leaf.
struct Survey {
    /// How many runs it has.
    runs: usize,
    /// How many bytes all keys begin with.
    prefix: usize,
    /// The runs that are the longest sorted sequence: each begins above the end of the one before it.
    sequence: Range<usize>,
}

impl Survey {
    fn of(leaf: &Visible<'_>) -> Result<Self, Damage> {
        let mut shared = None::<&[u8]>;
        let mut before = None::<&[u8]>;
        let (mut longest, mut entries_max) = (0..0, 0);
        let (mut runs, mut begin, mut entries) = (0, 0, 0);
        for (number, (start, _, run)) in leaf.runs().enumerate() {
            let (first, last) = ends(&run).ok_or_else(|| leaf.malformed(start))?;
            if before.is_some_and(|before| before >= first) {
                (begin, entries) = (number, 0);
            }
            before = Some(last);
            runs = number + 1;
            entries += run.count();
            if entries > entries_max {
                (longest, entries_max) = (begin..number + 1, entries);
            }
            let prefix = shared.unwrap_or(first);
            let common = |key: &[u8]| prefix.iter().zip(key).take_while(|(one, other)| one == other).count();
            shared = Some(&prefix[..common(first).min(common(last))]);
        }
        Ok(Self { runs, prefix: shared.map_or(0, <[u8]>::len), sequence: longest })
    }
}

#[cfg(test)]
mod tests;
