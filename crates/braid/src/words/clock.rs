//! The time that a database goes by: instants for what has to be done by when, and a time of day for what expires.
//!
//! 1. The time of day follows the system's clock, and never runs backwards: where that is set back, time goes on from where it was with the
//!    steady clock that instants are of. So what has expired does not come back.
//! 2. It begins at the latest time that the newest checkpoint and the log behind it know of, if the system's clock is behind that. Whatever takes away what has
//!    expired says when it did; and from when on anything can expire, so does each commit, for it may rest on what was gone.
//!
//! Invariant: who asks later, in whatever thread, is not told an earlier time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use index::{Expiry, Time};

/// The clock of a database.
#[derive(Debug)]
pub(crate) struct Clock {
    begun: Instant,
    /// The latest time of day, by anything known, at which `begun` can have been, in milliseconds.
    origin: AtomicU64,
    /// Something may expire.
    counts: AtomicBool,
    set: Option<SetClock>,
}

impl Clock {
    /// A clock that tells no time before `earliest`, and goes by `set` instead of the system where there is one.
    pub(crate) fn new(set: Option<SetClock>, earliest: Time) -> Self {
        let begun = set.as_ref().map_or_else(Instant::now, SetClock::instant);
        Self { begun, origin: AtomicU64::new(earliest.0), counts: AtomicBool::new(false), set }
    }

    /// Something that expires is about to become visible.
    pub(crate) fn note_expiring(&self) {
        // Nearly always it is set, and everybody reads it.
        if !self.counts.load(Ordering::Relaxed) {
            self.counts.store(true, Ordering::Release);
        }
    }

    /// What a commit says of its time: nothing as long as nothing can have expired.
    pub(crate) fn of_commit(&self) -> Option<Time> {
        self.counts.load(Ordering::Acquire).then(|| self.now())
    }

    /// The steady time.
    pub(crate) fn instant(&self) -> Instant {
        self.set.as_ref().map_or_else(Instant::now, SetClock::instant)
    }

    /// The time of day.
    pub(crate) fn now(&self) -> Time {
        // In this order: a pause between the two makes the origin too early, which a later look puts right, and never too late.
        let of_day = self.of_day();
        let elapsed = millis(self.instant().saturating_duration_since(self.begun));
        let origin = of_day.saturating_sub(elapsed);
        let before = self.origin.fetch_max(origin, Ordering::AcqRel);
        Time(origin.max(before).saturating_add(elapsed))
    }

    fn of_day(&self) -> u64 {
        match &self.set {
            Some(set) => set.of_day.load(Ordering::Acquire),
            None => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, millis),
        }
    }
}

/// A clock that stands until it is set, for tests. Its clones are the same clock.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct SetClock {
    begun: Instant,
    /// Milliseconds since then.
    steady: Arc<AtomicU64>,
    /// Milliseconds since the beginning of 1970.
    of_day: Arc<AtomicU64>,
}

impl SetClock {
    /// One that says it is `of_day`, in milliseconds since the beginning of 1970.
    #[must_use]
    pub fn new(of_day: u64) -> Self {
        Self { begun: Instant::now(), steady: Arc::default(), of_day: Arc::new(of_day.into()) }
    }

    /// So many milliseconds pass.
    pub fn advance(&self, millis: u64) {
        self.steady.fetch_add(millis, Ordering::AcqRel);
        self.of_day.fetch_add(millis, Ordering::AcqRel);
    }

    /// The time of day is set, and no time passes.
    pub fn set_of_day(&self, millis: u64) {
        self.of_day.store(millis, Ordering::Release);
    }

    fn instant(&self) -> Instant {
        self.begun + Duration::from_millis(self.steady.load(Ordering::Acquire))
    }
}

/// When a value that is put expires. A [`Duration`] and a [`SystemTime`] can stand for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// So long after its commit, which is more than nothing; part of a millisecond counts as a whole one.
    After(Duration),
    /// At this time. One that has passed makes the value go unseen: the key is then as if it was deleted.
    At(SystemTime),
}

impl From<Duration> for Expires {
    fn from(duration: Duration) -> Self {
        Self::After(duration)
    }
}

impl From<SystemTime> for Expires {
    fn from(time: SystemTime) -> Self {
        Self::At(time)
    }
}

impl Expires {
    /// The expiry of what is committed at `now`. Times that cannot be told are the earliest or the latest that can.
    pub(crate) fn expiry(self, now: Time) -> Expiry {
        let at = match self {
            Self::After(duration) => now.0.saturating_add(millis_up(duration)),
            Self::At(time) => time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, millis_up),
        };
        Expiry::at(at.max(1)).expect("at least 1")
    }
}

/// The time of an expiry.
pub(crate) fn system_time(expiry: Expiry) -> SystemTime {
    let since = Duration::from_millis(expiry.millis());
    // Beyond what the system can tell, its last second is as far away.
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH + Duration::from_secs(u32::MAX.into()))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_follows_the_clock_and_never_runs_backwards() {
        let set = SetClock::new(1_000);
        let clock = Clock::new(Some(set.clone()), Time(0));
        let tells = |expected| assert_eq!(clock.now(), Time(expected));
        tells(1_000);
        set.advance(5);
        tells(1_005);
        set.set_of_day(2_000);
        tells(2_000);
        // Set back, it goes on from where it was.
        set.set_of_day(500);
        tells(2_000);
        set.advance(30);
        tells(2_030);
        set.set_of_day(3_000);
        tells(3_000);
        // Known to a checkpoint, while the system's clock is behind.
        let later = Clock::new(Some(set.clone()), Time(9_000));
        assert_eq!(later.now(), Time(9_000));
        set.advance(7);
        assert_eq!(later.now(), Time(9_007));
    }

    #[test]
    fn the_system_clock_is_told_in_milliseconds() {
        let clock = Clock::new(None, Time(0));
        let before = millis(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970"));
        let (one, other) = (clock.now(), clock.now());
        assert!(one.0 + 1 >= before && one <= other, "{before} {one:?} {other:?}");
    }

    #[test]
    fn expiries_are_rounded_up_and_stay_within_what_can_be_told() {
        let at = |expires: Expires| expires.expiry(Time(100)).millis();
        assert_eq!(at(Duration::from_nanos(1).into()), 101);
        assert_eq!(at(Duration::from_millis(7).into()), 107);
        assert_eq!(at(Duration::MAX.into()), u64::MAX);
        assert_eq!(at((SystemTime::UNIX_EPOCH + Duration::from_micros(2_500)).into()), 3);
        assert_eq!(at(SystemTime::UNIX_EPOCH.into()), 1);
        assert_eq!(at((SystemTime::UNIX_EPOCH - Duration::from_secs(9)).into()), 1);
        let told = Expiry::at(1_800_000_000_123).expect("not 0");
        assert_eq!(Expires::At(system_time(told)).expiry(Time(0)), told);
    }
}
