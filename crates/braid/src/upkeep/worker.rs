//! The background worker: decides when operations are applied, and when a checkpoint is due.
//!
//! 1. When the write buffer is nearly full, the fullest queues are applied, round by round ([`round`]). When the log
//!    has grown long, these are the queues with its oldest operations, and a checkpoint follows as soon as a part of
//!    the log can go.
//! 2. On request, and when nobody writes any more ([`Quiet`]), everything is applied. A checkpoint follows, except
//!    after a plain request to apply; it trims the log. When nobody writes, the disk also gets back the space that is
//!    not needed at rest ([`rest`]).
//! 3. When the newest checkpoint is old, operations are applied that were visible when a checkpoint was last due for
//!    its age, and a checkpoint follows. So no cold key pins the log.
//! 4. Between rounds the worker sweeps, a stretch at a time ([`sweep`]), also keys with expired versions ([`expiry`])
//!    and content that structures want rewritten ([`wanted`]), and cleans segments of documents ([`clean`]).
//! 5. Its I/O makes way for reads ([`psync::Background`]).
//! 6. A full disk, or a failed read, makes the worker pause and try again; any other failure ends all writing.
//!
//! Invariant: a table is changed by who holds it ([`crate::tables::held`]). The worker does so, between its turns the
//! end of a load ([`crate::handles::load`]), and beside them a stretch of a compaction ([`crate::upkeep::compact`]). No
//! stretch is under way while a checkpoint is written, or a full disk relieved ([`crate::engine::stretches`]).

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use index::Seq;

use crate::{
    apply::{
        choice::{self, Choice, Held},
        round,
    },
    engine::{Engine, Work, learned, log_ahead, signal::Request as Asked, upkeep::Upkeep},
    error::{Error, Result},
    opq::Opq,
    read::gather,
    upkeep::{checkpoint, clean, expiry, full_disk, rest, sweep, wanted},
};

/// How often a worker without work looks whether there was a commit.
const LOOK: Duration = Duration::from_secs(2);
/// After so many looks without a commit, operations are applied and a checkpoint written, however few they are, and
/// the disk gets back the space that is not needed at rest.
const QUIET_LOOKS: u32 = 15;
/// One such look is enough where the waiting operations take this part of the write buffer. Fewer operations wait
/// longer, because applying them would write nearly a leaf for each, again and again, where a writer writes a little
/// every now and then.
const MANY_PART: u64 = 4;
/// Operations older than twice this are applied even in a busy database, so that no cold key pins the log.
const OLDEST_CHECKPOINT: Duration = Duration::from_secs(300);
/// How long to wait before an operation is tried again after a full disk or a failed read.
const PAUSE: Duration = Duration::from_millis(100);
/// A long log is trimmed whenever this part of its limit is no longer needed. The image then says what was applied, so
/// that recovery need not keep these operations.
const LOG_TRIM_PART: u64 = 8;
/// The same where the checkpoint applies whole tables, because it retains their states.
const LOG_TRIM_PART_RETAINING: u64 = 3;
/// At least so many times the bytes of the checkpoint's image are trimmed, if that is no more than half of the limit.
const LOG_TRIM_PER_IMAGE: u64 = 4;

/// Most sweeps between two rounds, and the debt from which on there is more than one.
const SWEEPS_MAX: usize = 3;
const SWEEPS_DEBT: f64 = 0.25;

/// How many reads may fail in a row before the failure is taken for more than a passing fault.
const READ_FAILURES_MAX: u32 = 10;

/// Runs until asked to stop or until something fails.
pub(crate) fn run(engine: &Arc<Engine>) {
    let _makes_way = psync::Background::enter();
    let mut worker = Worker::default();
    while worker.turn(engine, LOOK).is_continue() {}
    engine.signal.fail();
}

/// Without background threads, the calling thread does their work until there is nothing more to do or the work fails.
fn run_inline(engine: &Engine) {
    let mut worker = Worker::default();
    while engine.signal.has_work() {
        log_ahead::prepare(engine);
        // After a failed read, a caller that waits for the work would wait forever.
        if worker.turn(engine, Duration::ZERO).is_break() || engine.pressure.full_disk().is_some() {
            break;
        }
    }
}

/// Does the work that is due, turn by turn.
#[derive(Default)]
pub(crate) struct Worker {
    quiet: Quiet,
}

/// For how many looks there was no commit.
#[derive(Default)]
struct Quiet {
    commits: u64,
    looks: u32,
}

