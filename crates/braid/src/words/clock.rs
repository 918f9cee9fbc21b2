//! The time of a database: instants for deadlines, and a time of day for expiry.
//!
//! 1. The time of day follows the system's clock, and never runs backwards. When the system's clock is set back, time
//!    goes on from where it was, by the steady clock that instants are taken from. So expired values do not come back.
//! 2. The time of day begins at the latest time known to the newest checkpoint and to the log behind the checkpoint, if
//!    the system's clock is behind that time. Two kinds of records bring such times:
//!    - every record of a removal of expired values, with the time of that removal;
//!    - every commit, from the first value that can expire on, because the commit may rest on the absence of an expired
//!      value.
//! 3. A known time more than [`LEAD_MAX`] ahead of the system's clock is of a life with a wrong clock. Time then begins
//!    that much ahead, so that absolute expiries mean something again. A system's clock that was never set is no reason
//!    for this.
//!
//! Invariant: a later call, in any thread, never returns an earlier time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use index::{Expiry, Time};

/// The known time may lead the system's clock by so much. A day is more than any time zone set wrong.
const LEAD_MAX: Duration = Duration::from_secs(24 * 3600);
/// A system's clock before 2026 is not set yet: this code is younger.
const YOUNGEST_UNSET: u64 = 1_767_225_600_000;

/// The time to begin with, from a time that an earlier life of the database knew, and the system's.
fn earliest(known: Time, of_day: u64) -> u64 {
    let latest = of_day.saturating_add(millis(LEAD_MAX));
    if of_day < YOUNGEST_UNSET || known.0 <= latest {
        return known.0;
    }
    let days = (known.0 - of_day) / millis(LEAD_MAX);
    events::warn!(
        days,
        "the database was once open with a clock this many days ahead of the present one; time goes on one day ahead, \
         and values that expired by the other clock, and were not removed yet, are there again"
    );
    latest
}

/// The clock of a database.
#[derive(Debug)]
pub(crate) struct Clock {
    begun: Instant,
    /// The latest time of day, by anything known, at which `begun` can have been, in milliseconds.
    origin: AtomicU64,
    /// Some value may expire.
    counts: AtomicBool,
    set: Option<ManualClock>,
}

impl Clock {
    /// A clock that returns no time before `known`, a time that an earlier life of the database knew, unless that time
    /// is too far ahead. With `set`, the clock follows `set` instead of the system.
    pub(crate) fn new(set: Option<ManualClock>, known: Time) -> Self {
        let begun = set.as_ref().map_or_else(Instant::now, ManualClock::instant);
        let clock = Self { begun, origin: AtomicU64::new(0), counts: AtomicBool::new(false), set };
        clock.origin.store(earliest(known, clock.of_day()), Ordering::Release);
        clock
    }

    /// Called before a value that expires becomes visible.
    pub(crate) fn note_expiring(&self) {
        // Loaded before the store, because the flag is nearly always set already and every thread reads the flag.
        if !self.counts.load(Ordering::Relaxed) {
            self.counts.store(true, Ordering::Release);
        }
    }

    /// The time that a commit records; none while nothing can have expired.
    pub(crate) fn of_commit(&self) -> Option<Time> {
        self.counts.load(Ordering::Acquire).then(|| self.now())
    }

    /// The steady time.
    pub(crate) fn instant(&self) -> Instant {
        self.set.as_ref().map_or_else(Instant::now, ManualClock::instant)
    }

    /// The time of day.
    pub(crate) fn now(&self) -> Time {
        // The time of day is read first. A pause between the two reads then makes the origin too early, which a later
        // call corrects, and never too late.
        let of_day = self.of_day();
        let elapsed = millis(self.instant().saturating_duration_since(self.begun));
        let origin = of_day.saturating_sub(elapsed);
        let before = self.origin.fetch_max(origin, Ordering::AcqRel);
        Time(origin.max(before).saturating_add(elapsed))
    }

    fn of_day(&self) -> u64 {
        match &self.set {
            Some(set) => set.of_day.load(Ordering::Acquire),
            None => since_1970(SystemTime::now()),
        }
    }
}

