//! How the entries of a rewritten leaf are laid out: cut into leaves, and each leaf into a run per page.
//!
//! 1. A leaf is cut between keys, never within the versions of one.
//! 2. Entries from all over make leaves that are half to two thirds full, so that the leaves can grow. The exception is
//!    a leaf in which nearly all entries replaced others. A leaf that grew at one end only will go on doing so: all its
//!    leaves but the one at that end are filled to [`PACKED`].
//! 3. A key whose versions do not fit in a leaf gets a longer extent of its own, with half as much again to grow.

use index::{Error, Result, Update};
use space::PAGE;

use crate::format::LEAF_PAGES_MAX;
use crate::format::run::RunSize;

/// Fill of leaves where the tree grows at its end: 15 / 16.
const PACKED: (usize, usize) = (15, 16);

/// Fill of leaves after a compaction, which is to save space.
const COMPACTED: (usize, usize) = (31, 32);

/// Up to 3 / 4 full, entries stay one leaf; up to [`PACKED`] where there are hardly more keys than before.
const SINGLE: (usize, usize) = (3, 4);

/// Otherwise, the entries are cut into so many leaves that each is at most 2 / 3 full.
pub(super) const SPREAD: (usize, usize) = (2, 3);

/// A row of full leaves is cut into so many that each is at most 17 / 20 full. With less, the leaves would be as empty
/// as halves; with more, they would soon be cut again.
const ROW: (usize, usize) = (17, 20);

/// Where a leaf grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// All over.
    Anywhere,
    /// The leaf is a row of full leaves, one of which grew all over or has no room left.
    Row,
    /// Above all old entries.
    Above,
    /// Below all old entries.
    Below,
    /// Nowhere: most updates are deletes, or are of keys that the leaf already has.
    Nowhere,
    /// Nowhere: the leaf is being compacted.
    Compacted,
}

/// A new leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Index of the last entry + 1; the leaf begins where the previous one ends.
    pub(super) end: usize,
    /// Pages of the extent.
    pub(super) pages: u32,
    /// Pages that the runs fill.
    pub(super) used: usize,
}

pub(super) const fn part(whole: usize, (numerator, denominator): (usize, usize)) -> usize {
    whole * numerator / denominator
}

/// Bytes to which a leaf of `capacity` bytes is filled if its keys are not expected to grow.
///
/// The rest has room for a run or two, so that the first updates after a load or a compaction do not split every leaf
/// they meet.
pub(crate) const fn packed(capacity: usize) -> usize {
    part(capacity, PACKED)
}

/// Bytes that runs take, a run per page.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    pages: usize,
    run: RunSize,
}

impl Measure {
    pub(super) const fn new() -> Self {
        Self { pages: 0, run: RunSize::new() }
    }

    pub(super) fn add(&mut self, entry: &Update<'_>) {
        let run = self.run.with(entry);
        if run.bytes() > PAGE {
            self.pages += 1;
            self.run = RunSize::new().with(entry);
        } else {
            self.run = run;
        }
    }

    /// Where the last run ends.
    pub(super) const fn length(&self) -> usize {
        if self.run.count() == 0 { 0 } else { self.pages * PAGE + self.run.bytes() }
    }
}

/// Bytes that entries take as one leaf.
pub(super) fn length(entries: &[Update<'_>]) -> usize {
    let mut measure = Measure::new();
    entries.iter().for_each(|entry| measure.add(entry));
    measure.length()
}

/// Cuts sorted entries into leaves of `leaf_pages` pages.
pub(super) fn cut(entries: &[Update<'_>], leaf_pages: u32, growth: Growth) -> Result<Vec<Cut>> {
    let capacity = leaf_pages as usize * PAGE;
    let total = length(entries);
    let leaves = leaves(total, capacity, growth);
    let mut cutter = Cutter { entries, capacity, leaf_pages, left: total, leaves, first: true, growth };
    let (mut cuts, mut start) = (Vec::new(), 0);
    while start < entries.len() {
        let cut = cutter.next(start)?;
        start = cut.end;
        cuts.push(cut);
    }
    Ok(cuts)
}

/// Number of leaves into which `total` bytes are cut.
fn leaves(total: usize, capacity: usize, growth: Growth) -> usize {
    match growth {
        Growth::Anywhere => spread(total, capacity, SINGLE),
        Growth::Nowhere => spread(total, capacity, PACKED),
        Growth::Row => total.div_ceil(part(capacity, ROW)),
        Growth::Above | Growth::Below => total.div_ceil(part(capacity, PACKED)),
        Growth::Compacted => total.div_ceil(part(capacity, COMPACTED)),
    }
}

/// Number of leaves for entries from all over. One leaf may be filled up to `single`.
fn spread(total: usize, capacity: usize, single: (usize, usize)) -> usize {
    if total <= part(capacity, single) { 1 } else { total.div_ceil(part(capacity, SPREAD)) }
}

struct Cutter<'a> {
    entries: &'a [Update<'a>],
    capacity: usize,
    leaf_pages: u32,
    /// Bytes not cut yet, and leaves to cut them into.
    left: usize,
    leaves: usize,
    first: bool,
    growth: Growth,
}

