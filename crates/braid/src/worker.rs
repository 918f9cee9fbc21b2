//! The background worker: applies full queues to their structures, and decides when a checkpoint is due.
//!
//! A round:
//! 1. freezes the queues of the chosen tables between two publications, so that each covers a gapless interval of seqs;
//! 2. flushes the log through everything frozen (WAL before data, in every durability mode);
//! 3. applies the oldest frozen queue of each table;
//! 4. flushes the data file once for all of them;
//! 5. logs a flush-end for each: from here on recovery begins with the new root;
//! 6. publishes the new views, each together with the list of queues it replaces.
//!
//! Invariants: the worker alone changes table states and structures; a page that a round retires is not used again before
//! the flush-end is durable, because the next round and every checkpoint begin with a flush of the log.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use index::{Applied, Batch, Horizon, Index, Seq};
use psync::Request;

use crate::{
    Error, Result,
    catalog::TableCore,
    checkpoint,
    engine::Engine,
    format::{FlushEnd, kind},
    opq::Frozen,
    signal::Request as Asked,
};

/// Without anything to do, operations are applied and a checkpoint written after this long.
const IDLE_CHECKPOINT: Duration = Duration::from_secs(30);
/// How long to wait before a full disk is tried again.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(100);
/// The log may hold so many times the write buffer before a checkpoint trims it.
const LOG_PER_WRITE_BUFFER: u64 = 2;
/// It may hold so many segments in any case.
const LOG_SEGMENTS: u64 = 4;

struct Round<'a> {
    table: &'a Arc<TableCore>,
    frozen: Arc<Frozen>,
    applied: Option<Applied>,
}

/// Runs until asked to stop or until something fails.
pub(crate) fn run(engine: &Arc<Engine>) {
    while turn(engine, IDLE_CHECKPOINT).is_continue() {}
}

