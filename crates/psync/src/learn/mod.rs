//! What the requests of one backend's users show of the device, without a request more.
//!
//! 1. Every request is counted when it starts and when it completes, each thread in a part of its own ([`tally`]): the difference is what is in flight.
//! 2. One in [`SAMPLE`] stretches of requests is timed. A stretch is a request that is made alone, or what a batch or stream has in flight from its first request
//!    until nothing is in flight any more, [`STRETCH_REQUESTS_MAX`] completions at the most.
//! 3. Where its requests were of one kind and of one size that a profile has, and went past the page cache, the time per request is noted with how many were in
//!    flight ([`RequestTimes`]).
//! 4. Others' requests share the device. With `own` requests of the stretch in flight and `others` beside them, each takes `time / requests × own / (own + others)`
//!    of the device, at a depth of `own + others`.
//!
//! Left out is what says nothing of the device: a stretch that made way for readers or met an error, one whose consumer was slower than the device, one
//! beside which the number of others changed much, and a request that was not alone all the time although it was when it started.
//!
//! Left to others: what follows from the times ([`crate::probe::learned`]).

pub(crate) mod format;
mod times;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tally::Tally;

pub use times::{RequestKind, RequestTimes};
pub(crate) use times::{Shape, depth_class};

use crate::backend::Backend;

/// One of so many stretches is timed.
const SAMPLE: u32 = 8;

/// Completions after which a stretch ends that goes on.
pub(crate) const STRETCH_REQUESTS_MAX: u64 = 256;

/// One of so many requests of a stretch may be of another kind or size.
const ODD: u64 = 16;

const STARTED: usize = 0;
const COMPLETED: usize = 1;

/// What the users of one backend learn together.
pub(crate) struct Learner {
    backend: Arc<dyn Backend>,
    requests: Tally<2>,
    pub(crate) times: RequestTimes,
    /// Timings noted since they were last saved.
    unsaved: AtomicU64,
}

/// Requests that are timed together.
pub(crate) struct Stretch {
    began: Instant,
    /// Requests of others in flight when it began.
    others: u64,
    /// Requests of all that had started.
    started: u64,
    /// Its own requests that were in flight already.
    own: u64,
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
        Self { backend, requests: Tally::new(), times: RequestTimes::default(), unsaved: AtomicU64::new(0) }
    }

    pub(crate) fn started(&self, requests: u64) {
        self.requests.add(STARTED, requests);
    }

    pub(crate) fn completed(&self, requests: u64) {
        self.requests.add(COMPLETED, requests);
    }

    /// Begins a stretch with so many requests of its own in flight, if it is its turn. Of a stream it counts how long its consumer waits.
    pub(crate) fn begin(&self, own: u64, is_stream: bool) -> Option<Stretch> {
        if !is_sampled() {
            return None;
        }
        let began = self.now()?;
        let (started, in_flight) = self.look();
        Some(Stretch {
            began,
            others: in_flight.saturating_sub(own),
            started,
            own,
            shape: None,
            requests: 0,
            odd: 0,
            depths: 0,
            waited: is_stream.then_some(Duration::ZERO),
            spoiled: false,
        })
    }

    /// Ends a stretch with so many requests of its own in flight, and notes what it shows.
    pub(crate) fn end(&self, stretch: Stretch, own: u64) {
        let Some(elapsed) = self.now().map(|now| now.saturating_duration_since(stretch.began)) else { return };
        let (started, in_flight) = self.look();
        let others_started = started.wrapping_sub(stretch.started).saturating_sub(stretch.requests + own - stretch.own);
        let others = (stretch.others, in_flight.saturating_sub(own));
        if let Some((shape, depth, each_ns)) = stretch.shows(elapsed, others, others_started > 0) {
            self.times.note_shape(shape, depth, each_ns, stretch.requests);
            self.unsaved.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many timings were noted since this was last asked.
    pub(crate) fn take_unsaved(&self) -> u64 {
        self.unsaved.swap(0, Ordering::Relaxed)
    }

    /// The device's time; none where it says nothing.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.backend.now()
    }

    /// Requests that were started, and those in flight.
    fn look(&self) -> (u64, u64) {
        // In this order: what completes in between was not in flight for long.
        let started = self.requests.sum(STARTED);
        (started, u64::try_from(started.wrapping_sub(self.requests.sum(COMPLETED)).cast_signed()).unwrap_or(0))
    }
}

impl Stretch {
    /// A request of the stretch completed. Without a shape it is none that a profile has.
    pub(crate) fn completed(&mut self, shape: Option<Shape>, is_ok: bool) {
        if self.requests == 0 {
            self.shape = shape;
        }
        self.requests += 1;
        self.odd += u64::from(shape != self.shape);
        self.spoiled |= !is_ok;
    }