/// A clock that stands still until it is advanced or set, for tests of programs whose values expire. Its clones are the
/// same clock.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("data");
/// use std::time::{Duration, SystemTime};
///
/// let clock = braid::ManualClock::new(SystemTime::now());
/// let db = braid::Options::new().clock(clock.clone()).open(&path)?;
/// let sessions = db.table("sessions", braid::Structure::BTree)?;
/// sessions.put_expiring("ada", "token", Duration::from_secs(60))?;
/// clock.advance(Duration::from_secs(59));
/// assert!(sessions.get("ada")?.is_some());
/// clock.advance(Duration::from_secs(1));
/// assert!(sessions.get("ada")?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    begun: Instant,
    /// Milliseconds since `begun`.
    steady: Arc<AtomicU64>,
    /// Milliseconds since the beginning of 1970.
    of_day: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows this time. Parts of a millisecond are left out, here and below.
    #[must_use]
    pub fn new(now: SystemTime) -> Self {
        Self { begun: Instant::now(), steady: Arc::default(), of_day: Arc::new(since_1970(now).into()) }
    }

    /// Lets so much time pass.
    pub fn advance(&self, time: Duration) {
        self.steady.fetch_add(millis(time), Ordering::AcqRel);
        self.of_day.fetch_add(millis(time), Ordering::AcqRel);
    }

    /// Sets the time of day, forward or back; no time passes. The time of an open database never runs backwards.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// use std::time::{Duration, SystemTime};
    ///
    /// let day = Duration::from_secs(24 * 3600);
    /// let clock = braid::ManualClock::new(SystemTime::UNIX_EPOCH + 20_000 * day);
    /// let db = braid::Options::new().clock(clock.clone()).open(&path)?;
    /// let offers = db.table("offers", braid::Structure::BTree)?;
    /// offers.put_expiring("apples", "2 for 1", SystemTime::UNIX_EPOCH + 20_010 * day)?;
    /// clock.set(SystemTime::UNIX_EPOCH + 20_010 * day);
    /// assert_eq!(offers.get("apples")?, None);
    /// clock.set(SystemTime::UNIX_EPOCH + 20_000 * day); // what is gone stays gone
    /// assert!(offers.get("apples")?.is_none() && db.now() == SystemTime::UNIX_EPOCH + 20_010 * day);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&self, now: SystemTime) {
        self.of_day.store(since_1970(now), Ordering::Release);
    }

    /// The time of day that the clock shows.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        of_1970(self.of_day.load(Ordering::Acquire))
    }

    fn instant(&self) -> Instant {
        self.begun + Duration::from_millis(self.steady.load(Ordering::Acquire))
    }
}

/// Milliseconds since the beginning of 1970; 0 before.
fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, millis)
}

/// The expiry of a value that is put. A [`Duration`] and a [`SystemTime`] can stand for one.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use std::time::{Duration, SystemTime};
///
/// use braid::Expires;
///
/// assert_eq!(Expires::from(Duration::from_secs(60)), Expires::After(Duration::from_secs(60)));
/// let end = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
/// let sessions = db.table("sessions", braid::Structure::BTree)?;
/// sessions.put_expiring("token", "ada", end)?; // or `Expires::At(end)`
/// assert_eq!(sessions.expiry("token")?, Some(end));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// After this duration, counted from the commit; more than zero. A part of a millisecond counts as a whole one.
    After(Duration),
    /// At this time. A value whose time has passed is never seen: the key is then as if deleted.
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
    /// The expiry for a commit at `now`. A time that cannot be represented becomes the earliest or the latest that can.
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
    of_1970(expiry.millis())
}

/// The time of day so many milliseconds after the beginning of 1970.
pub(crate) fn of_1970(millis: u64) -> SystemTime {
    let since = Duration::from_millis(millis);
    // A time beyond the range of the system's time becomes second `u32::MAX` after 1970, which is as far away.
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

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn a_life_with_a_clock_years_ahead_does_not_spoil_the_time_for_good() {
        let (day, year) = (86_400_000, 365 * 86_400_000);
        let now = YOUNGEST_UNSET + year;
        let begin = |known, now| Clock::new(Some(ManualClock::new(at(now))), Time(known)).now().0;
        assert_eq!(begin(now + 10 * year, now), now + day);
        assert_eq!(begin(now + day, now), now + day, "a day may be right");
        assert_eq!(begin(now + 1000, now), now + 1000);
        assert_eq!(begin(now, YOUNGEST_UNSET - year), now, "a clock that is not set yet tells nothing");
        assert_eq!(begin(now, 0), now);
    }

    #[test]
    fn time_follows_the_clock_and_never_runs_backwards() {
        let set = ManualClock::new(at(1_000));
        let clock = Clock::new(Some(set.clone()), Time(0));
        let tells = |expected| assert_eq!(clock.now(), Time(expected));
        tells(1_000);
        set.advance(Duration::from_millis(5));
        tells(1_005);
        set.set(at(2_000));
        tells(2_000);
        // After the clock is set back, time goes on from where it was.
        set.set(at(500));
        tells(2_000);
        set.advance(Duration::from_millis(30));
        tells(2_030);
        set.set(at(3_000));
        tells(3_000);
        // A checkpoint knows a time that the system's clock is behind.
        let later = Clock::new(Some(set.clone()), Time(9_000));
        assert_eq!(later.now(), Time(9_000));
        set.advance(Duration::from_millis(7));
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
        let expiry = |expires: Expires| expires.expiry(Time(100)).millis();
        assert_eq!(expiry(Duration::from_nanos(1).into()), 101);
        assert_eq!(expiry(Duration::from_millis(7).into()), 107);
        assert_eq!(expiry(Duration::MAX.into()), u64::MAX);
        assert_eq!(expiry((SystemTime::UNIX_EPOCH + Duration::from_micros(2_500)).into()), 3);
        assert_eq!(expiry(SystemTime::UNIX_EPOCH.into()), 1);
        assert_eq!(expiry((SystemTime::UNIX_EPOCH - Duration::from_secs(9)).into()), 1);
        let told = Expiry::at(1_800_000_000_123).expect("not 0");
        assert_eq!(Expires::At(system_time(told)).expiry(Time(0)), told);
    }
}
