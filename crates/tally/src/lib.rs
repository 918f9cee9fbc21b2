//! Counters that threads add to without sharing a cache line, for events that happen in every lookup.
//!
//! 1. A [`Tally`] is a few counters with a part for each of the first [`OWNERS`] threads. A thread owns the same part
//!    of every tally, so an addition is a load and a store.
//! 2. A thread that finds no free part adds to one of [`SHARED`] others, in atomic steps.
//! 3. A thread that ends gives its part to a later thread. Its counts stay.
//!
//! Invariant: a part below [`OWNERS`] is written by one thread at a time, and the next owner sees all writes of the
//! last one, because the part passes through a mutex. So no addition is lost.
//!
//! A tally orders nothing: a sum taken while threads count reads each part at a moment of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Threads that have parts of their own.
pub const OWNERS: usize = 32;

/// Parts that all other threads share.
pub const SHARED: usize = 4;

/// Number of threads of this process that can run at a time, as of the first call. The answer is kept because the
/// system reads files for it.
#[must_use]
pub fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// `N` counters. Their parts take memory from the first addition on: 64 bytes each, or 8 for each counter if there are
/// more than eight.
#[derive(Debug, Default)]
pub struct Tally<const N: usize>(OnceLock<Box<[Part<N>]>>);

#[derive(Debug)]
#[repr(align(64))]
struct Part<const N: usize>([AtomicU64; N]);

impl<const N: usize> Tally<N> {
    /// All at 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Adds to counter `which`, below `N`.
    #[inline]
    pub fn add(&self, which: usize, by: u64) {
        let parts = match self.0.get() {
            Some(parts) => parts,
            None => self.parts(),
        };
        let part = place();
        let counter = &parts[part].0[which];
        if part < OWNERS {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        } else {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Sum of all additions to counter `which`, below `N`.
    #[must_use]
    pub fn sum(&self, which: usize) -> u64 {
        let parts = self.0.get().map_or(&[][..], |parts| parts);
        parts.iter().fold(0, |sum, part| sum.wrapping_add(part.0[which].load(Ordering::Relaxed)))
    }

    #[cold]
    fn parts(&self) -> &[Part<N>] {
        let part = || Part(std::array::from_fn(|_| AtomicU64::new(0)));
        self.0.get_or_init(|| (0..OWNERS + SHARED).map(|_| part()).collect())
    }
}

/// Parts without an owner, and the number of threads that found none.
struct Free {
    parts: [bool; OWNERS],
    turned_away: usize,
}

static FREE: Mutex<Free> = Mutex::new(Free { parts: [true; OWNERS], turned_away: 0 });

/// The part of a thread.
struct Place(usize);

impl Place {
    fn take() -> Self {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = free.parts.iter().position(|is_free| *is_free) {
            free.parts[part] = false;
            return Self(part);
        }
        free.turned_away = free.turned_away.wrapping_add(1);
        Self(OWNERS + free.turned_away % SHARED)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.0 < OWNERS {
            FREE.lock().unwrap_or_else(PoisonError::into_inner).parts[self.0] = true;
        }
    }
}

thread_local! {
    static PLACE: Place = Place::take();
}

/// This thread's part. Additions while the thread ends, when its place is gone, go to a shared part.
#[inline]
fn place() -> usize {
    PLACE.try_with(|place| place.0).unwrap_or(OWNERS)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn nothing_is_lost_by_more_threads_than_there_are_parts() {
        const THREADS: usize = OWNERS + 2 * SHARED + 1;
        let tally = Tally::<2>::new();
        assert_eq!(tally.sum(0), 0);
        let all_there = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    tally.add(1, 0);
                    all_there.wait();
                    (0..1000).for_each(|_| tally.add(0, 3));
                    tally.add(1, 1);
                });
            }
        });
        assert_eq!((tally.sum(0), tally.sum(1)), (THREADS as u64 * 3000, THREADS as u64));
    }

    #[test]
    fn parts_of_threads_that_ended_go_on() {
        let tally = Tally::<1>::new();
        for _ in 0..3 * OWNERS {
            std::thread::scope(|scope| drop(scope.spawn(|| tally.add(0, 1))));
        }
        assert_eq!(tally.sum(0), 3 * OWNERS as u64);
    }
}
