//! A round: some sections' queues frozen, applied to their structures, and no longer needed by recovery.
//!
//! 1. The chosen queues are frozen between two publications, so that each covers a gapless interval of seqs.
//! 2. The log is flushed through everything frozen: WAL before data, in every durability mode.
//! 3. The frozen operations of a table are applied as one batch, or as several where they are more than a round takes.
//!    A queue goes as soon as its structure has all of its operations.
//! 4. The written views are installed ([`install`]), each together with the removal of the queues that it replaces.
//!
//! A round takes a small part of the write buffer, so its memory is back soon, and no writer waits for all of the
//! buffer. Before each round the engine checks whether rounds keep up with the writers. As long as they do, their I/O
//! makes as much way for reads as possible.
//!
//! On a full disk:
//!
//! 1. Frozen operations are applied in ever smaller slices, each with a flush-end of its own, so that the pages which
//!    one slice gives up serve the next.
//! 2. If no slice at all goes in, all queues of the table are joined, so that later deletes get their turn.
//! 3. If deletes were refused because there is no room for them behind the frozen operations, slices may use half of
//!    the space that is reserved for deletes: no other way leads to the deletes.
//!
//! Invariant: a page that a round retires is not used again before the flush-end is durable. It is free with the next
//! flush of the log ([`Engine::flush_log`]), which every round, every stretch and every checkpoint begins with.

use std::{ops::Range, sync::Arc, time::Instant};

use index::{Applied, Batch, Collected, Seq, Update, View};

use crate::{
    apply::{
        choice::Choice,
        install::{Documents, Step, install},
    },
    engine::{Engine, upkeep::Upkeep},
    error::{Error, Result},
    opq::{Frozen, Opq, Sections},
    tables::{catalog::TableCore, held::HeldTable, inline::LOGGED_BYTES},
    words::{applied::AppliedThrough, verifies::VERIFIES},
};

/// A slice of so few operations is not split on a full disk: they touch few leaves. Where each makes a file, more of
/// them do, as long as their values are short.
const SMALLEST_CHANGE: usize = 4;
const SMALLEST_FILE: usize = 128;

/// A table in a round.
pub(crate) struct Turn<'a> {
    pub(crate) table: HeldTable<'a>,
    /// Numbers of the sections to freeze.
    pub(crate) sections: &'a [usize],
}

/// A part of a table's frozen operations, on its way into the structure.
struct Part<'a> {
    table: &'a HeldTable<'a>,
    frozen: Arc<Frozen>,
    range: Range<usize>,
    applied: Applied,
    /// The commits that the structure has with this part.
    through: AppliedThrough,
    /// No frozen operation is left to be applied.
    last: bool,
}

/// Runs a round for the chosen sections.
///
/// # Errors
/// [`Error::DiskFull`] when nothing could be applied for want of space. After any other error a part of the round may
/// be done, but nothing is installed that is not logged.
pub(crate) fn run(engine: &Engine, held: &mut Upkeep, choices: &[Choice]) -> Result<()> {
    let turns = choices.iter().map(|choice| Turn { table: choice.table.hold(), sections: &choice.sections });
    run_held(engine, held, &turns.collect::<Vec<_>>())
}

