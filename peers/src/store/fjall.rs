//! fjall.

use std::path::Path;
use std::time::Duration;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Durability, Memory, Scan, Store};
use crate::data::{Key, Record};
use crate::error::{Error, Result};

/// The settings.
pub(super) const SETTING: &str = "cache and memtable as given; everything else as it comes (blocks of 4 KiB, Bloom \
     filters of 10 bits and more, LZ4 from level 2 on); `Os` is `PersistMode::Buffer`, \
     `Sync` is `PersistMode::SyncData`; it has no multi-get, so one is lookups one after another";

/// Interval between two checks whether the store rests.
const TICK: Duration = Duration::from_millis(10);
/// The store counts as resting after so long without work under way, because a thread of its own chooses compactions.
const QUIET: Duration = Duration::from_millis(200);

/// A database with one keyspace.
pub(super) struct Fjall {
    database: Database,
    keyspace: Keyspace,
    persist: PersistMode,
}

impl Fjall {
    pub(super) fn open(path: &Path, memory: Memory, durability: Durability) -> Result<Box<dyn Store>> {
        let database = Database::builder(path).cache_size(memory.cache_bytes).open().map_err(Error::store)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(memory.write_buffer_bytes);
        let keyspace = database.keyspace("records", options).map_err(Error::store)?;
        let persist = match durability {
            Durability::Os => PersistMode::Buffer,
            Durability::Sync => PersistMode::SyncData,
        };
        Ok(Box::new(Self { database, keyspace, persist }))
    }
}

impl Store for Fjall {
    fn write(&self, puts: &[Record], deletes: &[Key]) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(self.persist));
        for record in puts {
            batch.insert(&self.keyspace, &record.key[..], &record.value[..]);
        }
        for key in deletes {
            batch.remove(&self.keyspace, &key[..]);
        }
        batch.commit().map_err(Error::store)
    }

    fn get(&self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key).map_err(Error::store)?;
        value.as_deref().map(see);
        Ok(value.is_some())
    }

    fn get_many(&self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (place, key) in keys.iter().enumerate() {
            if let Some(value) = self.keyspace.get(key).map_err(Error::store)? {
                see(place, &value);
            }
        }
        Ok(())
    }

    fn scan(&self, scan: &Scan, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let pairs = match scan.to {
            Some(to) => self.keyspace.range(scan.from..to),
            None => self.keyspace.range(scan.from..),
        };
        for pair in pairs.take(scan.limit) {
            let (key, value) = pair.into_inner().map_err(Error::store)?;
            see(&key, &value);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait().map_err(Error::store)?;
        self.database.persist(PersistMode::SyncAll).map_err(Error::store)
    }

    fn rest(&self) -> Result<()> {
        let mut quiet = Duration::ZERO;
        while quiet < QUIET {
            std::thread::sleep(TICK);
            let busy = self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0;
            quiet = if busy { Duration::ZERO } else { quiet + TICK };
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(Error::store)
    }
}
