//! How long requests took, in memory of a fixed size.
//!
//! 1. A timing is of some requests of one kind and size that went together: time per request, with so many in flight. It goes to the [`Histogram`] of
//!    its kind, size and depth.
//! 2. A histogram counts timings in buckets, sixteen to each doubling of the time. Figures taken from it are medians, which bursts of a neighbour do not move.
//! 3. A histogram that holds [`TIMINGS_MAX`] forgets half of them, so that a device that became slower with the years is not judged by its youth.
//!
//! Invariant: a histogram has memory from its first timing on, and all of them together at most [`TIMES_BYTES_MAX`].

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::probe::{DEPTHS_MEASURED, PAGE_BYTES, PAGES_MEASURED};

/// Buckets of a histogram: from 64 ns to a second.
pub(crate) const BUCKETS: usize = 24 * BUCKETS_EACH;

/// Buckets for each doubling of the time.
const BUCKETS_EACH: usize = 1 << BUCKETS_EACH_LOG;
const BUCKETS_EACH_LOG: u32 = 4;

/// The shortest time that is told apart from a shorter one, as a power of 2 in ns.
const SHORTEST_LOG: u32 = 6;

/// A histogram with so many timings forgets half of them.
pub(crate) const TIMINGS_MAX: u32 = 1 << 16;

/// Histograms.
pub(crate) const CELLS: usize = RequestKind::ALL.len() * PAGES_MEASURED.len() * DEPTHS_MEASURED.len();

/// Most bytes that all histograms take.
pub(crate) const TIMES_BYTES_MAX: usize = CELLS * size_of::<Histogram>() + size_of::<RequestTimes>();

const _: () = assert!(TIMES_BYTES_MAX < 256 << 10);

/// What a request does to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// It reads.
    Read,
    /// It writes in place, into the device's cache.
    Write,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];
}

/// Kind and size of requests, of those sizes that a profile has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: RequestKind,
    /// Index in [`PAGES_MEASURED`].
    pub(crate) size: usize,
}

impl Shape {
    /// None where a profile has no such size.
    pub(crate) fn new(kind: RequestKind, bytes: usize) -> Option<Self> {
        let size = PAGES_MEASURED.iter().position(|pages| pages * PAGE_BYTES == bytes)?;
        Some(Self { kind, size })
    }
}

/// Index in [`DEPTHS_MEASURED`] of the depth that is nearest, by their ratio.
pub(crate) fn depth_class(depth: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    let class = depth.max(1.0).log2().round().min((DEPTHS_MEASURED.len() - 1) as f64) as usize;
    class
}

/// Timings of requests of one kind and size, with one number of them in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Histogram {
    /// Requests that were timed.
    pub(crate) requests: u64,
    pub(crate) buckets: [u32; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { requests: 0, buckets: [0; BUCKETS] }
    }
}

impl Histogram {
    pub(crate) fn timings(&self) -> u32 {
        self.buckets.iter().sum()
    }

    fn note(&mut self, each_ns: f64, requests: u64) {
        if self.timings() >= TIMINGS_MAX {
            self.forget_half();
        }
        self.buckets[bucket(each_ns)] += 1;
        self.requests = self.requests.saturating_add(requests);
    }

    fn forget_half(&mut self) {
        self.buckets.iter_mut().for_each(|count| *count /= 2);
        self.requests /= 2;
    }

    /// Both together.
    pub(crate) fn add(&mut self, other: &Self) {
        for (count, others) in self.buckets.iter_mut().zip(other.buckets) {
            *count = count.saturating_add(others);
        }
        self.requests = self.requests.saturating_add(other.requests);
    }

    /// The time in ns that so large a share of the timings stayed below; none where there are none.
    pub(crate) fn quantile_ns(&self, share: f64) -> Option<f64> {
        let wanted = f64::from(self.timings()) * share;
        let mut before = 0.0;
        for (bucket, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            if before + count >= wanted {
                let (from, to) = (bucket_start_ns(bucket), bucket_start_ns(bucket + 1));
                return Some(from + (to - from) * ((wanted - before) / count));
            }
            before += count;
        }
        None
    }
}

fn bucket(ns: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped to what a u64 holds")]
    let ns = ns.clamp(0.0, 1e12) as u64;
    if ns < 1 << SHORTEST_LOG {
        return 0;
    }
    let octave = ns.ilog2();
    let part = (ns >> (octave - BUCKETS_EACH_LOG)) as usize % BUCKETS_EACH;
    ((octave - SHORTEST_LOG) as usize * BUCKETS_EACH + part).min(BUCKETS - 1)
}

fn bucket_start_ns(bucket: usize) -> f64 {
    let (octave, part) = (bucket / BUCKETS_EACH, bucket % BUCKETS_EACH);
    let start = 1_u64 << (octave as u32 + SHORTEST_LOG);
    start as f64 * (1.0 + part as f64 / BUCKETS_EACH as f64)
}

/// How long requests took: a histogram for each kind, size and number in flight that a profile knows.
#[derive(Debug)]
pub struct RequestTimes {
    cells: [Mutex<Option<Box<Histogram>>>; CELLS],
}

