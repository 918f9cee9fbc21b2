//! Keeps waiting operations within the write buffer, and the log of them short, by slowing writers down smoothly.
//!
//! 1. Every queue reports the memory that the queue takes and, while being applied, how much is done.
//! 2. The buffer should be nearly full, because more waiting operations mean more operations per leaf and round. The
//!    buffer is divided into [`Pressure::sections`] sections. The fullest section, which a round takes, holds about
//!    twice the mean. Rounds are due from [`Pressure::due_bytes`] on, which leaves room for the operations that arrive
//!    during a round.
//! 3. The log that recovery needs begins with the oldest waiting operation. Where keys come in any order, half of its
//!    operations are applied already, so the log is twice as long as what waits. Rounds of the oldest operations are
//!    due from [`LogLimit::due`] bytes of it on.
//! 4. Up to these fills writers go at full speed. Above, a commit of `b` bytes counts as done `f` times the time later
//!    that applying `b` bytes takes at the measured rate. The factor `f` grows from 0 at the fill to 2 at the whole
//!    budget, or at the whole limit of the log; the larger one counts. So writers settle half way, at the speed of the
//!    applier.
//! 5. A structure that is behind with its rewrites counts like a fill: its debt ([`index::Upkeep::debt`]) is a factor
//!    too, and what the rewrites take counts as time of applying.
//! 6. At the whole budget writers wait until memory returns. They do not wait for the log, because a table may be slow
//!    to give up its oldest operation.
//!
//! Left to others: the choice of the operations to apply, and when. A full disk is noted here too, because a full disk
//! makes a wait hopeless.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use wal::Lsn;

use crate::engine::delays::{DelayStats, Reason};

/// A shorter delay adds up with later ones, because a shorter sleep costs more than it brings.
const SHORTEST_SLEEP: Duration = Duration::from_micros(200);
/// The longest delay of a commit, for its own bytes and for those of all before.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
const WORST_FACTOR: f64 = 2.0;
const RATE_MEMORY: f64 = 0.3;
/// Room above the fill at which rounds are due, in mean sections: writers settle at half of the room, and a round of
/// two sections is under way.
const ROOM_SECTIONS: u64 = 6;
/// A single queue of this many mean sections is due in any case.
const DUE_SECTIONS: u64 = 4;
/// A stretch of nodes, or of documents that cleaning moves, has this part of the budget, and so many bytes at most.
const STRETCH_PART: u64 = 8;
const STRETCH_BYTES_MAX: u64 = 8 << 20;
/// The log that recovery needs should have at most this many times the bytes of a quarter of the write buffer. Random
/// puts to 10 M records of 108 bytes wrote 7.0 GB of nodes with 5, 6.2 with 6, 5.6 with 7, 5.4 with 8, 5.0 with 16.
const LOG_PER_QUARTER_WRITE_BUFFER: u64 = 7;
/// The log may have so many segments in any case.
const LOG_SEGMENTS: u64 = 3;
/// Rounds of the oldest operations are due when this part of the limit is left.
const LOG_ROOM_PART: u64 = 4;

/// The limit of the log that recovery needs.
#[derive(Clone, Copy)]
pub(crate) struct LogLimit {
    /// All of the limit, bytes.
    pub(crate) bytes: u64,
}

impl LogLimit {
    /// The limit of a database with a write buffer of `budget` bytes, and log segments of `segment_bytes`.
    pub(crate) fn new(budget: u64, segment_bytes: u64) -> Self {
        Self { bytes: (LOG_PER_QUARTER_WRITE_BUFFER * budget / 4).max(LOG_SEGMENTS * segment_bytes) }
    }

    /// From this many bytes on the log is shortened.
    pub(crate) const fn due(self) -> u64 {
        self.bytes - self.bytes / LOG_ROOM_PART
    }
}

/// The log that recovery needs, as far as is known.
#[derive(Clone, Copy, Default)]
struct Log {
    /// Position of the oldest operation that waits, or behind all of them, when the worker looked last.
    from: Lsn,
    /// The end of the log when the worker looked last, or a later operation that made a queue larger.
    end: Lsn,
    /// The worker was told that rounds are due, and has not looked since.
    is_told: bool,
}

impl Log {
    const fn bytes(self) -> u64 {
        self.end.0.saturating_sub(self.from.0)
    }
}

