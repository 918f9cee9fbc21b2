//! The PIO B-tree: Braid itself, a database with one table.
//!
//! 1. The cache and the write buffer together are the budget. The LSMap of the paper is the length in the pointer to a
//!    leaf; the pointers are in the internal nodes and so in the cache.
//! 2. Commits have durability `os`: each is in the log, handed to the operating system, when the commit returns. The
//!    other trees log nothing.
//! 3. PioMax, speriod and bcnt are those of the paper's evaluation. A round takes sections of the queue, so bcnt binds
//!    only where one section holds more.
//!
//! Left to others: choosing the leaf size and the share of the queue.

use std::ops::ControlFlow;
use std::path::Path;

use braid::{Database, Durability, Structure, Table};
use psync::Psync;

use super::{Setting, Sorted, Tree};
use crate::{Error, Result};

/// Requests in flight per call: PioMax of the paper's evaluation (§4.1).
const PIO_MAX: usize = 64;
/// Operations between two sorts of a queue: speriod of that evaluation.
const SORT_PERIOD: usize = 5000;
/// Most operations that a round applies: bcnt of that evaluation.
const ROUND_OPERATIONS: usize = 5000;
/// The table.
const TABLE: &str = "pio";
/// Least bytes of the budget that remain for the cache.
pub const CACHE_BYTES_MIN: u64 = 64 << 10;
/// Least bytes of an operation queue.
pub const QUEUE_BYTES_MIN: u64 = 16 << 10;

/// The parameters of a PIO B-tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Pages of a leaf: L.
    pub leaf_pages: u32,
    /// O in bytes: the budget's share for the operation queue.
    pub queue_bytes: u64,
}

/// A database with one table.
pub struct Pio {
    database: Database,
    table: Table,
    memory_bytes: u64,
}

impl Pio {
    /// Builds the database from sorted entries.
    ///
    /// # Errors
    /// When the database cannot be made or written.
    pub fn build(setting: &Setting, entries: &mut Sorted<'_>, tuning: Tuning) -> Result<Self> {
        let psync = setting.psync.clone().with_pio_max(PIO_MAX);
        let path = setting.directory.join("database");
        load(&psync, &path, tuning, entries)?;
        let queue_bytes = tuning.queue_bytes.max(QUEUE_BYTES_MIN);
        let Some(cache_bytes) = setting.memory_bytes.checked_sub(queue_bytes).filter(|left| *left >= CACHE_BYTES_MIN)
        else {
            let what = format!(
                "an OPQ of {queue_bytes} bytes leaves less than {CACHE_BYTES_MIN} of a budget of {} bytes for the cache",
                setting.memory_bytes
            );
            return Err(Error::Invalid(what));
        };
        let options = Database::options()
            .cache_bytes(cache_bytes)
            .write_buffer_bytes(queue_bytes)
            .lend_write_buffer(false)
            .speriod(SORT_PERIOD)
            .bcnt(ROUND_OPERATIONS)
            .durability(Durability::Os);
        let database = options.open_on(psync, &path)?;
        let table = database.open_table(TABLE)?;
        Ok(Self { database, table, memory_bytes: setting.memory_bytes })
    }

    /// The database itself.
    #[must_use]
    pub const fn database(&self) -> &Database {
        &self.database
    }
}

/// Fills the table with as much memory as makes the load fast. The measured database is opened afterwards.
fn load(psync: &Psync, path: &Path, tuning: Tuning, entries: &mut Sorted<'_>) -> Result<()> {
    let options = Database::options().leaf_pages(tuning.leaf_pages).durability(Durability::Os);
    let database = options.open_on(psync.clone(), path)?;
    let table = database.table(TABLE, Structure::BTree)?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut loader = table.loader()?;
    while entries(&mut key, &mut value) {
        loader.push(&key, &value)?;
    }
    loader.finish()?;
    drop(table);
    Ok(database.close()?)
}

impl Tree for Pio {
    fn name(&self) -> &'static str {
        "PIO B-tree"
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.table.get(key)?;
        Ok(found.map(|found| *value = found).is_some())
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<usize> {
        Ok(self.table.get_many(keys)?.iter().flatten().count())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.table.put(key, value)?;
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.table.delete(key)?;
        Ok(())
    }

    fn scan(&self, first: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut count = 0;
        let all = self.table.range(first..end).visit(|key, value| {
            visit(key, value);
            count += 1;
            ControlFlow::<()>::Continue(())
        })?;
        debug_assert!(all.is_continue(), "nothing breaks it");
        Ok(count)
    }

    fn write_back(&self) -> Result<()> {
        Ok(self.database.drain()?)
    }

    fn memory_bytes(&self) -> u64 {
        // Without statistics, the limit stands in for the memory in use.
        self.database.stats().map_or(self.memory_bytes, |stats| stats.cache.bytes + stats.write_buffer_bytes)
    }
}
