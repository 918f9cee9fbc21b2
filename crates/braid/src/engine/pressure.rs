//! Keeps the operations that wait for their structures within the write buffer, by slowing writers down smoothly.
//!
//! 1. Every queue reports the memory it takes and, while it is applied, how much of it is done.
//! 2. The buffer is to be nearly full, for the more operations wait, the more go into a leaf at once. It falls to so many sections
//!    ([`Pressure::sections`]); when a round takes the fullest, that holds about twice the mean. Rounds are due from
//!    [`Pressure::due_bytes`] on, which leaves room for what comes in during one.
//! 3. Up to there writers go at full speed. Above, each commit is delayed by the time that applying as many bytes takes at the
//!    measured rate, times a factor that grows from 0 there to 2 at the whole: so writers settle half way, at the speed of the applier.
//! 4. At the whole budget writers wait until memory returns.
//!
//! Left to others: what is applied when. A full disk is noted here too, since it is what makes a wait hopeless.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A delay below this is left to add up with later ones: sleeping less costs more than it brings.
const SHORTEST_SLEEP: Duration = Duration::from_micros(200);
/// No commit is delayed by more for its own bytes.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
const WORST_FACTOR: f64 = 2.0;
const RATE_MEMORY: f64 = 0.3;
/// Room above what makes a round due, in mean sections: writers settle at half of it, and a round of two is under way.
const ROOM_SECTIONS: u64 = 6;
/// A single queue of so many mean sections is due in any case.
const DUE_SECTIONS: u64 = 4;

struct State {
    used: u64,
    done: u64,
    rate_bytes_per_second: Option<f64>,
    turn: Instant,
    open: bool,
    full_disk: Option<String>,
    /// What waited when a full disk first made deletes go beyond the budget, and puts that were let in before that and came later.
    beyond: Option<u64>,
    /// Deletes were refused because what was put before them has no space.
    deletes_refused: bool,
}

/// The write buffer's budget.
pub(crate) struct Pressure {
    budget: u64,
    paced: bool,
    state: Mutex<State>,
    relieved: Condvar,
}

/// Why a writer may not go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The device has no space, so waiting would not end.
    FullDisk(String),
    /// The database failed or closes.
    Closed,
}

impl Pressure {
    /// Bounds waiting operations to `budget` bytes. Writers are `paced` where somebody applies operations meanwhile.
    pub(crate) fn new(budget: u64, paced: bool) -> Self {
        let state = State {
            used: 0,
            done: 0,
            rate_bytes_per_second: None,
            turn: Instant::now(),
            open: true,
            full_disk: None,
            beyond: None,
            deletes_refused: false,
        };
        Self { budget, paced, state: Mutex::new(state), relieved: Condvar::new() }
    }

    /// The whole budget in bytes.
    pub(crate) const fn budget(&self) -> u64 {
        self.budget
    }

    /// How many sections the budget falls to.
    pub(crate) fn sections(&self) -> usize {
        usize::try_from(self.section_count()).expect("a few dozen")
    }

    fn section_count(&self) -> u64 {
        btree::cost::sections(self.budget)
    }

    /// Rounds are due from here on.
    pub(crate) fn due_bytes(&self) -> u64 {
        let sections = self.section_count();
        self.budget.saturating_sub(ROOM_SECTIONS * self.budget / sections).max(self.budget / 2)
    }

    /// A queue of so many bytes makes a round due by itself.
    pub(crate) fn due_queue_bytes(&self) -> u64 {
        DUE_SECTIONS * self.round_bytes()
    }

    /// A round takes as many queues as make this.
    pub(crate) fn round_bytes(&self) -> u64 {
        self.budget / self.section_count()
    }

    /// Bytes of waiting operations.
    pub(crate) fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// Writers are delayed by more than applying takes: it is too slow.
    pub(crate) fn is_behind(&self) -> bool {
        let state = self.state.lock();
        state.used.saturating_sub(state.done) > self.due_bytes().midpoint(self.budget)
    }

    /// A queue took so many more bytes, of a delete or of something else; returns what waits now.
    pub(crate) fn take(&self, bytes: u64, is_delete: bool) -> u64 {
        let mut state = self.state.lock();
        state.used += bytes;
        if let Some(beyond) = state.beyond.as_mut().filter(|_| !is_delete) {
            *beyond += bytes;
        }
        state.used
    }

    /// So many bytes of the queues being applied are done, though their memory is not back yet.
    pub(crate) fn progress(&self, done: u64) {
        self.state.lock().done = done;
    }

