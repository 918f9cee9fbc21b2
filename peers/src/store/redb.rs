//! redb.

use std::path::Path;

use redb::{Database, ReadableDatabase, TableDefinition};

use super::{Durability, Memory, Scan, Store};
use crate::data::{Key, Record};
use crate::error::{Error, Result};

/// The settings.
pub(super) const SETTING: &str = "cache as given, in which also waits what is written; `Os` is `Durability::None`, \
     the only one below a flush for each commit: such a commit is \
     gone with the process, so it promises less than the others; a read transaction for each lookup, each multi-get \
     and each scan; it has no multi-get, so one is lookups in one transaction";

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const FILE: &str = "records.redb";

/// A database with one table.
pub(super) struct Redb {
    database: Database,
    durability: redb::Durability,
}

impl Redb {
    pub(super) fn open(path: &Path, memory: Memory, durability: Durability) -> Result<Box<dyn Store>> {
        let mut builder = Database::builder();
        builder.set_cache_size(memory.cache());
        let database = builder.create(path.join(FILE)).map_err(Error::store)?;
        let durability = match durability {
            Durability::Os => redb::Durability::None,
            Durability::Sync => redb::Durability::Immediate,
        };
        let store = Self { database, durability };
        // The first opening for writing makes the table.
        store.commit(&[], &[], redb::Durability::Immediate)?;
        Ok(Box::new(store))
    }

    fn commit(&self, puts: &[Record], deletes: &[Key], durability: redb::Durability) -> Result<()> {
        let mut transaction = self.database.begin_write().map_err(Error::store)?;
        transaction.set_durability(durability).map_err(Error::store)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(Error::store)?;
            for record in puts {
                table.insert(&record.key[..], &record.value[..]).map_err(Error::store)?;
            }
            for key in deletes {
                table.remove(&key[..]).map_err(Error::store)?;
            }
        }
        transaction.commit().map_err(Error::store)
    }

    fn read(&self) -> Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>> {
        let transaction = self.database.begin_read().map_err(Error::store)?;
        transaction.open_table(TABLE).map_err(Error::store)
    }
}

impl Store for Redb {
    fn write(&self, puts: &[Record], deletes: &[Key]) -> Result<()> {
        self.commit(puts, deletes, self.durability)
    }

    fn get(&self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.read()?.get(&key[..]).map_err(Error::store)?;
        Ok(value.map(|value| see(value.value())).is_some())
    }

    fn get_many(&self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let table = self.read()?;
        for (place, key) in keys.iter().enumerate() {
            if let Some(value) = table.get(&key[..]).map_err(Error::store)? {
                see(place, value.value());
            }
        }
        Ok(())
    }

    fn scan(&self, scan: &Scan, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let table = self.read()?;
        let pairs = match &scan.to {
            Some(to) => table.range(&scan.from[..]..&to[..]),
            None => table.range(&scan.from[..]..),
        };
        for pair in pairs.map_err(Error::store)?.take(scan.limit) {
            let (key, value) = pair.map_err(Error::store)?;
            see(key.value(), value.value());
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.commit(&[], &[], redb::Durability::Immediate)
    }

    fn rest(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.close().map_err(Error::store)
    }
}
