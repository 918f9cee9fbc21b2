//! The live pairs of a leaf, or of a part of one, in key order.
//!
//! 1. Runs that follow one another in key order, as those of a leaf that was written in one piece, are one sorted sequence. The
//!    longest such sequence is gone through as it is ([`survey`]).
//! 2. The entries of all other runs, which appends made and which are few, are sorted ([`appended`]).
//! 3. Each of these is taken where the sequence comes to its key.
//! 4. Of each key the newest version at or below the scan's seq stays; of two equal versions the later run's. Tombstones, and values that have
//!    expired by the scan's time, hide what is older and are not listed.
//!
//! Entries are compared by their *heads*, the eight bytes after what all keys of the leaf begin with; where these are the same, by their keys. So
//! an entry of the sequence costs two comparisons that nearly always end the same way. All lists are used again for the next leaf.

mod appended;
mod survey;

use std::ops::Range;

use appended::Appended;
use index::{Bounds, Direction, Moment, PairAt, PairRef, Pairs, Seq, Time, head};
use survey::Survey;

use crate::format::Damage;
use crate::format::run::{EntryPlace, Run};
use crate::leaf::{Visible, first_that};
use crate::node::partition_point;

/// A version of a key, and where it is in the bytes of its leaf.
#[derive(Clone, Copy)]
struct Version {
    /// The eight bytes of the key after what all keys begin with.
    head: u64,
    pair: PairAt,
    /// It is a tombstone, or has expired.
    is_gone: bool,
}

/// The live pairs of a leaf.
#[derive(Default)]
pub(super) struct Live {
    pairs: Vec<PairAt>,
    appended: Appended,
}

impl Live {
    pub(super) const fn len(&self) -> usize {
        self.pairs.len()
    }

    pub(super) fn clear(&mut self) {
        self.pairs.clear();
    }

    /// The pair at `index`, in key order, in the bytes of the leaf that it was filled from.
    pub(super) fn pair<'a>(&self, index: usize, bytes: &'a [u8]) -> PairRef<'a> {
        self.pairs[index].pair(bytes)
    }

    /// Some pairs, in that direction.
    pub(super) fn pairs<'a>(&'a self, pairs: Range<usize>, direction: Direction, bytes: &'a [u8]) -> Pairs<'a> {
        Pairs::new(&self.pairs[pairs], bytes, direction)
    }

    /// Lists the pairs of a leaf, in place of what was there.
    pub(super) fn fill(&mut self, leaf: &Visible<'_>, bounds: &Bounds, at: Moment) -> Result<(), Damage> {
        self.clear();
        let survey = Survey::of(leaf)?;
        let bounds = (!survey.is_within(bounds)).then_some(bounds);
        self.appended.list(leaf, &survey, bounds, at)?;
        self.pairs.reserve(survey.entries);
        let mut merge = Merge {
            bytes: leaf.bytes(),
            at: at.seq,
            pairs: &mut self.pairs,
            deleted: None,
            head: 0,
            limit: 0,
            appended: &self.appended,
            next: 0,
        };
        for (number, (start, base, run)) in leaf.runs().enumerate() {
            // A run that begins above the scan's seq has nothing for it.
            if survey.sequence.contains(&number) && base <= at.seq {
                let each = |version| merge.add(version);
                versions(start, &run, survey.prefix, bounds, at.now, each).ok_or_else(|| leaf.malformed(start))?;
            }
        }
        merge.finish();
        Ok(())
    }

    /// How many of the pairs after `shown` others come before `until` in this direction.
    pub(super) fn before(&self, until: &[u8], shown: usize, direction: Direction, bytes: &[u8]) -> usize {
        match direction {
            Direction::Forward => below(&self.pairs[shown..], |pair| pair.key(bytes) < until),
            Direction::Backward => {
                let left = &self.pairs[..self.len() - shown];
                left.len() - below(left, |pair| pair.key(bytes) <= until)
            }
        }
    }
}

/// How many of some pairs are `below`, which are the first.
fn below(pairs: &[PairAt], below: impl Fn(&PairAt) -> bool) -> usize {
    partition_point(pairs.len(), |index| below(&pairs[index]))
}

/// The versions of a leaf on their way to the list.
///
/// Invariant: they are taken in key order; those of one key in any order.
struct Merge<'a> {
    bytes: &'a [u8],
    at: Seq,
    pairs: &'a mut Vec<PairAt>,
    /// The version taken last that is gone, unless it was found to be older than a put.
    deleted: Option<PairAt>,
    /// Head of what was taken last.
    head: u64,
    /// What has a lesser head comes before the next of those that were appended.
    limit: u64,
    appended: &'a Appended,
    /// How many of them were taken.
    next: usize,
}

