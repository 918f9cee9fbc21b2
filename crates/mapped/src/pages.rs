//! Contiguous whole pages, for transfers to and from a device.
//!
//! 1. Pages are carved out of chunks of [`CHUNK`] bytes. A chunk is one huge page where the system has huge pages, so a
//!    transfer of any length is one piece of physical memory. A device that is given each page apart reads 24 KiB at
//!    two thirds of the rate.
//! 2. Pages come from the first place with enough of them, in the first chunk that has one, so that later chunks become
//!    free as a whole. Small allocations, of which threads keep some, have chunks of their own: a few small allocations
//!    that stay do not hold the chunks of a batch of large ones.
//! 3. A chunk without pages in use goes back to the store of kept memory. One free chunk of each kind stays.

use std::ptr::NonNull;

use parking_lot::Mutex;

use crate::PAGE;
use crate::kept::{self, Holds, Piece};
use crate::system::HUGE_PAGE as CHUNK;

/// Most bytes that are carved out of a chunk: a larger allocation would leave little of the chunk to others.
pub const PAGES_BYTES_MAX: usize = CHUNK / 2;

const CHUNK_PAGES: usize = CHUNK / PAGE;
const WORD: usize = u64::BITS as usize;

/// Most bytes of a small allocation, which comes from chunks of its own. No thread should keep larger ones.
pub const SMALL_BYTES_MAX: usize = 64 << 10;

static SMALL: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());
static LARGE: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());

fn chunks(capacity: usize) -> &'static Mutex<Vec<Chunk>> {
    if capacity <= SMALL_BYTES_MAX { &SMALL } else { &LARGE }
}

/// Contiguous pages, initialised, which go back to their chunk on drop.
#[derive(Debug, PartialEq, Eq)]
pub struct Pages(Piece);

impl Pages {
    /// Pages that are zero or hold earlier content of this process.
    ///
    /// # Panics
    /// When `capacity` is not a number of whole pages, from one to [`PAGES_BYTES_MAX`] bytes.
    #[must_use]
    pub fn used_before(capacity: usize) -> Self {
        let is_whole = capacity > 0 && capacity.is_multiple_of(PAGE) && capacity <= PAGES_BYTES_MAX;
        assert!(is_whole, "{capacity} bytes are no pages of a chunk");
        let (chunks, pages) = (chunks(capacity), capacity / PAGE);
        let found = take(&mut chunks.lock(), pages);
        let start = found.unwrap_or_else(|| {
            // Without the lock, because mapping memory takes a while.
            let (piece, _) = kept::take(CHUNK, Holds::Bytes);
            let mut there = chunks.lock();
            if let Some(start) = take(&mut there, pages) {
                drop(there);
                // SAFETY: the piece was taken, nobody has a part of the piece, and the piece is initialised.
                unsafe { kept::leave(piece, Holds::Bytes) }
                return start;
            }
            there.push(Chunk::new(piece));
            take(&mut there, pages).expect("a new chunk has room for any")
        });
        Self(Piece { start, capacity })
    }

    /// Bytes of the pages.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// The start of the pages.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.0.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let over = {
            let mut chunks = chunks(self.0.capacity).lock();
            let page_in = |(place, chunk): (usize, &Chunk)| Some((place, chunk.page_of(self.0.start)?));
            let (place, page) = chunks.iter().enumerate().find_map(page_in).expect("its chunk is there");
            chunks[place].leave(page, self.0.capacity / PAGE);
            let is_over = chunks[place].is_free() && chunks.iter().filter(|chunk| chunk.is_free()).count() > 1;
            is_over.then(|| chunks.remove(place))
        };
        if let Some(chunk) = over {
            // SAFETY: the piece was taken, nothing of it is in use, and its bytes were initialised when the piece was
            // mapped.
            unsafe { kept::leave(chunk.piece, Holds::Bytes) }
        }
    }
}

/// Takes the first `pages` contiguous pages that are free.
fn take(chunks: &mut [Chunk], pages: usize) -> Option<NonNull<u8>> {
    chunks.iter_mut().find_map(|chunk| {
        let first = chunk.take(pages)?;
        // SAFETY: the page is within the chunk.
        Some(unsafe { chunk.piece.start.add(first * PAGE) })
    })
}

/// A chunk, and the set of its free pages.
struct Chunk {
    piece: Piece,
    free: [u64; CHUNK_PAGES / WORD],
    free_pages: usize,
}

impl Chunk {
    const fn new(piece: Piece) -> Self {
        Self { piece, free: [u64::MAX; CHUNK_PAGES / WORD], free_pages: CHUNK_PAGES }
    }

    /// The number of the page that begins at `start`; none where that address is not in this chunk.
    fn page_of(&self, start: NonNull<u8>) -> Option<usize> {
        let offset = start.addr().get().checked_sub(self.piece.start.addr().get())?;
        (offset < CHUNK).then_some(offset / PAGE)
    }

