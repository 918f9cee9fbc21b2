//! The choice of a round: the sections with the most pending operations, over all tables (PIO §3.1.3: which OPQ
//! entries a bupdate chooses). Where the log is long, sections with its oldest operations come first.
//!
//! Sections of a table cover about the same number of leaves, so the fullest queue gives the most operations for each
//! leaf that is written. Where keys come in any order, the fullest section is the one that was not taken for the
//! longest time. At its turn it has twice as many operations as the mean, most of its leaves are touched, and every
//! node above them is written once.
//!
//! A table that a stretch of a compaction holds is left to a later round. Where the others have less than half of the
//! waiting bytes, or a section of the table pins the log, the round waits for the stretch.

use std::{cmp::Reverse, sync::Arc};

use wal::Lsn;

use crate::{engine::Engine, opq::Opq, tables::catalog::TableCore};

/// Sections of one table.
pub(crate) struct Choice {
    /// The table of the sections.
    pub(crate) table: Arc<TableCore>,
    /// Numbers of the sections to freeze; none where frozen ones are left from an earlier round.
    pub(crate) sections: Vec<usize>,
}

/// A queue that could be taken.
struct Candidate {
    bytes: u64,
    oldest: Lsn,
    table: usize,
    section: usize,
}

/// Whether tables that are held are chosen too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Too,
    /// Only where they pin the log.
    Left,
}

/// The choice of the next round: what earlier rounds left over, or `others`. What is left over in a held table comes
/// last.
pub(crate) fn next(engine: &Engine, others: impl Fn() -> Vec<Choice>) -> Vec<Choice> {
    let mut choices = left_over(engine, Held::Left);
    if choices.is_empty() {
        choices = others();
    }
    if choices.is_empty() { left_over(engine, Held::Too) } else { choices }
}

/// The queues that earlier rounds froze and could not apply to their end. Where a full disk was the reason, these are
/// joined by all queues of the other tables, because any of them can have the deletes that bring space back.
pub(crate) fn left_over(engine: &Engine, held: Held) -> Vec<Choice> {
    let mut choices = Vec::new();
    let (mut left, full_disk) = (false, engine.pressure.full_disk().is_some());
    let too_old = engine.pressure.too_old().unwrap_or_default();
    let waits = |table: &TableCore| {
        let is_needed = || full_disk || table.oldest_queued().is_some_and(|oldest| oldest < too_old);
        held == Held::Left && !is_needed() && engine.stretches.has(table)
    };
    for table in engine.catalog.live() {
        let state = table.state.load_full();
        if state.frozen.is_some() && waits(&table) {
            continue;
        }
        let sections = if state.frozen.is_some() { Vec::new() } else { state.active.filled() };
        left |= state.frozen.is_some();
        if state.frozen.is_some() || (full_disk && !sections.is_empty()) {
            choices.push(Choice { table, sections });
        }
    }
    if left { choices } else { Vec::new() }
}

/// The fullest of the queues that are `wanted`, enough for a round.
pub(crate) fn fullest(engine: &Engine, wanted: impl Fn(&Opq) -> bool) -> Vec<Choice> {
    let tables = engine.catalog.live();
    let mut candidates = candidates(&tables, wanted);
    leave_held(engine, &tables, &mut candidates, |_| false);
    candidates.sort_by_key(|candidate| Reverse(candidate.bytes));
    choose(&tables, candidates, engine.pressure.round_bytes())
}

/// Queues that pin too much of the log, at most as many as a table has sections, and the fullest ones: enough for a
/// round, if one is due.
pub(crate) fn due(engine: &Engine) -> Vec<Choice> {
    let tables = engine.catalog.live();
    let mut candidates = candidates(&tables, |_| true);
    let too_old = engine.pressure.too_old().unwrap_or_default();
    let pins = |candidate: &Candidate| candidate.oldest < too_old;
    leave_held(engine, &tables, &mut candidates, pins);
    let fullest = candidates.iter().map(|candidate| candidate.bytes).max().unwrap_or(0);
    if !engine.is_round_due(fullest) && !candidates.iter().any(pins) {
        return Vec::new();
    }
    candidates.sort_by_key(|candidate| (candidate.oldest.min(too_old), Reverse(candidate.bytes)));
    let pinning = candidates.partition_point(pins);
    candidates.drain(pinning.min(engine.pressure.sections())..pinning);
    choose(&tables, candidates, engine.pressure.round_bytes())
}