    /// So many requests completed of so many in flight, for which the caller waited so long.
    pub(crate) fn waited(&mut self, completed: u64, in_flight: u64, time: Duration) {
        self.depths += completed * in_flight;
        if let Some(waited) = &mut self.waited {
            *waited += time;
        }
    }

    /// It made way for readers, so it had less of the device than it could have.
    pub(crate) fn spoil(&mut self) {
        self.spoiled = true;
    }

    /// Shape, class of depth and ns per request, if it says anything. `others` were in flight at its begin and end.
    fn shows(&self, elapsed: Duration, others: (u64, u64), others_started: bool) -> Option<(Shape, usize, f64)> {
        let waited_enough = self.waited.is_none_or(|waited| waited * 2 >= elapsed);
        if self.spoiled || self.requests == 0 || self.odd * ODD > self.requests || !waited_enough {
            return None;
        }
        let own = self.depths as f64 / self.requests as f64;
        let (before, after) = (own + others.0 as f64, own + others.1 as f64);
        if own < 1.0 || depth_class(before).abs_diff(depth_class(after)) > 1 {
            return None;
        }
        let depth = f64::midpoint(before, after);
        let class = depth_class(depth);
        if class == 0 && (depth > 1.0 || others_started) {
            return None;
        }
        Some((self.shape?, class, elapsed.as_nanos() as f64 / self.requests as f64 * (own / depth)))
    }
}

/// Whether it is the turn of a stretch of this thread to be timed: one in [`SAMPLE`], in no rhythm that requests could have too.
fn is_sampled() -> bool {
    thread_local! {
        static STRETCHES: Cell<u32> = const { Cell::new(0) };
    }
    let stretch = STRETCHES.get();
    STRETCHES.set(stretch.wrapping_add(1));
    // Multiples of the golden ratio lie evenly in a circle, whatever regular part of them one takes.
    stretch.wrapping_mul(0x9E37_79B9) < u32::MAX / SAMPLE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(requests: u64, in_flight: u64, waited: Option<Duration>) -> Stretch {
        let shape = Shape::new(RequestKind::Read, 4096);
        let mut stretch = Stretch {
            began: Instant::now(),
            others: 0,
            started: 0,
            own: 0,
            shape: None,
            requests: 0,
            odd: 0,
            depths: 0,
            waited: waited.map(|_| Duration::ZERO),
            spoiled: false,
        };
        (0..requests).for_each(|_| stretch.completed(shape, true));
        stretch.waited(requests, in_flight, waited.unwrap_or_default());
        stretch
    }

    const TOOK: Duration = Duration::from_micros(640);

    #[test]
    fn a_stretch_shows_its_share_of_the_device() {
        let shown = |stretch: Stretch, others| stretch.shows(TOOK, others, true).map(|(_, depth, ns)| (depth, ns));
        assert_eq!(shown(stretch(64, 64, None), (0, 0)), Some((6, 10_000.0)));
        assert_eq!(shown(stretch(64, 64, None), (64, 64)), Some((7, 5_000.0)));
        assert_eq!(shown(stretch(1, 1, None), (7, 7)), Some((3, 80_000.0)));
        assert_eq!(shown(stretch(1, 1, None), (0, 31)), None, "the others came meanwhile");
        assert_eq!(shown(stretch(1, 1, None), (0, 0)), None, "it was not alone all the time");
        assert!(stretch(1, 1, None).shows(TOOK, (0, 0), false).is_some());
    }

    #[test]
    fn what_says_nothing_of_the_device_is_left_out() {
        let shows = |stretch: Stretch| stretch.shows(TOOK, (0, 0), false).is_some();
        assert!(shows(stretch(64, 64, Some(TOOK / 2))));
        assert!(!shows(stretch(64, 64, Some(TOOK / 3))), "its consumer was slower");
        let mut spoiled = stretch(64, 64, None);
        spoiled.spoil();
        assert!(!shows(spoiled));
        let mut failed = stretch(64, 64, None);
        failed.completed(Shape::new(RequestKind::Read, 4096), false);
        assert!(!shows(failed));
        let mut mixed = stretch(60, 64, None);
        (0..4).for_each(|_| mixed.completed(None, true));
        mixed.depths += 4 * 64;
        assert!(shows(mixed));
        let mut mixed = stretch(59, 64, None);
        (0..5).for_each(|_| mixed.completed(Shape::new(RequestKind::Read, 8192), true));
        assert!(!shows(mixed));
        assert!(!shows(stretch(0, 0, None)));
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
