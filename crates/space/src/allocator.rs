//! The state of every page of a file. No I/O happens here.
//!
//! 1. A page is free, retired, ahead or allocated; page 0 is always allocated. Every operation on a list of extents
//!    checks all of them first, and then changes all of them or none.
//! 2. Some free pages are set aside as the reserve. They are the longest free runs at the time, because deletes and
//!    checkpoints on a full disk need leaves and images, not only single pages. The reserve is filled before a normal
//!    request is considered, so such a request can only take the other free pages.
//! 3. Some free pages are *holes*: the disk has taken back their room, so a hole must be filled before its pages can be
//!    allocated ([`crate::surplus`]).
//! 4. A page that is ahead was taken for a purpose that no log record names yet. It is in use here and free in an
//!    image. After a restart before the record was written, nothing has to be given back.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::runs::Runs;
use crate::stats::reserve_for;
use crate::{AllocatorImage, CheckedImage, Error, Extent, PageId, Result, Stats};

/// The purpose of a request for pages, which decides how much of the reserve it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The request makes the database larger. It leaves the reserve alone.
    Normal,
    /// The request gives space back in the end, as deletes and checkpoints do. It may use the reserve.
    Reclaim,
    /// The request gives whole files back and takes less. It may use the reserve and all other room that is kept.
    Emptying,
    /// Deletes wait behind the request. Half of the reserve may serve it.
    Urgent,
}

impl Class {
    /// Whether all of the reserve may be used.
    const fn may_use_reserve(self) -> bool {
        matches!(self, Self::Reclaim | Self::Emptying)
    }
}

/// The result of comparing the pages in use with the allocator. All lists are in page order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Allocated, but not in use.
    pub leaked: Vec<Extent>,
    /// In use, but free: such a page can be overwritten at any time.
    pub used_while_free: Vec<Extent>,
    /// In use, but retired. This is right for a version that is not the newest.
    pub used_while_retired: Vec<Extent>,
    /// In use by two owners at once.
    pub used_twice: Vec<Extent>,
    /// In use, but the header page or past the end of the file.
    pub outside: Vec<Extent>,
}

impl Audit {
    /// Whether the newest version and the allocator agree about every page.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// State of every page of a file.
///
/// Invariant: `free`, `reserve`, `holes`, `retired` and `ahead` are disjoint and inside `1..total`.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// For errors.
    file: PathBuf,
    pub(crate) total: u64,
    /// Free pages outside the reserve.
    pub(crate) free: Runs,
    /// Free pages in the reserve.
    reserve: Runs,
    /// Free pages for which the disk keeps no room.
    pub(crate) holes: Runs,
    /// Parts of holes, present or past, whose room the disk has not taken back yet.
    pub(crate) unpunched: Vec<Range<u64>>,
    retired: Runs,
    ahead: Runs,
}

