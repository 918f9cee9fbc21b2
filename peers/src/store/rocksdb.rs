//! RocksDB through the crate `rocksdb`: direct I/O and `io_uring`, and the wiki's advice for a block cache of a given
//! size.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, DB, FlushOptions, Options, ReadOptions, WaitForCompactOptions, WriteBatch,
    WriteOptions,
};

use super::{Durability, Memory, Scan, Store};
use crate::data::{Key, Record};
use crate::error::{Error, Result};

/// The settings.
pub(super) const SETTING: &str = "direct I/O for reads, flushes and compactions, `io_uring`; a `HyperClockCache` as \
     its headers advise, of the size given, with index and filter blocks \
     in it and those of level 0 pinned (its wiki, \"Setup options and basic tuning\"); Bloom filters of 10 bits; \
     memtables of the write buffer's size, two at most, as it comes; blocks of \
     4 KiB, as it comes; background jobs by `increase_parallelism`; no compression (values here do not compress); \
     MultiGet batched, with `async_io` and, as it comes, `optimize_multiget_for_io`; \
     scans with `async_io`, and with an upper bound where the end is known";

/// Bits of a filter for each key.
const FILTER_BITS: f64 = 10.0;
const DEFAULT_FAMILY: &str = "default";

/// A database with its default column family.
pub(super) struct RocksDb {
    database: DB,
    write: WriteOptions,
    get: ReadOptions,
    multi_get: ReadOptions,
}

impl RocksDb {
    pub(super) fn open(path: &Path, memory: Memory, durability: Durability) -> Result<Box<dyn Store>> {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_hyper_clock_cache(memory.cache(), 0));
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_bloom_filter(FILTER_BITS, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(memory.write_buffer());
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        options.increase_parallelism(i32::try_from(processors).unwrap_or(i32::MAX));
        let families = [(DEFAULT_FAMILY, options.clone())];
        let database = DB::open_cf_with_opts(&options, path, families).map_err(Error::store)?;
        let mut write = WriteOptions::default();
        write.set_sync(durability == Durability::Sync);
        let mut multi_get = ReadOptions::default();
        multi_get.set_async_io(true);
        Ok(Box::new(Self { database, write, get: ReadOptions::default(), multi_get }))
    }

    fn family(&self) -> Result<&ColumnFamily> {
        let missing = || Error::Store("there is no default column family".into());
        self.database.cf_handle(DEFAULT_FAMILY).ok_or_else(missing)
    }
}

impl Store for RocksDb {
    fn write(&self, puts: &[Record], deletes: &[Key]) -> Result<()> {
        match (puts, deletes) {
            ([record], []) => {
                return self.database.put_opt(record.key, &record.value, &self.write).map_err(Error::store);
            }
            ([], [key]) => return self.database.delete_opt(key, &self.write).map_err(Error::store),
            _ => {}
        }
        let mut batch = WriteBatch::default();
        for record in puts {
            batch.put(record.key, &record.value);
        }
        for key in deletes {
            batch.delete(key);
        }
        self.database.write_opt(batch, &self.write).map_err(Error::store)
    }

    fn get(&self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.database.get_pinned_opt(key, &self.get).map_err(Error::store)?;
        value.as_deref().map(see);
        Ok(value.is_some())
    }

    fn get_many(&self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let values = self.database.batched_multi_get_cf_opt(self.family()?, keys, false, &self.multi_get);
        for (place, value) in values.into_iter().enumerate() {
            if let Some(value) = value.map_err(Error::store)? {
                see(place, &value);
            }
        }
        Ok(())
    }

    fn scan(&self, scan: &Scan, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut read = ReadOptions::default();
        read.set_async_io(true);
        if let Some(to) = scan.to {
            read.set_iterate_upper_bound(to);
        }
        let mut iterator = self.database.raw_iterator_opt(read);
        iterator.seek(scan.from);
        let mut left = scan.limit;
        while left > 0
            && let Some((key, value)) = iterator.item()
        {
            see(key, value);
            left -= 1;
            if left > 0 {
                iterator.next();
            }
        }
        iterator.status().map_err(Error::store)
    }

    fn flush(&self) -> Result<()> {
        let mut options = FlushOptions::default();
        options.set_wait(true);
        self.database.flush_opt(&options).map_err(Error::store)
    }

    fn rest(&self) -> Result<()> {
        self.database.wait_for_compact(&WaitForCompactOptions::default()).map_err(Error::store)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.cancel_all_background_work(true);
        Ok(())
    }
}