struct State {
    used: u64,
    done: u64,
    log: Log,
    rate_bytes_per_second: Option<f64>,
    turn: Instant,
    open: bool,
    full_disk: Option<String>,
    /// The limit of deletes on a full disk, without their extra quarter. The value is the bytes that waited when
    /// deletes first went beyond the budget, plus later bytes of puts that were admitted before.
    beyond: Option<u64>,
    /// Deletes were refused because earlier puts have no space.
    deletes_refused: bool,
    /// The largest debt of a structure, and the time of the rewrites since the last round.
    debt: f64,
    rewriting: Duration,
    delays: DelayStats,
}

/// What became of the waiting operations when there were more.
pub(crate) struct Taken {
    /// Bytes that wait now.
    pub(crate) used: u64,
    /// The log has grown long, and the worker must be told.
    pub(crate) log_is_due: bool,
}

/// The write buffer's budget.
pub(crate) struct Pressure {
    budget: u64,
    log_limit: LogLimit,
    paced: bool,
    state: Mutex<State>,
    relieved: Condvar,
}

/// The reason why a writer may not go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The device has no space, so waiting would not end.
    FullDisk(String),
    /// The database failed or closes.
    Closed,
}

impl Pressure {
    /// Bounds waiting operations to `budget` bytes. Recovery would need the log from `log_from` on. Writers are `paced`
    /// where a thread applies operations meanwhile.
    pub(crate) fn new(budget: u64, log_limit: LogLimit, log_from: Lsn, paced: bool) -> Self {
        let state = State {
            used: 0,
            done: 0,
            log: Log { from: log_from, ..Log::default() },
            rate_bytes_per_second: None,
            turn: Instant::now(),
            open: true,
            full_disk: None,
            beyond: None,
            deletes_refused: false,
            debt: 0.0,
            rewriting: Duration::ZERO,
            delays: DelayStats::default(),
        };
        Self { budget, log_limit, paced, state: Mutex::new(state), relieved: Condvar::new() }
    }

    /// The whole budget in bytes.
    pub(crate) const fn budget(&self) -> u64 {
        self.budget
    }

    /// The number of sections of the budget.
    pub(crate) fn sections(&self) -> usize {
        usize::try_from(self.section_count()).expect("a few dozen")
    }

    fn section_count(&self) -> u64 {
        btree::cost::sections(self.budget)
    }

    /// Rounds are due from this many waiting bytes on.
    pub(crate) fn due_bytes(&self) -> u64 {
        let sections = self.section_count();
        self.budget.saturating_sub(ROOM_SECTIONS * self.budget / sections).max(self.budget / 2)
    }

    /// A queue of this many bytes makes a round due by itself.
    pub(crate) fn due_queue_bytes(&self) -> u64 {
        DUE_SECTIONS * self.round_bytes()
    }

    /// A round takes queues of about this many bytes together.
    pub(crate) fn round_bytes(&self) -> u64 {
        self.budget / self.section_count()
    }

    /// Bytes of a stretch of nodes that is rewritten, or of documents that cleaning moves. It takes a few times as much
    /// memory.
    pub(crate) fn stretch_bytes(&self) -> usize {
        usize::try_from((self.budget / STRETCH_PART).min(STRETCH_BYTES_MAX)).unwrap_or(usize::MAX).max(1)
    }

    /// Bytes of waiting operations.
    pub(crate) fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// How long commits were delayed, and why.
    pub(crate) fn delays(&self) -> DelayStats {
        let state = self.state.lock();
        let (reason, strength) = self.excess(&state);
        let delays = self.paced && strength > 0.0 && state.rate_bytes_per_second.is_some();
        let now = delays.then(|| reason.name().to_owned());
        DelayStats { strength: if now.is_some() { strength } else { 0.0 }, now, ..state.delays.clone() }
    }

    /// Notes that new documents were delayed because of cleaning.
    pub(crate) fn note_cleaning_delay(&self, delay: Duration) {
        self.state.lock().delays.note(Reason::Cleaning, delay);
    }

    /// Notes the largest debt of a structure, from 0 to 1.
    pub(crate) fn set_debt(&self, debt: f64) {
        self.state.lock().debt = debt;
    }

    /// Notes that a rewrite took that long, because of a debt.
    pub(crate) fn note_rewrite(&self, took: Duration) {
        self.state.lock().rewriting += took;
    }

    /// Whether the applier is too slow: writers are delayed by more time than applying their bytes takes.
    pub(crate) fn is_behind(&self) -> bool {
        self.excess(&self.state.lock()).1 > 0.5
    }

    /// The position below which waiting operations are too old, because the log is long.
    pub(crate) fn too_old(&self) -> Option<Lsn> {
        let log = self.state.lock().log;
        (log.bytes() >= self.log_limit.due()).then(|| Lsn(log.end.0 - self.log_limit.due()))
    }

