//! The background worker: decides what is applied when, and when a checkpoint is due.
//!
//! 1. When the write buffer is nearly full, the fullest queues are applied, round by round ([`round`]).
//! 2. On request, and when nobody writes any more ([`Quiet`]), everything is applied. All but the plain request to do so are followed by a checkpoint,
//!    which trims the log.
//!    Where it turns out that nobody writes, the disk gets back what is not needed at rest ([`rest`]).
//! 3. When the log has grown long, what lies in its oldest third is applied, and when the newest checkpoint is old, what was visible at the
//!    one before: so no cold key pins the log. Then too a checkpoint is written.
//! 4. Between rounds it sweeps, a stretch at a time ([`sweep`]), also what it finds to have expired ([`expiry`]) and structures with too much garbage
//!    ([`garbage`]), and cleans segments of documents ([`clean`]).
//! 5. Its I/O makes way for reads ([`psync::Background`]).
//! 6. A full disk, or a read that failed, makes it pause and try again; any other failure ends all writing.
//!
//! Invariant: table states and structures are changed, and checkpoints written, one thing at a time: by the worker, and between its turns
//! by the end of a load ([`crate::handles::load`]) and by compactions ([`crate::upkeep::compact`]).

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use index::Seq;
use wal::Lsn;

use crate::{
    apply::{
        choice::{self, Choice},
        round,
    },
    engine::{Engine, Work, keeper, learned, signal::Request as Asked},
    error::{Error, Result},
    opq::Opq,
    tables::usage,
    upkeep::{checkpoint, clean, expiry, garbage, rest, sweep},
};

/// Without anything to do, the worker looks so often whether anybody has committed.
const LOOK: Duration = Duration::from_secs(2);
/// After so many looks without a commit, operations are applied and a checkpoint written, whatever they take, and the disk gets back what is not needed at rest.
const QUIET_LOOKS: u32 = 15;
/// One such look is enough where the operations that wait take this part of the write buffer. (Applying fewer would write nearly a leaf for each of them, again and again, where
/// somebody writes a little every now and then.)
const MANY_PART: u64 = 4;
/// However busy it is: what is older than twice this is applied, so that no cold key pins the log.
const OLDEST_CHECKPOINT: Duration = Duration::from_secs(300);
/// How long to wait before a full disk, or a read that failed, is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// The log may hold so many times half the write buffer before a checkpoint trims it. Twice as much makes no write less: nearly all that a round takes is younger.
const LOG_PER_HALF_WRITE_BUFFER: u64 = 3;
/// It may hold so many segments in any case.
const LOG_SEGMENTS: u64 = 3;
/// What lies in this oldest part of a log that has grown long is applied: the younger is worth waiting for more.
const LOG_OLD_PART: u64 = 3;

/// How often reads may fail in a row before it is taken for more than a passing fault.
const READ_FAILURES_MAX: u32 = 10;

/// Runs until asked to stop or until something fails.
pub(crate) fn run(engine: &Arc<Engine>) {
    let _makes_way = psync::Background::enter();
    let mut worker = Worker::default();
    while worker.turn(engine, LOOK).is_continue() {}
    engine.signal.fail();
}

/// Without threads, whoever uses the database does what they would do, until there is nothing more to do or it fails.
fn run_inline(engine: &Engine) {
    let mut worker = Worker::default();
    while !engine.options.background && engine.signal.has_work() {
        keeper::prepare(engine);
        // After a read that failed, a caller that waits for the work would wait for good.
        if worker.turn(engine, Duration::ZERO).is_break() || engine.pressure.full_disk().is_some() {
            break;
        }
    }
}

/// Does what is due, turn by turn.
#[derive(Default)]
pub(crate) struct Worker {
    read_failures: u32,
    /// What was visible when a checkpoint was last due for its age.
    aged: Seq,
    expired: expiry::Look,
    quiet: Quiet,
}

/// For how many looks nobody has committed.
#[derive(Default)]
struct Quiet {
    commits: u64,
    looks: u32,
}

/// What is to be done because nobody writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Idle {
    /// Apply what waits, and write a checkpoint.
    applies: bool,
    /// Give back what only those who write need.
    rests: bool,
}

impl Quiet {
    /// Looks again: there were so many commits, and operations of so many bytes wait, of a write buffer of `budget` bytes.
    fn look(&mut self, commits: u64, waiting: u64, budget: u64) -> Idle {
        let is_quiet = std::mem::replace(&mut self.commits, commits) == commits;
        self.looks = if is_quiet { self.looks % QUIET_LOOKS + 1 } else { 0 };
        let rests = self.looks == QUIET_LOOKS;
        Idle { applies: rests || (is_quiet && waiting >= budget / MANY_PART), rests }
    }
}

