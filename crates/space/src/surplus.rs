//! The surplus of a file, which the disk gets back.
//!
//! 1. [`PagedFile::leave_out`] takes free pages out of use, all but the reserve. Pages at the end of the file no longer
//!    belong to the file, and long runs elsewhere become holes. The file itself is not changed yet, because the newest
//!    image still counts with these pages.
//! 2. Once an image is durable that records them as left out, [`PagedFile::give_back`] cuts the file and gives back the
//!    room of the holes.
//! 3. When free pages do not suffice, holes are filled before the file grows, in the same way.
//!
//! Invariant: pages for which the disk keeps no room are holes in the newest image, or lie past the end that the image
//! records. So no writer writes there without expecting a full disk.

use std::collections::HashMap;
use std::ops::Range;

use crate::allocator::Allocator;
use crate::{PAGE, PagedFile};

/// Shorter runs stay: their room is of no use to other files, and many holes make a file slow.
const HOLE_PAGES_MIN: u64 = (32 << 10) / PAGE as u64;

/// Maximum number of holes punched at a time, because other threads wait for the one that punches.
const PUNCHED_MAX: usize = 16 << 10;
/// A smaller surplus is left alone if nothing else calls for an image: at least this many pages, and at least the file
/// divided by `WORTH_PART`, are worth one.
const WORTH_PAGES: u64 = (1 << 20) / PAGE as u64;
const WORTH_PART: u64 = 64;

impl Allocator {
    /// Free pages to be taken out of use: all but the reserve, provided they are in long runs or at the end of the
    /// file.
    fn surplus(&mut self) -> Vec<Range<u64>> {
        self.renew_reserve();
        let (wanted, total) = (self.reserve_wanted(), self.total());
        let length = |run: &Range<u64>| run.end - run.start;
        // The lowest run that can hold all of the reserve keeps it, so that nothing stands in the way of a shorter
        // file. If there is none, the longest runs keep the reserve.
        let fitting = self.free.iter().find(|run| length(run) >= wanted);
        let (mut left, mut kept) = (wanted, HashMap::new());
        for run in fitting.into_iter().chain(self.free.longest_first()) {
            if left == 0 {
                break;
            }
            let stays = left.min(length(&run));
            kept.insert(run.start, stays);
            left -= stays;
        }
        let rest = self.free.iter().map(|run| run.start + kept.get(&run.start).copied().unwrap_or(0)..run.end);
        rest.filter(|rest| length(rest) >= HOLE_PAGES_MIN || (rest.end == total && !rest.is_empty())).collect()
    }

    /// Takes free pages out of use. The reserve is a part of the file, so it shrinks as the file does; hence the loop.
    fn leave_out(&mut self) {
        loop {
            let surplus = self.surplus();
            for run in &surplus {
                self.free.remove(run.clone());
                self.holes.insert(run.clone());
                self.unpunched.push(run.clone());
            }
            if let Some(end) = self.holes.ending_at(self.total) {
                self.holes.remove(end.clone());
                self.total = end.start;
            }
            if surplus.is_empty() {
                return;
            }
        }
    }

    fn has_surplus(&mut self) -> bool {
        let pages: u64 = self.surplus().iter().map(|run| run.end - run.start).sum();
        pages >= WORTH_PAGES.max(self.total() / WORTH_PART)
    }

    /// Whether many pages at the end are free, so that the file could be shorter.
    fn ends_free(&self) -> bool {
        let free = self.free.ending_at(self.total).map_or(0, |run| run.end - run.start);
        let hole = self.holes.ending_at(self.total - free).map_or(0, |hole| hole.end - hole.start);
        free + hole >= self.reserve_wanted() + HOLE_PAGES_MIN
    }

    /// Some of the holes whose room the disk has not taken back yet; each is returned once.
    fn take_unpunched(&mut self) -> Vec<Range<u64>> {
        let rest = self.unpunched.split_off(self.unpunched.len().min(PUNCHED_MAX));
        let unpunched = std::mem::replace(&mut self.unpunched, rest);
        unpunched.iter().flat_map(|range| self.holes.within(range)).collect()
    }

    /// Whether the disk has, or may have, taken back the room of a hole.
    pub(crate) fn is_punched(&self, hole: &Range<u64>) -> bool {
        !self.unpunched.iter().any(|range| range.start < hole.end && hole.start < range.end)
    }

    /// The holes to fill for a request of `pages` pages: all of them in one run if possible, else parts of the longest
    /// holes.
    pub(crate) fn holes_for(&self, pages: u64) -> Vec<Range<u64>> {
        if let Some(hole) = self.holes.best_fit(pages) {
            return std::iter::once(hole.start..hole.start + pages).collect();
        }
        let mut left = pages;
        let part = |hole: Range<u64>| {
            let filled = left.min(hole.end - hole.start);
            left -= filled;
            (filled > 0).then_some(hole.start..hole.start + filled)
        };
        self.holes.longest_first().map_while(part).collect()
    }

    /// Marks parts of holes as free again, because the disk keeps room for them.
    pub(crate) fn fill_holes(&mut self, parts: Vec<Range<u64>>) {
        for part in parts {
            self.holes.remove(part.clone());
            self.free.insert(part);
        }
    }
}

impl PagedFile {
    /// Takes free pages out of use, all but the reserve. The caller then makes an image and calls
    /// [`PagedFile::give_back`]. The changes that gave these pages up must be durable.
    pub fn leave_out(&self) {
        // A thread that makes the file longer, or fills holes, relies on both as they are.
        let _growth = self.growth.lock();
        self.allocator().leave_out();
    }

    /// Whether the surplus is large enough to be worth an image.
    #[must_use]
    pub fn has_surplus(&self) -> bool {
        self.allocator().has_surplus()
    }

    /// Whether many pages at the end are free again, as after an image there was released.
    #[must_use]
    pub fn ends_free(&self) -> bool {
        self.allocator().ends_free()
    }

    /// Gives the left-out pages back to the disk, as far as they are still out of use. An image that records them must
    /// be on stable storage. The next call retries any part that the system refused.
    pub fn give_back(&self) {
        let mut growth = self.growth.lock();
        growth.begin_anew();
        let (total, holes) = {
            let mut allocator = self.allocator();
            (allocator.total(), allocator.take_unpunched())
        };
        let bytes = |pages: u64| pages * PAGE as u64;
        let cut = self
            .file
            .len()
            .and_then(|length| if length > bytes(total) { self.file.set_len(bytes(total)) } else { Ok(()) });
        let mut left = holes.into_iter();
        let punched = left.by_ref().find_map(|hole| match self.file.punch(bytes(hole.start)..bytes(hole.end)) {
            Ok(true) => None,
            refused => Some((hole, refused)),
        });
        // If the file system has no holes, nothing is given back now or later.
        if let Some((hole, Err(error))) = punched {
            events::warn!(%error, "room of free pages could not be given back");
            self.allocator().unpunched.extend(std::iter::once(hole).chain(left));
        }
        if let Err(error) = cut {
            events::warn!(%error, "the end of a file could not be given back");
        }
    }
}
