//! A set of pages as maximal runs, found by place and by length.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A set of page numbers. Neighbouring pages are always one run.
///
/// Invariant: `by_page` (start → end) and `by_length` (length, start) hold the same runs, none empty, no two touching;
/// `pages` is the sum of their lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    by_page: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    pages: u64,
}

impl Runs {
    /// Builds the set of ranges in page order, none empty and no page twice; neighbours become one run. Far cheaper
    /// than inserting one after the other.
    pub(crate) fn of_sorted(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for Range { start, end } in ranges {
            let before = runs.last_mut().filter(|(_, before)| *before >= start);
            match before {
                Some((_, before)) if *before == start => *before = end,
                Some(_) => panic!("pages {start}..{end} are in the set already"),
                None => runs.push((start, end)),
            }
        }
        let mut by_length: Vec<(u64, u64)> = runs.iter().map(|(start, end)| (end - start, *start)).collect();
        // Equal lengths keep their order, and there are few different ones.
        by_length.sort_by_key(|(length, _)| *length);
        let pages = by_length.iter().map(|(length, _)| length).sum();
        Self { by_page: runs.into_iter().collect(), by_length: by_length.into_iter().collect(), pages }
    }

    pub(crate) const fn pages(&self) -> u64 {
        self.pages
    }

    /// Number of runs.
    pub(crate) fn count(&self) -> usize {
        self.by_page.len()
    }

    /// The runs, in page order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.by_page.iter().map(|(start, end)| *start..*end)
    }

    /// The run that begins at or before `page`, if it reaches past it.
    fn run_at(&self, page: u64) -> Option<Range<u64>> {
        let (start, end) = self.by_page.range(..=page).next_back()?;
        (*end > page).then_some(*start..*end)
    }

    /// Whether every page of `range` is in the set. An empty range is in no set.
    pub(crate) fn contains(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.run_at(range.start).is_some_and(|run| run.end >= range.end)
    }

    /// Whether any page of `range` is in the set.
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.run_at(range.start).is_some() || self.by_page.range(range.clone()).next().is_some()
    }

    /// The parts of `range` that are in the set, in order.
    pub(crate) fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let head = self.run_at(range.start).into_iter();
        let rest = self.by_page.range(range.start + 1..range.end.max(range.start + 1));
        head.chain(rest.map(|(start, end)| *start..*end))
            .map(|run| run.start.max(range.start)..run.end.min(range.end))
            .filter(|part| !part.is_empty())
            .collect()
    }

    /// Adds pages, none of which may be in the set.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        assert!(!range.is_empty(), "an empty run is never stored");
        assert!(!self.overlaps(&range), "pages {range:?} are in the set already");
        self.pages += range.end - range.start;
        let mut merged = range;
        if let Some((&start, &end)) = self.by_page.range(..merged.start).next_back()
            && end == merged.start
        {
            self.unlink(start, end);
            merged.start = start;
        }
        if let Some(&end) = self.by_page.get(&merged.end) {
            self.unlink(merged.end, end);
            merged.end = end;
        }
        self.link(merged.start, merged.end);
    }

    /// Takes pages out, all of which must be in the set.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        let run = self.run_at(range.start).unwrap_or(0..0);
        assert!(!range.is_empty() && range.end <= run.end, "pages {range:?} are not all in the set");
        self.unlink(run.start, run.end);
        if run.start < range.start {
            self.link(run.start, range.start);
        }
        if range.end < run.end {
            self.link(range.end, run.end);
        }
        self.pages -= range.end - range.start;
    }

    /// The shortest run of at least `length` pages; among equally short runs the lowest.
    pub(crate) fn best_fit(&self, length: u64) -> Option<Range<u64>> {
        let (length, start) = self.by_length.range((length, 0)..).next()?;
        Some(*start..start + length)
    }

    /// The run that ends at `page`.
    pub(crate) fn ending_at(&self, page: u64) -> Option<Range<u64>> {
        let (start, end) = self.by_page.range(..page).next_back()?;
        (*end == page).then_some(*start..*end)
    }

    /// The runs, longest first.
    pub(crate) fn longest_first(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.by_length.iter().rev().map(|(length, start)| *start..start + length)
    }

    /// Moves all pages of another set here; none of them may be in this one.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        for range in std::mem::take(other).iter() {
            self.insert(range);
        }
    }

    fn link(&mut self, start: u64, end: u64) {
        self.by_page.insert(start, end);
        self.by_length.insert((end - start, start));
    }

    fn unlink(&mut self, start: u64, end: u64) {
        self.by_page.remove(&start);
        self.by_length.remove(&(end - start, start));
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "sets of one run")]
mod tests {
    use super::*;