/// The work to be done because nobody writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Idle {
    /// Apply the waiting operations, and write a checkpoint.
    applies: bool,
    /// Give back the space that only writers need.
    rests: bool,
}

impl Quiet {
    /// Looks again: `commits` so far, and operations of `waiting` bytes, of a write buffer of `budget` bytes.
    fn look(&mut self, commits: u64, waiting: u64, budget: u64) -> Idle {
        let is_quiet = std::mem::replace(&mut self.commits, commits) == commits;
        self.looks = if is_quiet { self.looks % QUIET_LOOKS + 1 } else { 0 };
        let rests = self.looks == QUIET_LOOKS;
        Idle { applies: rests || (is_quiet && waiting >= budget / MANY_PART), rests }
    }
}

impl Worker {
    /// Waits at most `longest` for something to do, and does it. Breaks when there will be no more turns.
    pub(crate) fn turn(&mut self, engine: &Engine, longest: Duration) -> ControlFlow<()> {
        let asked = engine.signal.wait(longest);
        mapped::trim();
        if engine.health.check().is_err() {
            engine.signal.fail();
            return ControlFlow::Break(());
        }
        let mut held = engine.upkeep.lock();
        let outcome = self.step(engine, &mut held, asked);
        let (read_failed, full_disk) = match &outcome {
            Ok(()) => (false, None),
            Err(error @ Error::DiskFull { .. }) => (false, Some(error.cause())),
            Err(error) => (error.is_read_failure(), None),
        };
        held.read_failures = if read_failed { held.read_failures + 1 } else { 0 };
        let passing = full_disk.is_some() || (read_failed && held.read_failures < READ_FAILURES_MAX);
        drop(held);
        match outcome {
            // A failed write or flush is not tried again, whatever the reason, and neither is a read of damaged bytes.
            Err(error) if !passing => {
                engine.fail(error.cause());
                return ControlFlow::Break(());
            }
            outcome => {
                if let Err(error) = &outcome {
                    events::warn!(%error, "operations cannot be applied yet");
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

    fn step(&mut self, engine: &Engine, held: &mut Upkeep, asked: Asked) -> Result<()> {
        if asked.stop {
            engine.flush_log()?;
        }
        abandon_dropped(engine);
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
            apply_all(engine, held, |queue| queue.first_seq().is_some_and(|seq| seq <= visible))
        } else if asked.stop {
            Ok(())
        } else if old {
            let aged = std::mem::replace(&mut held.aged, visible);
            apply_all(engine, held, |queue| queue.first_seq().is_some_and(|seq| seq <= aged))
        } else {
            apply_due(engine, held)
        };
        if outcome.is_ok() && engine.cleaning.take_room_wanted() {
            full_disk::of_commit(engine, held)?;
        }
        let trims = trims(engine);
        let unsaved = !engine.is_saved();
        // Operations applied before the disk was full may let the log be trimmed. After any other failure nothing more
        // is written.
        let trim = match &outcome {
            Ok(()) => false,
            Err(Error::DiskFull { .. }) => {
                engine.retention.yield_space();
                true
            }
            Err(_) => return outcome,
        };
        let yields = engine.retention.yields();
        let rests = idle.rests && outcome.is_ok() && rest::is_due(engine)?;
        if asked.checkpoint || trims || old || yields || rests || (unsaved && (idle.applies || trim)) {
            let is_quiet = visible == Seq(engine.wal.last_seq()) && engine.pressure.full_disk().is_none() && !yields;
            if outcome.is_ok() && is_quiet && (asked.rest || idle.rests) {
                rest::checkpoint(engine, held, asked)?;
            } else if asked.cut {
                rest::cut(engine, held)?;
            } else {
                checkpoint::write(engine, held)?;
            }
            // This comes before the answer to the requests, so the directory is at rest by then. On a full disk the
            // file would take room that others wait for.
            if outcome.is_ok() {
                learned::keep(engine);
            }
        }
        if outcome.is_ok() && !asked.stop {
            expiry::look(engine, held)?;
            wanted::look(engine);
        }
        if outcome.is_ok() && !asked.stop {
            let round_due = !next(engine).is_empty();
            let sweep_due = if round_due { pay_debt(engine, held)? } else { sweep(engine, held)? };
            note_debt(engine);
            let cleaning_due = clean::turn(engine, held)?;
            if round_due || sweep_due || cleaning_due {
                engine.signal.kick();
            }
        }
        outcome
    }
}

/// Applies every queue that is `wanted`, round by round. Segments that die thereby are released with checkpoints where
/// they are many.
fn apply_all(engine: &Engine, held: &mut Upkeep, wanted: impl Fn(&Opq) -> bool) -> Result<()> {
    let next = || choice::next(engine, || choice::fullest(engine, &wanted));
    while !next().is_empty() {
        // Before a round, and not behind the last one: the checkpoint or the cleaning that follows releases the dead
        // segments of the last. The choice comes behind it, because a checkpoint that retains states cuts sections
        // anew.
        clean::release(engine, held)?;
        round(engine, held, next())?;
        note_log(engine);
    }
    Ok(())
}

/// Runs a round. Where it is tried again, it takes what is left of it.
fn round(engine: &Engine, held: &mut Upkeep, choices: Vec<Choice>) -> Result<()> {
    let mut choices = Some(choices);
    full_disk::of_round(engine, held, |held| {
        let choices = choices.take().unwrap_or_else(|| choice::left_over(engine, Held::Too));
        round::run(engine, held, &choices)
    })
}

/// Sweeps a stretch, if there is one to be swept. Returns whether there is more.
fn sweep(engine: &Engine, held: &mut Upkeep) -> Result<bool> {
    full_disk::of_sweep(engine, held, |held| sweep::turn(engine, held))
}

/// Notes how far structures are behind with what they want rewritten, for the delay of writers.
fn note_debt(engine: &Engine) -> f64 {
    let tables = engine.catalog.live();
    // What is damaged is rewritten no more, and nobody should wait for that.
    let behind = tables.iter().filter(|table| !table.is_damaged());
    let debt = behind.map(|table| table.tree.debt()).fold(0.0, f64::max);
    engine.pressure.set_debt(debt);
    debt
}

/// Where structures are behind with what they want rewritten, sweeps between two rounds: the more, the further behind.
/// Returns whether there is more.
fn pay_debt(engine: &Engine, held: &mut Upkeep) -> Result<bool> {
    let mut is_more = false;
    for _ in 0..SWEEPS_MAX {
        let debt = note_debt(engine);
        if debt == 0.0 {
            break;
        }
        let began = Instant::now();
        is_more = sweep(engine, held)?;
        engine.pressure.note_rewrite(began.elapsed());
        wanted::look(engine);
        if debt < SWEEPS_DEBT {
            break;
        }
    }
    Ok(is_more)
}

/// Runs one round, where one is due.
fn apply_due(engine: &Engine, held: &mut Upkeep) -> Result<()> {
    let choices = next(engine);
    if choices.is_empty() { Ok(()) } else { round(engine, held, choices) }
}

/// The sections that the next round takes, if one is due.
fn next(engine: &Engine) -> Vec<Choice> {
    choice::next(engine, || choice::due(engine))
}

/// Notes how much of the log a recovery needs, for the next rounds and for the delay of writers. Commits that are in
/// the log and in no queue yet are left out: they are few, and at the end.
fn note_log(engine: &Engine) -> u64 {
    let end = engine.wal.end();
    let oldest = engine.catalog.live().iter().filter_map(|table| table.oldest_queued()).min();
    let from = oldest.map_or(end, |oldest| oldest.min(end));
    engine.pressure.set_log(from, end);
    end.0 - from.0
}

/// Whether a checkpoint is due, because enough of a long log is no longer needed.
fn trims(engine: &Engine) -> bool {
    let (needed, replayed) = (note_log(engine), engine.wal.bytes_to_replay());
    let limit = engine.pressure.log_limit();
    if replayed <= limit.due() {
        return false;
    }
    let retains = engine.catalog.live().iter().any(|table| table.history.keep() > 0);
    let part = if retains { LOG_TRIM_PART_RETAINING } else { LOG_TRIM_PART };
    let image = engine.superblock.lock().current().image.map_or(0, |image| u64::from(image.length));
    let enough = (limit.bytes / part).max((LOG_TRIM_PER_IMAGE * image).min(limit.bytes / 2));
    replayed.saturating_sub(needed) >= enough
}

/// Gives back the memory that operations of dropped tables hold.
fn abandon_dropped(engine: &Engine) {
    engine.catalog.dropped().iter().for_each(|table| engine.abandon_queues(table));
}

/// The functions of the worker that the engine is given.
pub(crate) const WORK: Work = Work { run, inline: run_inline, look_up: gather::answer_all };

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
