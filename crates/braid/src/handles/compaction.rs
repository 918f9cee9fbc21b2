//! Compaction at the request of a user.

use std::{ops::ControlFlow, sync::Arc};

use crate::{
    error::Result,
    handles::{database::Database, table::Table},
    upkeep::compact::{CompactOptions, CompactProgress, CompactReport, Compaction, HowFar, run},
};

impl Table {
    /// Rebuilds the table in key order, while reads and writes go on:
    ///
    /// - Leaves are packed and lie next to each other. Their size suits the use of the table since the database was
    ///   opened.
    /// - Versions that no reader can see are left out.
    /// - Documents are put in key order too.
    ///
    /// The table is whole however the compaction ends, and the part compacted by then stays compacted.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// let pages = db.table("pages", braid::Structure::BTree)?;
    /// for number in 0..100_u32 {
    ///     pages.put_with(number.to_be_bytes(), "text", braid::Durability::Os)?;
    /// }
    /// let compaction = pages.compact()?;
    /// assert!(compaction.leaves >= 1 && !compaction.stopped);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::DiskFull`](crate::Error::DiskFull); [`Error::Loading`](crate::Error::Loading) while the table is being
    /// loaded; or when the database no longer writes, storage fails or the structure is damaged. A damaged document is
    /// left in place.
    pub fn compact(&self) -> Result<Compaction> {
        self.compact_with(&CompactOptions::default(), &mut on_and_on)
    }

    /// As [`Table::compact`], with documents read, and leaf sizes chosen, as given in `options`. `report` gets to know
    /// how far the compaction has come, and can stop it.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use std::ops::ControlFlow;
    ///
    /// # let pages = db.table("pages", braid::Structure::BTree)?;
    /// # pages.put("/", "text")?;
    /// let options = braid::CompactOptions::new().submission_batch(16);
    /// let compaction = pages.compact_with(&options, &mut |progress| {
    ///     println!("{} of {} bytes of {}", progress.bytes, progress.total_bytes, progress.table);
    ///     ControlFlow::Continue(()) // `Break` stops it there
    /// })?;
    /// assert!(!compaction.stopped);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::compact`]; [`Error::Option`](crate::Error::Option) for a submission batch or a share of operations
    /// out of bounds.
    pub fn compact_with(&self, options: &CompactOptions, report: CompactReport<'_>) -> Result<Compaction> {
        self.engine().check_live(&self.core)?;
        run(self.engine(), &[Arc::clone(&self.core)], options, HowFar::File, report)
    }

    /// As [`Table::compact`], for a table without keys that is about to be loaded. The data file is not shortened.
    pub(crate) fn clear(&self) -> Result<Compaction> {
        let options = CompactOptions::default();
        run(self.engine(), &[Arc::clone(&self.core)], &options, HowFar::Tables, &mut on_and_on)
    }
}

/// Lets a compaction go on to its end.
fn on_and_on(_: CompactProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

impl Database {
    /// Compacts every table, as [`Table::compact`] does one.
    ///
    /// # Errors
    /// As [`Table::compact`], where any table counts.
    pub fn compact(&self) -> Result<Compaction> {
        self.compact_with(&CompactOptions::default(), &mut on_and_on)
    }

    /// As [`Database::compact`], with `options` as in `Table::compact_with`.
    ///
    /// # Errors
    /// As [`Database::compact`].
    pub fn compact_with(&self, options: &CompactOptions, report: CompactReport<'_>) -> Result<Compaction> {
        let tables = self.engine().catalog.live();
        run(self.engine(), &tables, options, HowFar::File, report)
    }
}
