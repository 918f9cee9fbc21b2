//! The live pairs of a leaf, in key order.
//!
//! 1. Runs that follow one another in key order, as those of a leaf that was written in one piece, are one sorted sequence. The
//!    longest such sequence is taken as it is.
//! 2. The entries of all other runs, which appends made and which are few, are sorted.
//! 3. Of each key of either the newest version at or below the scan's seq is kept; of two equal versions the later run's.
//! 4. The two are merged: stretches of the one between two entries of the other are copied. Tombstones go.
//!
//! Entries are compared by the eight bytes after what all keys of the leaf begin with, and by more only where these are equal.
//! Steps 3 and 4 look only at leaves that have what they are about. All lists are used again for the next leaf.

use std::cmp::Ordering;
use std::ops::Range;

use index::{Bounds, Direction, Operation, PairRef, Seq};

use crate::format::Damage;
use crate::format::run::{EntryPlace, EntryWord, Run};
use crate::leaf::{Visible, first_that, malformed};
use crate::node::head;

/// Where a version is in the bytes of its leaf.
#[derive(Clone, Copy)]
pub(super) struct Slot {
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

    /// The pair, in the bytes of its leaf. It is not a tombstone.
    #[inline]
    pub(super) fn pair<'a>(&self, bytes: &'a [u8]) -> PairRef<'a> {
        let value_at = self.key_at as usize + usize::from(self.key_length);
        let value = &bytes[value_at..value_at + self.word.value_length()];
        let Operation::Put(value) = self.word.operation(value) else { unreachable!("tombstones are left out") };
        PairRef { key: self.key(bytes), seq: Seq(self.seq), value }
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
        let (first, last) = ends(run)?;
        let from = if bounds.above_lower(first) { 0 } else { first_that(run, |key| bounds.above_lower(key))? };
        let to = if bounds.below_upper(last) { run.count() } else { first_that(run, |key| !bounds.below_upper(key))? };
        self.slots.reserve(to.saturating_sub(from));
        let (mut rises, mut newest, mut tombstones) = (true, 0, false);
        let (mut is_first, mut before) = self.slots.last().map_or((true, 0), |slot| (false, slot.head));
        for index in from..to {
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

/// The live pairs of a leaf.
#[derive(Default)]
pub(super) struct Live {
    slots: Vec<Slot>,
    /// Entries of the longest sequence of runs, and those of all others.
    long: Sequence,
    rest: Sequence,
}

impl Live {
    pub(super) const fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// The pairs, in key order.
    #[inline]
    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Lists the pairs of a leaf, in place of what was there.
    pub(super) fn fill(&mut self, leaf: &Visible<'_>, bounds: &Bounds, at: Seq) -> Result<(), Damage> {
        self.slots.clear();
        self.long.clear();
        self.rest.clear();
        let Survey { prefix, sequence } = Survey::of(leaf)?;
        for (number, (start, base, run)) in leaf.runs().enumerate() {
            // A run that begins above the scan's seq has nothing for it.
            if base <= at {
                let to = if sequence.contains(&number) { &mut self.long } else { &mut self.rest };
                to.add(start, &run, prefix, bounds, at).ok_or_else(|| malformed(start))?;
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
            Direction::Forward => self.slots[shown..].partition_point(|slot| slot.key(bytes) < until),
            Direction::Backward => {
                let left = &self.slots[..self.slots.len() - shown];
                left.len() - left.partition_point(|slot| slot.key(bytes) <= until)
            }
        }
    }
}

fn ends<'a>(run: &Run<'a>) -> Option<(&'a [u8], &'a [u8])> {
    Some((run.key(0)?.0, run.key(run.count() - 1)?.0))
}

/// What the first and last keys of its runs say of a leaf.
struct Survey {
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
        let (mut begin, mut entries) = (0, 0);
        for (number, (start, _, run)) in leaf.runs().enumerate() {
            let (first, last) = ends(&run).ok_or_else(|| malformed(start))?;
            if before.is_some_and(|before| before >= first) {
                (begin, entries) = (number, 0);
            }
            before = Some(last);
            entries += run.count();
            if entries > entries_max {
                (longest, entries_max) = (begin..number + 1, entries);
            }
            let prefix = shared.unwrap_or(first);
            let common = |key: &[u8]| prefix.iter().zip(key).take_while(|(one, other)| one == other).count();
            shared = Some(&prefix[..common(first).min(common(last))]);
        }
        Ok(Self { prefix: shared.map_or(0, <[u8]>::len), sequence: longest })
    }
}

#[cfg(test)]
mod tests;
