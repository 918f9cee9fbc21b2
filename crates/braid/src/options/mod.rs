//! What can be chosen when a database is opened. Everything else follows from it.

use std::{str::FromStr, time::Duration};

use doclog::Compression;
use psync::{BackendKind, probe::DeviceProfile};
use wal::FlushScheme;

use crate::{
    error::{Error, Result},
    format::TableSettings,
    opq::{self, Sorting},
    words::{
        clock::SetClock,
        durability::Durability,
        structure::{self, Structure},
    },
};

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let lazy = text.strip_prefix("lazy:").and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        match (text, lazy) {
            ("sync", _) => Ok(Self::Sync),
            ("os", _) => Ok(Self::Os),
            (_, Some(interval)) => Ok(Self::Lazy(interval)),
            _ => Err(Error::Option {
                option: "durability",
                problem: format!("{text:?} is none of sync, os, lazy:MILLISECONDS"),
            }),
        }
    }
}

impl FromStr for Structure {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let problem = || {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::Option { option: "structure", problem: format!("{text:?} is none of {names}") }
        };
        Self::ALL.into_iter().find(|structure| structure.name() == text).ok_or_else(problem)
    }
}

/// Fails where it makes no sense.
pub(crate) fn check_durability(durability: Durability) -> Result<()> {
    match durability {
        Durability::Lazy(interval) if interval.is_zero() => {
            Err(Error::Option { option: "durability", problem: "lazy needs an interval above 0".into() })
        }
        _ => Ok(()),
    }
}

/// Most states of a table that can be retained.
pub const HISTORY_MAX: u32 = 1000;

/// Fails where so many states cannot be retained of tables with this structure.
pub(crate) fn check_history(structure: Structure, states: u32) -> Result<()> {
    if states > 0 && !structure::has_history(structure) {
        return Err(no_history());
    }
    if states > HISTORY_MAX {
        let problem = format!("at most {HISTORY_MAX} states of a table can be retained, not {states}");
        return Err(Error::Option { option: "history", problem });
    }
    Ok(())
}

/// What is said of a structure that keeps no older states.
pub(crate) fn no_history() -> Error {
    let problem = "only tables with structure `append` retain their states: others change in place".into();
    Error::Option { option: "history", problem }
}

/// What a table that is created will be used for: its leaves get the size with the least time per operation (the cost model of the PIO B-tree, `btree::cost`).
/// And what is chosen for it ([`TableSettings`]). What a table holds does not depend on any of it: only time and space do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableOptions {
    pub(crate) insert_share: f64,
    pub(crate) batched_share: f64,
    pub(crate) records: u64,
    pub(crate) record_bytes: u64,
    /// Pages of a leaf, where they are known: those of a table that is restored.
    pub(crate) leaf_pages: Option<u32>,
    pub(crate) settings: TableSettings,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            insert_share: 0.5,
            batched_share: 0.0,
            records: 10_000_000,
            record_bytes: 128,
            leaf_pages: None,
            settings: TableSettings::default(),
        }
    }
}

impl TableOptions {
    /// The defaults: as many puts as lookups, these one at a time, on ten million records of 128 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Share of operations that are puts or deletes, from 0 to 1; the others are lookups.
    #[must_use]
    pub const fn insert_share(mut self, share: f64) -> Self {
        self.insert_share = share;
        self
    }

    /// Share of looked up keys that come in batches ([`Table::get_many`](crate::Table::get_many)), from 0 to 1.
    #[must_use]
    pub const fn batched_share(mut self, share: f64) -> Self {
        self.batched_share = share;
        self
    }

    /// Records that the table will hold.
    #[must_use]
    pub const fn records(mut self, records: u64) -> Self {
        self.records = records;
        self
    }

    /// Bytes of a record, key and value.
    #[must_use]
    pub const fn record_bytes(mut self, bytes: u64) -> Self {
        self.record_bytes = bytes;
        self
    }