/// As [`run`], for tables that are held.
pub(crate) fn run_held(engine: &Engine, _held: &mut Upkeep, turns: &[Turn<'_>]) -> Result<()> {
    let started = Instant::now();
    let coming = if turns.iter().any(only_appends) { engine.pressure.used() } else { 0 };
    if coming > 0 {
        match engine.make_reserves(coming) {
            // There is hardly room for more either, and the waiting operations must go on.
            Err(Error::DiskFull { .. }) => {}
            made => made?,
        }
    }
    engine.tuning.pace(engine.store.psync(), engine.pressure.is_behind());
    freeze(engine, turns);
    engine.flush_log()?;
    engine.publish();
    let (parts, failed) = apply_all(engine, turns);
    let full_disk = matches!(failed, Some(Error::DiskFull { .. }));
    if parts.is_empty() && full_disk {
        engine.forget_coming(coming);
        turns.iter().for_each(|turn| join_queues(engine, &turn.table));
    }
    if parts.is_empty() {
        return failed.map_or(Ok(()), Err);
    }
    // Applied parts count, whatever became of the others; where only space lacked, the next round tries the others
    // again.
    finish(engine, &parts, started)?;
    failed.filter(|_| !full_disk).map_or(Ok(()), Err)
}

fn only_appends(turn: &Turn<'_>) -> bool {
    turn.table.structure.facts().only_appends
}

/// Freezes the chosen queues of tables that have no frozen ones yet, and cuts the emptied sections anew.
fn freeze(engine: &Engine, turns: &[Turn<'_>]) {
    let fresh: Vec<_> = turns.iter().filter(|turn| turn.table.state.load().frozen.is_none()).collect();
    let fences: Vec<_> = fresh.iter().map(|turn| fences(engine, &*turn.table.state.load().view)).collect();
    engine.publisher.between(|visible, _| {
        for (Turn { table, sections }, fences) in fresh.into_iter().zip(fences) {
            freeze_sections(engine, table, sections, &fences, visible);
        }
    });
}

/// Freezes all queues of a table that has no frozen ones, in one step with the call of `with`.
pub(crate) fn freeze_whole<R>(engine: &Engine, table: &HeldTable<'_>, with: impl FnOnce() -> R) -> R {
    let fences = fences(engine, &*table.state.load().view);
    engine.publisher.between(|visible, _| {
        let done = with();
        let active = Arc::clone(&table.state.load().active);
        if active.operations() > 0 {
            let all: Vec<usize> = (0..active.len()).collect();
            freeze_sections(engine, table, &all, &fences, visible);
        }
        done
    })
}

fn freeze_sections(engine: &Engine, table: &HeldTable<'_>, sections: &[usize], fences: &[Vec<u8>], visible: Seq) {
    let state = table.state.load();
    let taken = Arc::new(state.active.only(sections));
    let bytes = taken.bytes();
    let active = Arc::new(state.active.recut(sections, fences, engine.pressure.sections()));
    let frozen = Arc::new(Frozen::new(taken, visible, bytes));
    table.replace_state(active, Some(frozen), Arc::clone(&state.view));
    engine.note_frozen(table, bytes);
}

/// Keys to cut sections at. Without them operations go on, only less well sorted.
pub(crate) fn fences(engine: &Engine, view: &dyn View) -> Vec<Vec<u8>> {
    view.fences(Sections::fences_for(engine.pressure.sections())).unwrap_or_else(|error| {
        events::warn!(%error, "sections of a table stay as they are");
        Vec::new()
    })
}

/// Applies as much as possible of the frozen operations of each table. Returns the parts, and the error if there was
/// any.
fn apply_all<'a>(engine: &Engine, turns: &'a [Turn<'a>]) -> (Vec<Part<'a>>, Option<Error>) {
    let (mut parts, mut failed, mut done_bytes) = (Vec::new(), None, 0);
    for Turn { table, .. } in turns {
        let Some(frozen) = table.state.load().frozen.clone() else { continue };
        sort(engine, table, &frozen);
        match apply(engine, table, &frozen, done_bytes) {
            Ok(part) => parts.push(part),
            Err(error @ Error::DiskFull { .. }) => failed = Some(error),
            Err(error) => return (parts, Some(error)),
        }
        done_bytes += frozen.bytes();
    }
    (parts, failed)
}

/// Sorts frozen operations of a table, and cuts them into slices.
pub(crate) fn sort(engine: &Engine, table: &TableCore, frozen: &Frozen) {
    frozen.sort(&engine.horizon(table), engine.options.bcnt, engine.pressure.round_bytes());
}

/// Applies the largest slice that there is space for.
fn apply<'a>(engine: &Engine, table: &'a HeldTable<'a>, frozen: &Arc<Frozen>, done_bytes: u64) -> Result<Part<'a>> {
    let count = frozen.len().max(1) as u64;
    let horizon = engine.horizon(table);
    let (mut refused, mut urgent) = (0, false);
    let of_file = SMALLEST_FILE * LOGGED_BYTES / table.inline_bytes().max(LOGGED_BYTES);
    let smallest = if table.structure.facts().merges_later { of_file } else { SMALLEST_CHANGE };
    loop {
        let slice = frozen.next_slice();
        let slice = if urgent { slice.urgent() } else { slice };
        let range = slice.range();
        let start = range.start;
        let progress = |done: usize| {
            engine.pressure.progress(done_bytes + frozen.bytes() * ((start + done) as u64).min(count) / count);
        };
        let batch = Collected::of(&slice);
        assert!(!VERIFIES || is_in_order(&batch), "a batch is in the order of its keys, then of its seqs");
        match table.tree.apply(&batch, &horizon, &progress).map_err(Error::from) {
            Ok(applied) => {
                let mut through = table.applied();
                slice.for_each_span(|low, high| through.cover(low, high, frozen.through()));
                frozen.slice_applied();
                // Later commits have later seqs than any that was visible when these were frozen.
                let oldest = table.oldest_unapplied_seq().map_or(Seq::MAX, |seq| Seq(seq.0 - 1));
                through.raise(oldest.min(frozen.through()));
                let last = frozen.slices_left() == 0;
                return Ok(Part { table, frozen: Arc::clone(frozen), range, applied, through, last });
            }
            Err(error @ Error::DiskFull { .. }) => {
                refused = if frozen.slice_refused(smallest) { 0 } else { refused + 1 };
                if refused >= frozen.slices_left() {
                    if urgent || !engine.pressure.deletes_wait() {
                        return Err(error);
                    }
                    (urgent, refused) = (true, 0);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_in_order(batch: &dyn Batch) -> bool {
    let at = |index| {
        let Update { key, seq, .. } = batch.get(index);
        (key, seq)
    };
    (1..batch.len()).all(|index| at(index - 1) < at(index))
}

/// Installs the applied parts. A part whose flush-end finds no room in the log is taken back.
fn finish(engine: &Engine, parts: &[Part<'_>], started: Instant) -> Result<()> {
    let steps = parts.iter().map(|part| Step {
        table: part.table,
        applied: &part.applied,
        through: part.through.clone(),
        documents: Documents::Stay,
    });
    let steps: Vec<Step<'_>> = steps.collect();
    let mut bytes = 0;
    let (installed, outcome) = install(engine, &steps, |number| bytes += replace(&parts[number]));
    let (through, others) = parts.split_at(installed);
    if matches!(outcome, Err(Error::DiskFull { .. })) {
        others.iter().for_each(|part| part.frozen.take_back(part.range.clone()));
    }
    let operations = through.iter().map(|part| part.range.len()).sum();
    let share = |part: &Part<'_>| part.frozen.bytes() * part.range.len() as u64 / part.frozen.len().max(1) as u64;
    engine.pressure.give_back(bytes, through.iter().map(share).sum(), started.elapsed());
    engine.lend();
    engine.counters.applied(operations, started.elapsed());
    outcome
}

/// Puts the new view in place, and in the same step removes the queues that it has all of. Returns the memory that
/// they held.
fn replace(part: &Part<'_>) -> u64 {
    let (frozen, bytes) = match part.frozen.rest() {
        _ if part.last => (None, part.frozen.bytes()),
        Some((rest, bytes)) => (Some(Arc::new(rest)), bytes),
        None => (Some(Arc::clone(&part.frozen)), 0),
    };
    let active = Arc::clone(&part.table.state.load().active);
    let written = || part.frozen.updates(part.range.clone()).map(|update| (update.key, update.seq));
    part.table.replace_applied(active, frozen, Arc::clone(&part.applied.view), written);
    bytes
}

/// Freezes all queues of a table, each joined with the rest of the frozen ones before it. The newest operation of a
/// key is the one that counts; where that is a delete, earlier puts need no space.
fn join_queues(engine: &Engine, table: &HeldTable<'_>) {
    engine.publisher.between(|visible, _| {
        let state = table.state.load();
        let Some(older) = state.frozen.as_ref().filter(|_| state.active.operations() > 0) else { return };
        let mut joined = lacking(engine, table, older, &state.active);
        for (queue, joined) in state.active.queues().iter().zip(&mut joined) {
            queue.read().updates().for_each(|(update, lsn)| joined.append(&update, lsn));
        }
        let joined = state.active.with_queues(joined);
        let (before, bytes) = (older.bytes() + state.active.bytes(), joined.bytes());
        let all: Vec<usize> = (0..joined.len()).collect();
        let active = state.active.recut(&all, &[], 1);
        let frozen = Frozen::new(Arc::new(joined), visible, bytes);
        engine.pressure.exchange(before, bytes);
        engine.pressure.progress(0);
        engine.loans.call_in(engine.pressure.used(), &engine.structures);
        engine.note_frozen(table, state.active.bytes());
        table.replace_state(Arc::new(active), Some(Arc::new(frozen)), Arc::clone(&state.view));
    });
}

/// Removes the operations from the frozen queues of a table that its structure has already. Relocation of documents
/// needs this, because readers look into queues first, and would be led to the old place of a document.
pub(crate) fn forget_applied(engine: &Engine, table: &HeldTable<'_>) {
    let state = table.state.load();
    let Some(older) = state.frozen.as_ref().filter(|frozen| frozen.is_applied_in_part()) else { return };
    let left = older.sections().with_queues(lacking(engine, table, older, older.sections()));
    let bytes = left.bytes();
    let frozen = Frozen::new(Arc::new(left), older.through(), bytes);
    engine.pressure.exchange(older.bytes(), bytes);
    engine.loans.call_in(engine.pressure.used(), &engine.structures);
    table.replace_state(Arc::clone(&state.active), Some(Arc::new(frozen)), Arc::clone(&state.view));
}

/// New queues, one for each of `sections`, with the frozen operations of a table that its structure lacks.
fn lacking(engine: &Engine, table: &TableCore, frozen: &Frozen, sections: &Sections) -> Vec<Opq> {
    let applied = table.applied();
    let mut queues: Vec<Opq> = sections.queues().iter().map(|_| Opq::new(engine.options.sorting)).collect();
    for queue in frozen.sections().queues() {
        let queue = queue.read();
        for (update, lsn) in queue.updates().filter(|(update, _)| applied.lacks(update.key, update.seq)) {
            queues[sections.of_key(update.key)].append(&update, lsn);
        }
    }
    queues
}
