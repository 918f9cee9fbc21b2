//! Commits records in batches.

use braid::{Database, Table, WriteBatch};

use crate::exit::{Error, Result};

/// Bytes of keys and values that go into one commit, at least.
const BATCH_BYTES: u64 = 1 << 20;
/// Most records of a commit.
const BATCH_RECORDS: usize = 4096;

/// Collects records and commits them.
pub(crate) struct Loader<'a> {
    database: &'a Database,
    table: &'a Table,
    batch: WriteBatch,
    batch_bytes: u64,
    records: u64,
    bytes: u64,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(database: &'a Database, table: &'a Table) -> Self {
        Self { database, table, batch: WriteBatch::new(), batch_bytes: 0, records: 0, bytes: 0 }
    }

    /// Takes a record whose key and value are within the limits.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put(self.table, key, value);
        self.batch_bytes += key.len() as u64 + value.len() as u64;
        if self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_RECORDS {
            self.commit()?;
        }
        Ok(())
    }

    /// Commits what was added, and returns how many records are committed in all.
    pub(crate) fn commit(&mut self) -> Result<u64> {
        let records = self.batch.len() as u64;
        if records > 0 {
            let written = self.database.write(std::mem::take(&mut self.batch));
            written.map_err(|error| Error::Partly { error: Box::new(error.into()), loaded: self.records })?;
            self.records += records;
            self.bytes += std::mem::take(&mut self.batch_bytes);
        }
        Ok(self.records)
    }

    /// Commits the rest and returns records and bytes.
    pub(crate) fn finish(mut self) -> Result<(u64, u64)> {
        self.commit()?;
        Ok((self.records, self.bytes))
    }

    /// Commits what came before an error of the source, and says so in it.
    pub(crate) fn partly(&mut self, error: Error) -> Error {
        match self.commit() {
            Ok(loaded) => Error::Partly { error: Box::new(error), loaded },
            Err(worse) => worse,
        }
    }
}
