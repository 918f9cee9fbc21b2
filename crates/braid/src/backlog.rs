//! What recovery replays, until it is in the queues.
//!
//! 1. While the log is replayed the operations of a table come one after the other, and only their order is kept. Where they take much memory, those that a later flush-end covers
//!    are taken out now and then.
//! 2. Then the sections of the table are cut, if anything is left for them. Every thread finds the section of some of the operations, and then fills the queues of some of the sections,
//!    each of which is put in order at once.
//!
//! So an operation is moved about twice, whatever the log holds.

use std::{sync::Arc, thread::Builder};

use index::Update;
use wal::Lsn;

use crate::{
    Error, Result,
    applied::AppliedThrough,
    catalog::TableCore,
    engine::Engine,
    opq::{Opq, Sections, Sequence, Sorting},
    round,
};

/// Fewer operations than this are not worth a thread, nor taking the applied ones out while replay goes on.
const WORTH_IT: usize = 10_000;
/// Stands for no section.
const NO_SECTION: u16 = u16::MAX;

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
        lacked(&self.operations, applied).for_each(|(update, lsn)| left.append(&update, lsn));
        (self.kept, self.operations) = (left.len(), left);
    }

    /// Brings what the structure of `table` lacks into its queues.
    ///
    /// # Errors
    /// When a thread can't be started.
    pub(crate) fn settle(self, engine: &Engine, table: &TableCore) -> Result<()> {
        let sorting = engine.options.sorting;
        // Where there is nothing, the first round cuts the sections: to open reads no node.
        let fences = if self.operations.len() == 0 { Vec::new() } else { round::fences(engine, &*table.tree.view()) };
        let sections = Sections::new(sorting).recut(&[0], &fences, engine.pressure.sections());
        let sections = Arc::new(sections.with_queues(self.queues(&table.applied(), &sections, sorting)?));
        engine.note_growth(table, 0, sections.bytes(), false);
        table.replace_state(sections, None, table.tree.view());
        Ok(())
    }

    /// A queue for each section, with the operations that a structure lacks which has the commits that `applied` says.
    fn queues(self, applied: &AppliedThrough, sections: &Sections, sorting: Sorting) -> Result<Vec<Opq>> {
        let operations = &self.operations;
        let threads = if operations.len() < WORTH_IT { 1 } else { tally::processors() };
        let mut homes = vec![NO_SECTION; operations.len()];
        let stretch = operations.len().div_ceil(threads).max(1);
        let stretches = (0..operations.end()).step_by(stretch).zip(homes.chunks_mut(stretch)).collect();
        on_threads(stretches, |(first, homes)| {
            for (index, home) in (first..).zip(homes) {
                let update = operations.update(index);
                if update.seq > applied.at(update.key) {
                    *home = u16::try_from(sections.of_key(update.key)).expect("a few dozen");
                }
            }
        })?;
        let mut queues: Vec<Opq> = (0..sections.len()).map(|_| Opq::new(sorting)).collect();
        // Rounds went through the sections in order, so neighbours have about as many: each thread gets one of them.
        let mut parts: Vec<(usize, Vec<&mut Opq>)> = (0..threads).map(|part| (part, Vec::new())).collect();
        queues.iter_mut().enumerate().for_each(|(section, queue)| parts[section % threads].1.push(queue));
        on_threads(parts, |(part, queues)| {
            let mut own: Vec<Sequence> = queues.iter().map(|_| Sequence::default()).collect();
            // In the order in which they lie in memory: what is looked for there takes longer than what is written.
            for (index, &section) in (0..).zip(&homes) {
                let section = usize::from(section);
                if section != usize::from(NO_SECTION) && section % threads == part {
                    own[section / threads].append(&operations.update(index), operations.lsn(index));
                }
            }
            queues.into_iter().zip(own).for_each(|(queue, own)| *queue = Opq::of(own, sorting));
        })?;
        Ok(queues)
    }
}

/// Does each part on a thread of its own, the first on the caller's.
fn on_threads<T: Send>(parts: Vec<T>, run: impl Fn(T) + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let (mut parts, run) = (parts.into_iter(), &run);
        let own = parts.next();
        for part in parts {
            Builder::new().spawn_scoped(scope, move || run(part)).map_err(|error| {
                let problem = format!("a thread that fills queues could not be started: {error}");
                Error::Option { option: "threads", problem }
            })?;
        }
        own.into_iter().for_each(run);
        Ok(())
    })
}

fn lacked<'a>(operations: &'a Sequence, applied: &'a AppliedThrough) -> impl Iterator<Item = (Update<'a>, Lsn)> {
    operations.updates().filter(|(update, _)| update.seq > applied.at(update.key))
}