impl Cutter<'_> {
    /// Length up to which the next leaf is filled.
    fn target(&self) -> usize {
        let packed = part(self.capacity, PACKED);
        match self.growth {
            Growth::Anywhere | Growth::Nowhere | Growth::Row if self.leaves <= 1 => self.capacity,
            Growth::Anywhere | Growth::Nowhere | Growth::Row => self.left.div_ceil(self.leaves),
            Growth::Above => packed,
            Growth::Compacted => part(self.capacity, COMPACTED),
            // The first leaf gets the entries that the packed leaves behind it leave over.
            Growth::Below if self.first => self.left - (self.leaves - 1) * packed,
            Growth::Below if self.leaves <= 1 => self.capacity,
            Growth::Below => self.left.div_ceil(self.leaves),
        }
    }

    fn next(&mut self, start: usize) -> Result<Cut> {
        let target = self.target().min(self.capacity);
        let mut measure = Measure::new();
        let (mut end, mut length) = (start, 0);
        while end < self.entries.len() {
            let key = self.entries[end].key;
            let (mut key_end, mut longer) = (end, measure);
            while key_end < self.entries.len() && self.entries[key_end].key == key {
                longer.add(&self.entries[key_end]);
                key_end += 1;
            }
            let nearer = longer.length().saturating_sub(target) <= target.saturating_sub(length);
            let packed = matches!(self.growth, Growth::Above | Growth::Below | Growth::Compacted);
            let over = longer.length() > target && (packed || !nearer);
            if end > start && (over || longer.length() > self.capacity) {
                break;
            }
            (end, length, measure) = (key_end, longer.length(), longer);
            if length > target {
                break;
            }
        }
        self.left = self.left.saturating_sub(length);
        // A longer leaf took the bytes of several.
        let is_longer = length > self.capacity;
        self.leaves =
            if is_longer { leaves(self.left, self.capacity, self.growth) } else { self.leaves.saturating_sub(1) };
        self.first = false;
        let used = length.div_ceil(PAGE);
        Ok(Cut { end, pages: self.pages_for(used, end - start)?, used })
    }

    fn pages_for(&self, used: usize, versions: usize) -> Result<u32> {
        if used <= self.leaf_pages as usize {
            return Ok(self.leaf_pages);
        }
        let limit = LEAF_PAGES_MAX as usize;
        let ample = (used + used / 2).next_multiple_of(self.leaf_pages as usize).min(limit);
        match u32::try_from(ample) {
            Ok(pages) if used <= limit => Ok(pages),
            _ => Err(Error::TooManyVersions { versions, bytes: used * PAGE, limit: limit * PAGE }),
        }
    }
}

#[cfg(test)]
mod tests {
    use index::{Operation, Payload, Seq};

    use super::*;
    use crate::format::run::Plan;

