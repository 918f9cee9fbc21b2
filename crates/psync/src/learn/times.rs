//! The times of requests, in memory of a fixed size.
//!
//! 1. A timing is of some requests of one kind and size that went together: the time per request, and the number in
//!    flight. The timing goes to the [`Histogram`] of its kind, size and depth.
//! 2. A histogram counts timings in buckets, sixteen to each doubling of the time. Figures taken from a histogram are
//!    medians, because bursts of a neighbour do not move those.
//! 3. A histogram counts the minutes in which timings came. It takes [`TIMINGS_OF_MINUTE_MAX`] of one minute at most,
//!    so that a busy minute is one of many.
//! 4. A histogram also counts the timings that were left out because the consumer of a stream was slower than the
//!    device ([`Timing::LeftOut`]).
//! 5. A histogram that holds [`TIMINGS_MAX`] forgets half of all that, so that a device that became slower with the
//!    years is not judged by its youth.
//!
//! Invariants:
//!
//! - A histogram has memory from its first timing on, and all histograms together at most [`TIMES_BYTES_MAX`].
//! - minutes ≤ timings ≤ requests.

use parking_lot::Mutex;

use crate::profile::{DEPTHS_MEASURED, PAGE_BYTES, PAGES_MEASURED};

/// Buckets of a histogram: from 64 ns to a second.
pub(crate) const BUCKETS: usize = 24 * BUCKETS_EACH;

/// Buckets for each doubling of the time.
const BUCKETS_EACH: usize = 1 << BUCKETS_EACH_LOG;
const BUCKETS_EACH_LOG: u32 = 4;

/// The shortest time with a bucket of its own, as a power of 2 in ns. All shorter times share the first bucket.
const SHORTEST_LOG: u32 = 6;

/// A histogram with this many timings forgets half of them.
pub(crate) const TIMINGS_MAX: u32 = 1 << 16;

/// Most timings of one minute that a histogram takes, including those counted as left out.
const TIMINGS_OF_MINUTE_MAX: u32 = TIMINGS_MAX / 64;

/// Histograms.
pub(crate) const CELLS: usize = RequestKind::ALL.len() * PAGES_MEASURED.len() * DEPTHS_MEASURED.len();

/// Most bytes that all histograms take.
pub(crate) const TIMES_BYTES_MAX: usize = CELLS * size_of::<Cell>() + size_of::<RequestTimes>();

const _: () = assert!(TIMES_BYTES_MAX < 256 << 10);

/// The effect of a request on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RequestKind {
    /// A read.
    Read,
    /// A write in place, into the device's cache.
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

    pub(crate) const fn bytes(self) -> usize {
        PAGES_MEASURED[self.size] * PAGE_BYTES
    }
}

/// The result of a stretch of requests of one shape and depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Timing {
    /// The time of each request, and the number of requests.
    Each { ns: f64, requests: u64 },
    /// Nothing, because the consumer was slower than the device.
    LeftOut,
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
    /// Minutes that had timings, each process counting its own.
    pub(crate) minutes: u32,
    /// Timings that were left out because the consumer was slower than the device.
    pub(crate) left_out: u32,
    pub(crate) buckets: [u32; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { requests: 0, minutes: 0, left_out: 0, buckets: [0; BUCKETS] }
    }
}

impl Histogram {
    pub(crate) fn timings(&self) -> u32 {
        self.buckets.iter().sum()
    }

    fn note(&mut self, ns: f64, requests: u64) {
        self.buckets[bucket(ns)] += 1;
        self.requests = self.requests.saturating_add(requests);
    }

    fn is_full(&self) -> bool {
        self.timings().max(self.left_out) >= TIMINGS_MAX
    }

    fn forget_half(&mut self) {
        self.buckets.iter_mut().for_each(|count| *count /= 2);
        self.requests /= 2;
        self.minutes = (self.minutes / 2).min(self.timings());
        self.left_out /= 2;
    }

    /// Adds another histogram. The minutes of both may be the same, so the larger count stands for both.
    fn add(&mut self, other: &Self) {
        for (count, others) in self.buckets.iter_mut().zip(other.buckets) {
            *count += others;
        }
        self.requests = self.requests.saturating_add(other.requests);
        self.minutes = self.minutes.max(other.minutes);
        self.left_out += other.left_out;
    }

