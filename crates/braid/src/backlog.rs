//! What recovery replays, until it is in the queues.
//!
//! 1. While the log is replayed the operations of a table come one after the other, and only their order is kept. Where they take much memory, those that a later flush-end covers
//!    are taken out now and then.
//! 2. Then the sections of the table are cut, every thread looks to which of them a part of the operations belongs, and fills the queues of some.
//!
//! So an operation is moved about twice, whatever the log holds.

use std::{ops::Range, panic::resume_unwind, sync::Arc, thread::Builder};

use index::Update;
use wal::Lsn;

use crate::{
    Error, Result,
    applied::AppliedThrough,
    catalog::TableCore,
    engine::Engine,
    opq::{Opq, Sections, Sequence},
    round,
};

/// Fewer operations than this are not worth a thread, nor taking the applied ones out while replay goes on.
const WORTH_IT: usize = 10_000;

/// The replayed operations of one table.
#[derive(Default)]
pub(crate) struct Backlog {
    operations: Sequence,
    /// How many were left when those that are applied were last taken out.
    kept: usize,
}

impl Backlog {
    /// Takes an operation of the commit at `lsn`.
    pub(crate) fn append(&mut self, update: &Update<'_>, lsn: Lsn) {
        self.operations.append(update, lsn);
    }

    /// Memory that they take, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.operations.bytes() as u64
    }

    /// The structure has the commits that `applied` says. What it has goes before there is twice as much as has to be, so that each operation is
    /// moved about once.
    pub(crate) fn sweep(&mut self, applied: &AppliedThrough) {
        if self.operations.len() <= 2 * self.kept + WORTH_IT {
            return;
        }
        let mut left = Sequence::default();
        let operations = &self.operations;
        lacked(operations, applied, 0..operations.len())
            .for_each(|index| left.append(&operations.update(index), operations.lsn(index)));
        (self.kept, self.operations) = (left.len(), left);
    }

    /// Brings what the structure of `table` lacks into its queues.
    ///
    /// # Errors
    /// When a thread can't be started.
    pub(crate) fn settle(self, engine: &Engine, table: &TableCore) -> Result<()> {
        let (fences, sorting) = (round::fences(engine, &*table.tree.view()), engine.options.sorting);
        let sections = Sections::new(sorting).recut(&[0], &fences, engine.pressure.sections());
        let threads = if self.operations.len() < WORTH_IT { 1 } else { tally::processors() };
        let (applied, operations) = (table.applied(), &self.operations);
        let each = operations.len().div_ceil(threads);
        // Of each section, what a part of the operations has for it.
        let of_part = |part: usize| {
            let mut of_sections: Vec<Vec<u32>> = vec![Vec::new(); sections.len()];
            for index in lacked(operations, &applied, part * each..(part + 1) * each) {
                of_sections[sections.of_key(operations.key(index))].push(index);
            }
            of_sections
        };
        let of_parts = in_parallel(threads, of_part)?;
        // Rounds went through the sections in order, so neighbours have about as many: each thread gets one of them.
        let fill = |thread: usize| {
            let sections = (thread..sections.len()).step_by(threads);
            let of_section =
                |section: usize| of_parts.iter().flat_map(|part| &part[section]).copied().collect::<Vec<_>>();
            sections.map(|section| Opq::filled(sorting, operations, &of_section(section))).collect::<Vec<_>>()
        };
        let mut filled: Vec<_> = in_parallel(threads, fill)?.into_iter().map(Vec::into_iter).collect();
        let queues = (0..sections.len()).filter_map(|section| filled[section % threads].next()).collect();
        let sections = Arc::new(sections.with_queues(queues));
        engine.note_growth(table, 0, sections.bytes(), false);
        table.replace_state(sections, None, table.tree.view());
        Ok(())
    }
}

/// The operations of a range that a structure lacks which has the commits that `applied` says.
fn lacked(operations: &Sequence, applied: &AppliedThrough, range: Range<usize>) -> impl Iterator<Item = u32> {
    let index = |at: usize| u32::try_from(at).unwrap_or(u32::MAX).min(operations.end());
    (index(range.start)..index(range.end)).filter(|index| operations.seq(*index) > applied.at(operations.key(*index)))
}

/// Has so many threads work at a time, each by its number; what they come to, in that order.
///
/// # Errors
/// When a thread can't be started.
fn in_parallel<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let start = |number: usize| {
            let work = &work;
            Builder::new().spawn_scoped(scope, move || work(number)).map_err(|error| {
                let problem = format!("a thread that fills queues could not be started: {error}");
                Error::Option { option: "threads", problem }
            })
        };
        let others: Vec<_> = (1..threads).map(start).collect::<Result<_>>()?;
        let own = work(0);
        let others = others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        Ok(std::iter::once(own).chain(others).collect())
    })
}