fn candidates(tables: &[Arc<TableCore>], wanted: impl Fn(&Opq) -> bool) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for (table, core) in tables.iter().enumerate() {
        for (section, queue) in core.state.load().active.queues().iter().enumerate() {
            let queue = queue.read();
            if queue.len() > 0 && wanted(&queue) {
                let oldest = queue.first_lsn().unwrap_or_default();
                candidates.push(Candidate { bytes: queue.bytes() as u64, oldest, table, section });
            }
        }
    }
    candidates
}

/// Leaves out the queues of a table that a stretch has, except those that are `needed`, where the others have enough to
/// do.
fn leave_held(
    engine: &Engine, tables: &[Arc<TableCore>], candidates: &mut Vec<Candidate>, needed: impl Fn(&Candidate) -> bool,
) {
    if !engine.stretches.are_under_way() {
        return;
    }
    let waits = |table: usize| candidates.iter().any(|candidate| candidate.table == table);
    let is_held = |(number, table): (usize, &Arc<TableCore>)| waits(number) && engine.stretches.has(table);
    let is_held: Vec<bool> = tables.iter().enumerate().map(is_held).collect();
    let bytes = |of_held: bool| -> u64 {
        let of = |candidate: &&Candidate| is_held[candidate.table] == of_held;
        candidates.iter().filter(of).map(|candidate| candidate.bytes).sum()
    };
    if is_held.contains(&true) && bytes(false) >= bytes(true) {
        candidates.retain(|candidate| !is_held[candidate.table] || needed(candidate));
    }
}

/// The first of the queues that make `enough` bytes together.
fn choose(tables: &[Arc<TableCore>], candidates: Vec<Candidate>, enough: u64) -> Vec<Choice> {
    let mut sections = vec![Vec::new(); tables.len()];
    let mut sum = 0;
    for Candidate { bytes, table, section, .. } in candidates {
        if sum >= enough {
            break;
        }
        sum += bytes;
        sections[table].push(section);
    }
    let choices = tables.iter().zip(sections).filter(|(_, sections)| !sections.is_empty());
    choices.map(|(table, sections)| Choice { table: Arc::clone(table), sections }).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use super::*;
    use crate::{options::Options, words::structure::Structure};

    #[test]
    fn what_is_held_is_left_out_while_others_have_as_much_to_do() {
        let options = Options::new().background(false);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let table = |name: &str| Arc::clone(&db.table(name, Structure::BTree).expect("a table").core);
        let (tables, engine) = (["held", "free"].map(table), db.engine());
        let candidate = |table, bytes| Candidate { bytes, oldest: Lsn(bytes), table, section: 0 };
        let left = |bytes: [u64; 2], needed: fn(&Candidate) -> bool| {
            let mut candidates = vec![candidate(0, bytes[0]), candidate(1, bytes[1])];
            leave_held(engine, &tables, &mut candidates, needed);
            candidates.into_iter().map(|candidate| candidate.table).collect::<Vec<_>>()
        };
        assert_eq!(left([1, 100], |_| false), [0, 1]);
        let _under_way = engine.stretches.alone().begin();
        let _held = tables[0].hold();
        assert!(!engine.stretches.take_awaited());
        assert_eq!(left([100, 100], |_| false), [1]);
        assert!(engine.stretches.take_awaited(), "the end of the stretch wakes the worker");
        assert_eq!(left([101, 100], |_| false), [0, 1]);
        assert_eq!(left([100, 100], |candidate| candidate.oldest == Lsn(100)), [0, 1], "both pin the log");
    }
}
