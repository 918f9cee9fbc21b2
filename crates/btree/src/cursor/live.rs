//! The live pairs of a leaf, in key order.
//!
//! 1. Runs that follow one another in key order, as those of a leaf that was written in one piece, are taken as they are; else
//!    the entries of all runs are sorted.
//! 2. Entries are compared by the eight bytes after what all keys of the leaf begin with, and by more only where these are equal.
//! 3. Of each key the newest version at or below the scan's seq is kept, if it is not a tombstone; of two equal versions
//!    the later run's.
//!
//! The list is used again for the next leaf.

use std::cmp::Ordering;

use index::{Bounds, Operation, PairRef, Seq};

use crate::format::Damage;
use crate::format::run::{EntryPlace, EntryWord, Run};
use crate::leaf::{Visible, first_that, malformed};
use crate::node::head;

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

    /// Compares keys and seqs.
    #[inline]
    fn order(&self, other: &Self, bytes: &[u8]) -> Ordering {
        self.head.cmp(&other.head).then_with(|| (self.key(bytes), self.seq).cmp(&(other.key(bytes), other.seq)))
    }

    #[inline]
    fn is_version_of(&self, other: &Self, bytes: &[u8]) -> bool {
        self.head == other.head && self.key(bytes) == other.key(bytes)
    }
}

#[derive(Default)]
pub(super) struct Live {
    slots: Vec<Slot>,
    /// The scan's seq.
    at: Seq,
    /// Whether, as far as they were added in key order, all are of keys with different heads, not above the seq, and no tombstones.
    is_plain: bool,
}

impl Live {
    pub(super) const fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// The pair at `index`, in the bytes of the leaf that it was filled from.
    #[inline]
    pub(super) fn get<'a>(&self, index: usize, bytes: &'a [u8]) -> PairRef<'a> {
        let slot = &self.slots[index];
        let value_at = slot.key_at as usize + usize::from(slot.key_length);
        let value = &bytes[value_at..value_at + slot.word.value_length()];
        let Operation::Put(value) = slot.word.operation(value) else { unreachable!("tombstones are left out") };
        PairRef { key: slot.key(bytes), seq: Seq(slot.seq), value }
    }

    /// Lists the pairs of a leaf, in place of what was there.
    pub(super) fn fill(&mut self, leaf: &Visible<'_>, bounds: &Bounds, at: Seq) -> Result<(), Damage> {
        self.slots.clear();
        self.at = at;
        self.is_plain = true;
        let (prefix, in_order) = survey(leaf)?;
        // A run that begins above the scan's seq has nothing for it.
        for (start, _, run) in leaf.runs().filter(|(_, base, _)| *base <= at) {
            self.add(start, &run, prefix, bounds).ok_or_else(|| malformed(start))?;
        }
        let bytes = leaf.bytes();
        if !in_order {
            // Stable, and fast on what consists of a few sorted pieces, as runs are.
            self.slots.sort_by(|one, other| one.order(other, bytes));
        }
        if !(in_order && self.is_plain) {
            self.keep_newest(bytes, at);
        }
        Ok(())
    }

    /// Adds the entries of a run within `bounds`; none where it is malformed.
    fn add(&mut self, start: usize, run: &Run<'_>, prefix: usize, bounds: &Bounds) -> Option<()> {
        let (first, last) = ends(run)?;
        let from = if bounds.above_lower(first) { 0 } else { first_that(run, |key| bounds.above_lower(key))? };
        let to = if bounds.below_upper(last) { run.count() } else { first_that(run, |key| !bounds.below_upper(key))? };
        self.slots.reserve(to.saturating_sub(from));
        let mut before = self.slots.last().map(|slot| slot.head);
        for index in from..to {
            let EntryPlace { seq, key_at, key_length, word } = run.place(index)?;
            let (from, to) = (usize::from(key_at) + prefix, usize::from(key_at) + usize::from(key_length));
            let head = head(run.bytes().get(from..to)?);
            let key_at = u32::try_from(start + usize::from(key_at)).ok()?;
            self.is_plain &= seq <= self.at.0 && !word.is_tombstone() && before != Some(head);
            before = Some(head);
            self.slots.push(Slot { head, seq, key_at, key_length, word });
        }
        Some(())
    }

    fn keep_newest(&mut self, bytes: &[u8], at: Seq) {
        let (mut kept, mut next) = (0, 0);
        while let Some(first) = self.slots.get(next) {
            let first = *first;
            let mut newest = (first.seq <= at.0).then_some(first);
            next += 1;
            while let Some(slot) = self.slots.get(next).filter(|slot| slot.is_version_of(&first, bytes)) {
                if slot.seq <= at.0 {
                    newest = Some(*slot);
                }
                next += 1;
            }
            if let Some(newest) = newest.filter(|newest| !newest.word.is_tombstone()) {
                self.slots[kept] = newest;
                kept += 1;
            }
        }
        self.slots.truncate(kept);
    }
}

fn ends<'a>(run: &Run<'a>) -> Option<(&'a [u8], &'a [u8])> {
    Some((run.key(0)?.0, run.key(run.count() - 1)?.0))
}

/// How many bytes all keys begin with, and whether each run begins above the end of the one before it.
fn survey(leaf: &Visible<'_>) -> Result<(usize, bool), Damage> {
    let (mut shared, mut in_order) = (None::<&[u8]>, true);
    let mut before: Option<&[u8]> = None;
    for (start, _, run) in leaf.runs() {
        let (first, last) = ends(&run).ok_or_else(|| malformed(start))?;
        in_order &= before.is_none_or(|before| before < first);
        before = Some(last);
        let prefix = shared.unwrap_or(first);
        let common = |key: &[u8]| prefix.iter().zip(key).take_while(|(one, other)| one == other).count();
        shared = Some(&prefix[..common(first).min(common(last))]);
    }
    Ok((shared.map_or(0, <[u8]>::len), in_order))
}
