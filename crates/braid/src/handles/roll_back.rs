//! Rollbacks: a table goes back to a state that was retained ([`crate::tables::history`]).
//!
//! 1. Other writes to the table are refused until the end of the rollback, and writes under way are waited for. The
//!    state is opened, which holds the state.
//! 2. A checkpoint applies everything and retains the current state, so that the rollback can itself be undone.
//! 3. The rollback checks that everything that the state refers to is there. A commit header that names the root of the
//!    state is appended and flushed.
//! 4. The rollback is logged and shown as a [`Replacement`], which makes a new incarnation of the table. Every key then
//!    has all commits up to the rollback's own seq, so no replay brings back rolled back changes. Live bytes of
//!    documents and range tombstones are those of the state.
//!
//! Invariants: as a replacement's. Older snapshots see the same as before ([`TableCore::keep_last`]). Older
//! transactions that write to the table are in conflict.

use std::iter;

use doclog::Retained;
use index::Seq;

use crate::{
    apply::{install, replace::Replacement},
    error::Result,
    format::{Restored, RollBack, kind},
    handles::table::Table,
    tables::catalog::TableCore,
};

/// Allows writes to the table again when dropped.
struct Alone<'a>(&'a TableCore);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.end_load();
    }
}

impl Table {
    /// Goes back to the state at `to`, one of [`Table::history`]. The table has exactly the contents of that state,
    /// except those that have expired since. Returns the seq of the rollback, which is durable by then.
    ///
    /// - States. The state before the rollback is retained as a state of its own, if the table is to retain any, so
    ///   that a rollback can be undone. States newer than `to` stay too. No state is removed before the next
    ///   checkpoint, even where there is one more than the table is to retain.
    /// - Snapshots older than the rollback see the same as before.
    /// - Transactions that began before, and write to the table or are serializable and read the table, end with
    ///   [`crate::Error::Conflict`].
    /// - Readers of the changes have to copy the table ([`ChangeEvent::RolledBack`](crate::ChangeEvent::RolledBack)).
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use braid::{Structure, TableOptions};
    /// let pages = db.table_with("pages", Structure::Append, &TableOptions::new().history(10))?;
    /// pages.put("/", "first")?;
    /// db.checkpoint()?;
    /// pages.put("/", "second")?;
    /// let first = pages.history()[0];
    /// pages.roll_back(first.seq)?;
    /// assert_eq!(pages.get("/")?.as_deref(), Some(&b"first"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`crate::Error::NoSuchState`] when no state of that seq is retained;
    /// - [`crate::Error::Corrupt`] when a file of the state is damaged so that the state cannot be complete;
    /// - [`crate::Error::Loading`] while the table is loaded or rolled back;
    /// - [`crate::Error::DiskFull`], or the error that keeps the database from writing.
    ///
    /// After each of these nothing has changed. The exception is [`crate::Error::OutcomeUnknown`], which means the same
    /// as for a commit.
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
        let alone = engine.upkeep.lock();
        let held = core.hold();
        engine.check_writable()?;
        engine.check_live(core)?;
        // The check comes first, because after the log record there is no way back.
        opened.header.documents.iter().try_for_each(|retained| core.documents.check_in(retained))?;
        let (retained, restored) = changes(core, &opened.header.documents, opened.header.tombstones.clone());
        engine.flush_log()?;
        let applied = core.past()?.roll_back(&opened.header.root).map_err(|error| engine.write_error(error.into()))?;
        let flushed = install::flush(engine, iter::once(&applied))?;
        let record = RollBack { table: core.id, to };
        let (flushed, retained) = (&flushed, retained.as_slice());
        let replacement = Replacement { engine, table: &held, flushed, retained, restored: Some(restored) };
        let seq = replacement.run(kind::ROLL_BACK, &record.encode(), |_| applied)?;
        // The state kept for older snapshots may be forgotten only when all later snapshots see the new state.
        engine.publish();
        engine.publisher.wait(seq).map_err(|()| engine.outcome_unknown())?;
        engine.forget_last(core);
        drop((held, alone));
        engine.signal.kick();
        Ok(seq)
    }
}

/// The changes that bring the documents of a table with empty queues back to the state `then`.
fn changes(table: &TableCore, then: &[Retained], tombstones: index::RangeTombstones) -> (Vec<Retained>, Restored) {
    let (retained, dropped) = Retained::difference(&table.documents.live(), then);
    (retained, Restored { dropped, tombstones })
}
