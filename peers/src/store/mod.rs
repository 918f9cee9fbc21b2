//! The stores, behind one small trait.
//!
//! 1. A [`Store`] offers the operations common to all stores: batches, lookups, lookups of many, scans. Values are
//!    shown, not handed out, so that no store pays for an avoidable copy.
//! 2. A [`Contestant`] is a store with its way of opening. Only three things are set: the memory, the advice of the
//!    store's manual for that memory, and the safety of a commit. [`CONTESTANTS`] is the list; a further structure of
//!    Braid is a line in it.
//!
//! Left to others: the work done with a store ([`crate::work`]), and the memory of the store's process
//! ([`bench::cgroup`]).

mod braid;
mod fjall;
mod lmdb;
mod redb;
mod rocksdb;

use std::path::Path;

use crate::data::{Key, Record};
use crate::error::{Error, Result};

use self::braid::Braid;
use self::fjall::Fjall;
use self::lmdb::Lmdb;
use self::redb::Redb;
use self::rocksdb::RocksDb;

/// An open store.
pub(crate) trait Store: Send + Sync {
    /// Puts records and deletes keys in one commit, with the durability given at opening.
    fn write(&self, puts: &[Record], deletes: &[Key]) -> Result<()>;

    /// Puts records in one commit.
    fn put(&self, records: &[Record]) -> Result<()> {
        self.write(records, &[])
    }

    /// Shows the value of a key; returns whether the key exists.
    fn get(&self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Shows the values of the existing keys among those, with the place of each key.
    fn get_many(&self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()>;

    /// Shows pairs in key order.
    fn scan(&self, range: &Scan, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Brings every put to stable storage, in the structure rather than only in the log that recovery reads.
    fn flush(&self) -> Result<()>;

    /// Waits until no background work is left.
    fn rest(&self) -> Result<()>;

    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The bounds of a scan.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    /// From this key on.
    pub(crate) from: Key,
    /// Up to this key, exclusive, where the end is known.
    pub(crate) to: Option<Key>,
    /// At most so many pairs.
    pub(crate) limit: usize,
}

/// The moment at which a commit counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Handed to the operating system: the commit makes no flush of its own.
    Os,
    /// On stable storage.
    Sync,
}

/// The memory of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Bytes of cache.
    pub(crate) cache_bytes: u64,
    /// Bytes of data waiting to be written.
    pub(crate) write_buffer_bytes: u64,
}

impl Memory {
    fn cache(self) -> usize {
        usize::try_from(self.cache_bytes).unwrap_or(usize::MAX)
    }

    fn write_buffer(self) -> usize {
        usize::try_from(self.write_buffer_bytes).unwrap_or(usize::MAX)
    }
}

type Open = fn(&Path, Memory, Durability) -> Result<Box<dyn Store>>;

/// A store that takes part.
pub(crate) struct Contestant {
    /// The store's name on the command line, in files and in the report.
    pub(crate) name: &'static str,
    /// Whether the store is this project's.
    pub(crate) is_ours: bool,
    /// The packages whose versions the report shows.
    pub(crate) packages: &'static [&'static str],
    /// The settings, for the report.
    pub(crate) setting: &'static str,
    /// Opens or makes the store in an existing directory.
    pub(crate) open: Open,
}

/// The stores, in the order of the report's columns.
pub(crate) const CONTESTANTS: &[Contestant] = &[
    Contestant { name: "btree", is_ours: true, packages: &["braid"], setting: braid::SETTING, open: Braid::open_btree },
    Contestant {
        name: "append",
        is_ours: true,
        packages: &["braid"],
        setting: braid::SETTING,
        open: Braid::open_append,
    },
    Contestant { name: "lsm", is_ours: true, packages: &["braid"], setting: braid::SETTING, open: Braid::open_lsm },
    Contestant {
        name: "rocksdb",
        is_ours: false,
        packages: &["rocksdb", "librocksdb-sys"],
        setting: rocksdb::SETTING,
        open: RocksDb::open,
    },
    Contestant {
        name: "lmdb",
        is_ours: false,
        packages: &["heed", "lmdb-master-sys"],
        setting: lmdb::SETTING,
        open: Lmdb::open,
    },
    Contestant { name: "redb", is_ours: false, packages: &["redb"], setting: redb::SETTING, open: Redb::open },
    Contestant { name: "fjall", is_ours: false, packages: &["fjall"], setting: fjall::SETTING, open: Fjall::open },
];

/// The store of that name.
pub(crate) fn contestant(name: &str) -> Result<&'static Contestant> {
    CONTESTANTS.iter().find(|contestant| contestant.name == name).ok_or_else(|| {
        let names: Vec<&str> = CONTESTANTS.iter().map(|contestant| contestant.name).collect();
        Error::Invalid(format!("there is no store `{name}`: choose from {}", names.join(", ")))
    })
}
