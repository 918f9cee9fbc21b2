//! Whole pages next to one another, for what a device transfers.
//!
//! 1. They are carved out of chunks of [`CHUNK`] bytes, each of which is one huge page where the system has such. So a transfer is one piece of physical memory, whatever its length: a device
//!    that is given each page apart reads 24 KiB at two thirds of the rate.
//! 2. Pages are taken from the first place with enough of them, in the first chunk that has one, so that later chunks become free as a whole. What is small, of which threads keep some, has
//!    chunks of its own: a few pages that stay do not hold what a batch of large ones had.
//! 3. A chunk of which nothing is in use goes where all mapped memory goes that somebody may want next; one of each kind stays.

use std::ptr::NonNull;

use parking_lot::Mutex;

use crate::PAGE;
use crate::kept::{self, Holds, Piece};
use crate::system::HUGE_PAGE as CHUNK;

/// Most bytes that are carved out of a chunk. What takes more of it would leave little to others.
pub const PAGES_BYTES_MAX: usize = CHUNK / 2;

const CHUNK_PAGES: usize = CHUNK / PAGE;
const WORD: usize = u64::BITS as usize;

/// Most bytes of what is small, and has chunks of its own: no thread should keep what is more.
pub const SMALL_BYTES_MAX: usize = 64 << 10;

static SMALL: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());
static LARGE: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());

fn chunks(capacity: usize) -> &'static Mutex<Vec<Chunk>> {
    if capacity <= SMALL_BYTES_MAX { &SMALL } else { &LARGE }
}

/// So many pages, initialised, which go back when they are dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct Pages(Piece);

impl Pages {
    /// Pages that are zero, or what others in this process held before.
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
            // Not with the lock held: to map memory takes a while.
            let (piece, _) = kept::take(CHUNK, Holds::Bytes);
            let mut there = chunks.lock();
            if let Some(start) = take(&mut there, pages) {
                drop(there);
                // SAFETY: it was taken, nobody has anything of it, and it is initialised.
                unsafe { kept::leave(piece, Holds::Bytes) }
                return start;
            }
            there.push(Chunk::new(piece));
            take(&mut there, pages).expect("a new chunk has room for any")
        });
        Self(Piece { start, capacity })
    }

    /// Bytes that they have.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Where they begin.
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
            // SAFETY: it was taken, nothing of it is in use, and it was initialised when it was mapped.
            unsafe { kept::leave(chunk.piece, Holds::Bytes) }
        }
    }
}

/// The first so many pages that are free.
fn take(chunks: &mut [Chunk], pages: usize) -> Option<NonNull<u8>> {
    chunks.iter_mut().find_map(|chunk| {
        let first = chunk.take(pages)?;
        // SAFETY: within the chunk.
        Some(unsafe { chunk.piece.start.add(first * PAGE) })
    })
}

/// A chunk, and which of its pages are free.
struct Chunk {
    piece: Piece,
    free: [u64; CHUNK_PAGES / WORD],
    free_pages: usize,
}

impl Chunk {
    const fn new(piece: Piece) -> Self {
        Self { piece, free: [u64::MAX; CHUNK_PAGES / WORD], free_pages: CHUNK_PAGES }
    }

    /// The number of the page that begins there; none where it is not in this chunk.
    fn page_of(&self, start: NonNull<u8>) -> Option<usize> {
        let offset = start.addr().get().checked_sub(self.piece.start.addr().get())?;
        (offset < CHUNK).then_some(offset / PAGE)
    }

    const fn is_free(&self) -> bool {
        self.free_pages == CHUNK_PAGES
    }

    /// Takes the first so many pages that are free: the number of the first of them.
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

    /// The first page from `page` on that is free, or not; the end of the chunk where there is none.
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
        // Nobody looks into it.
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
                    // Every second one goes, so that there are gaps of all lengths.
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
                // SAFETY: nobody else has them.
                unsafe { pages.start().write_bytes(seed, pages.capacity()) };
                held.push(pages);
                if held.len() == 30 {
                    for pages in held.drain(..) {
                        // SAFETY: all of it was written.
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