impl Allocator {
    /// An allocator in the state of `image`.
    pub(crate) fn new(file: &Path, image: &CheckedImage) -> Self {
        let image = image.decode();
        let holes: Vec<_> = image.holes.iter().map(range).collect();
        Self {
            file: file.to_owned(),
            total: image.total_pages,
            free: Runs::of_sorted(image.free.iter().map(range)),
            reserve: Runs::default(),
            // A crash may have come before the room of the holes was given back.
            unpunched: holes.clone(),
            holes: Runs::of_sorted(holes),
            retired: Runs::default(),
            ahead: Runs::default(),
        }
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    fn free_pages(&self) -> u64 {
        self.free.pages() + self.reserve.pages()
    }

    /// Pages for which the disk keeps room.
    pub(crate) const fn kept(&self) -> u64 {
        self.total - self.holes.pages()
    }

    /// Target size of the reserve, in pages.
    pub(crate) fn reserve_wanted(&self) -> u64 {
        reserve_for(self.kept())
    }

    /// Pages that the reserve lacks once the file is `more` pages longer.
    fn reserve_short(&self, more: u64) -> u64 {
        reserve_for(self.kept() + more).saturating_sub(self.reserve.pages())
    }

    /// Dissolves the reserve; the next call that fills it chooses all of it anew. Otherwise the reserve of a file that
    /// was once short would stay in many short runs.
    pub(crate) fn renew_reserve(&mut self) {
        self.free.absorb(&mut self.reserve);
    }

    /// Fills the reserve with parts of the longest free runs, as far as they suffice.
    fn fill_reserve(&mut self) {
        loop {
            let short = self.reserve_short(0);
            let Some(run) = self.free.longest_first().next().filter(|_| short > 0) else {
                return;
            };
            // The upper end, so that data stays low in the file.
            let part = run.end - short.min(run.end - run.start)..run.end;
            self.free.remove(part.clone());
            self.reserve.insert(part);
        }
    }

    /// Takes `count` extents of `pages` each out of the free pages outside the reserve. They come out of one run if
    /// possible, else out of as few as possible, and are in page order. `None` when they do not fit.
    pub(crate) fn take(&mut self, count: u64, pages: u32, class: Class) -> Option<Vec<Extent>> {
        if !class.may_use_reserve() {
            self.fill_reserve();
        }
        let sources = self.gather(count, pages.into())?;
        Some(self.cut_out(sources, pages))
    }

    /// As `take`, below the page `ceiling`.
    pub(crate) fn take_below(&mut self, count: u64, pages: u32, class: Class, ceiling: u64) -> Option<Vec<Extent>> {
        if !class.may_use_reserve() {
            self.fill_reserve();
        }
        let sources = self.gather_below(count, pages.into(), ceiling)?;
        Some(self.cut_out(sources, pages))
    }

    /// Takes extents of `pages` each out of free runs.
    fn cut_out(&mut self, sources: Vec<Range<u64>>, pages: u32) -> Vec<Extent> {
        let mut extents = Vec::new();
        for source in sources {
            self.free.remove(source.clone());
            let starts = (source.start..source.end).step_by(pages as usize);
            extents.extend(starts.map(|start| Extent::new(PageId(start), pages)));
        }
        extents.sort_unstable();
        extents
    }

    /// As `take`, out of all free pages: for a request that may use the reserve and for which the file cannot grow.
    pub(crate) fn take_with_reserve(&mut self, count: u64, pages: u32) -> Option<Vec<Extent>> {
        self.renew_reserve();
        self.take(count, pages, Class::Reclaim)
    }

    /// As `take_with_reserve`, for a request of [`Class::Urgent`], as long as half of the reserve is left.
    pub(crate) fn take_urgently(&mut self, count: u64, pages: u32) -> Option<Vec<Extent>> {
        let left = self.free_pages().checked_sub(count.checked_mul(pages.into())?)?;
        if left < self.reserve_wanted() / 2 { None } else { self.take_with_reserve(count, pages) }
    }

    /// Free runs for `count` extents of `each` pages: the best fit, or else parts of the longest runs.
    fn gather(&self, count: u64, each: u64) -> Option<Vec<Range<u64>>> {
        let mut left = count;
        let mut parts = Vec::new();
        let mut longest = self.free.longest_first();
        let order = |run: &Range<u64>| (run.end - run.start, run.start);
        let mut taken = (u64::MAX, u64::MAX);
        loop {
            // Runs are taken in descending order, so a run not below the last one taken is taken already.
            if let Some(best) = self.free.best_fit(left * each)
                && order(&best) < taken
            {
                parts.push(best.start..best.start + left * each);
                return Some(parts);
            }
            let run = longest.next()?;
            taken = order(&run);
            let here = (run.end - run.start) / each;
            if here == 0 {
                return None;
            }
            parts.push(run.start..run.start + here * each);
            left -= here;
        }
    }

    /// As `gather`, below the page `ceiling`: the shortest run with room for all extents, or else parts of several
    /// runs.
    fn gather_below(&self, count: u64, each: u64, ceiling: u64) -> Option<Vec<Range<u64>>> {
        let below = self.free.iter().take_while(|run| run.start < ceiling);
        let mut runs: Vec<_> = below.map(|run| (run.end.min(ceiling) - run.start, run.start)).collect();
        runs.sort_unstable();
        let wanted = count * each;
        if let Some((_, start)) = runs.iter().find(|(length, _)| *length >= wanted) {
            return Some(std::iter::once(*start..*start + wanted).collect());
        }
        let (mut left, mut parts) = (count, Vec::new());
        for (length, start) in runs.into_iter().rev() {
            let here = (length / each).min(left);
            if here == 0 {
                break;
            }
            parts.push(start..start + here * each);
            left -= here;
        }
        (left == 0).then_some(parts)
    }

    /// The smallest number of pages to add for a request that `take` refused.
    pub(crate) fn missing(&self, wanted: u64, class: Class) -> u64 {
        if class.may_use_reserve() {
            return wanted;
        }
        // The reserve grows with the file, by at most half as much, so the loop ends.
        let mut missing = wanted;
        loop {
            let needed = wanted + self.reserve_short(missing);
            if needed <= missing {
                return missing;
            }
            missing = needed;
        }
    }

    /// The file has become longer by `pages` free pages.
    pub(crate) fn grow(&mut self, pages: u64) {
        self.free.insert(self.total..self.total + pages);
        self.total += pages;
    }

    /// The error of a request that cannot be met.
    pub(crate) fn full(&self, pages: u64, class: Class) -> Error {
        Error::Full {
            file: self.file.clone(),
            pages,
            free_pages: self.free_pages(),
            reserve_pages: match class {
                Class::Normal => self.reserve_wanted(),
                Class::Urgent => self.reserve_wanted() / 2,
                Class::Reclaim | Class::Emptying => 0,
            },
        }
    }

    /// Allocated → ahead.
    pub(crate) fn set_ahead(&mut self, extents: &[Extent]) {
        for extent in extents {
            self.ahead.insert(range(extent));
        }
    }

    /// Ahead → allocated; allocated pages stay allocated.
    pub(crate) fn confirm(&mut self, extents: &[Extent]) {
        self.take_from_ahead(&extents.iter().map(range).collect::<Vec<_>>());
    }

    fn take_from_ahead(&mut self, ranges: &[Range<u64>]) {
        for part in ranges.iter().flat_map(|range| self.ahead.within(range)).collect::<Vec<_>>() {
            self.ahead.remove(part);
        }
    }

    /// Allocated → retired.
    pub(crate) fn retire(&mut self, extents: &[Extent]) -> Result<()> {
        for range in self.allocated("retire", extents)? {
            self.retired.insert(range);
        }
        Ok(())
    }

    /// Allocated or ahead → free.
    pub(crate) fn discard(&mut self, extents: &[Extent]) -> Result<()> {
        let ranges = self.allocated("discard", extents)?;
        self.take_from_ahead(&ranges);
        ranges.into_iter().for_each(|range| self.free.insert(range));
        Ok(())
    }

    /// Retired → free.
    pub(crate) fn release(&mut self, extents: &[Extent]) -> Result<()> {
        let ranges = self.ranges("release", extents)?;
        for range in &ranges {
            if !self.retired.contains(range) {
                let is_free = self.free.overlaps(range) || self.holes.overlaps(range);
                let found = if is_free { "free" } else { "allocated" };
                return Err(self.state("release", range, "retired", found));
            }
        }
        for range in ranges {
            self.retired.remove(range.clone());
            self.free.insert(range);
        }
        Ok(())
    }

    /// All retired → free.
    pub(crate) fn release_all(&mut self) {
        self.free.absorb(&mut self.retired);
    }

    /// Free, a hole or retired → allocated. Extents past the known end move the end; the pages up to them become free.
    ///
    /// A log may allocate pages that it retired before, because the process that wrote the log had released them in
    /// between.
    pub(crate) fn replay_allocate(&mut self, extents: &[Extent], file_pages: u64) -> Result<()> {
        let operation = "allocate again";
        let end = file_pages.max(self.total);
        let ranges = self.ranges_below("allocate again", extents, end)?;
        for range in &ranges {
            let known = range.start.min(self.total)..range.end.min(self.total);
            let covered: u64 = [&self.free, &self.reserve, &self.holes, &self.retired]
                .iter()
                .flat_map(|runs| runs.within(&known))
                .map(|part| part.end - part.start)
                .sum();
            if covered < known.end - known.start {
                return Err(self.state(operation, range, "free", "allocated"));
            }
        }
        if let Some(last) = ranges.last()
            && last.end > self.total
        {
            self.grow(last.end - self.total);
        }
        for range in ranges {
            for runs in [&mut self.free, &mut self.reserve, &mut self.holes, &mut self.retired] {
                for part in runs.within(&range) {
                    runs.remove(part);
                }
            }
        }
        Ok(())
    }

    /// The runs, for work outside the lock.
    pub(crate) fn survey(&self) -> Survey {
        Survey {
            total: self.total,
            free: union(self.free.iter().chain(self.reserve.iter()).collect()).0,
            holes: self.holes.iter().collect(),
            retired: self.retired.iter().collect(),
            ahead: self.ahead.iter().collect(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            total_pages: self.total,
            free_pages: self.free_pages(),
            hole_pages: self.holes.pages(),
            retired_pages: self.retired.pages(),
            ahead_pages: self.ahead.pages(),
            reserve_pages: self.reserve_wanted(),
            free_runs: (self.free.count() + self.reserve.count()) as u64,
        }
    }

    /// The extents as ranges, provided all of their pages are allocated.
    fn allocated(&self, operation: &'static str, extents: &[Extent]) -> Result<Vec<Range<u64>>> {
        let ranges = self.ranges(operation, extents)?;
        for range in &ranges {
            for (runs, found) in
                [(&self.free, "free"), (&self.reserve, "free"), (&self.holes, "free"), (&self.retired, "retired")]
            {
                if runs.overlaps(range) {
                    return Err(self.state(operation, range, "allocated", found));
                }
            }
        }
        Ok(ranges)
    }

    fn ranges(&self, operation: &'static str, extents: &[Extent]) -> Result<Vec<Range<u64>>> {
        self.ranges_below(operation, extents, self.total)
    }

    /// The extents as ranges in page order: inside `1..end`, none empty, no page named twice.
    fn ranges_below(&self, operation: &'static str, extents: &[Extent], end: u64) -> Result<Vec<Range<u64>>> {
        let mut ranges: Vec<_> = extents.iter().map(range).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut before = 1;
        for range in &ranges {
            let found = if range.end > end {
                "past the end of the file"
            } else if range.is_empty() {
                "empty"
            } else if range.start == 0 {
                "the header page"
            } else if range.start < before {
                "named twice"
            } else {
                before = range.end;
                continue;
            };
            return Err(self.state(operation, range, "pages of the file", found));
        }
        Ok(ranges)
    }

    fn state(&self, operation: &'static str, range: &Range<u64>, expected: &'static str, found: &'static str) -> Error {
        Error::State {
            file: self.file.clone(),
            operation,
            extent: Extent::new(PageId(range.start), u32::try_from(range.end - range.start).unwrap_or(u32::MAX)),
            expected,
            found,
        }
    }
}

/// The pages of an extent.
fn range(extent: &Extent) -> Range<u64> {
    extent.page.0..extent.end().0
}

/// The runs of an allocator at one moment, in page order. They can be compared with the pages in use at that moment,
/// however long the comparison takes.
pub struct Survey {
    total: u64,
    free: Vec<Range<u64>>,
    holes: Vec<Range<u64>>,
    retired: Vec<Range<u64>>,
    ahead: Vec<Range<u64>>,
}

impl Survey {
    pub(crate) fn image(self) -> AllocatorImage {
        let mut free = self.free;
        free.extend(self.retired);
        free.extend(self.ahead);
        AllocatorImage { total_pages: self.total, free: extents(&union(free).0), holes: extents(&self.holes) }
    }

    /// Compares the pages that were in use at that moment, in any order, with the allocator.
    #[must_use]
    pub fn audit(self, used: &[Extent]) -> Audit {
        let used = used.iter().map(range);
        let (used, twice) = union(used.filter(|range| !range.is_empty()).collect());
        let (free, _) = union(self.free.iter().chain(&self.holes).cloned().collect());
        let mut known = free.clone();
        known.extend(self.retired.clone());
        known.extend(self.ahead.clone());
        known.extend(used.clone());
        let ends = [0..1, self.total..u64::MAX];
        Audit {
            leaked: extents(&gaps(&union(known).0, 1..self.total)),
            used_while_free: extents(&intersection(&used, &free)),
            used_while_retired: extents(&intersection(&used, &self.retired)),
            used_twice: extents(&union(twice).0),
            outside: extents(&intersection(&used, &ends)),
        }
    }
}

/// The ranges in order with neighbours joined, and the parts that more than one of them covers.
fn union(mut ranges: Vec<Range<u64>>) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    let mut twice = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => {
                if range.start < last.end {
                    twice.push(range.start..range.end.min(last.end));
                }
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    (joined, twice)
}

/// The intersection of two lists of disjoint ranges in order.
fn intersection(left: &[Range<u64>], right: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let mut common = Vec::new();
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let part = a.start.max(b.start)..a.end.min(b.end);
        if a.end <= b.end {
            left.next()
        } else {
            right.next()
        };
        if !part.is_empty() {
            common.push(part);
        }
    }
    common
}

/// The parts of `whole` that no range covers.
fn gaps(ranges: &[Range<u64>], whole: Range<u64>) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut start = whole.start;
    for range in ranges {
        let gap = start..range.start.min(whole.end);
        if !gap.is_empty() {
            gaps.push(gap);
        }
        start = start.max(range.end);
    }
    let rest = start..whole.end;
    if !rest.is_empty() {
        gaps.push(rest);
    }
    gaps
}

/// Ranges as extents; a range too long for one extent becomes several.
fn extents(ranges: &[Range<u64>]) -> Vec<Extent> {
    let mut extents = Vec::with_capacity(ranges.len());
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let pages = u32::try_from(range.end - start).unwrap_or(u32::MAX);
            extents.push(Extent::new(PageId(start), pages));
            start += u64::from(pages);
        }
    }
    extents
}
