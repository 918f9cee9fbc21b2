//! What the requests of one backend's users show of the device, without a request more.
//!
//! 1. Every request is counted when it starts and when its completion is taken, each thread in a part of its own ([`tally`]): the difference is what is in flight.
//! 2. One in [`SAMPLE`] stretches of requests is timed. A stretch is a request that is made alone, or what a batch or stream has in flight from its first request
//!    until nothing is in flight any more, [`STRETCH_REQUESTS_MAX`] completions at the most.
//! 3. A stretch counts only where the device had nothing else to do: no request of others was in flight when it began, and none started meanwhile. A request
//!    that others made and have not taken is in flight, complete or not: beside it nothing is timed.
//! 4. Where its requests were of one kind and of one size that a profile has, and went past the page cache, the time per request is noted with how many were in
//!    flight on average ([`RequestTimes`]).
//!
//! Left out is what says nothing of the device: a stretch that made way for readers or met an error, a flush, a durable write or a larger request.
//!
//! A stretch whose consumer was slower than the device is left out too, but counted. A faster one may be there only because the device was slow, so figures
//! need as many that were noted as were left out for this.
//!
//! Left to others: what follows from the times ([`crate::probe::learned`]).

pub(crate) mod format;
mod times;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tally::Tally;

pub use times::{RequestKind, RequestTimes};
pub(crate) use times::{Shape, Timing, depth_class};

use crate::backend::Backend;

/// One of so many stretches is timed.
const SAMPLE: u32 = 8;

/// Completions after which a stretch ends that goes on.
pub(crate) const STRETCH_REQUESTS_MAX: u64 = 256;

/// One of so many requests of a stretch may be of another kind or of a smaller size.
const ODD: u64 = 16;

const STARTED: usize = 0;
const COMPLETED: usize = 1;

/// What the users of one backend learn together.
pub(crate) struct Learner {
    backend: Arc<dyn Backend>,
    requests: Tally<2>,
    pub(crate) times: RequestTimes,
    /// Minutes count from here.
    begin: Instant,
    /// Stretches that were noted or counted since they were last saved.
    unsaved: AtomicU64,
}

/// Requests that are timed together.
pub(crate) struct Stretch {
    began: Instant,
    /// Requests of all that had started.
    started: u64,
    /// Its own requests that were in flight already.
    own: u64,
    /// That of its first request.
    shape: Option<Shape>,
    requests: u64,
    /// Of them, those of another shape.
    odd: u64,
    /// For each request, how many were in flight when it completed.
    depths: u64,
    /// Time that was spent waiting for the device; none where all of it was.
    waited: Option<Duration>,
    spoiled: bool,
}

impl Learner {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let begin = backend.now().unwrap_or_else(Instant::now);
        Self { backend, requests: Tally::new(), times: RequestTimes::default(), begin, unsaved: AtomicU64::new(0) }
    }

    pub(crate) fn started(&self, requests: u64) {
        self.requests.add(STARTED, requests);
    }

    pub(crate) fn completed(&self, requests: u64) {
        self.requests.add(COMPLETED, requests);
    }

    /// Begins a stretch with so many requests of its own in flight, if it is its turn and nobody else has any. Of a stream it counts how long its consumer waits.
    pub(crate) fn begin(&self, own: u64, is_stream: bool) -> Option<Stretch> {
        if !is_sampled() {
            return None;
        }
        let began = self.now()?;
        let (started, in_flight) = self.look();
        let waited = is_stream.then_some(Duration::ZERO);
        (in_flight <= own).then(|| Stretch::new(began, started, own, waited))
    }

    /// Ends a stretch with so many requests of its own in flight, and notes what it shows.
    pub(crate) fn end(&self, stretch: Stretch, own: u64) {
        let Some(now) = self.now() else { return };
        // With none of others in flight at its begin, none is at its end unless it started meanwhile.
        if self.look().0.wrapping_sub(stretch.started) != stretch.requests + own - stretch.own {
            return;
        }
        if let Some((shape, depth, timing)) = stretch.shows(now.saturating_duration_since(stretch.began)) {
            let minute = now.saturating_duration_since(self.begin).as_secs() / 60;
            self.times.note_shape(shape, depth, minute, timing);
            self.unsaved.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many stretches were noted or counted that are not saved.
    pub(crate) fn unsaved(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed)
    }

    /// So many of them are saved now.
    pub(crate) fn saved(&self, stretches: u64) {
        self.unsaved.fetch_sub(stretches, Ordering::Relaxed);
    }

    /// The device's time; none where it says nothing.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.backend.now()
    }

    /// Requests that were started, and those in flight.
    pub(crate) fn look(&self) -> (u64, u64) {
        // In this order: one that starts in between is among those that start later.
        let started = self.requests.sum(STARTED);
        (started, u64::try_from(started.wrapping_sub(self.requests.sum(COMPLETED)).cast_signed()).unwrap_or(0))
    }
}

impl Stretch {
    const fn new(began: Instant, started: u64, own: u64, waited: Option<Duration>) -> Self {
        Self { began, started, own, shape: None, requests: 0, odd: 0, depths: 0, waited, spoiled: false }
    }