    /// How values are compressed that are stored apart from their keys: those above 2 KiB, in tables with [`Structure::Append`] those above 256 bytes. Each is
    /// compressed by itself, and stored as it is where that saves nothing to speak of; by default none is.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let db = braid::Database::open(directory.path().join("data"))?;
    /// use braid::{Compression, Structure, TableOptions};
    ///
    /// let options = TableOptions::new().compression(Compression::Zstd);
    /// let pages = db.table_with("pages", Structure::BTree, &options)?;
    /// pages.put("/", "<p>hello</p>".repeat(1000))?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.settings.compression = compression;
        self
    }

    /// So many states of the table are retained, to be opened again and gone back to, in tables with [`Structure::Append`]: see
    /// [`Table::history`](crate::Table::history). By default none is.
    #[must_use]
    pub const fn history(mut self, states: u32) -> Self {
        self.settings.history = states;
        self
    }

    /// All that is chosen for a table, as another has it ([`TableInfo::settings`](crate::TableInfo::settings)).
    #[must_use]
    pub const fn settings(mut self, settings: TableSettings) -> Self {
        self.settings = settings;
        self
    }

    pub(crate) fn check(&self, structure: Structure) -> Result<()> {
        check_history(structure, self.settings.history)?;
        for (option, share) in [("insert_share", self.insert_share), ("batched_share", self.batched_share)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::Option { option, problem: format!("{share} is not a share from 0 to 1") });
            }
        }
        for (option, number) in [("records", self.records), ("record_bytes", self.record_bytes)] {
            if number == 0 {
                return Err(Error::Option { option, problem: "it must be at least 1".into() });
            }
        }
        Ok(())
    }
}

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) write_buffer_bytes: Option<u64>,
    pub(crate) lends: bool,
    pub(crate) durability: Durability,
    pub(crate) backend: Option<BackendKind>,
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) segment_bytes: u64,
    pub(crate) leaf_pages: Option<u32>,
    pub(crate) profile: Option<DeviceProfile>,
    pub(crate) background: bool,
    pub(crate) sorting: Sorting,
    pub(crate) bcnt: usize,
    pub(crate) flush_scheme: FlushScheme,
    pub(crate) lock_timeout: Duration,
    pub(crate) retain_log_bytes: u64,
    pub(crate) clock: Option<SetClock>,
}

/// Bytes of the cache where nothing is said.
pub(crate) const CACHE_BYTES: u64 = 256 << 20;
/// Bytes of the write buffer where nothing is said. They are what opening after a kill takes its time for: a log of up to one and a half times as much is read and replayed (`--example opens`).
pub(crate) const WRITE_BUFFER_BYTES: u64 = 36 << 20;

/// Open transactions may hold so much of the sum of all memory, and scans and batches read so much: one part of so many.
const PART: u64 = 16;

/// How long a write waits for a key that a transaction locked, where nothing is said.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The model gives each part of a sum this small its least.
const SMALLEST_MEMORY: u64 = 2 << 20;
/// A few pages for the upper levels. Experiments with the memory of 2011 need no more, and everything works with it, slowly.
const SMALLEST_CACHE: u64 = 64 << 10;
/// Two queues, one of them being applied, of the smallest size that memory is taken in.
const SMALLEST_WRITE_BUFFER: u64 = 16 << 10;
/// Above, a queue's arena may not hold what waits for it.
pub(crate) const LARGEST_WRITE_BUFFER: u64 = opq::ARENA_BYTES_MAX;
const SMALLEST_SEGMENT: u64 = 64 << 10;
const LARGEST_SEGMENT: u64 = 1 << 30;

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            cache_bytes: None,
            write_buffer_bytes: None,
            lends: true,
            durability: Durability::Sync,
            backend: None,
            read_only: false,
            create: true,
            segment_bytes: 16 << 20,
            leaf_pages: None,
            profile: None,
            background: true,
            sorting: Sorting::Always,
            bcnt: usize::MAX,
            flush_scheme: FlushScheme::default(),
            lock_timeout: LOCK_TIMEOUT,
            retain_log_bytes: 0,
            clock: None,
        }
    }
}

impl Options {
    /// The defaults: 256 MiB of cache, 36 MiB of write buffer, [`Durability::Sync`], the best I/O backend there is.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of memory for the buffer pool, for operations that wait, for open transactions and for what scans and batches read, together; at least 2 MiB. With up to 64 threads a process
    /// that does nothing else has at most 32 MiB more than that, the program included; values that it is given, or keeps, and what is in flight of those of many megabytes, are its own, and opening after a crash may take more for a moment.
    /// Transactions may hold a sixteenth, scans with batches another, and an eighth is for what lies unused between images of the pool and what an allocator does not give back. The cost model divides the rest, unless [`Options::cache_bytes`] or [`Options::write_buffer_bytes`] says what one of the two gets.
    #[must_use]
    pub const fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Bytes of the buffer pool that all tables share; at least 64 KiB.
    #[must_use]
    pub const fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Bytes of operations that wait in memory for their structure, over all tables; at least 16 KiB, at most 3 GiB. As long as little waits, all but a quarter of it (16 MiB at most) is lent
    /// to the cache, as memory that is given back at once ([`Options::lend_write_buffer`]).
    #[must_use]
    pub const fn write_buffer_bytes(mut self, bytes: u64) -> Self {
        self.write_buffer_bytes = Some(bytes);
        self
    }