    const fn is_free(&self) -> bool {
        self.free_pages == CHUNK_PAGES
    }

    /// Takes the first `pages` contiguous free pages and returns the number of the first one.
    fn take(&mut self, pages: usize) -> Option<usize> {
        if pages > self.free_pages {
            return None;
        }
        let mut first = self.next(0, true);
        while first + pages <= CHUNK_PAGES {
            let end = self.next(first, false);
            if end - first >= pages {
                self.mark(first, pages, false);
                return Some(first);
            }
            first = self.next(end, true);
        }
        None
    }

    fn leave(&mut self, first: usize, pages: usize) {
        self.mark(first, pages, true);
    }

    /// The first page from `page` on whose state is `free`; the end of the chunk where there is none.
    fn next(&self, page: usize, free: bool) -> usize {
        let (mut word, mut from) = (page / WORD, page % WORD);
        while let Some(bits) = self.free.get(word) {
            let wanted = if free { *bits } else { !*bits };
            let later = wanted >> from << from;
            if later != 0 {
                return word * WORD + later.trailing_zeros() as usize;
            }
            (word, from) = (word + 1, 0);
        }
        CHUNK_PAGES
    }

    fn mark(&mut self, first: usize, pages: usize, free: bool) {
        let end = first + pages;
        let mut at = first;
        while at < end {
            let length = (end - at).min(WORD - at % WORD);
            let bits = (u64::MAX >> (WORD - length)) << (at % WORD);
            let word = &mut self.free[at / WORD];
            debug_assert_eq!(*word & bits, if free { 0 } else { bits }, "pages are taken once, and left once");
            *word ^= bits;
            at += length;
        }
        self.free_pages = if free { self.free_pages + pages } else { self.free_pages - pages };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn chunk() -> Chunk {
        // Never dereferenced.
        Chunk::new(Piece { start: NonNull::dangling(), capacity: CHUNK })
    }

    #[test]
    fn pages_of_a_chunk_are_given_to_one_at_a_time() {
        let (mut chunk, mut taken, mut random) = (chunk(), BTreeMap::new(), 7_usize);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let pages = 1 + (random >> 40) % 70;
            match chunk.take(pages) {
                Some(first) => {
                    let before = taken.range(..=first).next_back().map_or(0, |(first, pages)| first + pages);
                    let behind = taken.range(first..).next().map_or(CHUNK_PAGES, |(first, _)| *first);
                    assert!(before <= first && first + pages <= behind, "{first} and {pages} more");
                    taken.insert(first, pages);
                }
                None => {
                    // Every second allocation goes, so that there are gaps of all lengths.
                    let some: Vec<_> = taken.iter().step_by(2).map(|(first, pages)| (*first, *pages)).collect();
                    for (first, pages) in some {
                        taken.remove(&first);
                        chunk.leave(first, pages);
                    }
                }
            }
            assert_eq!(chunk.free_pages, CHUNK_PAGES - taken.values().sum::<usize>());
        }
    }

    #[test]
    fn a_gap_that_fits_is_found() {
        let mut chunk = chunk();
        let all: Vec<_> = (0..CHUNK_PAGES).map(|_| chunk.take(1).expect("a page")).collect();
        assert!(chunk.take(1).is_none());
        // Across the end of a word.
        all[60..130].iter().for_each(|page| chunk.leave(*page, 1));
        assert!(chunk.take(71).is_none());
        assert_eq!((chunk.take(70), chunk.free_pages), (Some(all[60]), 0));
    }

    #[test]
    fn threads_have_pages_of_their_own_and_chunks_go_when_they_are_free() {
        let work = |seed: u8| {
            let mut held: Vec<Pages> = Vec::new();
            for round in 0..200_usize {
                let pages = Pages::used_before((1 + (round * 37 + usize::from(seed)) % 200) * PAGE);
                // SAFETY: nobody else has these pages.
                unsafe { pages.start().write_bytes(seed, pages.capacity()) };
                held.push(pages);
                if held.len() == 30 {
                    for pages in held.drain(..) {
                        // SAFETY: all of these bytes were written.
                        let bytes = unsafe { std::slice::from_raw_parts(pages.start().as_ptr(), pages.capacity()) };
                        assert!(bytes.iter().all(|byte| *byte == seed));
                    }
                }
            }
        };
        std::thread::scope(|scope| (1..=4).for_each(|seed| drop(scope.spawn(move || work(seed)))));
        for chunks in [&SMALL, &LARGE] {
            let chunks = chunks.lock();
            assert!(chunks.len() <= 1 && chunks.iter().all(Chunk::is_free), "{} chunks", chunks.len());
        }
    }
}