    /// A request of so many bytes completed. Without a shape it is none that a profile has.
    pub(crate) fn completed(&mut self, shape: Option<Shape>, bytes: usize) {
        if self.requests == 0 {
            self.shape = shape;
        }
        self.requests += 1;
        self.odd += u64::from(shape != self.shape);
        self.spoiled |= self.shape.is_none_or(|shape| bytes > shape.bytes());
    }

    /// So many requests completed of so many in flight, for which the caller waited so long.
    pub(crate) fn waited(&mut self, completed: u64, in_flight: u64, time: Duration) {
        self.depths += completed * in_flight;
        if let Some(waited) = &mut self.waited {
            *waited += time;
        }
    }

    /// The device did something else meanwhile, or was not free to do this.
    pub(crate) fn spoil(&mut self) {
        self.spoiled = true;
    }

    /// Shape, class of depth and timing, if it says anything.
    fn shows(&self, elapsed: Duration) -> Option<(Shape, usize, Timing)> {
        if self.spoiled || self.requests == 0 || self.odd * ODD > self.requests {
            return None;
        }
        let depth = self.depths as f64 / self.requests as f64;
        let class = depth_class(depth);
        if class == 0 && self.depths != self.requests {
            return None;
        }
        let waited_enough = self.waited.is_none_or(|waited| waited * 2 >= elapsed);
        let each_ns = elapsed.as_nanos() as f64 / self.requests as f64;
        let timing =
            if waited_enough { Timing::Each { ns: each_ns, requests: self.requests } } else { Timing::LeftOut };
        Some((self.shape?, class, timing))
    }
}

/// Whether it is the turn of a stretch of this thread to be timed: one in [`SAMPLE`], in no rhythm that requests could have too. Each thread begins at another
/// place, for one that makes few requests would have its first one timed and nothing else.
fn is_sampled() -> bool {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static STRETCHES: Cell<u32> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    let stretch = STRETCHES.replace(STRETCHES.get().wrapping_add(1));
    // Multiples of the golden ratio lie evenly in a circle, whatever regular part of them one takes.
    stretch.wrapping_mul(0x9E37_79B9) < u32::MAX / SAMPLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::PAGE_BYTES;

    const TOOK: Duration = Duration::from_micros(640);

    fn stretch(requests: u64, in_flight: u64, waited: Option<Duration>) -> Stretch {
        let mut stretch = Stretch::new(Instant::now(), 0, 0, waited);
        (0..requests).for_each(|_| read(&mut stretch, PAGE_BYTES));
        stretch.waited(requests, in_flight, Duration::ZERO);
        stretch
    }

    fn read(stretch: &mut Stretch, bytes: usize) {
        stretch.completed(Shape::new(RequestKind::Read, bytes), bytes);
    }

    #[test]
    fn a_stretch_shows_the_time_of_each_request_and_how_many_were_in_flight() {
        let shown = |stretch: Stretch| stretch.shows(TOOK).map(|(_, depth, timing)| (depth, timing));
        assert_eq!(shown(stretch(64, 64, None)), Some((6, Timing::Each { ns: 10_000.0, requests: 64 })));
        assert_eq!(shown(stretch(1, 1, None)), Some((0, Timing::Each { ns: 640_000.0, requests: 1 })));
        let mut now_and_then_two = stretch(9, 1, None);
        read(&mut now_and_then_two, PAGE_BYTES);
        now_and_then_two.waited(1, 2, Duration::ZERO);
        assert_eq!(shown(now_and_then_two), None, "it was not alone all the time");
    }

    #[test]
    fn what_says_nothing_of_the_device_is_left_out() {
        let shows = |stretch: Stretch| stretch.shows(TOOK).is_some();
        let mut spoiled = stretch(64, 64, None);
        spoiled.spoil();
        assert!(!shows(spoiled));
        let mixed = |odd_bytes: usize, odd: u64| {
            let mut mixed = stretch(64 - odd, 64, None);
            (0..odd).for_each(|_| read(&mut mixed, odd_bytes));
            mixed.waited(odd, 64, Duration::ZERO);
            mixed
        };
        assert!(shows(mixed(512, 4)));
        assert!(!shows(mixed(512, 5)));
        assert!(!shows(mixed(2 * PAGE_BYTES, 1)), "a larger request is no small matter");
        assert!(!shows(stretch(0, 0, None)));
    }

    #[test]
    fn what_its_consumer_was_too_slow_for_is_counted() {
        let timing = |waited| stretch(64, 64, Some(waited)).shows(TOOK).map(|(_, _, timing)| timing);
        assert_eq!(timing(TOOK / 2), Some(Timing::Each { ns: 10_000.0, requests: 64 }));
        assert_eq!(timing(TOOK / 3), Some(Timing::LeftOut));
    }

    #[test]
    fn one_in_so_many_stretches_is_timed_in_no_rhythm() {
        let sampled: Vec<bool> = (0..8000).map(|_| is_sampled()).collect();
        let all = sampled.iter().filter(|sampled| **sampled).count();
        assert!((900..1100).contains(&all), "{all}");
        for period in 2..=16 {
            for phase in 0..period {
                let hits = sampled.iter().skip(phase).step_by(period).filter(|sampled| **sampled).count();
                assert!(hits * SAMPLE as usize * period > 8000 / 2, "{hits} of every {period}th from {phase}");
            }
        }
    }
}
