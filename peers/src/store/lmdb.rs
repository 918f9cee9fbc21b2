//! LMDB through the crate `heed`. The operating system's page cache serves as its cache.

use std::path::Path;

use heed::types::Bytes;
use heed::{Env, EnvFlags, EnvOpenOptions, WithTls};

use super::{Durability, Memory, Scan, Store};
use crate::data::{Key, Record};
use crate::error::{Error, Result};

/// The settings.
pub(super) const SETTING: &str = "no cache of its own: the group's page cache is its cache; no read-ahead \
     (`MDB_NORDAHEAD`), as its manual advises for more data than memory; `Os` is `MDB_NOSYNC` without \
     `MDB_WRITEMAP`; a read transaction for each lookup, each multi-get and each scan; it has no multi-get, so one \
     is lookups in one transaction";

/// Size of the map in addresses: far more than any data here.
const MAP_BYTES: usize = 64 << 30;

type Table = heed::Database<Bytes, Bytes>;

/// An environment with its unnamed database.
pub(super) struct Lmdb {
    environment: Env<WithTls>,
    table: Table,
}

impl Lmdb {
    pub(super) fn open(path: &Path, _: Memory, durability: Durability) -> Result<Box<dyn Store>> {
        let mut flags = EnvFlags::NO_READ_AHEAD;
        if durability == Durability::Os {
            flags |= EnvFlags::NO_SYNC;
        }
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        #[expect(unsafe_code, reason = "the map is of a file, and flags choose what a power cut may do to it")]
        // SAFETY: the directory belongs to this process alone. The process opens the environment once, and never
        // touches its files otherwise while the environment is open. Without flushes only a power cut can damage the
        // files, and after one the environment is not opened again.
        let opened = unsafe {
            options.flags(flags);
            options.open(path)
        };
        let environment = opened.map_err(Error::store)?;
        let mut transaction = environment.write_txn().map_err(Error::store)?;
        let table = environment.create_database(&mut transaction, None).map_err(Error::store)?;
        transaction.commit().map_err(Error::store)?;
        Ok(Box::new(Self { environment, table }))
    }
}

impl Store for Lmdb {
    fn write(&self, puts: &[Record], deletes: &[Key]) -> Result<()> {
        let mut transaction = self.environment.write_txn().map_err(Error::store)?;
        for record in puts {
            self.table.put(&mut transaction, &record.key, &record.value).map_err(Error::store)?;
        }
        for key in deletes {
            self.table.delete(&mut transaction, key).map_err(Error::store)?;
        }
        transaction.commit().map_err(Error::store)
    }

    fn get(&self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.environment.read_txn().map_err(Error::store)?;
        let value = self.table.get(&transaction, key).map_err(Error::store)?;
        value.map(see);
        Ok(value.is_some())
    }

    fn get_many(&self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let transaction = self.environment.read_txn().map_err(Error::store)?;
        for (place, key) in keys.iter().enumerate() {
            if let Some(value) = self.table.get(&transaction, key).map_err(Error::store)? {
                see(place, value);
            }
        }
        Ok(())
    }

    fn scan(&self, scan: &Scan, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let transaction = self.environment.read_txn().map_err(Error::store)?;
        let end = scan.to.as_ref().map_or(Unbounded, |to| Excluded(&to[..]));
        let pairs = self.table.range(&transaction, &(Included(&scan.from[..]), end)).map_err(Error::store)?;
        for pair in pairs.take(scan.limit) {
            let (key, value) = pair.map_err(Error::store)?;
            see(key, value);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.environment.force_sync().map_err(Error::store)
    }

    fn rest(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.environment.prepare_for_closing().wait();
        Ok(())
    }
}