    fn runs(ranges: &[Range<u64>]) -> Runs {
        let mut runs = Runs::default();
        for range in ranges {
            runs.insert(range.clone());
        }
        runs
    }

    #[test]
    fn neighbours_become_one_run() {
        let set = runs(&[10..20, 30..40, 20..30]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [10..40]);
        assert_eq!(set.pages(), 30);
        assert_eq!(set, runs(&[10..40]));
    }

    #[test]
    fn ranges_in_order_make_the_same_set_at_once() {
        let ranges = [3..5, 10..20, 20..30, 31..32, 40..90];
        assert_eq!(Runs::of_sorted(ranges.clone()), runs(&ranges));
        assert_eq!(Runs::of_sorted([]), Runs::default());
    }

    #[test]
    #[should_panic(expected = "already")]
    fn ranges_in_order_have_no_page_twice() {
        Runs::of_sorted([10..20, 19..21]);
    }

    #[test]
    fn removal_splits() {
        let mut set = runs(&[10..40]);
        set.remove(20..25);
        set.remove(10..12);
        set.remove(39..40);
        assert_eq!(set.iter().collect::<Vec<_>>(), [12..20, 25..39]);
        assert_eq!(set.pages(), 22);
        assert_eq!(set, runs(&[12..20, 25..39]));
    }

    #[test]
    fn asks_about_ranges() {
        let set = runs(&[10..20, 25..30]);
        assert!(set.contains(&(10..20)) && set.contains(&(12..13)));
        assert!(!set.contains(&(19..26)) && !set.contains(&(9..11)) && !set.contains(&(12..12)));
        assert!(set.overlaps(&(0..11)) && set.overlaps(&(19..21)) && set.overlaps(&(20..26)));
        assert!(!set.overlaps(&(20..25)) && !set.overlaps(&(0..10)) && !set.overlaps(&(30..90)));
        assert_eq!(set.within(&(0..100)), [10..20, 25..30]);
        assert_eq!(set.within(&(15..26)), [15..20, 25..26]);
        assert_eq!(set.within(&(25..30)), [25..30]);
        assert_eq!(set.within(&(20..25)), []);
    }

    #[test]
    fn best_fit_is_the_shortest_and_then_the_lowest() {
        let set = runs(&[100..110, 10..14, 50..54, 0..2]);
        assert_eq!(set.best_fit(1), Some(0..2));
        assert_eq!(set.best_fit(3), Some(10..14));
        assert_eq!(set.best_fit(5), Some(100..110));
        assert_eq!(set.best_fit(11), None);
        assert_eq!(set.ending_at(110), Some(100..110));
        assert_eq!((set.ending_at(111), set.ending_at(0), set.ending_at(2)), (None, None, Some(0..2)));
        assert_eq!(set.longest_first().next(), Some(100..110));
    }

    #[test]
    #[should_panic(expected = "already")]
    fn a_page_cannot_be_added_twice() {
        runs(&[10..20, 19..21]);
    }

    #[test]
    #[should_panic(expected = "not all")]
    fn a_missing_page_cannot_be_removed() {
        runs(&[10..20]).remove(15..21);
    }
}
