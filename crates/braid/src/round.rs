//! A round: queues frozen, applied to their structures, and made part of what recovery begins with.
//!
//! 1. Queues are frozen between two publications, so that each covers a gapless interval of seqs.
//! 2. The log is flushed through everything frozen: WAL before data, in every durability mode.
//! 3. Each table's frozen queue is applied.
//! 4. The data file is flushed once for all of them.
//! 5. A flush-end is logged for each: from here on recovery begins with the new root.
//! 6. The new views are published, each together with the queue that it replaces.
//!
//! On a full disk a queue is applied in ever smaller slices, each with a flush-end of its own, so that the pages which one slice
//! gives up serve the next; `(key, seq)` is one version, so applying a slice twice is harmless, and the seq that the table has
//! everything of moves with the last slice. If no slice at all goes in, the queue is joined with the younger one, so that deletes
//! which came later get their turn.
//!
//! Invariant: a page that a round retires is not used again before the flush-end is durable, because every round and
//! every checkpoint begins with a flush of the log.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use index::{Applied, Horizon, Index};
use parking_lot::RwLock;
use psync::Request;

use crate::{
    Error, Result,
    catalog::TableCore,
    engine::Engine,
    format::{FlushEnd, kind},
    opq::{Frozen, Opq},
};

/// A part of a frozen queue on its way into its structure.
struct Part<'a> {
    table: &'a Arc<TableCore>,
    frozen: Arc<Frozen>,
    range: Range<usize>,
    applied: Applied,
    /// Nothing of the queue is left to be applied.
    last: bool,
}

/// Runs a round for `tables`.
///
/// # Errors
/// [`Error::DiskFull`] when nothing could be applied for want of space; any other error may have left part of the round
/// done, but nothing published that is not logged.
pub(crate) fn run(engine: &Engine, tables: &[Arc<TableCore>]) -> Result<()> {
    let started = Instant::now();
    freeze(engine, tables);
    engine.flush_log()?;
    engine.publish();
    let (parts, failed) = apply_all(engine, tables);
    let full_disk = matches!(failed, Some(Error::DiskFull { .. }));
    if parts.is_empty() && full_disk {
        join_queues(engine, tables);
    }
    if parts.is_empty() {
        return failed.map_or(Ok(()), Err);
    }
    // What went in counts, whatever became of the rest; where only space lacked, the next round tries that again.
    finish_all(engine, &parts, started)?;
    failed.filter(|_| !full_disk).map_or(Ok(()), Err)
}