impl Merge<'_> {
    /// Takes the next version of the sequence, and before it what was appended and is not above it.
    #[inline(always)]
    fn add(&mut self, version: Version) {
        if version.head >= self.limit {
            self.catch_up(version.head, version.pair);
        }
        self.take(version);
    }

    /// Takes those appended that are not above the version of that head at `until`.
    // What is on its way is handed over in registers: in memory it would be put together in parts and copied in one piece, and each such copy
    // waits until its parts are written.
    #[inline(never)]
    fn catch_up(&mut self, head: u64, until: PairAt) {
        self.limit = u64::MAX;
        while let Some(next) = self.appended.get(self.next) {
            let bytes = self.bytes;
            let is_above = next.head > head || (next.head == head && next.pair.key(bytes) > until.key(bytes));
            if is_above {
                self.limit = next.head;
                return;
            }
            self.take(*next);
            self.next += 1;
        }
    }

    /// Takes all that is left.
    fn finish(mut self) {
        while let Some(next) = self.appended.get(self.next) {
            self.take(*next);
            self.next += 1;
        }
    }

    #[inline(always)]
    fn take(&mut self, version: Version) {
        if version.pair.version().0 > self.at || (version.head == self.head && self.is_older(version.pair)) {
            return;
        }
        self.head = version.head;
        if version.is_gone {
            self.deleted = Some(version.pair);
        } else {
            self.pairs.push(version.pair);
        }
    }

    /// Whether a version of the same key was taken that counts more. If there is one that counts less, it goes.
    #[inline(never)]
    fn is_older(&mut self, version: PairAt) -> bool {
        let key = version.key(self.bytes);
        let of_key = |pair: &PairAt| pair.key(self.bytes) == key;
        let put = self.pairs.last().copied().filter(of_key);
        let Some(other) = put.or(self.deleted.filter(of_key)) else { return false };
        // Of one seq the later run's counts, which lies behind.
        let is_older = version.version() < other.version();
        if !is_older {
            self.deleted = None;
            if put.is_some() {
                self.pairs.pop();
            }
        }
        is_older
    }
}

/// Hands the versions in a run within `bounds` to `each`, in their order; none where it is malformed.
#[inline(always)]
fn versions(
    start: usize, run: &Run<'_>, prefix: usize, bounds: Option<&Bounds>, now: Time, mut each: impl FnMut(Version),
) -> Option<()> {
    let entries = within(run, bounds)?;
    if entries.is_empty() {
        return Some(());
    }
    if let Some(strip) = run.strip(entries.clone(), prefix) {
        let (word, key_length, is_gone) = (strip.word, strip.key_length, strip.word.is_tombstone());
        let (mut key_at, stride) = (u32::try_from(start + strip.key_at).ok()?, u32::try_from(strip.stride).ok()?);
        for (seq, head) in strip.entries() {
            each(Version { head, pair: word.pair_at(Seq(seq), key_at, key_length), is_gone });
            key_at = key_at.wrapping_add(stride);
        }
        return Some(());
    }
    for index in entries {
        let place = run.place(index)?;
        let EntryPlace { seq, key_at, key_length, word } = place;
        let (from, to) = (usize::from(key_at) + prefix, usize::from(key_at) + usize::from(key_length));
        let head = head(run.bytes().get(from..to)?);
        let pair = word.pair_at(Seq(seq), u32::try_from(start + usize::from(key_at)).ok()?, key_length);
        let is_gone = word.is_tombstone() || word.expires() && run.expiry(&place)?.is_over(now);
        each(Version { head, pair, is_gone });
    }
    Some(())
}

/// The entries of a run whose keys are within bounds, all of them where there are none; none where it is malformed.
fn within(run: &Run<'_>, bounds: Option<&Bounds>) -> Option<Range<usize>> {
    let Some(bounds) = bounds else { return Some(0..run.count()) };
    let (first, last) = run.ends()?;
    let from = if bounds.above_lower(first) { 0 } else { first_that(run, |key| bounds.above_lower(key))? };
    let to = if bounds.below_upper(last) { run.count() } else { first_that(run, |key| !bounds.below_upper(key))? };
    Some(from..to)
}

#[cfg(test)]
mod tests;