impl Worker {
    /// Waits at most so long for something to do, and does it. Breaks when there will be no more turns.
    pub(crate) fn turn(&mut self, engine: &Engine, longest: Duration) -> ControlFlow<()> {
        let asked = engine.signal.wait(longest);
        mapped::trim();
        if engine.health.check().is_err() {
            engine.signal.fail();
            return ControlFlow::Break(());
        }
        let outcome = self.step(engine, asked);
        let (read_failed, full_disk) = match &outcome {
            Ok(()) => (false, None),
            Err(error @ Error::DiskFull { .. }) => (false, Some(error.cause())),
            Err(error) => (error.is_read_failure(), None),
        };
        self.read_failures = if read_failed { self.read_failures + 1 } else { 0 };
        let passing = full_disk.is_some() || (read_failed && self.read_failures < READ_FAILURES_MAX);
        match outcome {
            // A write or flush that failed is not tried again, whatever the reason, and neither is reading what is damaged.
            Err(error) if !passing => {
                engine.fail(error.cause());
                return ControlFlow::Break(());
            }
            outcome => {
                if let Err(error) = &outcome {
                    tracing::warn!(%error, "operations cannot be applied yet");
                }
                engine.pressure.set_full_disk(full_disk);
                engine.signal.finish(asked, outcome);
            }
        }
        if asked.stop {
            return ControlFlow::Break(());
        }
        if passing {
            std::thread::sleep(longest.min(PAUSE));
            engine.signal.kick();
        }
        ControlFlow::Continue(())
    }

    fn step(&mut self, engine: &Engine, asked: Asked) -> Result<()> {
        let _still = engine.maintenance.lock();
        if asked.stop {
            engine.flush_log()?;
        }
        abandon_dropped(engine);
        let log_limit =
            (LOG_PER_HALF_WRITE_BUFFER * engine.pressure.budget() / 2).max(LOG_SEGMENTS * engine.options.segment_bytes);
        let log_full = engine.wal.bytes_retained() > log_limit;
        let old = engine.counters.checkpoint_age() > OLDEST_CHECKPOINT && !engine.is_saved();
        let quiet = &mut self.quiet;
        let look = || quiet.look(engine.counters.commits(), engine.pressure.used(), engine.pressure.budget());
        let idle = (!asked.woken).then(look).unwrap_or_default();
        if asked.drain || asked.checkpoint || idle.applies {
            engine.cleaning.try_again();
        }
        let visible = engine.publisher.visible();
        let outcome = if asked.drain
            || asked.checkpoint
            || idle.applies
            || sweep::is_urgent(engine)
            || clean::needs_apply(engine)
        {
            apply_all(engine, |queue| queue.first_seq().is_some_and(|seq| seq <= visible))
        } else if asked.stop {
            Ok(())
        } else if log_full {
            let cut = Lsn(engine.wal.end().0.saturating_sub(log_limit - log_limit / LOG_OLD_PART));
            apply_all(engine, |queue| queue.first_lsn().is_some_and(|lsn| lsn < cut))
        } else if old {
            let aged = std::mem::replace(&mut self.aged, visible);
            apply_all(engine, |queue| queue.first_seq().is_some_and(|seq| seq <= aged))
        } else {
            apply_due(engine)
        };
        if outcome.is_ok() && engine.cleaning.take_room_wanted() {
            let _ = let_go(engine)? || empty_segments(engine)?;
        }
        let unsaved = !engine.is_saved();
        // What went in before the disk was full may let the log be trimmed. After any other failure nothing more is written.
        let trim = match &outcome {
            Ok(()) => false,
            Err(Error::DiskFull { .. }) => {
                engine.retention.yield_space();
                true
            }
            Err(_) => return outcome,
        };
        let yields = engine.retention.yields();
        let rests = idle.rests && outcome.is_ok() && rest::is_due(engine);
        if asked.checkpoint || log_full || old || yields || rests || (unsaved && (idle.applies || trim)) {
            let is_quiet = visible == Seq(engine.wal.last_seq()) && engine.pressure.full_disk().is_none() && !yields;
            if outcome.is_ok() && is_quiet && (asked.rest || idle.rests) {
                rest::checkpoint(engine)?;
            } else if asked.cut {
                rest::cut(engine)?;
            } else {
                checkpoint::write(engine)?;
            }
            // Before those who asked have their answer: the directory is at rest then. On a full disk it would take room that others wait for.
            if outcome.is_ok() {
                learned::keep(engine);
            }
        }
        if outcome.is_ok() && !asked.stop {
            self.expired.turn(engine)?;
            garbage::look(engine);
        }
        if outcome.is_ok() && !asked.stop {
            let round_due = !next(engine).is_empty();
            let sweep_due = !round_due && sweep(engine)?;
            let cleaning_due = clean::turn(engine)?;
            if round_due || sweep_due || cleaning_due {
                engine.signal.kick();
            }
        }
        outcome
    }
}