impl Default for RequestTimes {
    fn default() -> Self {
        Self { cells: std::array::from_fn(|_| Mutex::new(None)) }
    }
}

impl RequestTimes {
    /// Requests of `pages` pages, with `depth` of them in flight, took `each_us` each. Of other sizes than [`PAGES_MEASURED`] nothing is noted.
    pub fn note(&self, kind: RequestKind, pages: usize, depth: usize, each_us: f64, requests: u64) {
        if let Some(shape) = Shape::new(kind, pages.saturating_mul(PAGE_BYTES)) {
            self.note_shape(shape, depth_class(depth as f64), each_us * 1e3, requests);
        }
    }

    /// Waits for nobody: a timing that finds its histogram taken is left out.
    pub(crate) fn note_shape(&self, shape: Shape, depth: usize, each_ns: f64, requests: u64) {
        if let Some(mut cell) = self.cells[Self::index(shape, depth)].try_lock() {
            cell.get_or_insert_default().note(each_ns, requests);
        }
    }

    /// What there is of one kind and size, with a depth of these classes.
    pub(crate) fn of(&self, shape: Shape, depths: impl Iterator<Item = usize>) -> Histogram {
        let mut all = Histogram::default();
        for depth in depths {
            if let Some(histogram) = &*self.cells[Self::index(shape, depth)].lock() {
                all.add(histogram);
            }
        }
        all
    }

    /// All histograms that have timings, in the order of their indexes.
    pub(crate) fn all(&self) -> Vec<(usize, Histogram)> {
        let cell =
            |(index, cell): (usize, &Mutex<Option<Box<Histogram>>>)| Some((index, cell.lock().as_deref()?.clone()));
        self.cells.iter().enumerate().filter_map(cell).collect()
    }

    /// Takes what was noted elsewhere too.
    pub(crate) fn add(&self, index: usize, other: &Histogram) {
        let mut cell = self.cells[index].lock();
        let histogram = cell.get_or_insert_default();
        histogram.add(other);
        while histogram.timings() > TIMINGS_MAX {
            histogram.forget_half();
        }
    }

    fn index(shape: Shape, depth: usize) -> usize {
        (shape.kind as usize * PAGES_MEASURED.len() + shape.size) * DEPTHS_MEASURED.len() + depth
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let taken = self.cells.iter().filter(|cell| cell.lock().is_some()).count();
        taken * size_of::<Histogram>() + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Shape = Shape { kind: RequestKind::Read, size: 0 };

    #[test]
    fn a_time_lies_in_its_bucket() {
        for ns in [64.0, 65.0, 100.0, 999.0, 80_000.0, 81_234.0, 5e8] {
            let bucket = bucket(ns);
            assert!(bucket_start_ns(bucket) <= ns && ns < bucket_start_ns(bucket + 1), "{ns} in {bucket}");
        }
        assert_eq!((bucket(0.0), bucket(63.0), bucket(f64::NAN)), (0, 0, 0));
        assert_eq!((bucket(1e11), bucket(f64::INFINITY)), (BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn a_median_is_near_and_bursts_do_not_move_it() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), None);
        for time in 0..1000 {
            histogram.note(80_000.0 + f64::from(time % 10), 1);
            if time % 3 == 0 {
                histogram.note(9e6, 1);
            }
        }
        let median = histogram.quantile_ns(0.5).expect("noted");
        assert!((76_000.0..84_000.0).contains(&median), "{median}");
    }

    #[test]
    fn depths_are_told_apart_by_their_ratio() {
        let classes = [1.0, 1.5, 2.0, 3.0, 45.0, 46.0, 64.0, 90.0, 91.0, 256.0, 1e9].map(depth_class);
        assert_eq!(classes, [0, 1, 1, 2, 5, 6, 6, 6, 7, 8, 8]);
        assert_eq!(DEPTHS_MEASURED.map(|depth| depth_class(depth as f64)), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn memory_is_bounded_whatever_is_noted() {
        let times = RequestTimes::default();
        assert!(times.bytes() < 8 << 10, "nothing was noted");
        for round in 0..1000_u32 {
            for kind in RequestKind::ALL {
                for pages in 0..=70 {
                    for depth in DEPTHS_MEASURED {
                        times.note(kind, pages, depth, f64::from(round) * 7.7, 64);
                    }
                }
            }
        }
        assert_eq!(times.all().len(), CELLS);
        assert!(times.bytes() <= TIMES_BYTES_MAX, "{} bytes", times.bytes());
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let times = RequestTimes::default();
        let median = || times.of(READ, 0..1).quantile_ns(0.5).expect("noted");
        (0..3 * TIMINGS_MAX).for_each(|_| times.note_shape(READ, 0, 10_000.0, 1));
        assert!(median() < 11_500.0);
        (0..2 * TIMINGS_MAX).for_each(|_| times.note_shape(READ, 0, 40_000.0, 1));
        assert!(median() > 36_000.0, "the device became slower");
        let before = times.of(READ, 0..1);
        assert!(before.timings() <= TIMINGS_MAX);
        times.add(RequestTimes::index(READ, 0), &before);
        assert!(times.of(READ, 0..1).timings() <= TIMINGS_MAX);
    }
}
