//! Pauses after failures.
//!
//! Each failure in a row doubles the pause, from a quarter of a second up to a minute. Removing a likely cause of the
//! failure ends the pause and the row.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(60);

/// The time of the next attempt after failures.
#[derive(Debug, Default)]
pub(crate) struct BackOff {
    /// The last pause, and its end; none when the last attempt did not fail.
    pause: Option<(Duration, Instant)>,
}

impl BackOff {
    /// Whether an attempt is due.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.pause.is_none_or(|(_, until)| now >= until)
    }

    /// Notes that an attempt has failed.
    pub(crate) fn failed(&mut self, now: Instant) {
        let pause = self.pause.map_or(FIRST, |(last, _)| (2 * last).min(LONGEST));
        self.pause = Some((pause, now + pause));
    }

    /// Notes that an attempt has succeeded, or has better prospects now.
    pub(crate) fn end(&mut self) {
        self.pause = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_end_early() {
        let mut back_off = BackOff::default();
        let mut now = Instant::now();
        assert!(back_off.is_over(now));
        for expected in [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
            back_off.failed(now);
            let over = now + Duration::from_millis(expected);
            assert!(!back_off.is_over(over - Duration::from_millis(1)), "{expected}");
            assert!(back_off.is_over(over), "{expected}");
            now = over;
        }
        back_off.failed(now);
        back_off.end();
        assert!(back_off.is_over(now));
        back_off.failed(now);
        assert!(back_off.is_over(now + FIRST), "a new row begins");
    }
}
