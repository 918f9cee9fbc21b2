//! Rollbacks: a table goes back to a state that was retained ([`crate::tables::history`]).
//!
//! 1. Other writes to the table are refused until it is over, and those under way are waited for. The state is opened, which holds it.
//! 2. A checkpoint applies everything and retains what there is, so that the rollback can itself be undone.
//! 3. It is looked whether all is there that the state refers to. A commit header is appended that names its root, and flushed.
//! 4. It is logged and shown as a [`Swap`]: a new incarnation of the table, in which every key has all commits up to the rollback's own seq, so no replay
//!    brings back what was rolled back. Live bytes of documents and range deletes are those of the state.
//!
//! Invariants: as a swap's; snapshots that are older see what they saw ([`TableCore::keep_last`]), and transactions that are older, and write to the table, are in conflict.

use std::iter;

use doclog::Retained;
use index::Seq;

use crate::{
    apply::{install, swap::Swap},
    error::Result,
    format::{Restored, RollBack, kind},
    handles::table::Table,
    tables::catalog::TableCore,
};

/// Lets others change a table again.
struct Alone<'a>(&'a TableCore);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.end_load();
    }
}

impl Table {
    /// Goes back to the state of `to`, one of [`Table::history`]: the table has exactly what it had then, but for what has expired since. Returns the seq of the
    /// rollback, which is durable by then.
    ///
    /// What there was before is retained as a state of its own, if the table is to retain any, so that a rollback can be undone; newer states than `to` stay too. None goes before the next checkpoint, also where
    /// these are one more than the table is to retain. Snapshots that are older
    /// than the rollback see what they saw. Transactions that began before and write to the table, or are serializable and read it, end with [`crate::Error::Conflict`]. Who follows the changes
    /// has to copy the table ([`ChangeEvent::RolledBack`](crate::ChangeEvent::RolledBack)).
    ///
    /// # Errors
    /// [`crate::Error::NoSuchState`] when none of that seq is retained, [`crate::Error::Corrupt`] when a file of it is damaged so that it cannot all be there, [`crate::Error::Loading`] while the table is loaded or rolled back, [`crate::Error::DiskFull`], or what keeps the database from writing:
    /// then nothing has changed, but after [`crate::Error::OutcomeUnknown`], which is as for a commit.
    pub fn roll_back(&self, to: Seq) -> Result<Seq> {
        let (engine, core) = (self.engine(), &self.core);
        engine.check_writable()?;
        engine.check_live(core)?;
        core.begin_load()?;
        let _alone = Alone(core);
        engine.let_writes_end();
        let opened = core.open_state(to)?;
        engine.ask(true)?;
        let _open = engine.keep_open();
        let still = engine.maintenance.lock();
        engine.check_writable()?;
        engine.check_live(core)?;
        // Once it is logged there is no way back.
        opened.header.documents.iter().try_for_each(|retained| core.documents.check_in(retained))?;
        let (retained, restored) = changes(core, &opened.header.documents, opened.header.tombstones.clone());
        engine.flush_log()?;
        let applied = core.tree.roll_back(&opened.header.root).map_err(|error| engine.write_error(error))?;
        install::flush(engine, iter::once(&applied)).map_err(|error| engine.write_error(error))?;
        let record = RollBack { table: core.id, to };
        let swap = Swap { engine, table: core, retained: &retained, restored: Some(restored) };
        let seq = swap.run(kind::ROLL_BACK, &record.encode(), |_| applied)?;
        // Nobody forgets what older snapshots see before all later ones see the new state.
        engine.publish();
        engine.publisher.wait(seq).map_err(|()| engine.outcome_unknown())?;
        engine.forget_last(core);
        drop(still);
        engine.signal.kick();
        Ok(seq)
    }
}

/// What brings the documents of a table whose queues are empty to where they were.
fn changes(table: &TableCore, then: &[Retained], tombstones: index::RangeTombstones) -> (Vec<Retained>, Restored) {
    let (retained, dropped) = Retained::difference(&table.documents.live(), then);
    (retained, Restored { dropped, tombstones })
}
