//! The live pairs of a leaf, or of a part of one, in key order.
//!
//! 0. A leaf in which everything counts, as after a load, is not listed at all: its runs follow one another in key order, and each is [`Rows`] of
//!    one shape and one seq.
//! 1. Runs that follow one another in key order, as those of a leaf that was written in one piece, are one sorted sequence. The
//!    longest such sequence is taken as it is.
//! 2. The entries of all other runs, which appends made and which are few, are sorted.
//! 3. The two are merged.
//! 4. Of each key the newest version at or below the scan's seq is kept; of two equal versions the later run's. Tombstones go.
//!
//! Steps 2 and 3 compare entries by their *heads*, the eight bytes after what all keys of the leaf begin with; step 4 orders those of one head.
//! It looks only at leaves that have what it is about. All lists are used again for the next leaf.

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
    fn has_key_of(&self, other: &Self, bytes: &[u8]) -> bool {
        self.head == other.head && self.key(bytes) == other.key(bytes)
    }

    /// Of two versions of a key, the greater counts. A later run lies behind an earlier one.
    fn version(&self) -> (u64, u32) {
        (self.seq, self.key_at)
    }
}

/// Entries by head.
#[derive(Default)]
struct Sequence {
    slots: Vec<Slot>,
    /// Whether heads do not rise strictly.
    has_ties: bool,
    /// Whether a seq is above the scan's.
    has_later: bool,
    has_tombstones: bool,
}

impl Sequence {
    fn clear(&mut self) {
        self.slots.clear();
        self.has_ties = false;
        self.has_later = false;
        self.has_tombstones = false;
    }

    /// Adds the entries of a run within `bounds`; none where it is malformed.
    fn add(&mut self, start: usize, run: &Run<'_>, prefix: usize, bounds: Option<&Bounds>, at: Seq) -> Option<()> {
        let entries = within(run, bounds)?;
        if entries.is_empty() {
            return Some(());
        }
        let (mut rises, mut newest) = (true, 0);
        let (mut is_first, mut before) = self.slots.last().map_or((true, 0), |slot| (false, slot.head));
        let mut note = |seq: u64, head: u64| {
            rises &= is_first | (before < head);
            (is_first, before) = (false, head);
            newest = newest.max(seq);
        };
        if let Some(strip) = run.strip(entries.clone(), prefix) {
            let (key_length, word) = (strip.key_length, strip.word);
            let (mut next, stride) = (u32::try_from(start + strip.key_at).ok()?, u32::try_from(strip.stride).ok()?);
            self.slots.extend(strip.entries().map(|(seq, head)| {
                note(seq, head);
                let key_at = next;
                next = next.wrapping_add(stride);
                Slot { head, seq, key_at, key_length, word }
            }));
            self.has_tombstones |= word.is_tombstone();
        } else {
            self.slots.reserve(entries.len());
            for index in entries {
                let EntryPlace { seq, key_at, key_length, word } = run.place(index)?;
                let (from, to) = (usize::from(key_at) + prefix, usize::from(key_at) + usize::from(key_length));
                let head = head(run.bytes().get(from..to)?);
                let key_at = u32::try_from(start + usize::from(key_at)).ok()?;
                note(seq, head);
                self.slots.push(Slot { head, seq, key_at, key_length, word });
                self.has_tombstones |= word.is_tombstone();
            }
        }
        self.has_ties |= !rises;
        self.has_later |= newest > at.0;
        Some(())
    }

    /// Sorts entries that were added out of order.
    fn sort(&mut self) {
        self.slots.sort_unstable_by_key(|slot| slot.head);
        self.has_ties = self.slots.windows(2).fold(false, |ties, pair| ties | (pair[0].head == pair[1].head));
    }
}

/// Merges two lists by head. Whether they have one in common.
fn merge(one: &[Slot], other: &[Slot], merged: &mut Vec<Slot>) -> bool {
    merged.reserve(one.len() + other.len());
    let (mut left, mut right, mut ties) = (0, 0, false);
    while let (Some(first), Some(second)) = (one.get(left), other.get(right)) {
        // Without a branch that a processor would have to guess.
        let is_second = second.head < first.head;
        ties |= second.head == first.head;
        merged.push(*if is_second { second } else { first });
        right += usize::from(is_second);
        left += usize::from(!is_second);
    }
    merged.extend_from_slice(&one[left..]);
    merged.extend_from_slice(&other[right..]);
    ties
}

