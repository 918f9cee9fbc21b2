//! Where records go: into commits of many, or, where they come in key order, into one load past the log.

use std::time::SystemTime;

use braid::{Database, Table, WriteBatch};

use crate::exit::{Error, Result};

/// Bytes of keys and values that go into one commit, at least.
const BATCH_BYTES: u64 = 1 << 20;
/// Most records of a commit.
const BATCH_RECORDS: usize = 4096;

/// Collects records and commits them.
pub(crate) struct Loader<'a> {
    way: Way<'a>,
    /// Of records that are committed; of a load, when it has ended.
    records: u64,
    bytes: u64,
}

enum Way<'a> {
    Commits { database: &'a Database, table: &'a Table, batch: WriteBatch, batch_bytes: u64 },
    Sorted { loader: Box<braid::Loader>, bytes: u64 },
}

impl<'a> Loader<'a> {
    pub(crate) fn new(database: &'a Database, table: &'a Table) -> Self {
        let way = Way::Commits { database, table, batch: WriteBatch::new(), batch_bytes: 0 };
        Self { way, records: 0, bytes: 0 }
    }

    /// For records that come in key order, into a table that is empty.
    pub(crate) fn sorted(table: &Table) -> Result<Self> {
        Ok(Self { way: Way::Sorted { loader: Box::new(table.loader()?), bytes: 0 }, records: 0, bytes: 0 })
    }

    /// Takes a record whose key and value are within the limits.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], expires: Option<SystemTime>) -> Result<()> {
        let more = key.len() as u64 + value.len() as u64;
        match &mut self.way {
            Way::Sorted { loader, bytes } => {
                match expires {
                    Some(expires) => loader.push_expiring(key, value, expires)?,
                    None => loader.push(key, value)?,
                }
                *bytes += more;
            }
            Way::Commits { table, batch, batch_bytes, .. } => {
                match expires {
                    Some(expires) => batch.put_expiring(table, key, value, expires),
                    None => batch.put(table, key, value),
                }
                *batch_bytes += more;
                if *batch_bytes >= BATCH_BYTES || batch.len() >= BATCH_RECORDS {
                    self.commit()?;
                }
            }
        }
        Ok(())
    }

    /// Commits what was added, if that can be done in parts, and returns how many records are committed in all.
    pub(crate) fn commit(&mut self) -> Result<u64> {
        if let Way::Commits { database, batch, batch_bytes, .. } = &mut self.way
            && !batch.is_empty()
        {
            let records = batch.len() as u64;
            let written = database.write(std::mem::take(batch));
            written.map_err(|error| Error::Partly { error: Box::new(error.into()), loaded: self.records })?;
            self.records += records;
            self.bytes += std::mem::take(batch_bytes);
        }
        Ok(self.records)
    }

    /// Commits the rest and returns records and bytes.
    pub(crate) fn finish(mut self) -> Result<(u64, u64)> {
        self.commit()?;
        match self.way {
            Way::Sorted { loader, bytes } => Ok((loader.finish()?, bytes)),
            Way::Commits { .. } => Ok((self.records, self.bytes)),
        }
    }

    /// Commits what came before an error of the source, and says so in it.
    pub(crate) fn partly(&mut self, error: Error) -> Error {
        match self.commit() {
            Ok(loaded) => Error::Partly { error: Box::new(error), loaded },
            Err(worse) => worse,
        }
    }
}