    /// Whether the cache is lent what is free of the write buffer; it is by default. For experiments in which each is to have its size.
    #[must_use]
    pub const fn lend_write_buffer(mut self, lend: bool) -> Self {
        self.lends = lend;
        self
    }

    /// When commits count as done, unless a commit says otherwise.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Insists on an I/O backend; without this the best that the system allows is taken.
    #[must_use]
    pub const fn backend(mut self, backend: BackendKind) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Opens for reading: nothing in the directory changes, and other readers may have it open too.
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether a missing database is created; it is unless this says no.
    #[must_use]
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Bytes of a log segment of a database created now. For tests: small segments reach every edge sooner.
    #[doc(hidden)]
    #[must_use]
    pub const fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// What the device can do, as [`DeviceProfile::measure`] has measured it, or as a database has learned it from its own requests ([`Database::learned_profile`](crate::Database::learned_profile)). From it follow the leaf sizes of tables that are created or compacted, the division
    /// of [`Options::memory_bytes`], and how many requests are in flight. Without it the database's own profile counts, which `braid device --save` measures (or takes from what was learned, with `--learned`), and where it has
    /// none, an ordinary NVMe drive is assumed, so that the same options give the same database on every machine.
    #[must_use]
    pub fn profile(mut self, profile: DeviceProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Pages of a leaf of tables created now, whatever the cost model says. For tests and experiments.
    #[doc(hidden)]
    #[must_use]
    pub const fn leaf_pages(mut self, pages: u32) -> Self {
        self.leaf_pages = Some(pages);
        self
    }

    /// Goes by this clock in place of the system's. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: SetClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Without background threads their work is done by the calls that make it due. For tests that must repeat exactly.
    #[doc(hidden)]
    #[must_use]
    pub const fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Queues as the paper has them, with so many operations between two sorts: its speriod. For its experiments; otherwise queues are always in order.
    #[doc(hidden)]
    #[must_use]
    pub const fn speriod(mut self, operations: usize) -> Self {
        self.sorting = Sorting::Every(operations);
        self
    }

    /// Most operations that a table's part in a round has: the paper's bcnt. Without it rounds are bounded by the memory that they
    /// give back. For experiments.
    #[doc(hidden)]
    #[must_use]
    pub const fn bcnt(mut self, operations: usize) -> Self {
        self.bcnt = operations;
        self
    }

    /// How commits that wait for stable storage share flushes of the log. For comparison: what each promises is the same, and the default
    /// is the fastest.
    #[must_use]
    pub const fn flush_scheme(mut self, scheme: FlushScheme) -> Self {
        self.flush_scheme = scheme;
        self
    }

    /// How long writes, and transactions that do not say otherwise, wait for a key that another transaction has locked
    /// ([`Transaction::get_for_update`](crate::Transaction::get_for_update)); a second by default.
    #[must_use]
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Bytes of the log that are kept for those who follow its changes ([`Database::changes`](crate::Database::changes)), at least, counted from its end; without this, or with 0,
    /// only what recovery needs, which may be little.
    ///
    /// What is kept takes this much space and up to a log segment (16 MiB) more. Large values that were replaced or deleted since, and those of dropped
    /// tables, stay as long as a kept commit names them, and count: where they are many, fewer commits are kept. On a full disk, what is kept
    /// is given up before a write is refused for good. It is a matter of each opening: one that says nothing gives everything up.
    #[must_use]
    pub const fn retain_log_bytes(mut self, bytes: u64) -> Self {
        self.retain_log_bytes = bytes;
        self
    }

    /// Of the sum of all memory, what open transactions may hold, and again what scans may read ahead.
    pub(crate) fn part_bytes(&self) -> Option<u64> {
        self.memory_bytes.map(|bytes| bytes / PART)
    }

    /// Of the sum of all memory, what buffer pool and write buffer have: all but the parts of transactions and of what is read, and two for the holes in the memory of the pool and of the allocator.
    pub(crate) fn divided_bytes(&self) -> Option<u64> {
        self.memory_bytes.map(|bytes| bytes - 4 * (bytes / PART))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let least = |option, bytes: u64, least: u64| {
            if bytes < least {
                return Err(Error::Option { option, problem: format!("{bytes} bytes is below the least, {least}") });
            }
            Ok(())
        };
        let rest = |of: Option<u64>| self.divided_bytes().zip(of).map(|(all, of)| all.saturating_sub(of));
        let cache = self.cache_bytes.or_else(|| rest(self.write_buffer_bytes));
        let write_buffer = self.write_buffer_bytes.or_else(|| rest(self.cache_bytes));
        least("memory_bytes", self.memory_bytes.unwrap_or(SMALLEST_MEMORY), SMALLEST_MEMORY)?;
        least("cache_bytes", cache.unwrap_or(CACHE_BYTES), SMALLEST_CACHE)?;
        least("write_buffer_bytes", write_buffer.unwrap_or(WRITE_BUFFER_BYTES), SMALLEST_WRITE_BUFFER)?;
        if let Some(bytes) = write_buffer.filter(|bytes| *bytes > LARGEST_WRITE_BUFFER) {
            let problem = format!("{bytes} bytes is above the most, {LARGEST_WRITE_BUFFER}");
            return Err(Error::Option { option: "write_buffer_bytes", problem });
        }
        least("segment_bytes", self.segment_bytes, SMALLEST_SEGMENT)?;
        if self.segment_bytes > LARGEST_SEGMENT || !self.segment_bytes.is_multiple_of(space::PAGE as u64) {
            let problem = format!("{} is not a multiple of 4096 up to 1 GiB", self.segment_bytes);
            return Err(Error::Option { option: "segment_bytes", problem });
        }
        if let Some(Err(problem)) = self.profile.as_ref().map(DeviceProfile::check) {
            return Err(Error::Option { option: "profile", problem });
        }
        if let Some(pages) = self.leaf_pages.filter(|pages| !(1..=256).contains(pages)) {
            return Err(Error::Option { option: "leaf_pages", problem: format!("{pages} is not 1 to 256") });
        }
        for (option, is_none) in [("speriod", self.sorting == Sorting::Every(0)), ("bcnt", self.bcnt == 0)] {
            if is_none {
                return Err(Error::Option { option, problem: "it is at least 1".into() });
            }
        }
        check_durability(self.durability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_reads_what_it_prints() {
        for durability in [Durability::Sync, Durability::Os, Durability::Lazy(Duration::from_millis(250))] {
            assert_eq!(durability.to_string().parse::<Durability>().expect("reads"), durability);
        }
        assert!("eventually".parse::<Durability>().is_err());
    }

    #[test]
    fn options_out_of_bounds_name_themselves() {
        let error = Options::new().cache_bytes(5).check().expect_err("too small");
        assert!(error.to_string().contains("cache_bytes"), "{error}");
        let error = Options::new().memory_bytes(1 << 20).check().expect_err("too small");
        assert!(error.to_string().contains("memory_bytes"), "{error}");
        let all = Options::new().memory_bytes(8 << 20).cache_bytes(8 << 20);
        let error = all.check().expect_err("nothing is left");
        assert!(error.to_string().contains("write_buffer_bytes"), "{error}");
        assert!(Options::new().memory_bytes(2 << 20).check().is_ok());
    }

    #[test]
    fn table_options_out_of_bounds_name_themselves() {
        let named = |options: TableOptions, name: &str| {
            let error = options.check(Structure::BTree).expect_err("out of bounds");
            assert!(error.to_string().contains(name), "{error}");
        };
        named(TableOptions::new().insert_share(1.5), "insert_share");
        named(TableOptions::new().batched_share(f64::NAN), "batched_share");
        named(TableOptions::new().records(0), "records");
        named(TableOptions::new().history(1), "history");
        named(TableOptions::new().record_bytes(0), "record_bytes");
        assert!(
            TableOptions::new()
                .insert_share(1.0)
                .batched_share(0.0)
                .records(1)
                .record_bytes(1)
                .check(Structure::BTree)
                .is_ok()
        );
    }
}