    /// Recovery needs the log between these positions.
    pub(crate) fn set_log(&self, from: Lsn, end: Lsn) {
        let log = &mut self.state.lock().log;
        *log = Log { from, end: log.end.max(end), is_told: false };
    }

    /// The limit of the log that recovery needs.
    pub(crate) const fn log_limit(&self) -> LogLimit {
        self.log_limit
    }

    /// A queue took `bytes` more, the last of them for an operation at `lsn`, which is a delete or not.
    pub(crate) fn take(&self, bytes: u64, is_delete: bool, lsn: Lsn) -> Taken {
        let mut state = self.state.lock();
        state.used += bytes;
        if let Some(beyond) = state.beyond.as_mut().filter(|_| !is_delete) {
            *beyond += bytes;
        }
        let used = state.used;
        let log = &mut state.log;
        log.end = log.end.max(lsn);
        let log_is_due = !log.is_told && log.bytes() >= self.log_limit.due();
        log.is_told |= log_is_due;
        Taken { used, log_is_due }
    }

    /// Takes `bytes` of the budget for a single commit, however full the buffer is. Writers wait until they are given
    /// back ([`Self::forget`]). Returns the bytes that are taken then.
    pub(crate) fn reserve(&self, bytes: u64) -> u64 {
        let mut state = self.state.lock();
        state.used += bytes;
        state.used
    }

    /// `done` bytes of the queues being applied are done, though their memory is not back yet.
    pub(crate) fn progress(&self, done: u64) {
        self.state.lock().done = done;
    }

