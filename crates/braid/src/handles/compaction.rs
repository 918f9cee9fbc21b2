//! Compaction, as users ask for it.

use std::{ops::ControlFlow, sync::Arc};

use crate::{
    error::Result,
    handles::{database::Database, table::Table},
    upkeep::compact::{CompactOptions, CompactReport, Compaction, HowFar, run},
};

impl Table {
    /// Rebuilds the table in key order: packed leaves that lie next to each other, of the size that suits what the table was asked
    /// for since it was opened, and nothing in them that no reader can see; documents in key order too. Reads and writes
    /// go on meanwhile. Whatever ends it, the table is whole: what was compacted by then stays so.
    ///
    /// # Errors
    /// [`Error::DiskFull`](crate::Error::DiskFull), or what keeps the database from writing, or when storage fails or the structure is damaged. A document that is damaged stays where it
    /// is.
    pub fn compact(&self, report: CompactReport<'_>) -> Result<Compaction> {
        self.compact_with(&CompactOptions::default(), report)
    }

    /// As [`Table::compact`], reading documents as `options` say.
    ///
    /// # Errors
    /// As [`Table::compact`]; [`Error::Option`](crate::Error::Option) for a submission batch that there cannot be.
    pub fn compact_with(&self, options: &CompactOptions, report: CompactReport<'_>) -> Result<Compaction> {
        self.engine().check_live(&self.core)?;
        run(self.engine(), &[Arc::clone(&self.core)], options, HowFar::File, report)
    }
}

impl Table {
    /// As [`Table::compact`], of a table without a key that is about to be loaded.
    pub(crate) fn clear(&self) -> Result<Compaction> {
        let options = CompactOptions::default();
        run(self.engine(), &[Arc::clone(&self.core)], &options, HowFar::Tables, &mut |_| ControlFlow::Continue(()))
    }
}

impl Database {
    /// Compacts every table there is, as [`Table::compact`] does one.
    ///
    /// # Errors
    /// As [`Table::compact`]; [`Error::Loading`](crate::Error::Loading) where one is being loaded.
    pub fn compact(&self, report: CompactReport<'_>) -> Result<Compaction> {
        self.compact_with(&CompactOptions::default(), report)
    }

    /// As [`Database::compact`], reading documents as `options` say.
    ///
    /// # Errors
    /// As [`Database::compact`].
    pub fn compact_with(&self, options: &CompactOptions, report: CompactReport<'_>) -> Result<Compaction> {
        let tables = self.engine().catalog.live();
        run(self.engine(), &tables, options, HowFar::File, report)
    }
}
