//! Retained states of tables, in the public interface.

use crate::{
    error::Result,
    format::{SetHistory, kind},
    handles::table::Table,
    options::check_history,
    tables::history::CommitHeader,
};

impl Table {
    /// Retained states of the table, the oldest first. [`Table::at`] opens one, [`Table::roll_back`] goes back to one.
    ///
    /// Each checkpoint retains one state, if the table has changed since the state before.
    /// [`Database::checkpoint`](crate::Database::checkpoint) does so at once. The number of states is set with
    /// [`TableOptions::history`](crate::TableOptions::history) or [`Table::set_history`]; beyond that number the oldest
    /// state is dropped. The space held by the states comes on top of the live bytes:
    /// [`TableStats::history_bytes`](crate::TableStats::history_bytes).
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{Structure, TableOptions};
    ///
    /// let pages = db.table_with("pages", Structure::Append, &TableOptions::new().history(10))?;
    /// pages.put("/", "first")?;
    /// db.checkpoint()?;
    /// pages.put("/", "second")?;
    /// let first = pages.history()[0];
    /// assert_eq!(pages.at(first.seq)?.get("/")?.as_deref(), Some(&b"first"[..]));
    /// pages.roll_back(first.seq)?;
    /// assert_eq!(pages.get("/")?.as_deref(), Some(&b"first"[..]));
    /// // What there was before is retained too.
    /// assert_eq!(pages.at(pages.history()[1].seq)?.get("/")?.as_deref(), Some(&b"second"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn history(&self) -> Vec<CommitHeader> {
        self.core.history.headers()
    }

    /// Retains this many states from the next checkpoint on, at most [`HISTORY_MAX`](crate::HISTORY_MAX). With 0 no
    /// state is retained, and the existing ones are dropped. The setting is durable when this returns.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// # use braid::Structure;
    /// let pages = db.table("pages", Structure::Append)?;
    /// pages.set_history(2)?;
    /// for text in ["first", "second", "third"] {
    ///     pages.put("/", text)?;
    ///     db.checkpoint()?;
    /// }
    /// assert_eq!(pages.history().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) when the table has another structure than
    /// [`Structure::Append`](crate::Structure::Append), or for too many states; when the database no longer writes.
    pub fn set_history(&self, states: u32) -> Result<()> {
        let (engine, core) = (self.engine(), &self.core);
        check_history(core.structure, states)?;
        engine.check_writable()?;
        let _open = engine.keep_open();
        let _held = engine.upkeep.lock();
        engine.check_writable()?;
        engine.check_live(core)?;
        let record = SetHistory { table: core.id, keep: states };
        let logged = engine.wal.append(kind::SET_HISTORY, &[&record.encode()], false, wal::Claim::Upkeep);
        logged.map_err(|error| engine.write_error(error.into()))?;
        engine.flush_record()?;
        core.history.set_keep(states);
        Ok(())
    }
}