    fn entries(keys: &[[u8; 8]], versions: u64) -> Vec<Update<'_>> {
        let version =
            |key, seq| Update { key, seq: Seq(seq), operation: Operation::Put(Payload::Inline(&[0; 30]), None) };
        keys.iter().flat_map(|key| (0..versions).map(move |seq| version(key.as_slice(), seq))).collect()
    }

    fn keys(count: u64) -> Vec<[u8; 8]> {
        (0..count).map(u64::to_be_bytes).collect()
    }

    fn fills(entries: &[Update<'_>], cuts: &[Cut]) -> Vec<f64> {
        let mut start = 0;
        let mut fill = |cut: &Cut| {
            let bytes = length(&entries[start..cut.end]);
            start = cut.end;
            assert_eq!(bytes.div_ceil(PAGE), cut.used);
            assert!(cut.used <= cut.pages as usize);
            bytes as f64 / (cut.pages as usize * PAGE) as f64
        };
        cuts.iter().map(&mut fill).collect()
    }

    #[test]
    fn a_split_leaves_room_everywhere() {
        for count in [330, 340, 400, 700, 1000, 5000] {
            let keys = keys(count);
            let entries = entries(&keys, 1);
            let fills = fills(&entries, &cut(&entries, 4, Growth::Anywhere).expect("small"));
            assert!(fills.len() > 1 && fills.iter().all(|fill| (0.35..0.69).contains(fill)), "{count}: {fills:?}");
        }
    }

    #[test]
    fn a_row_is_cut_into_few_leaves_with_some_room_each() {
        for (leaves, cut_into) in [(2, 3), (3, 4), (4, 5)] {
            let keys = keys(leaves * 400);
            let entries = entries(&keys, 1);
            let fills = fills(&entries, &cut(&entries, 4, Growth::Row).expect("small"));
            assert_eq!(fills.len(), cut_into, "{fills:?}");
            assert!(fills.iter().all(|fill| (0.6..0.86).contains(fill)), "{leaves}: {fills:?}");
        }
    }

    #[test]
    fn growth_at_an_end_packs_the_rest() {
        let keys = keys(5000);
        let entries = entries(&keys, 1);
        for growth in [Growth::Above, Growth::Below] {
            let mut fills = fills(&entries, &cut(&entries, 4, growth).expect("small"));
            let open = if growth == Growth::Above { fills.pop() } else { Some(fills.remove(0)) };
            assert!(open.is_some() && fills.iter().all(|fill| (0.92..=0.94).contains(fill)), "{growth:?}: {fills:?}");
        }
    }

    #[test]
    fn what_is_measured_is_what_is_written() {
        let keys = keys(3000);
        for odd in [1, 2, 50, 150, 199, 1000, 3000] {
            let mut entries = entries(&keys, 1);
            // Now and then a value has another length, so that runs end or become general.
            for entry in entries.iter_mut().skip(odd / 2).step_by(odd) {
                entry.operation = Operation::Put(Payload::Inline(&[0; 31]), None);
            }
            let (mut next, mut pages, mut last) = (0, 0, 0);
            while let Some(plan) = Plan::fit(entries[next..].iter().copied(), PAGE) {
                next += plan.count;
                pages += 1;
                last = plan.bytes;
            }
            assert_eq!((next, length(&entries)), (entries.len(), (pages - 1) * PAGE + last), "{odd}");
        }
    }

    #[test]
    fn versions_of_a_key_stay_together_in_a_longer_leaf() {
        let keys = keys(3);
        let entries = entries(&keys, 1000);
        let cuts = cut(&entries, 2, Growth::Anywhere).expect("small");
        assert_eq!(cuts.iter().map(|cut| cut.end).collect::<Vec<_>>(), vec![1000, 2000, 3000]);
        assert!(cuts.iter().all(|cut| cut.pages as usize >= cut.used * 4 / 3 && cut.pages % 2 == 0), "{cuts:?}");
    }

    #[test]
    fn what_comes_behind_a_key_with_many_versions_is_cut_as_if_it_were_alone() {
        let (hot, others) = (keys(1), keys(331));
        let mut both = entries(&hot, 2700);
        both.extend(entries(&others[1..], 1));
        for growth in [Growth::Row, Growth::Anywhere, Growth::Nowhere] {
            let cuts = cut(&both, 4, growth).expect("small");
            assert!(cuts[0].end == 2700 && cuts[0].used > 20, "{cuts:?}");
            let alone = cut(&both[2700..], 4, growth).expect("small");
            assert_eq!(cuts.len(), 1 + alone.len(), "{growth:?}: {cuts:?}");
        }
    }

    #[test]
    fn more_versions_than_the_longest_leaf_are_an_error() {
        let keys = keys(1);
        let entries = entries(&keys, 1_800_000);
        assert!(matches!(cut(&entries, 2, Growth::Above), Err(Error::TooManyVersions { versions: 1_800_000, .. })));
    }
}
