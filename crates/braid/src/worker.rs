//! The background worker: decides what is applied when, and when a checkpoint is due.
//!
//! 1. When the queues hold half of the write buffer, the heaviest are applied in a round ([`round`]).
//! 2. On request, when the log has grown long, when the newest checkpoint is old, and when nobody writes any more, everything is
//!    applied; all but the plain request then write a checkpoint, which trims the log.
//! 3. Its I/O makes way for reads ([`psync::Background`]).
//! 4. A full disk, or a read that failed, makes it pause and try again; any other failure ends all writing.
//!
//! Invariant: table states and structures are changed, and checkpoints written, one thing at a time: by the worker, and between its turns
//! by the end of a load ([`crate::load`]) and by compactions ([`crate::compact`]).

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use index::Seq;

use crate::{Error, Result, catalog::TableCore, checkpoint, engine::Engine, round, signal::Request as Asked};

/// Without anything to do, operations are applied and a checkpoint written after this long.
const IDLE_CHECKPOINT: Duration = Duration::from_secs(30);
/// However busy it is: what is older than this is applied, so that no cold key pins the log.
const OLDEST_CHECKPOINT: Duration = Duration::from_secs(300);
/// How long to wait before a full disk, or a read that failed, is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// The log may hold so many times the write buffer before a checkpoint trims it.
const LOG_PER_WRITE_BUFFER: u64 = 2;
/// It may hold so many segments in any case.
const LOG_SEGMENTS: u64 = 4;

/// How often reads may fail in a row before it is taken for more than a passing fault.
const READ_FAILURES_MAX: u32 = 10;

/// Runs until asked to stop or until something fails.
pub(crate) fn run(engine: &Arc<Engine>) {
    let _makes_way = psync::Background::enter();
    let mut worker = Worker::default();
    while worker.turn(engine, IDLE_CHECKPOINT).is_continue() {}
    engine.signal.fail();
}

/// Does what is due, turn by turn.
#[derive(Default)]
pub(crate) struct Worker {
    read_failures: u32,
}

impl Worker {
    /// Waits at most so long for something to do, and does it. Breaks when there will be no more turns.
    pub(crate) fn turn(&mut self, engine: &Engine, longest: Duration) -> ControlFlow<()> {
        let asked = engine.signal.wait(longest);
        if engine.health.check().is_err() {
            engine.signal.fail();
            return ControlFlow::Break(());
        }
        let outcome = step(engine, asked);
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

    /// Whether the last turn met a read that failed, which the next one tries again.
    pub(crate) const fn has_failed(&self) -> bool {
        self.read_failures > 0
    }
}

fn step(engine: &Engine, asked: Asked) -> Result<()> {
    let _still = engine.maintenance.lock();
    if asked.stop {
        engine.flush_log()?;
    }
    abandon_dropped(engine);
    let log_limit = (LOG_PER_WRITE_BUFFER * engine.pressure.budget()).max(LOG_SEGMENTS * engine.options.segment_bytes);
    let log_full = engine.wal.bytes_retained() > log_limit;
    let old = engine.counters.checkpoint_age() > OLDEST_CHECKPOINT && engine.counters.changed_since_checkpoint();
    let idle = engine.counters.is_idle_since_last_look();
    let save = asked.checkpoint || log_full || old;
    let outcome = if asked.drain || asked.stop || save || idle {
        let through = engine.publisher.visible();
        apply_through(engine, through)
    } else {
        apply_heaviest(engine)
    };
    let unsaved = engine.counters.changed_since_checkpoint();
    // What went in before the disk was full may let the log be trimmed. After any other failure nothing more is written.
    let trim = match &outcome {
        Ok(()) => false,
        Err(Error::DiskFull { .. }) => true,
        Err(_) => return outcome,
    };
    if save || (unsaved && (asked.stop || idle || trim)) {
        checkpoint::write(engine)?;
    }
    outcome
}

/// Applies every operation up to `through`.
fn apply_through(engine: &Engine, through: Seq) -> Result<()> {
    loop {
        let mut tables = engine.catalog.live();
        tables.retain(|table| table.oldest_unapplied_seq().is_some_and(|seq| seq <= through));
        if tables.is_empty() {
            return Ok(());
        }
        round::run(engine, &tables)?;
    }
}

/// Runs one round, where there is enough to apply for one, and asks for another turn to see whether there is still.
fn apply_heaviest(engine: &Engine) -> Result<()> {
    let mut tables = engine.catalog.live();
    let has_frozen = |table: &Arc<TableCore>| table.state.load().frozen.is_some();
    if tables.iter().any(has_frozen) {
        tables.retain(has_frozen);
    } else if engine.active_bytes.load(Ordering::Relaxed) >= engine.pressure.budget() / 2 {
        keep_heaviest(engine, &mut tables);
    } else {
        return Ok(());
    }
    round::run(engine, &tables)?;
    engine.signal.kick();
    Ok(())
}

/// Gives the memory back that operations of dropped tables hold.
fn abandon_dropped(engine: &Engine) {
    for table in engine.catalog.dropped() {
        let state = table.state.load();
        let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        let active = table.active_bytes.swap(0, Ordering::Relaxed);
        if frozen + active > 0 {
            engine.active_bytes.fetch_sub(active, Ordering::Relaxed);
            table.replace_state(Arc::default(), None, Arc::clone(&state.view));
            engine.pressure.forget(frozen + active);
        }
    }
}

/// Keeps the tables that hold most of what waits.
fn keep_heaviest(engine: &Engine, tables: &mut Vec<Arc<TableCore>>) {
    let weight = |table: &Arc<TableCore>| table.active_bytes.load(Ordering::Relaxed);
    tables.sort_by_key(|table| std::cmp::Reverse(weight(table)));
    let enough = engine.active_bytes.load(Ordering::Relaxed) / 2;
    let mut sum = 0;
    tables.retain(|table| {
        let wanted = sum < enough && weight(table) > 0;
        sum += weight(table);
        wanted
    });
}
