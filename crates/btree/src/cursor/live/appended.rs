//! The entries of runs that appends made, in key order.
//!
//! A list of words is sorted, not a list of entries. The first bits of each word are those of a head, the last ones the
//! number of its entry. Entries are few and words small, so the sort takes hardly more than a pass over them. Entries
//! of words that begin alike are put in the order of their keys afterwards.

use index::{Bounds, Moment};

use super::survey::Survey;
use super::versions::{Version, versions};
use crate::format::Damage;
use crate::leaf::Visible;

#[derive(Default)]
pub(super) struct Appended {
    entries: Vec<Version>,
    order: Vec<u64>,
    /// The bits of a word that are those of a head.
    of_head: u64,
}

impl Appended {
    /// Lists the entries, within `bounds`, of the runs outside the leaf's longest sequence, in place of the former
    /// list.
    pub(super) fn list(
        &mut self, leaf: &Visible<'_>, survey: &Survey<'_>, bounds: Option<&Bounds>, at: Moment,
    ) -> Result<(), Damage> {
        self.entries.clear();
        self.order.clear();
        for (number, (start, base, run)) in leaf.runs().enumerate() {
            if !survey.sequence.contains(&number) && base <= at.seq {
                self.entries.reserve(run.count());
                let each = |version| self.entries.push(version);
                versions(start, &run, survey.prefix, bounds, at.now, each).ok_or_else(|| leaf.malformed(start))?;
            }
        }
        self.sort(leaf.bytes());
        Ok(())
    }

    fn sort(&mut self, bytes: &[u8]) {
        self.of_head = u64::MAX << (usize::BITS - self.entries.len().leading_zeros());
        let Self { entries, order, of_head } = self;
        let word = |(number, version): (u64, &Version)| version.head & *of_head | number;
        order.extend((0..).zip(&*entries).map(word));
        order.sort_unstable();
        let alike = |one: &u64, other: &u64| (one ^ other) & *of_head == 0;
        if order.windows(2).fold(false, |any, pair| any | alike(&pair[0], &pair[1])) {
            for ties in order.chunk_by_mut(alike).filter(|ties| ties.len() > 1) {
                ties.sort_by_key(|word| entries[number(*word, *of_head)].pair.key(bytes));
            }
        }
    }

    /// The entry after `before` others.
    #[inline]
    pub(super) fn get(&self, before: usize) -> Option<&Version> {
        Some(&self.entries[number(*self.order.get(before)?, self.of_head)])
    }
}

/// Which entry a word is of.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "numbers of entries that are in memory")]
const fn number(word: u64, of_head: u64) -> usize {
    (word & !of_head) as usize
}