/// Puts slots that are in the order of their heads in key order, and keeps of each key the newest version at or below `at`, be it
/// a tombstone.
fn keep_newest(slots: &mut Vec<Slot>, bytes: &[u8], at: Seq) {
    for ties in slots.chunk_by_mut(|one, other| one.head == other.head).filter(|ties| ties.len() > 1) {
        ties.sort_by(|one, other| one.key(bytes).cmp(other.key(bytes)).then(one.version().cmp(&other.version())));
    }
    let mut kept = 0;
    for index in 0..slots.len() {
        let slot = slots[index];
        if slot.seq > at.0 {
            continue;
        }
        let again = kept > 0 && slots[kept - 1].has_key_of(&slot, bytes);
        kept -= usize::from(again);
        slots[kept] = slot;
        kept += 1;
    }
    slots.truncate(kept);
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
    fn of(start: usize, run: &Run<'_>, bounds: Option<&Bounds>, at: Seq, first: usize) -> Option<Self> {
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
        let bounds = (!survey.is_within(bounds)).then_some(bounds);
        if survey.sequence.len() == survey.runs && self.fill_rows(leaf, bounds, at).is_some() {
            return Ok(());
        }
        self.clear();
        self.fill_slots(leaf, &survey, bounds, at)?;
        self.len = self.slots.len();
        Ok(())
    }

    /// None where not everything counts.
    fn fill_rows(&mut self, leaf: &Visible<'_>, bounds: Option<&Bounds>, at: Seq) -> Option<()> {
        for (start, _, run) in leaf.runs() {
            let rows = Rows::of(start, &run, bounds, at, self.len)?;
            self.len += rows.count;
            self.rows.push(rows);
        }
        Some(())
    }

    fn fill_slots(
        &mut self, leaf: &Visible<'_>, survey: &Survey<'_>, bounds: Option<&Bounds>, at: Seq,
    ) -> Result<(), Damage> {
        self.long.clear();
        self.rest.clear();
        for (number, (start, base, run)) in leaf.runs().enumerate() {
            // A run that begins above the scan's seq has nothing for it.
            if base <= at {
                let to = if survey.sequence.contains(&number) { &mut self.long } else { &mut self.rest };
                to.add(start, &run, survey.prefix, bounds, at).ok_or_else(|| leaf.malformed(start))?;
            }
        }
        let (mut has_ties, has_later) = (self.long.has_ties, self.long.has_later || self.rest.has_later);
        if self.rest.slots.is_empty() {
            std::mem::swap(&mut self.slots, &mut self.long.slots);
        } else {
            self.rest.sort();
            has_ties |= merge(&self.long.slots, &self.rest.slots, &mut self.slots) || self.rest.has_ties;
        }
        if has_ties || has_later {
            keep_newest(&mut self.slots, leaf.bytes(), at);
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

/// The entries of a run whose keys are within bounds, all of them where there are none; none where it is malformed.
fn within(run: &Run<'_>, bounds: Option<&Bounds>) -> Option<Range<usize>> {
    let Some(bounds) = bounds else { return Some(0..run.count()) };
    let (first, last) = run.ends()?;
    let from = if bounds.above_lower(first) { 0 } else { first_that(run, |key| bounds.above_lower(key))? };
    let to = if bounds.below_upper(last) { run.count() } else { first_that(run, |key| !bounds.below_upper(key))? };
    Some(from..to)
}

/// A key, compared by its head first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Headed<'a> {
    head: u64,
    key: &'a [u8],
}

impl<'a> Headed<'a> {
    fn of(key: &'a [u8]) -> Self {
        Self { head: head(key), key }
    }
}

/// What the first and last keys of its runs say of a leaf.
struct Survey<'a> {
    /// How many runs it has.
    runs: usize,
    /// The least and the greatest key; none where there are no runs.
    ends: Option<(&'a [u8], &'a [u8])>,
    /// How many bytes all keys begin with.
    prefix: usize,
    /// The runs that are the longest sorted sequence: each begins above the end of the one before it.
    sequence: Range<usize>,
}

impl<'a> Survey<'a> {
    fn of(leaf: &Visible<'a>) -> Result<Self, Damage> {
        let mut ends = None::<(Headed<'a>, Headed<'a>)>;
        let mut before = None::<Headed<'a>>;
        let (mut longest, mut entries_max) = (0..0, 0);
        let (mut runs, mut begin, mut entries) = (0, 0, 0);
        for (number, (start, _, run)) in leaf.runs().enumerate() {
            let (first, last) = run.ends().ok_or_else(|| leaf.malformed(start))?;
            let (first, last) = (Headed::of(first), Headed::of(last));
            if before.is_some_and(|before| before >= first) {
                (begin, entries) = (number, 0);
            }
            before = Some(last);
            runs = number + 1;
            entries += run.count();
            if entries > entries_max {
                (longest, entries_max) = (begin..number + 1, entries);
            }
            ends = Some(ends.map_or((first, last), |(low, high)| (low.min(first), high.max(last))));
        }
        let ends = ends.map(|(low, high)| (low.key, high.key));
        let common = |(low, high): (&[u8], &[u8])| low.iter().zip(high).take_while(|(one, other)| one == other).count();
        Ok(Self { runs, ends, prefix: ends.map_or(0, common), sequence: longest })
    }

    fn is_within(&self, bounds: &Bounds) -> bool {
        self.ends.is_none_or(|(low, high)| bounds.above_lower(low) && bounds.below_upper(high))
    }
}

#[cfg(test)]
mod tests;
