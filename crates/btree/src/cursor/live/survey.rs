//! Facts about a leaf that follow from the first and last keys of its runs.

use std::ops::Range;

use index::{Bounds, head};

use crate::format::Damage;
use crate::leaf::Visible;

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

pub(super) struct Survey<'a> {
    /// Entries of all runs.
    pub(super) entries: usize,
    /// The least and the greatest key; none where there are no runs.
    ends: Option<(&'a [u8], &'a [u8])>,
    /// How many bytes all keys begin with.
    pub(super) prefix: usize,
    /// The runs of the longest sorted sequence: each begins above the end of the run before.
    pub(super) sequence: Range<usize>,
}

impl<'a> Survey<'a> {
    pub(super) fn of(leaf: &Visible<'a>) -> Result<Self, Damage> {
        let mut ends = None::<(Headed<'a>, Headed<'a>)>;
        let mut before = None::<Headed<'a>>;
        let (mut longest, mut entries_max) = (0..0, 0);
        let (mut begin, mut entries, mut all) = (0, 0, 0);
        for (number, (start, _, run)) in leaf.runs().enumerate() {
            let (first, last) = run.ends().ok_or_else(|| leaf.malformed(start))?;
            let (first, last) = (Headed::of(first), Headed::of(last));
            if before.is_some_and(|before| before >= first) {
                (begin, entries) = (number, 0);
            }
            before = Some(last);
            all += run.count();
            entries += run.count();
            if entries > entries_max {
                (longest, entries_max) = (begin..number + 1, entries);
            }
            ends = Some(ends.map_or((first, last), |(low, high)| (low.min(first), high.max(last))));
        }
        let ends = ends.map(|(low, high)| (low.key, high.key));
        Ok(Self {
            entries: all,
            ends,
            prefix: ends.map_or(0, |(low, high)| index::common_prefix(low, high)),
            sequence: longest,
        })
    }

    pub(super) fn is_within(&self, bounds: &Bounds) -> bool {
        self.ends.is_none_or(|(low, high)| bounds.above_lower(low) && bounds.below_upper(high))
    }
}
