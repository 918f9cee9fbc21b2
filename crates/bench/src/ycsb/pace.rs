//! The due times of a client's operations, at a target rate.
//!
//! 1. Operation `i` of a client is due `i` ticks and the client's offset after the beginning; clients are spread over
//!    the tick.
//! 2. A client sleeps until the due time. A late client goes on at once, and the latency of its operation counts from
//!    the due time.
//!
//! The due times do not depend on the duration of operations, so a stall shows in every operation that was due during
//! the stall.

use std::time::{Duration, Instant};

/// The due times of one client's operations.
pub(crate) struct Pace {
    begin: Instant,
    tick_seconds: f64,
    /// The client's offset in the tick, from 0 to 1.
    offset: f64,
}

impl Pace {
    /// The pace of client `thread` of `threads`, which together do `target` operations per second.
    pub(crate) fn new(begin: Instant, target: f64, thread: usize, threads: usize) -> Self {
        Self { begin, tick_seconds: threads as f64 / target, offset: thread as f64 / threads as f64 }
    }

    /// When an operation is due.
    pub(crate) fn due(&self, operation: u64) -> Instant {
        let seconds = (operation as f64 + self.offset) * self.tick_seconds;
        let after = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        // A due time that overflows the clock is replaced by a day after the beginning, which is beyond any slice.
        self.begin.checked_add(after).unwrap_or_else(|| self.begin + Duration::from_secs(86_400))
    }

    /// How many operations are due before `end`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and saturating")]
    pub(crate) fn due_before(&self, end: Instant) -> u64 {
        let seconds = end.saturating_duration_since(self.begin).as_secs_f64();
        (seconds / self.tick_seconds - self.offset).ceil().max(0.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_and_keep_the_rate() {
        let begin = Instant::now();
        let paces = [0, 1].map(|thread| Pace::new(begin, 100.0, thread, 2));
        let due = |thread: usize, operation| paces[thread].due(operation).duration_since(begin).as_millis();
        assert_eq!([due(0, 0), due(1, 0), due(0, 1), due(1, 1), due(0, 50)], [0, 10, 20, 30, 1000]);
        for end in [0, 1, 10, 11, 995, 1000, 1001] {
            let end = begin + Duration::from_millis(end);
            for pace in &paces {
                let counted = (0..100).filter(|operation| pace.due(*operation) < end).count() as u64;
                assert_eq!(pace.due_before(end), counted);
            }
        }
    }

    #[test]
    fn a_rate_of_nearly_nothing_has_times_too() {
        let pace = Pace::new(Instant::now(), f64::MIN_POSITIVE, 1, 2);
        assert!(pace.due(1) > Instant::now());
        assert_eq!(pace.due_before(Instant::now()), 0);
    }
}