    /// Queues of `bytes` bytes are gone. Operations of `applied` bytes of them went into their structures, in the time
    /// `took`.
    pub(crate) fn give_back(&self, bytes: u64, applied: u64, took: Duration) {
        let mut state = self.state.lock();
        self.replace(&mut state, bytes, 0);
        state.done = 0;
        let took = took + std::mem::take(&mut state.rewriting);
        if applied > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate needs no more digits")]
            let rate = applied as f64 / took.as_secs_f64().max(1e-6);
            let known = state.rate_bytes_per_second.unwrap_or(rate);
            state.rate_bytes_per_second = Some(known + RATE_MEMORY * (rate - known));
        }
        if bytes > 0 {
            (state.full_disk, state.deletes_refused) = (None, false);
            self.relieved.notify_all();
        }
    }

    /// Queues of `before` bytes became queues of `after` bytes.
    pub(crate) fn exchange(&self, before: u64, after: u64) {
        self.replace(&mut self.state.lock(), before, after);
        self.relieved.notify_all();
    }

    /// Queues of `bytes` bytes are gone without having been applied.
    pub(crate) fn forget(&self, bytes: u64) {
        self.replace(&mut self.state.lock(), bytes, 0);
        self.relieved.notify_all();
    }

    fn replace(&self, state: &mut State, before: u64, after: u64) {
        assert!(state.used >= before, "queues give back what they took");
        state.used = state.used - before + after;
        let used = state.used;
        state.beyond = state.beyond.filter(|_| used >= self.budget).map(|beyond| beyond.min(used));
    }

    /// Notes that the disk is full, or no longer full.
    pub(crate) fn set_full_disk(&self, problem: Option<String>) {
        self.state.lock().full_disk = problem;
        self.relieved.notify_all();
    }

    /// The problem that made the disk full, if the disk is full.
    pub(crate) fn full_disk(&self) -> Option<String> {
        self.state.lock().full_disk.clone()
    }

    /// Whether deletes wait for earlier puts that have no space.
    pub(crate) fn deletes_wait(&self) -> bool {
        self.state.lock().deletes_refused
    }

    /// Ends all waits here.
    pub(crate) fn close(&self) {
        self.state.lock().open = false;
        self.relieved.notify_all();
    }

    /// Admits a commit of `bytes` bytes, and returns the time at which the commit may count as done, if that is later.
    /// With `reclaims` the commit only deletes, so a full disk does not refuse the commit.
    pub(crate) fn admit(&self, bytes: u64, reclaims: bool) -> Result<Option<Instant>, Refusal> {
        let mut state = self.state.lock();
        while state.open && state.used >= self.limit(&mut state, reclaims) {
            if let Some(problem) = state.full_disk.clone() {
                state.deletes_refused |= reclaims;
                return Err(Refusal::FullDisk(problem));
            }
            let begun = Instant::now();
            self.relieved.wait(&mut state);
            state.delays.note(Reason::Memory, begun.elapsed());
        }
        if !state.open {
            return Err(Refusal::Closed);
        }
        if let (Some(problem), false) = (&state.full_disk, reclaims) {
            return Err(Refusal::FullDisk(problem.clone()));
        }
        Ok(self.turn(&mut state, bytes))
    }

    /// The admission limit. On a full disk deletes may exceed the waiting bytes by a quarter of the budget, even where
    /// these exceed the budget, because applying deletes brings space back.
    fn limit(&self, state: &mut State, reclaims: bool) -> u64 {
        if !reclaims || state.full_disk.is_none() || state.used < self.budget {
            return self.budget;
        }
        *state.beyond.get_or_insert(state.used) + self.budget / 4
    }

    /// The strongest reason for a delay, and how far the fill is beyond the one at which rounds are due: 1 at the whole
    /// budget, at the whole limit of the log, or at the whole debt. On a full disk rounds cannot shorten the log, and
    /// deletes are the way out.
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
    fn excess(&self, state: &State) -> (Reason, f64) {
        let part = |fill: u64, due: u64, whole: u64| fill.saturating_sub(due) as f64 / (whole - due).max(1) as f64;
        let memory = part(state.used.saturating_sub(state.done), self.due_bytes(), self.budget);
        let log_bytes = if state.full_disk.is_none() { state.log.bytes() } else { 0 };
        let log = part(log_bytes, self.log_limit.due(), self.log_limit.bytes);
        let all = [(Reason::WriteBuffer, memory), (Reason::Log, log), (Reason::Merges, state.debt)];
        let (reason, excess) = all.into_iter().fold(all[0], |most, one| if one.1 > most.1 { one } else { most });
        (reason, excess.min(1.0))
    }

    /// The time at which a commit of `bytes` bytes may count as done, if a delay is due.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more digits")]
    fn turn(&self, state: &mut State, bytes: u64) -> Option<Instant> {
        let (reason, excess) = self.excess(state);
        let rate = state.rate_bytes_per_second.filter(|_| self.paced && excess > 0.0)?;
        let now = Instant::now();
        let delay = bytes as f64 / rate * WORST_FACTOR * excess;
        let delay = Duration::try_from_secs_f64(delay).unwrap_or(LONGEST_DELAY);
        state.turn = (state.turn.max(now) + delay.min(LONGEST_DELAY)).min(now + LONGEST_DELAY);
        let turn = (state.turn - now >= SHORTEST_SLEEP).then_some(state.turn)?;
        state.delays.note(reason, turn - now);
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 1 << 20;

    fn pressure(budget: u64) -> Pressure {
        Pressure::new(budget, LogLimit::new(budget, SEGMENT), Lsn(0), true)
    }

    fn take(pressure: &Pressure, bytes: u64, is_delete: bool) {
        assert!(!pressure.take(bytes, is_delete, Lsn(0)).log_is_due);
    }

    /// The delay of a commit of 100 bytes that is the first one delayed.
    fn delay(pressure: &Pressure) -> Duration {
        let mut state = pressure.state.lock();
        let now = Instant::now();
        state.turn = now;
        pressure.turn(&mut state, 100).map_or(Duration::ZERO, |turn| turn - now)
    }

    #[test]
    fn delay_grows_with_the_fill_and_shrinks_with_progress() {
        let pressure = pressure(1000);
        take(&pressure, 100, false);
        pressure.give_back(100, 100, Duration::from_millis(100));
        take(&pressure, 450, false);
        assert_eq!(pressure.due_bytes(), 500);
        assert_eq!(delay(&pressure), Duration::ZERO);
        take(&pressure, 300, false);
        let middle = delay(&pressure);
        assert!(middle > Duration::from_millis(90), "{middle:?}");
        take(&pressure, 200, false);
        assert!(delay(&pressure) > middle);
        pressure.progress(500);
        assert_eq!(delay(&pressure), Duration::ZERO);
    }

    #[test]
    fn it_is_told_why_writers_were_delayed_and_for_how_long() {
        let pressure = pressure(1000);
        take(&pressure, 100, false);
        pressure.give_back(100, 100, Duration::from_millis(100));
        assert_eq!((pressure.delays().now, pressure.delays().write_buffer_ns), (None, 0));
        take(&pressure, 750, false);
        // At 1000 bytes a second, and a factor of twice the strength.
        delay(&pressure);
        let delays = pressure.delays();
        assert_eq!((delays.now.as_deref(), delays.strength), (Some("write buffer"), 0.5));
        let milliseconds = |ns: u64| (ns + 1000) / 1_000_000;
        assert_eq!(milliseconds(delays.write_buffer_ns), 100);
        assert_eq!((delays.log_ns, delays.merges_ns, delays.memory_ns), (0, 0, 0));
        pressure.set_debt(0.75);
        delay(&pressure);
        let delays = pressure.delays();
        assert_eq!((delays.now.as_deref(), delays.strength), (Some("merges"), 0.75));
        assert_eq!((milliseconds(delays.write_buffer_ns), milliseconds(delays.merges_ns)), (100, 150));
        pressure.note_cleaning_delay(Duration::from_micros(7));
        assert_eq!(pressure.delays().cleaning_ns, 7000);
    }

    #[test]
    fn a_round_leaves_room_for_what_comes_in_meanwhile() {
        for budget in [128 << 10, 1 << 20, 10 << 20, 64 << 20, 1 << 30] {
            let pressure = pressure(budget);
            let settled = (pressure.due_bytes() + budget) / 2;
            let round = 2 * settled / pressure.section_count();
            assert!(settled + round <= budget, "{settled} and {round} of {budget}");
            assert!(pressure.due_queue_bytes() <= budget / 2);
        }
    }

    #[test]
    fn a_full_disk_refuses_puts_and_admits_deletes() {
        let pressure = pressure(1000);
        pressure.set_full_disk(Some("no room".into()));
        assert_eq!(pressure.admit(10, false), Err(Refusal::FullDisk("no room".into())));
        assert_eq!(pressure.admit(10, true), Ok(None));
        take(&pressure, 1100, false);
        assert_eq!(pressure.admit(10, true), Ok(None));
        take(&pressure, 200, true);
        assert_eq!(pressure.admit(10, true), Ok(None), "a quarter of the budget beyond what there was");
        take(&pressure, 50, true);
        assert!(pressure.admit(10, true).is_err());
        // The limit counts from the bytes that waited before the deletes.
        pressure.exchange(250, 150);
        assert_eq!(pressure.admit(10, true), Ok(None));
        take(&pressure, 100, true);
        assert!(pressure.admit(10, true).is_err());
        // A batch that was admitted before the disk was full.
        take(&pressure, 5000, false);
        assert!(pressure.admit(10, true).is_err(), "the deletes are as many as before");
        pressure.exchange(250, 240);
        assert_eq!(pressure.admit(10, true), Ok(None));
        pressure.set_full_disk(None);
        pressure.close();
        assert_eq!(pressure.admit(10, true), Err(Refusal::Closed));
    }

    #[test]
    fn a_long_log_makes_rounds_due_and_writers_slow() {
        let pressure = pressure(1 << 20);
        let (due, limit) = (pressure.log_limit().due(), pressure.log_limit().bytes);
        assert_eq!(limit, LOG_SEGMENTS * SEGMENT);
        pressure.set_log(Lsn(1000), Lsn(1000));
        pressure.give_back(0, 100, Duration::from_millis(100));
        let grows_to = |lsn| pressure.take(1, false, Lsn(lsn)).log_is_due;
        let delay = || delay(&pressure);
        assert!(!grows_to(1000 + due - 1) && pressure.too_old().is_none() && !pressure.is_behind());
        assert_eq!(delay(), Duration::ZERO);
        assert!(grows_to(1000 + due), "the worker is told");
        assert_eq!(pressure.too_old(), Some(Lsn(1000)));
        assert!(!grows_to(1000 + (due + 3 * limit) / 4), "once");
        assert!(pressure.is_behind());
        let some = delay();
        assert!(some > Duration::from_millis(90), "{some:?}");
        assert!(!grows_to(1000 + 2 * limit) && delay() > some);
        pressure.set_full_disk(Some("no room".into()));
        assert_eq!(delay(), Duration::ZERO, "deletes must go on");
        pressure.set_full_disk(None);
        let look = |from| pressure.set_log(Lsn(from), Lsn(1000 + 2 * limit));
        look(1000 + 2 * limit - due);
        assert!(grows_to(1000 + 2 * limit), "the worker has looked, and is told again");
        look(1000 + limit + limit / 2);
        assert!(pressure.too_old().is_none() && !pressure.is_behind());
        assert_eq!(delay(), Duration::ZERO);
        pressure.set_log(Lsn(1000), Lsn(1000 + 3 * limit));
        assert!(pressure.is_behind(), "the log also grows by what enters no queue");
    }
}
