//! What recovery replays, until it is in the queues.
//!
//! 1. While the log is replayed the operations of a table come one after the other, and only their order is kept. Where they take much memory, those that a later flush-end covers
//!    are taken out now and then.
//! 2. Then the sections of the table are cut, if anything is left for them, and every thread fills the queues of some of them.
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
        let mut queues: Vec<Opq> = (0..sections.len()).map(|_| Opq::new(sorting)).collect();
        let threads = if self.operations.len() < WORTH_IT { 1 } else { tally::processors() };
        let (applied, operations) = (table.applied(), &self.operations);
        // Every thread looks at all operations, which costs little, and takes those of its sections. Rounds went through the sections in order, so neighbours have about as many:
        // each thread gets one of them.
        let fill = |part: usize, mut queues: Vec<&mut Opq>| {
            for (update, lsn) in lacked(operations, &applied) {
                let section = sections.of_key(update.key);
                if section % threads == part {
                    queues[section / threads].append(&update, lsn);
                }
            }
        };
        let mut parts: Vec<Vec<&mut Opq>> = (0..threads).map(|_| Vec::new()).collect();
        queues.iter_mut().enumerate().for_each(|(section, queue)| parts[section % threads].push(queue));
        std::thread::scope(|scope| {
            let mut parts = parts.into_iter().enumerate();
            let own = parts.next();
            for (part, queues) in parts {
                let fill = &fill;
                Builder::new().spawn_scoped(scope, move || fill(part, queues)).map_err(|error| {
                    let problem = format!("a thread that fills queues could not be started: {error}");
                    Error::Option { option: "threads", problem }
                })?;
            }
            own.into_iter().for_each(|(part, queues)| fill(part, queues));
            Ok::<_, Error>(())
        })?;
        let sections = Arc::new(sections.with_queues(queues));
        engine.note_growth(table, 0, sections.bytes(), false);
        table.replace_state(sections, None, table.tree.view());
        Ok(())
    }
}

fn lacked<'a>(operations: &'a Sequence, applied: &'a AppliedThrough) -> impl Iterator<Item = (Update<'a>, Lsn)> {
    operations.updates().filter(|(update, _)| update.seq > applied.at(update.key))
}
