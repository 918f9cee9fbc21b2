//! The way of records into a table: commits of many records, or for records in key order one load past the log.

use std::time::SystemTime;

use braid::{Database, Table, WriteBatch};

use crate::{
    exit::{Error, Result},
    interrupt,
};

/// Bytes of keys and values in one commit, at least.
const BATCH_BYTES: u64 = 1 << 20;
/// Most records of a commit.
const BATCH_RECORDS: usize = 4096;

/// Collects records and commits them.
pub(crate) struct Loader<'a> {
    way: Way<'a>,
    /// Committed records. A load past the log counts its records at the end instead.
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

    /// A loader for records in key order, into an empty table.
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

    /// Commits the added records, if commits in parts are possible, and returns the number of all committed records.
    pub(crate) fn commit(&mut self) -> Result<u64> {
        if let Way::Commits { database, batch, batch_bytes, .. } = &mut self.way
            && !batch.is_empty()
        {
            let records = batch.len() as u64;
            let written = database.write(batch);
            written.map_err(|error| Error::Partly { error: Box::new(error.into()), loaded: self.records })?;
            batch.clear();
            self.records += records;
            self.bytes += std::mem::take(batch_bytes);
        }
        Ok(self.records)
    }

    /// Commits the rest and returns the numbers of records and bytes. None for a load past the log that was
    /// interrupted: it is not ended, so nothing is kept.
    pub(crate) fn finish(mut self) -> Result<Option<(u64, u64)>> {
        self.commit()?;
        match self.way {
            Way::Sorted { .. } if interrupt::came() => Ok(None),
            Way::Sorted { loader, bytes } => Ok(Some((loader.finish()?, bytes))),
            Way::Commits { .. } => Ok(Some((self.records, self.bytes))),
        }
    }

    /// Commits the records before an error of the source, and adds their number to the error.
    pub(crate) fn partly(&mut self, error: Error) -> Error {
        match self.commit() {
            Ok(loaded) => Error::Partly { error: Box::new(error), loaded },
            Err(worse) => worse,
        }
    }
}