/// Applies every queue that is `wanted`, round by round. What dies of that goes with checkpoints where it is much.
fn apply_all(engine: &Engine, wanted: impl Fn(&Opq) -> bool) -> Result<()> {
    loop {
        let mut choices = choice::left_over(engine);
        if choices.is_empty() {
            choices = choice::fullest(engine, &wanted);
        }
        if choices.is_empty() {
            return Ok(());
        }
        // Before a round, and not behind the last one: the checkpoint or the cleaning that follows releases what that leaves.
        clean::release(engine)?;
        round(engine, &choices)?;
    }
}

/// Runs a round. Where there is no space for any of it, what is dead already may have some to give, or what was deleted as ranges or has expired: then it is to
/// be tried again.
fn round(engine: &Engine, choices: &[Choice]) -> Result<()> {
    match round::run(engine, choices) {
        Err(Error::DiskFull { .. }) if let_go(engine)? || sweep::relieve(engine)? || empty_segments(engine)? => Ok(()),
        outcome => outcome,
    }
}

/// Sweeps a stretch, if there is one to be swept; whether there is more. Where there is no space for it, what is dead already may have some to give.
fn sweep(engine: &Engine) -> Result<bool> {
    match sweep::turn(engine) {
        Err(Error::DiskFull { .. }) if let_go(engine)? || empty_segments(engine)? => Ok(true),
        outcome => outcome,
    }
}

/// Has a checkpoint let go of segments in which nothing lives, if there are any. Whether some went.
fn let_go(engine: &Engine) -> Result<bool> {
    if usage::dead_bytes(&engine.catalog) == 0 {
        return Ok(false);
    }
    let before = usage::segment_bytes(&engine.catalog);
    checkpoint::write(engine)?;
    Ok(usage::segment_bytes(&engine.catalog) < before)
}

/// Empties segments in which little lives, of nodes or else of documents. Whether that gave anything back.
fn empty_segments(engine: &Engine) -> Result<bool> {
    Ok(garbage::relieve(engine)? || clean::relieve(engine)?)
}

/// Runs one round, where one is due.
fn apply_due(engine: &Engine) -> Result<()> {
    let choices = next(engine);
    if choices.is_empty() { Ok(()) } else { round(engine, &choices) }
}

/// What the next round takes, if one is due.
fn next(engine: &Engine) -> Vec<Choice> {
    let choices = choice::left_over(engine);
    if choices.is_empty() { choice::due(engine) } else { choices }
}

/// Gives the memory back that operations of dropped tables hold.
fn abandon_dropped(engine: &Engine) {
    engine.catalog.dropped().iter().for_each(|table| engine.abandon_queues(table));
}

/// What the engine is given of it.
pub(crate) const WORK: Work = Work { run, inline: run_inline };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_applied_soon_where_it_is_much_and_late_where_it_is_little() {
        const BUDGET: u64 = 1000;
        let (nothing, all) = (Idle::default(), Idle { applies: true, rests: true });
        let soon = Idle { applies: true, rests: false };
        let mut quiet = Quiet::default();
        assert_eq!(quiet.look(7, 900, BUDGET), nothing, "somebody commits");
        assert_eq!(quiet.look(7, 900, BUDGET), soon);
        assert_eq!(quiet.look(7, 900, BUDGET), soon, "again, as long as it could not be applied");
        assert_eq!(quiet.look(8, 900, BUDGET), nothing);
        for row in 0..3 {
            for _ in 1..QUIET_LOOKS {
                assert_eq!(quiet.look(8, 249, BUDGET), nothing, "row {row}");
            }
            assert_eq!(quiet.look(8, 249, BUDGET), all, "row {row}");
        }
        assert_eq!(quiet.look(9, 249, BUDGET), nothing);
    }
}