    /// Queues of so many bytes are gone, after operations of `applied` bytes went into their structures; it took so long.
    pub(crate) fn give_back(&self, bytes: u64, applied: u64, took: Duration) {
        let mut state = self.state.lock();
        self.replace(&mut state, bytes, 0);
        state.done = 0;
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

    /// Queues of so many bytes became queues of other bytes.
    pub(crate) fn exchange(&self, before: u64, after: u64) {
        let mut state = self.state.lock();
        self.replace(&mut state, before, after);
        state.done = 0;
        self.relieved.notify_all();
    }

    /// Queues of so many bytes are gone without having been applied.
    pub(crate) fn forget(&self, bytes: u64) {
        self.replace(&mut self.state.lock(), bytes, 0);
        self.relieved.notify_all();
    }

    fn replace(&self, state: &mut State, before: u64, after: u64) {
        state.used = state.used - before + after;
        let used = state.used;
        state.beyond = state.beyond.filter(|_| used >= self.budget).map(|beyond| beyond.min(used));
    }

    /// The disk is full, or no longer so.
    pub(crate) fn set_full_disk(&self, problem: Option<String>) {
        self.state.lock().full_disk = problem;
        self.relieved.notify_all();
    }

    /// What made the disk full, if it is.
    pub(crate) fn full_disk(&self) -> Option<String> {
        self.state.lock().full_disk.clone()
    }

    /// Whether deletes wait for what was put before them, which has no space.
    pub(crate) fn deletes_wait(&self) -> bool {
        self.state.lock().deletes_refused
    }

    /// Nobody waits here any more.
    pub(crate) fn close(&self) {
        self.state.lock().open = false;
        self.relieved.notify_all();
    }

    /// Lets a commit of so many bytes in, after the delay that is due. `reclaims`: it only deletes, so a full disk does not
    /// refuse it.
    pub(crate) fn admit(&self, bytes: u64, reclaims: bool) -> Result<(), Refusal> {
        let sleep = {
            let mut state = self.state.lock();
            while state.open && state.used >= self.limit(&mut state, reclaims) {
                if let Some(problem) = state.full_disk.clone() {
                    state.deletes_refused |= reclaims;
                    return Err(Refusal::FullDisk(problem));
                }
                self.relieved.wait(&mut state);
            }
            if !state.open {
                return Err(Refusal::Closed);
            }
            if let (Some(problem), false) = (&state.full_disk, reclaims) {
                return Err(Refusal::FullDisk(problem.clone()));
            }
            self.delay(&mut state, bytes)
        };
        if sleep >= SHORTEST_SLEEP {
            std::thread::sleep(sleep);
        }
        Ok(())
    }

    /// On a full disk deletes may go a quarter of the budget beyond what waits, be that more than the budget: applying them is what brings space back.
    fn limit(&self, state: &mut State, reclaims: bool) -> u64 {
        if !reclaims || state.full_disk.is_none() || state.used < self.budget {
            return self.budget;
        }
        *state.beyond.get_or_insert(state.used) + self.budget / 4
    }

    #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
    fn delay(&self, state: &mut State, bytes: u64) -> Duration {
        let fill = state.used.saturating_sub(state.done) as f64 / self.budget as f64;
        let free = self.due_bytes() as f64 / self.budget as f64;
        let Some(rate) = state.rate_bytes_per_second.filter(|_| self.paced && fill > free) else {
            return Duration::ZERO;
        };
        let factor = WORST_FACTOR * ((fill - free) / (1.0 - free)).min(1.0);
        let now = Instant::now();
        let delay = Duration::try_from_secs_f64(bytes as f64 / rate * factor).unwrap_or(LONGEST_DELAY);
        state.turn = state.turn.max(now) + delay.min(LONGEST_DELAY);
        state.turn - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_grows_with_the_fill_and_shrinks_with_progress() {
        let pressure = Pressure::new(1000, true);
        pressure.take(100, false);
        pressure.give_back(100, 100, Duration::from_millis(100));
        let delay = |pressure: &Pressure| {
            let mut state = pressure.state.lock();
            state.turn = Instant::now();
            pressure.delay(&mut state, 100)
        };
        pressure.take(450, false);
        assert_eq!(pressure.due_bytes(), 500);
        assert_eq!(delay(&pressure), Duration::ZERO);
        pressure.take(300, false);
        let middle = delay(&pressure);
        assert!(middle > Duration::from_millis(90), "{middle:?}");
        pressure.take(200, false);
        assert!(delay(&pressure) > middle);
        pressure.progress(500);
        assert_eq!(delay(&pressure), Duration::ZERO);
    }

    #[test]
    fn a_round_leaves_room_for_what_comes_in_meanwhile() {
        for budget in [128 << 10, 1 << 20, 10 << 20, 64 << 20, 1 << 30] {
            let pressure = Pressure::new(budget, true);
            let settled = (pressure.due_bytes() + budget) / 2;
            let round = 2 * settled / pressure.section_count();
            assert!(settled + round <= budget, "{settled} and {round} of {budget}");
            assert!(pressure.due_queue_bytes() <= budget / 2);
        }
    }

    #[test]
    fn a_full_disk_refuses_puts_and_admits_deletes() {
        let pressure = Pressure::new(1000, true);
        pressure.set_full_disk(Some("no room".into()));
        assert_eq!(pressure.admit(10, false), Err(Refusal::FullDisk("no room".into())));
        assert_eq!(pressure.admit(10, true), Ok(()));
        pressure.take(1100, false);
        assert_eq!(pressure.admit(10, true), Ok(()));
        pressure.take(200, true);
        assert_eq!(pressure.admit(10, true), Ok(()), "a quarter of the budget beyond what there was");
        pressure.take(50, true);
        assert!(pressure.admit(10, true).is_err());
        // What there was, and not the deletes, is what they may go beyond.
        pressure.exchange(250, 150);
        assert_eq!(pressure.admit(10, true), Ok(()));
        pressure.take(100, true);
        assert!(pressure.admit(10, true).is_err());
        // A batch that was let in before the disk was full.
        pressure.take(5000, false);
        assert!(pressure.admit(10, true).is_err(), "the deletes are as many as before");
        pressure.exchange(250, 240);
        assert_eq!(pressure.admit(10, true), Ok(()));
        pressure.set_full_disk(None);
        pressure.close();
        assert_eq!(pressure.admit(10, true), Err(Refusal::Closed));
    }
}
