//! What a file has beyond its need, and the disk gets back.
//!
//! 1. [`PagedFile::leave_out`] takes free pages out of use, all but the reserve: those at the end of the file are none of it any more, and long runs elsewhere become holes. Nothing is done to the file
//!    itself, for the newest image still counts with them.
//! 2. Once an image is durable that knows them to be left out, [`PagedFile::give_back`] cuts the file and gives back the room of holes.
//! 3. Where free pages do not suffice, holes are filled before the file grows, in the same way.
//!
//! Invariant: what the disk keeps no room for is a hole in the newest image, or behind the end that it knows, so that nobody writes there who does not expect a full disk.

use std::collections::HashMap;
use std::ops::Range;

use crate::allocator::Allocator;
use crate::{PAGE, PagedFile};

/// Shorter runs stay: their room is no good to anybody else, and many holes make a file slow.
const HOLE_PAGES_MIN: u64 = (32 << 10) / PAGE as u64;

/// So many holes are punched at a time: others wait for whoever does.
const PUNCHED_MAX: usize = 16 << 10;
/// Less of it is left alone where nobody else has a reason for an image: so many pages, or this part of the file.
const WORTH_PAGES: u64 = (1 << 20) / PAGE as u64;
const WORTH_PART: u64 = 64;

impl Allocator {
    /// Free pages to be taken out of use: all but the reserve, as far as they are in long runs or at the end of the file.
    fn surplus(&mut self) -> Vec<Range<u64>> {
        self.renew_reserve();
        let (wanted, total) = (self.reserve_wanted(), self.total());
        let length = |run: &Range<u64>| run.end - run.start;
        // The lowest run that has all of the reserve keeps it, so that nothing stands in the way of a shorter file; or else the longest ones do.
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

    /// Takes free pages out of use. What is kept is a part of what is there: with less of that, it is less.
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

    /// Whether much at the end is free, so that the file could be shorter.
    fn ends_free(&self) -> bool {
        let free = self.free.ending_at(self.total).map_or(0, |run| run.end - run.start);
        let hole = self.holes.ending_at(self.total - free).map_or(0, |hole| hole.end - hole.start);
        free + hole >= self.reserve_wanted() + HOLE_PAGES_MIN
    }

    /// Some of the holes whose room the disk does not have back yet; asked once.
    fn take_unpunched(&mut self) -> Vec<Range<u64>> {
        let rest = self.unpunched.split_off(self.unpunched.len().min(PUNCHED_MAX));
        let unpunched = std::mem::replace(&mut self.unpunched, rest);
        unpunched.iter().flat_map(|range| self.holes.within(range)).collect()
    }

    /// Whether the disk has the room of a hole back, or may have.
    pub(crate) fn is_punched(&self, hole: &Range<u64>) -> bool {
        !self.unpunched.iter().any(|range| range.start < hole.end && hole.start < range.end)
    }

    /// What to fill for a request of so many pages: all of them in a row, where that can be, else parts of the longest holes.
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

    /// Parts of holes have their room again.
    pub(crate) fn fill_holes(&mut self, parts: Vec<Range<u64>>) {
        for part in parts {
            self.holes.remove(part.clone());
            self.free.insert(part);
        }
    }
}

impl PagedFile {
    /// Takes free pages out of use, all but the reserve: for an image, behind which [`PagedFile::give_back`] is called. What gave these pages up is durable.
    pub fn leave_out(&self) {
        // Who makes the file longer, or fills holes, counts with both as they are.
        let _growth = self.growth.lock();
        self.allocator.lock().leave_out();
    }

    /// Whether there is so much to be left out that an image is worth it.
    #[must_use]
    pub fn has_surplus(&self) -> bool {
        self.allocator.lock().has_surplus()
    }

    /// Whether much at the end is free again, as after an image has gone that was there.
    #[must_use]
    pub fn ends_free(&self) -> bool {
        self.allocator.lock().ends_free()
    }

    /// Gives the disk back what was left out, as far as it is out of use still. An image that knows of it is on stable storage. What the system refuses is tried again by the next call.
    pub fn give_back(&self) {
        let mut growth = self.growth.lock();
        growth.begin_anew();
        let (total, holes) = {
            let mut allocator = self.allocator.lock();
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
        // Where the file system has no holes, nothing is given back now or later.
        if let Some((hole, Err(error))) = punched {
            tracing::warn!(%error, "room of free pages could not be given back");
            self.allocator.lock().unpunched.extend(std::iter::once(hole).chain(left));
        }
        if let Err(error) = cut {
            tracing::warn!(%error, "the end of a file could not be given back");
        }
    }
}
