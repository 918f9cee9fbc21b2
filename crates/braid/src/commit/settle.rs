//! The second half of a commit: making its record as safe as asked, and waiting until it is visible.
//!
//! 1. A commit that has its place is [`Submitted`]. From then on it happens, whoever waits for it or not.
//! 2. [`Engine::settle`] has the caller's thread make it safe, together with all commits that wait at the same time.
//! 3. [`Engine::settle_later`] leaves that to the thread that flushes ([`crate::engine::log_ahead`]). [`Engine::poll`]
//!    then leaves a waker for whoever flushed.
//!
//! Invariant: at most [`IN_FLIGHT_BYTES_MAX`] of log, and a record of each thread, belong to commits that were left to
//! the flushing thread and are not visible.

use std::{
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use index::Seq;

use crate::{
    engine::{
        Engine,
        publish::{Change, Pending, Safety},
    },
    error::{Error, Result},
    words::durability::Durability,
};

/// Unwritten log bytes from which on a lazy commit hands them to the operating system.
const LAZY_BYTES_MAX: u64 = 256 << 10;
/// Log bytes of commits that nobody flushes yet, from which on a submitting thread flushes them itself. Commits of 100
/// bytes take about three times as much memory until they are visible.
const IN_FLIGHT_BYTES_MAX: u64 = 2 << 20;
/// The longest delay that is left to a ticket.
const TURN_LEFT_MAX: Duration = Duration::from_millis(100);

/// A commit that has its place in the order of commits.
pub(crate) struct Submitted {
    /// The place; nothing where nothing was written.
    position: Option<wal::Position>,
    /// Seq of the commit, or of the newest visible one where nothing was written.
    seq: Seq,
    durability: Durability,
    /// When the commit may count as done, if later than as soon as it is safe and visible.
    turn: Option<Instant>,
}

impl Submitted {
    /// A commit without operations.
    pub(crate) fn nothing(visible: Seq) -> Self {
        Self { position: None, seq: visible, durability: Durability::Os, turn: None }
    }

    pub(crate) fn at(position: wal::Position, durability: Durability, turn: Option<Instant>) -> Self {
        Self { seq: Seq(position.seq), position: Some(position), durability, turn }
    }

    pub(crate) const fn seq(&self) -> Seq {
        self.seq
    }

    /// Waits until the commit may count as done.
    pub(crate) fn wait_for_turn(&self) {
        if let Some(turn) = self.turn {
            std::thread::sleep(turn.saturating_duration_since(Instant::now()));
        }
    }

    /// Position behind the record.
    pub(crate) fn end(&self) -> Option<wal::Lsn> {
        self.position.as_ref().map(|position| position.end)
    }
}

impl Engine {
    /// Makes a submitted commit as safe as asked, and waits until it counts as done.
    pub(crate) fn settle(&self, submitted: &Submitted) -> Result<Seq> {
        self.settle_at_once(submitted)?;
        submitted.wait_for_turn();
        Ok(submitted.seq)
    }

    /// Makes a submitted commit as safe as asked, and waits until it is visible.
    pub(crate) fn settle_at_once(&self, submitted: &Submitted) -> Result<()> {
        submitted.position.as_ref().map_or(Ok(()), |position| self.make_safe(position, submitted.durability))
    }

    /// Has a submitted commit made as safe as asked by the thread that flushes. Of a long delay, only
    /// [`TURN_LEFT_MAX`] is left to the ticket: whoever waits for no ticket would otherwise leave all delays to the
    /// other writers.
    pub(crate) fn settle_later(&self, submitted: &Submitted) -> Result<()> {
        self.leave(submitted)?;
        // No commit behind this one waits meanwhile.
        let turn = submitted.turn.map_or(Duration::ZERO, |turn| turn.saturating_duration_since(Instant::now()));
        std::thread::sleep(turn.saturating_sub(TURN_LEFT_MAX));
        Ok(())
    }

    /// Leaves a submitted commit to the thread that flushes. What takes no flush is done here.
    fn leave(&self, submitted: &Submitted) -> Result<()> {
        let Some(position) = &submitted.position else { return Ok(()) };
        self.threads.note_log(position.end);
        let left = match submitted.durability {
            Durability::Sync => Ok(()),
            Durability::Os => self.wal.write_through(position.end),
            Durability::Lazy(interval) => self.lazily(position.end, interval),
        };
        left.map_err(|error| self.lost(error))?;
        if submitted.durability != Durability::Sync {
            self.publish();
        }
        if self.publisher.visible() >= submitted.seq {
            self.work_inline();
            return Ok(());
        }
        let is_much = || position.end.0.saturating_sub(self.wal.durable().0) > IN_FLIGHT_BYTES_MAX;
        if !self.options.background || !self.threads.note_unawaited() || is_much() {
            return self.make_safe(position, Durability::Sync);
        }
        self.keeper.flush_within(position.end, Duration::ZERO);
        Ok(())
    }

    /// Whether a submitted commit counts as done. If not, `waker` is woken when that may have changed. That may happen
    /// with locks of the database held.
    pub(crate) fn poll(&self, submitted: &Submitted, waker: &Waker) -> Poll<Result<Seq>> {
        if submitted.position.is_none() {
            return Poll::Ready(Ok(submitted.seq));
        }
        if self.publisher.poll(submitted.seq, waker).map_err(|()| self.outcome_unknown())?.is_pending() {
            return Poll::Pending;
        }
        match submitted.turn {
            Some(turn) if turn > Instant::now() && self.has_timer(turn, submitted.seq, waker) => Poll::Pending,
            _ => Poll::Ready(Ok(submitted.seq)),
        }
    }

    /// Forgets the wakers that were left for a submitted commit.
    pub(crate) fn forget_wakers(&self, submitted: &Submitted) {
        if submitted.position.is_none() {
            // The seq is another commit's, and so is a waker there.
            return;
        }
        self.publisher.forget_waker(submitted.seq);
        submitted.turn.into_iter().for_each(|turn| self.keeper.forget_waker(turn, submitted.seq));
    }

    fn has_timer(&self, turn: Instant, ticket: Seq, waker: &Waker) -> bool {
        self.options.background && self.threads.note_unawaited() && self.keeper.wake_at(turn, ticket, waker)
    }

    /// Makes a record as safe as asked, publishes the due changes, and waits until this one is visible.
    pub(crate) fn finish(&self, position: wal::Position, change: Change, durability: Durability) -> Result<()> {
        self.announce(&position, change, durability);
        self.make_safe(&position, durability)
    }

    /// Announces the change of a record, to be published once the record is as safe as asked.
    pub(super) fn announce(&self, position: &wal::Position, change: Change, durability: Durability) {
        let safety = match durability {
            Durability::Sync => Safety::Durable,
            Durability::Os => Safety::Written,
            Durability::Lazy(_) => Safety::Appended,
        };
        let pending = Pending { lsn: position.lsn, end: position.end, safety, change };
        self.publisher.enqueue(Seq(position.seq), pending);
    }

    /// Makes an announced record as safe as asked, and waits until it is visible.
    fn make_safe(&self, position: &wal::Position, durability: Durability) -> Result<()> {
        self.threads.note_log(position.end);
        let safe = match durability {
            // The flushing thread publishes for all flushed commits.
            Durability::Sync => self.wal.commit(position, &|| self.publish()),
            Durability::Os => self.wal.write_through(position.end),
            Durability::Lazy(interval) => self.lazily(position.end, interval),
        };
        safe.map_err(|error| self.lost(error))?;
        if self.publisher.visible() < Seq(position.seq) {
            self.publish();
        }
        let visible = self.publisher.wait(Seq(position.seq));
        visible.map_err(|()| self.outcome_unknown())?;
        self.work_inline();
        Ok(())
    }

    /// Ends all writing, because a record may not be as safe as asked.
    fn lost(&self, error: wal::Error) -> Error {
        let cause = Error::from(error).cause();
        self.fail(&cause);
        Error::OutcomeUnknown { cause }
    }

    fn lazily(&self, end: wal::Lsn, interval: Duration) -> std::result::Result<(), wal::Error> {
        if !self.threads.note_unawaited() {
            return self.wal.flush_through(end);
        }
        self.keeper.flush_within(end, interval);
        if end.0.saturating_sub(self.wal.written().0) > LAZY_BYTES_MAX {
            self.wal.write_through(end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
        thread,
    };

    use psync::sim::SimDisk;

    use super::*;
    use crate::{
        handles::{batch::WriteBatch, database::Database, table::Table},
        options::Options,
        words::structure::Structure,
    };

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Wakes {
        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn open(background: bool) -> (Database, Table) {
        let options = Options::new().cache_bytes(1 << 20).segment_bytes(1 << 20).background(background);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("a table");
        (db, table)
    }

    /// A commit that may count as done after `delay`, as one in a full write buffer.
    fn delayed(db: &Database, table: &Table, durability: Durability, delay: Duration) -> Submitted {
        let mut batch = WriteBatch::new();
        batch.put(table, "key", "value");
        let submitted = db.engine().submit(&batch, durability).expect("submits");
        Submitted { turn: Some(Instant::now() + delay), ..submitted }
    }

    const DURABILITIES: [Durability; 3] =
        [Durability::Sync, Durability::Os, Durability::Lazy(Duration::from_secs(1000))];
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_delayed_commit_counts_as_done_at_its_turn() {
        let (db, table) = open(true);
        for durability in DURABILITIES {
            let waited = delayed(&db, &table, durability, Duration::from_millis(20));
            db.engine().settle(&waited).expect("settles");
            assert!(Some(Instant::now()) >= waited.turn, "{durability:?}: waited for");

            let polled = delayed(&db, &table, durability, TURN_LEFT_MAX + Duration::from_millis(20));
            db.engine().settle_later(&polled).expect("is left");
            assert!(Some(Instant::now() + TURN_LEFT_MAX) >= polled.turn, "{durability:?}: the longer part is not left");
            let wakes = Arc::new(Wakes::default());
            let waker = Waker::from(Arc::clone(&wakes));
            let mut polls = 0;
            while db.engine().poll(&polled, &waker).map(|done| done.expect("settles")).is_pending() {
                polls += 1;
                while wakes.count() < polls {
                    thread::yield_now();
                }
            }
            assert!(Some(Instant::now()) >= polled.turn, "{durability:?}: polled");
            assert!(db.engine().publisher.visible() >= polled.seq);
        }
    }

    #[test]
    fn a_task_that_waits_for_a_turn_is_forgotten_with_its_ticket_and_woken_by_a_close() {
        let (db, table) = open(true);
        let polled = || {
            let submitted = delayed(&db, &table, Durability::Sync, HOUR);
            // Neither this thread nor the readers of the commit wait for its turn.
            db.engine().leave(&submitted).expect("is left");
            db.engine().publisher.wait(submitted.seq).expect("is visible");
            let wakes = Arc::new(Wakes::default());
            assert!(db.engine().poll(&submitted, &Arc::clone(&wakes).into()).is_pending());
            assert_eq!(Arc::strong_count(&wakes), 2, "a waker was left");
            (submitted, wakes)
        };
        let (dropped, forgotten) = polled();
        db.engine().forget_wakers(&dropped);
        assert_eq!(Arc::strong_count(&forgotten), 1);
        let (_, woken) = polled();
        drop(table);
        db.close().expect("closes");
        assert_eq!((forgotten.count(), woken.count()), (0, 1));
    }

    #[test]
    fn no_task_waits_for_a_turn_where_no_thread_would_wake_it() {
        let (db, table) = open(false);
        let submitted = delayed(&db, &table, Durability::Sync, HOUR);
        db.engine().settle_at_once(&submitted).expect("is visible");
        assert!(db.engine().poll(&submitted, Waker::noop()).is_ready());
    }
}