/// Waits at most so long for something to do, and does it. Breaks when there will be no more turns.
pub(crate) fn turn(engine: &Engine, longest: Duration) -> ControlFlow<()> {
    let asked = engine.signal.wait(longest);
    if engine.health.check().is_err() {
        engine.signal.fail();
        return ControlFlow::Break(());
    }
    match step(engine, asked) {
        Ok(()) => {
            engine.pressure.set_full_disk(None);
            engine.signal.finish(asked, Ok(()));
            if asked.stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        // Space that could not be had is asked for again. A write or flush that failed is not tried again, whatever the reason.
        Err(error @ Error::DiskFull { .. }) if !asked.stop => {
            tracing::warn!(%error, "cannot apply operations yet");
            engine.pressure.set_full_disk(Some(error.to_string()));
            engine.signal.finish(asked, Err(error));
            std::thread::sleep(longest.min(FULL_DISK_PAUSE));
            engine.signal.kick();
            ControlFlow::Continue(())
        }
        Err(error) => {
            engine.fail(error);
            ControlFlow::Break(())
        }
    }
}

fn step(engine: &Engine, asked: Asked) -> Result<()> {
    let _still = engine.maintenance.lock();
    let retained = engine.wal.bytes_retained();
    let write_buffer = engine.pressure.budget();
    let log_limit = (LOG_PER_WRITE_BUFFER * write_buffer).max(LOG_SEGMENTS * engine.options.segment_bytes);
    let idle = engine.counters.is_idle_since_last_look();
    let log_full = retained > log_limit;
    let all = asked.drain || asked.stop || log_full || (idle && engine.pressure.used() > 0);
    let through = all.then(|| engine.publisher.visible());
    abandon_dropped(engine);
    while let Some(tables) = choose(engine, through) {
        apply_round(engine, &tables)?;
    }
    let unsaved = engine.counters.changed_since_checkpoint();
    if asked.checkpoint || log_full || (unsaved && (asked.stop || idle)) || !engine.catalog.dropped().is_empty() && all
    {
        checkpoint::write(engine)?;
    }
    Ok(())
}

/// Gives the memory back that operations of dropped tables hold.
fn abandon_dropped(engine: &Engine) {
    for table in engine.catalog.dropped() {
        let state = table.state.load();
        let frozen: u64 = state.frozen.iter().map(|frozen| frozen.bytes()).sum();
        let active = table.active_bytes.swap(0, Ordering::Relaxed);
        if frozen + active > 0 {
            engine.active_bytes.fetch_sub(active, Ordering::Relaxed);
            table.replace_state(Arc::default(), Vec::new(), Arc::clone(&state.view));
            engine.pressure.forget(frozen + active);
        }
    }
}

/// The tables whose queues are to be applied now: all with an operation up to `through`, where that is given; otherwise those that
/// a full disk held up, or those that hold most of what waits.
fn choose(engine: &Engine, through: Option<Seq>) -> Option<Vec<Arc<TableCore>>> {
    let mut tables = engine.catalog.live();
    let crowded = engine.active_bytes.load(Ordering::Relaxed) >= engine.pressure.budget() / 2;
    let has_frozen = |table: &Arc<TableCore>| !table.state.load().frozen.is_empty();
    if let Some(through) = through {
        tables.retain(|table| table.oldest_unapplied_seq().is_some_and(|seq| seq <= through));
    } else if tables.iter().any(has_frozen) {
        tables.retain(has_frozen);
    } else if crowded {
        keep_heaviest(engine, &mut tables);
    } else {
        tables.clear();
    }
    (!tables.is_empty()).then_some(tables)
}

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

fn apply_round(engine: &Engine, tables: &[Arc<TableCore>]) -> Result<()> {
    let started = Instant::now();
    freeze(engine, tables);
    engine.wal.flush_through(engine.wal.end()).map_err(|error| engine.log_error(error))?;
    engine.publish();
    let oldest = |table| oldest_frozen(table).map(|frozen| Round { table, frozen, applied: None });
    let mut rounds: Vec<Round<'_>> = tables.iter().filter_map(oldest).collect();
    let outcome = apply_all(engine, &mut rounds);
    rounds.retain(|round| round.applied.is_some());
    if seeded::on(seeded::Bug::FlushEndBeforeData) {
        log_flush_ends(engine, &rounds)?;
        engine.wal.flush_through(engine.wal.end()).map_err(|error| engine.log_error(error))?;
        flush_data(engine, &rounds)?;
    } else {
        flush_data(engine, &rounds)?;
        log_flush_ends(engine, &rounds)?;
    }
    for round in &rounds {
        publish(engine, round)?;
    }
    let bytes = rounds.iter().map(|round| round.frozen.bytes()).sum();
    engine.pressure.give_back(bytes, started.elapsed());
    engine.counters.applied(rounds.iter().map(|round| round.frozen.len()).sum(), started.elapsed());
    outcome
}

/// Freezes the queues of tables that have no frozen one yet.
fn freeze(engine: &Engine, tables: &[Arc<TableCore>]) {
    engine.publisher.between(|visible, _| {
        for table in tables {
            let state = table.state.load();
            if !state.frozen.is_empty() || state.active.read().len() == 0 {
                continue;
            }
            let bytes = table.active_bytes.swap(0, Ordering::Relaxed);
            let frozen = Arc::new(Frozen::new(Arc::clone(&state.active), visible, bytes));
            table.replace_state(Arc::default(), vec![frozen], Arc::clone(&state.view));
            engine.active_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    });
}

fn oldest_frozen(table: &Arc<TableCore>) -> Option<Arc<Frozen>> {
    table.state.load().frozen.last().cloned()
}

fn apply_all(engine: &Engine, rounds: &mut [Round<'_>]) -> Result<()> {
    let horizon = Horizon::default();
    let mut done_bytes = 0;
    for round in rounds {
        round.frozen.sort(&horizon);
        let count = round.frozen.len().max(1) as u64;
        let progress = |done: usize| {
            engine.pressure.progress(done_bytes + round.frozen.bytes() * (done as u64).min(count) / count)
        };
        round.applied = Some(round.table.tree.apply(&*round.frozen, &horizon, &progress)?);
        done_bytes += round.frozen.bytes();
    }
    Ok(())
}

fn flush_data(engine: &Engine, rounds: &[Round<'_>]) -> Result<()> {
    if !rounds.is_empty() {
        engine.store.psync().run_all(vec![Request::flush(engine.pages.file(), 0)])?;
    }
    Ok(())
}

fn log_flush_ends(engine: &Engine, rounds: &[Round<'_>]) -> Result<()> {
    for round in rounds {
        let applied = round.applied.as_ref().expect("only applied rounds are left");
        let dropped = applied.dropped_documents.iter().chain(round.frozen.replaced_documents()).copied().collect();
        let record =
            FlushEnd { table: round.table.id, through: round.frozen.through(), redo: applied.redo.clone(), dropped };
        let payload = record.encode();
        loop {
            match engine.wal.append(kind::FLUSH_END, &[&payload], false, wal::Claim::Upkeep) {
                Ok(_) => break,
                Err(wal::Error::Full { .. }) if !engine.signal.is_stopping() => std::thread::sleep(FULL_DISK_PAUSE),
                Err(error) => return Err(Error::Failed { cause: error.to_string() }),
            }
        }
    }
    Ok(())
}

/// Puts the new view in place of the queue that it has now, as one step.
fn publish(engine: &Engine, round: &Round<'_>) -> Result<()> {
    let applied = round.applied.as_ref().expect("only applied rounds are left");
    let table = round.table;
    table.tree.publish(applied);
    table.set_applied(round.frozen.through());
    for document in applied.dropped_documents.iter().chain(round.frozen.replaced_documents()) {
        table.documents.drop_document(document)?;
    }
    let state = table.state.load();
    let mut frozen = state.frozen.clone();
    frozen.pop();
    table.replace_state(Arc::clone(&state.active), frozen, Arc::clone(&applied.view));
    engine.counters.changed();
    Ok(())
}
