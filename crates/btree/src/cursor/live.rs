//! The live pairs of a leaf, or of a part of one, in key order.
//!
//! 1. Runs that follow one another in key order, as those of a leaf that was written in one piece, are one sorted
//!    sequence. The longest such sequence is gone through as it is ([`survey`]).
//! 2. The entries of all other runs are sorted ([`appended`]). Appends made these runs, and they are few.
//! 3. Each of these entries is taken where the sequence comes to its key.
//! 4. Of each key the newest version at or below the scan's seq stays; of two equal versions the later run's.
//!    Tombstones, and values that have expired by the scan's time, hide older versions and are not listed.
//!
//! Entries are compared by their *heads*, the eight bytes after the prefix that all keys of the leaf share, and only
//! among equal heads by their keys. So an entry of the sequence costs two comparisons that nearly always end the same
//! way. All lists are used again for the next leaf.

mod appended;
mod survey;
mod versions;

use std::ops::Range;

use appended::Appended;
use index::{Bounds, Direction, Moment, PairAt, PairRef, Pairs, Seq};
use survey::Survey;
use versions::{Version, versions};

use crate::format::Damage;
use crate::leaf::Visible;
use crate::partition::partition_point;

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

    /// The pair at `index`, in key order, in the bytes of the leaf that the list was filled from.
    pub(super) fn pair<'a>(&self, index: usize, bytes: &'a [u8]) -> PairRef<'a> {
        self.pairs[index].pair(bytes)
    }

    /// Some pairs, in that direction.
    pub(super) fn pairs<'a>(&'a self, pairs: Range<usize>, direction: Direction, bytes: &'a [u8]) -> Pairs<'a> {
        Pairs::new(&self.pairs[pairs], bytes, direction)
    }

    /// Lists the pairs of a leaf, in place of the former list.
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
            // A run that begins above the scan's seq has nothing for the scan.
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
/// Invariant: versions are taken in key order; those of one key in any order.
struct Merge<'a> {
    bytes: &'a [u8],
    at: Seq,
    pairs: &'a mut Vec<PairAt>,
    /// The version taken last that is gone, unless a put turned out to be newer.
    deleted: Option<PairAt>,
    /// Head of the version taken last.
    head: u64,
    /// Versions with a lesser head come before the next appended one.
    limit: u64,
    appended: &'a Appended,
    /// How many of the appended versions were taken.
    next: usize,
}

impl Merge<'_> {
    /// Takes the next version of the sequence, and before it the appended versions that are not above it.
    #[inline(always)]
    fn add(&mut self, version: Version) {
        if version.head >= self.limit {
            self.catch_up(version.head, version.pair);
        }
        self.take(version);
    }

    /// Takes the appended versions that are not above the version of that head at `until`.
    // The version on its way is handed over in registers. In memory it would be put together in parts and copied in one
    // piece, and each such copy waits until the parts are written.
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

    /// Takes all remaining versions.
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

    /// Whether a version of the same key was taken that counts more. A taken version that counts less is removed.
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

#[cfg(test)]
mod tests;
