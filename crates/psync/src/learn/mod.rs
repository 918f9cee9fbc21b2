//! Timings of the device from the requests of one backend's users, without a request more.
//!
//! 1. Every request is counted when it starts and when its completion is taken, each thread in a part of its own
//!    ([`tally`]). The difference is the number in flight.
//! 2. One in [`SAMPLE`] stretches of requests is timed. A stretch is a request made alone, or all requests of a batch
//!    or stream from its first until nothing is in flight any more. A stretch has [`STRETCH_REQUESTS_MAX`] completions
//!    at most.
//! 3. A stretch counts only where the device had nothing else to do. No request of others was in flight at its begin,
//!    and none started meanwhile. A request whose completion was not taken is in flight, complete or not, so nothing is
//!    timed beside it.
//! 4. The requests of a stretch must be of one kind and of one size that a profile has, and bypass the page cache. Then
//!    the time per request is noted with the average number in flight ([`RequestTimes`]).
//!
//! Left out without a count, because they say nothing of the device: a stretch that made way for readers or met an
//! error, a flush, a durable write or a larger request.
//!
//! Left out but counted: a stretch whose consumer was slower than the device. The stretches of fast consumers are a
//! biased choice, because a consumer may be the faster one only while the device is slow. So a figure needs at least as
//! many noted timings as timings left out for this reason.
//!
//! Left to others: the profile that follows from the times ([`crate::probe::learned`]).

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

/// One of this many stretches is timed.
const SAMPLE: u32 = 8;

/// Completions after which a continuing stretch ends.
pub(crate) const STRETCH_REQUESTS_MAX: u64 = 256;

/// One of this many requests of a stretch may be of another kind or of a smaller size.
const ODD: u64 = 16;

const STARTED: usize = 0;
const COMPLETED: usize = 1;

/// Request counts and times shared by the users of one backend.
pub(crate) struct Learner {
    backend: Arc<dyn Backend>,
    requests: Tally<2>,
    pub(crate) times: RequestTimes,
    /// Minutes count from here.
    begin: Instant,
    /// Stretches that were noted or counted since the last save.
    unsaved: AtomicU64,
}

/// Requests that are timed together.
pub(crate) struct Stretch {
    began: Instant,
    /// Requests of all users that had started.
    started: u64,
    /// The queue's own requests that were in flight already.
    own: u64,
    /// The shape of the first request.
    shape: Option<Shape>,
    requests: u64,
    /// Requests of another shape.
    odd: u64,
    /// The sum over all requests of the number in flight at their completion.
    depths: u64,
    /// Time that was spent waiting for the device; none where all of the time was.
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

    /// Begins a stretch with `own` requests of the queue in flight, if a stretch is due and nobody else has any in
    /// flight. For a stream the stretch counts the time for which the consumer waits.
    pub(crate) fn begin(&self, own: u64, is_stream: bool) -> Option<Stretch> {
        if !is_sampled() {
            return None;
        }
        let began = self.now()?;
        let (started, in_flight) = self.look();
        let waited = is_stream.then_some(Duration::ZERO);
        (in_flight <= own).then(|| Stretch::new(began, started, own, waited))
    }

    /// Ends a stretch with `own` requests of the queue in flight, and notes its timing.
    pub(crate) fn end(&self, stretch: Stretch, own: u64) {
        let Some(now) = self.now() else { return };
        // With none of others in flight at the begin, one in flight at the end started meanwhile.
        if self.look().0.wrapping_sub(stretch.started) != stretch.requests + own - stretch.own {
            return;
        }
        if let Some((shape, depth, timing)) = stretch.shows(now.saturating_duration_since(stretch.began)) {
            let minute = now.saturating_duration_since(self.begin).as_secs() / 60;
            self.times.note_shape(shape, depth, minute, timing);
            self.unsaved.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stretches that were noted or counted and are not saved.
    pub(crate) fn unsaved(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed)
    }

    /// Marks `stretches` of them as saved.
    pub(crate) fn saved(&self, stretches: u64) {
        self.unsaved.fetch_sub(stretches, Ordering::Relaxed);
    }

    /// The device's time; none where the backend has no clock of a device.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.backend.now()
    }

    /// Requests that were started, and those in flight.
    pub(crate) fn look(&self) -> (u64, u64) {
        // In this order, a request that starts in between is among those that start later.
        let started = self.requests.sum(STARTED);
        (started, u64::try_from(started.wrapping_sub(self.requests.sum(COMPLETED)).cast_signed()).unwrap_or(0))
    }
}

impl Stretch {
    const fn new(began: Instant, started: u64, own: u64, waited: Option<Duration>) -> Self {
        Self { began, started, own, shape: None, requests: 0, odd: 0, depths: 0, waited, spoiled: false }
    }

    /// Counts a completed request of `bytes` bytes. No profile has a request without a shape.
    pub(crate) fn completed(&mut self, shape: Option<Shape>, bytes: usize) {
        if self.requests == 0 {
            self.shape = shape;
        }
        self.requests += 1;
        self.odd += u64::from(shape != self.shape);
        self.spoiled |= self.shape.is_none_or(|shape| bytes > shape.bytes());
    }

    /// Notes that `completed` of `in_flight` requests completed, for which the caller waited `time`.
    pub(crate) fn waited(&mut self, completed: u64, in_flight: u64, time: Duration) {
        self.depths += completed * in_flight;
        if let Some(waited) = &mut self.waited {
            *waited += time;
        }
    }

    /// Marks the stretch as spoiled: the device did something else meanwhile, or was not free for this stretch.
    pub(crate) fn spoil(&mut self) {
        self.spoiled = true;
    }

    /// Shape, class of depth and timing, if the stretch shows any.
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

/// Whether this stretch of the thread is to be timed: one in [`SAMPLE`], in no rhythm that requests could have too.
/// Each thread begins at another place. Otherwise a thread with few requests would have its first one timed and nothing
/// else.
fn is_sampled() -> bool {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static STRETCHES: Cell<u32> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    let stretch = STRETCHES.replace(STRETCHES.get().wrapping_add(1));
    // Multiples of the golden ratio lie evenly in a circle, and so does any regular part of them.
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