    /// The time in ns below which this share of the timings stayed; none where there are none.
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
    let part = (ns >> (octave - BUCKETS_EACH_LOG)) % BUCKETS_EACH as u64;
    let bucket = u64::from(octave - SHORTEST_LOG) * BUCKETS_EACH as u64 + part;
    usize::try_from(bucket).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

fn bucket_start_ns(bucket: usize) -> f64 {
    let (octave, part) = (bucket / BUCKETS_EACH, bucket % BUCKETS_EACH);
    let start = (1_u64 << SHORTEST_LOG) << octave;
    start as f64 * (1.0 + part as f64 / BUCKETS_EACH as f64)
}

/// A histogram, and the counts of its newest minute.
#[derive(Debug, Default)]
struct Cell {
    histogram: Histogram,
    minute: u64,
    timings: u32,
    left_out: u32,
}

impl Cell {
    fn note(&mut self, minute: u64, timing: Timing) {
        if minute != self.minute {
            (self.minute, self.timings, self.left_out) = (minute, 0, 0);
        }
        if self.timings + self.left_out == TIMINGS_OF_MINUTE_MAX {
            return;
        }
        if self.histogram.is_full() {
            self.histogram.forget_half();
        }
        match timing {
            Timing::Each { ns, requests } => {
                self.histogram.note(ns, requests);
                self.histogram.minutes += u32::from(self.timings == 0);
                self.timings += 1;
            }
            Timing::LeftOut => {
                self.histogram.left_out += 1;
                self.left_out += 1;
            }
        }
    }
}

/// The times of requests: a histogram for each kind, size and number in flight that a profile knows.
#[derive(Debug)]
pub struct RequestTimes {
    cells: [Mutex<Option<Box<Cell>>>; CELLS],
}

impl Default for RequestTimes {
    fn default() -> Self {
        Self { cells: std::array::from_fn(|_| Mutex::new(None)) }
    }
}

impl RequestTimes {
    /// Notes a timing of `requests` requests in a minute of this process: `pages` pages each, `depth` of them in
    /// flight, `each_us` µs each. Sizes that are not in [`PAGES_MEASURED`] are not noted.
    pub fn note(&self, minute: u64, kind: RequestKind, pages: usize, depth: usize, each_us: f64, requests: u64) {
        if let Some(shape) = Shape::new(kind, pages.saturating_mul(PAGE_BYTES)) {
            let timing = Timing::Each { ns: each_us * 1e3, requests };
            self.note_shape(shape, depth_class(depth as f64), minute, timing);
        }
    }

    /// Notes a timing without waiting: a timing whose histogram is in use is lost.
    pub(crate) fn note_shape(&self, shape: Shape, depth: usize, minute: u64, timing: Timing) {
        if let Some(mut cell) = self.cells[Self::index(shape, depth)].try_lock() {
            cell.get_or_insert_default().note(minute, timing);
        }
    }

    /// The timings of one kind and size, with a depth of these classes.
    pub(crate) fn of(&self, shape: Shape, depths: impl Iterator<Item = usize>) -> Histogram {
        let mut all = Histogram::default();
        for depth in depths {
            if let Some(cell) = &*self.cells[Self::index(shape, depth)].lock() {
                all.add(&cell.histogram);
            }
        }
        all
    }

    /// All histograms that have anything, in the order of their indexes.
    pub(crate) fn all(&self) -> Vec<(usize, Histogram)> {
        let histogram = |(index, cell): (usize, &Mutex<Option<Box<Cell>>>)| {
            Some((index, cell.lock().as_deref()?.histogram.clone()))
        };
        self.cells.iter().enumerate().filter_map(histogram).collect()
    }

    /// Replaces everything noted by these histograms.
    pub(crate) fn replace(&self, histograms: Vec<(usize, Histogram)>) {
        self.cells.iter().for_each(|cell| *cell.lock() = None);
        for (index, histogram) in histograms {
            *self.cells[index].lock() = Some(Box::new(Cell { histogram, ..Cell::default() }));
        }
    }

    fn index(shape: Shape, depth: usize) -> usize {
        (shape.kind as usize * PAGES_MEASURED.len() + shape.size) * DEPTHS_MEASURED.len() + depth
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let taken = self.cells.iter().filter(|cell| cell.lock().is_some()).count();
        taken * size_of::<Cell>() + size_of::<Self>()
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
                        times.note(u64::from(round / 10), kind, pages, depth, f64::from(round) * 7.7, 64);
                    }
                }
            }
        }
        assert_eq!(times.all().len(), CELLS);
        assert!(times.bytes() <= TIMES_BYTES_MAX, "{} bytes", times.bytes());
    }

    fn note(times: &RequestTimes, minutes: std::ops::Range<u64>, ns: f64) {
        for minute in minutes {
            (0..1000).for_each(|_| times.note_shape(READ, 0, minute, Timing::Each { ns, requests: 1 }));
        }
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let times = RequestTimes::default();
        let median = || times.of(READ, 0..1).quantile_ns(0.5).expect("noted");
        note(&times, 0..200, 10_000.0);
        assert!(median() < 11_500.0);
        note(&times, 200..330, 40_000.0);
        assert!(median() > 36_000.0, "the device became slower");
        let all = times.of(READ, 0..1);
        assert!(all.timings() <= TIMINGS_MAX);
        assert!((30..=66).contains(&all.minutes), "of {} minutes", all.minutes);
        (0..100_000).for_each(|minute| times.note_shape(READ, 0, 1000 + minute, Timing::LeftOut));
        assert!(times.of(READ, 0..1).left_out <= TIMINGS_MAX);
    }

    #[test]
    fn a_busy_minute_is_one_of_many() {
        let times = RequestTimes::default();
        (0..9).for_each(|minute| (0..500).for_each(|_| times.note(minute, RequestKind::Read, 1, 1, 10.0, 1)));
        (0..100_000).for_each(|_| times.note(9, RequestKind::Read, 1, 1, 90.0, 1));
        times.note_shape(READ, 0, 9, Timing::LeftOut);
        let all = times.of(READ, 0..1);
        assert_eq!((all.minutes, all.timings(), all.left_out), (10, 4500 + TIMINGS_OF_MINUTE_MAX, 0));
        assert!(all.quantile_ns(0.5).expect("noted") < 11_500.0);
        times.note_shape(READ, 0, 10, Timing::LeftOut);
        let all = times.of(READ, 0..1);
        assert_eq!((all.minutes, all.left_out), (10, 1), "a minute without a timing is none");
    }
}