fn finish_all(engine: &Engine, parts: &[Part<'_>], started: Instant) -> Result<()> {
    if seeded::on(seeded::Bug::FlushEndBeforeData) {
        let outcome = finish(engine, parts, started);
        flush_data(engine)?;
        return outcome;
    }
    flush_data(engine)?;
    finish(engine, parts, started)
}

/// Freezes the queues of tables that have no frozen one yet.
fn freeze(engine: &Engine, tables: &[Arc<TableCore>]) {
    engine.publisher.between(|visible, _| {
        for table in tables {
            let state = table.state.load();
            if state.frozen.is_some() || state.active.read().len() == 0 {
                continue;
            }
            let bytes = table.active_bytes.swap(0, Ordering::Relaxed);
            let frozen = Arc::new(Frozen::new(Arc::clone(&state.active), visible, bytes));
            table.replace_state(Arc::default(), Some(frozen), Arc::clone(&state.view));
            engine.active_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    });
}

/// Applies what it can of each table's frozen queue; also says what failed, if anything did.
fn apply_all<'a>(engine: &Engine, tables: &'a [Arc<TableCore>]) -> (Vec<Part<'a>>, Option<Error>) {
    let (mut parts, mut failed, mut done_bytes) = (Vec::new(), None, 0);
    for table in tables {
        let Some(frozen) = table.state.load().frozen.clone() else { continue };
        frozen.sort(&Horizon::default());
        match apply(engine, table, &frozen, done_bytes) {
            Ok((range, applied)) => {
                let last = frozen.slices_left() == 0;
                parts.push(Part { table, frozen: Arc::clone(&frozen), range, applied, last });
            }
            Err(error @ Error::DiskFull { .. }) => failed = Some(error),
            Err(error) => return (parts, Some(error)),
        }
        done_bytes += frozen.bytes();
    }
    (parts, failed)
}

/// Applies the largest slice that there is space for.
fn apply(engine: &Engine, table: &TableCore, frozen: &Frozen, done_bytes: u64) -> Result<(Range<usize>, Applied)> {
    let count = frozen.len().max(1) as u64;
    let horizon = Horizon::default();
    let mut refused = 0;
    loop {
        let slice = frozen.next_slice(table.applied());
        let range = slice.range();
        let start = range.start;
        let progress = |done: usize| {
            engine.pressure.progress(done_bytes + frozen.bytes() * ((start + done) as u64).min(count) / count);
        };
        match table.tree.apply(&slice, &horizon, &progress).map_err(Error::from) {
            Ok(applied) => {
                frozen.slice_applied();
                return Ok((range, applied));
            }
            Err(error @ Error::DiskFull { .. }) => {
                refused = if frozen.slice_refused() { 0 } else { refused + 1 };
                if refused >= frozen.slices_left() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn flush_data(engine: &Engine) -> Result<()> {
    engine.store.psync().run_all(vec![Request::flush(engine.pages.file(), 0)])?;
    Ok(())
}

/// Logs flush-ends and publishes. A part whose flush-end the log has no room for is taken back.
fn finish(engine: &Engine, parts: &[Part<'_>], started: Instant) -> Result<()> {
    let mut outcome = Ok(());
    let (mut operations, mut bytes) = (0, 0);
    for part in parts {
        if outcome.is_ok() {
            outcome = log_flush_end(engine, part);
        }
        match &outcome {
            Ok(()) => publish(engine, part)?,
            Err(Error::DiskFull { .. }) => {
                part.table.tree.discard(&part.applied);
                part.frozen.take_back(part.range.clone());
                continue;
            }
            Err(_) => break,
        }
        if part.last {
            operations += part.frozen.len();
            bytes += part.frozen.bytes();
        }
    }
    if seeded::on(seeded::Bug::FlushEndBeforeData) {
        engine.flush_log()?;
    }
    engine.pressure.give_back(bytes, started.elapsed());
    engine.counters.applied(operations, started.elapsed());
    outcome
}

fn log_flush_end(engine: &Engine, part: &Part<'_>) -> Result<()> {
    let through = if part.last { part.frozen.through() } else { part.table.applied() };
    let record = FlushEnd {
        table: part.table.id,
        through,
        redo: part.applied.redo.clone(),
        dropped: part.applied.dropped_documents.clone(),
        retained: Vec::new(),
    };
    append_flush_end(engine, &record)
}

/// Appends a flush-end to the log, in pieces where it has to.
///
/// # Errors
/// When the log fails, or has no room; a flush-end that is there in part counts for nothing.
pub(crate) fn append_flush_end(engine: &Engine, record: &FlushEnd) -> Result<()> {
    let most = usize::try_from(engine.wal.record_bytes_max()).unwrap_or(usize::MAX);
    let payloads = record.encode(most);
    let count = payloads.len();
    for (number, payload) in payloads.iter().enumerate() {
        let kind = if number + 1 == count { kind::FLUSH_END } else { kind::FLUSH_END_PART };
        engine.wal.append(kind, &[payload], false, wal::Claim::Upkeep).map_err(|error| engine.log_error(error))?;
    }
    Ok(())
}

/// Puts the new view in place, and in the same step takes the queue away that it has all of.
fn publish(engine: &Engine, part: &Part<'_>) -> Result<()> {
    let (table, applied) = (part.table, &part.applied);
    table.tree.publish(applied);
    for document in &applied.dropped_documents {
        table.documents.drop_document(document)?;
    }
    let state = table.state.load();
    let frozen = state.frozen.clone().filter(|_| !part.last);
    if part.last {
        table.set_applied(part.frozen.through());
    }
    table.replace_state(Arc::clone(&state.active), frozen, Arc::clone(&applied.view));
    engine.counters.changed();
    Ok(())
}

/// Makes one frozen queue of each table's frozen and active one: the newest operation of a key is the one that counts, and
/// where that deletes, what was put before needs no space.
fn join_queues(engine: &Engine, tables: &[Arc<TableCore>]) {
    engine.publisher.between(|visible, _| {
        for table in tables {
            let state = table.state.load();
            let Some(older) = state.frozen.as_ref().filter(|_| state.active.read().len() > 0) else { continue };
            let mut joined = Opq::default();
            for queue in [older.opq(), &state.active] {
                queue.read().updates_above(index::Seq(0)).for_each(|(update, lsn)| joined.append(&update, lsn));
            }
            let active = table.active_bytes.swap(0, Ordering::Relaxed);
            engine.active_bytes.fetch_sub(active, Ordering::Relaxed);
            let bytes = joined.bytes() as u64;
            engine.pressure.exchange(older.bytes() + active, bytes);
            let frozen = Frozen::new(Arc::new(RwLock::new(joined)), visible, bytes);
            table.replace_state(Arc::default(), Some(Arc::new(frozen)), Arc::clone(&state.view));
        }
    });
}
