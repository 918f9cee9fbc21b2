//! Braid as a new user would open it: the public API, with only the memory and the durability set.

use std::ops::ControlFlow;
use std::path::Path;

use braid::{Database, Structure, Table, WriteBatch};

use super::{Durability, Memory, Scan, Store};
use crate::data::{Key, Record};
use crate::error::{Error, Result};

/// The settings.
pub(super) const SETTING: &str = "cache and write buffer as given; everything else as it comes";

/// A database with one table.
pub(super) struct Braid {
    database: Database,
    table: Table,
}

impl Braid {
    pub(super) fn open_btree(path: &Path, memory: Memory, durability: Durability) -> Result<Box<dyn Store>> {
        Self::open(path, memory, durability, Structure::BTree)
    }

    pub(super) fn open_append(path: &Path, memory: Memory, durability: Durability) -> Result<Box<dyn Store>> {
        Self::open(path, memory, durability, Structure::Append)
    }

    pub(super) fn open_lsm(path: &Path, memory: Memory, durability: Durability) -> Result<Box<dyn Store>> {
        Self::open(path, memory, durability, Structure::Lsm)
    }

    fn open(path: &Path, memory: Memory, durability: Durability, structure: Structure) -> Result<Box<dyn Store>> {
        let durability = match durability {
            Durability::Os => braid::Durability::Os,
            Durability::Sync => braid::Durability::Sync,
        };
        let options = Database::options()
            .cache_bytes(memory.cache_bytes)
            .write_buffer_bytes(memory.write_buffer_bytes)
            .durability(durability);
        let database = options.open(path).map_err(Error::store)?;
        let table = database.table("records", structure).map_err(Error::store)?;
        Ok(Box::new(Self { database, table }))
    }
}

impl Store for Braid {
    fn write(&self, puts: &[Record], deletes: &[Key]) -> Result<()> {
        match (puts, deletes) {
            ([record], []) => return self.table.put(record.key, &record.value).map(drop).map_err(Error::store),
            ([], [key]) => return self.table.delete(key).map(drop).map_err(Error::store),
            _ => {}
        }
        let mut batch = WriteBatch::new();
        for record in puts {
            batch.put(&self.table, record.key, &record.value);
        }
        for key in deletes {
            batch.delete(&self.table, key);
        }
        self.database.write(&batch).map(drop).map_err(Error::store)
    }

    fn get(&self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.table.get_with(key, see).map_err(Error::store)?.is_some())
    }

    fn get_many(&self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let values = self.table.get_many(keys).map_err(Error::store)?;
        for (place, value) in values.iter().enumerate() {
            if let Some(value) = value {
                see(place, value);
            }
        }
        Ok(())
    }

    fn scan(&self, scan: &Scan, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut left = scan.limit;
        let Some(to) = scan.to else {
            // Few pairs of a long range are asked for; a walk by pairs reads little at first.
            let mut range = self.table.range(scan.from..);
            while left > 0
                && let Some((key, value)) = range.next_pair().map_err(Error::store)?
            {
                see(key, value);
                left -= 1;
            }
            return Ok(());
        };
        let mut range = self.table.range(scan.from..to);
        let shown = range.visit(|key, value| {
            see(key, value);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        shown.map(drop).map_err(Error::store)
    }

    fn flush(&self) -> Result<()> {
        self.database.checkpoint().map_err(Error::store)
    }

    fn rest(&self) -> Result<()> {
        self.database.drain().map_err(Error::store)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { database, table } = *self;
        drop(table);
        database.close().map_err(Error::store)
    }
}
