//! The options of a database and of a table. Everything else follows from them.

mod table;

use std::{str::FromStr, time::Duration};

use psync::{BackendKind, probe::DeviceProfile};
use wal::FlushScheme;

use crate::{
    error::{Error, Result},
    opq::{self, Sorting},
    words::{clock::ManualClock, durability::Durability, structure::Structure},
};

pub use table::{HISTORY_MAX, TableHints, TableOptions};
pub(crate) use table::{check_history, no_history};

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let interval = |millis: &str| match millis.parse() {
            Ok(millis) => Some(Duration::from_millis(millis)),
            Err(_) => Duration::try_from_secs_f64(millis.parse::<f64>().ok()? / 1e3).ok(),
        };
        let lazy = text.strip_prefix("lazy:").and_then(interval);
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
            let names = Self::ALL.iter().map(|structure| structure.facts().name).collect::<Vec<_>>().join(", ");
            Error::Option { option: "structure", problem: format!("{text:?} is none of {names}") }
        };
        Self::ALL.iter().copied().find(|structure| structure.facts().name == text).ok_or_else(problem)
    }
}

/// Options for opening a database.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("data");
/// use std::time::Duration;
///
/// use braid::{Durability, Options};
///
/// let options = Options::new()
///     .memory_bytes(64 << 20) // for everything
///     .durability(Durability::Os)
///     .lock_timeout(Duration::from_millis(200));
/// let db = options.open(&path)?;
/// db.table("users", braid::Structure::BTree)?.put("ada", "1815")?;
/// # Ok(())
/// # }
/// ```
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
    pub(crate) clock: Option<ManualClock>,
}

/// Default bytes of the cache.
pub(crate) const CACHE_BYTES: u64 = 256 << 20;
/// Default bytes of the write buffer. They determine how long opening after a kill takes, because a log of up to one
/// and three quarters of this size is read and replayed (`--example opens`).
pub(crate) const WRITE_BUFFER_BYTES: u64 = 36 << 20;

/// Open transactions have one part in this many of the sum of all memory, apart from what they take of the cache. Scans
/// with batches may read as much again.
const PART: u64 = 16;

/// Default time that a write waits for a key that a transaction has locked.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// From a sum this small, the model gives each part its minimum.
const SMALLEST_MEMORY: u64 = 2 << 20;
/// A few pages for the upper levels. Experiments with the memory of 2011 need no more, and everything works with this,
/// slowly.
const SMALLEST_CACHE: u64 = 64 << 10;
/// Two queues, one of them being applied, of the smallest size in which memory is taken.
const SMALLEST_WRITE_BUFFER: u64 = 16 << 10;
/// Above this size, a queue's arena may not hold all waiting operations.
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
    /// The defaults: 256 MiB of cache, 36 MiB of write buffer, [`Durability::Sync`], the best available I/O backend.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of memory, in sum, for the buffer pool, for waiting operations, for open transactions, and for reads of
    /// scans and batches; at least 2 MiB. The sum is divided as follows:
    ///
    /// - a sixteenth: open transactions;
    /// - a sixteenth: scans and batches;
    /// - an eighth: holes between images of the pool, and memory that an allocator does not give back;
    /// - the rest: buffer pool and write buffer, divided by the cost model unless [`Options::cache_bytes`] or
    ///   [`Options::write_buffer_bytes`] sets one of the two.
    ///
    /// With up to 64 threads, a process that does nothing else takes at most 32 MiB more than the sum, the program
    /// included. Not counted are values that the process passes in or keeps, and values of many megabytes in flight.
    /// Opening after a crash may take more for a moment.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// let db = braid::Options::new().memory_bytes(64 << 20).open(&path)?;
    /// assert_eq!(db.cache_bytes() + db.write_buffer_bytes(), 48 << 20);
    /// # Ok(())
    /// # }
    /// ```
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

    /// Bytes of operations that wait in memory for their structure, over all tables; at least 16 KiB, at most 3 GiB.
    /// While few operations wait, all of this memory except a quarter (16 MiB at most) is lent to the cache, which
    /// gives the memory back at once on demand ([`Options::lend_write_buffer`]).
    #[must_use]
    pub const fn write_buffer_bytes(mut self, bytes: u64) -> Self {
        self.write_buffer_bytes = Some(bytes);
        self
    }

    /// Whether the free part of the write buffer is lent to the cache; by default yes. For experiments in which cache
    /// and write buffer are to have fixed sizes.
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

    /// Requires this I/O backend. Without this option, the best one that the system allows is taken.
    #[must_use]
    pub const fn backend(mut self, backend: BackendKind) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Opens for reading. Nothing in the directory changes, and other readers may have the database open too.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// use braid::{Database, ErrorKind, Options, Structure};
    ///
    /// Database::open(&path)?.table("users", Structure::BTree)?.put("ada", "1815")?;
    /// let db = Options::new().read_only(true).open(&path)?;
    /// let users = db.open_table("users")?;
    /// assert!(users.contains_key("ada")?);
    /// assert_eq!(users.put("grace", "1906").expect_err("only reads").kind(), ErrorKind::ReadOnly);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether a missing database is created; by default yes.
    #[must_use]
    pub const fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Bytes of a log segment of a newly created database. For tests: small segments reach every edge sooner.
    #[doc(hidden)]
    #[must_use]
    pub const fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// The performance of the device, as measured by [`DeviceProfile::measure`] or learned by a database from its own
    /// requests ([`Database::learned_profile`](crate::Database::learned_profile)). From the profile follow:
    ///
    /// - the leaf sizes of tables that are created or compacted;
    /// - the division of [`Options::memory_bytes`];
    /// - the number of requests in flight.
    ///
    /// Without this option the database's own profile counts, which `braid device --save` measures (or takes from the
    /// learned profile, with `--learned`). A database without a profile assumes an ordinary NVMe drive, so that the
    /// same options give the same database on every machine.
    #[must_use]
    pub fn profile(mut self, profile: DeviceProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Pages of a leaf of newly created tables, regardless of the cost model. For tests and experiments.
    #[doc(hidden)]
    #[must_use]
    pub const fn leaf_pages(mut self, pages: u32) -> Self {
        self.leaf_pages = Some(pages);
        self
    }

    /// Uses this clock in place of the system's, so that a test decides when values expire: see [`ManualClock`].
    #[must_use]
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Without background threads their work is done by the calls that make the work due. For tests that must repeat
    /// exactly.
    #[doc(hidden)]
    #[must_use]
    pub const fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Orders queues as in the paper, with this number of operations between two sorts: its speriod. For experiments
    /// after the paper; otherwise queues are always in order.
    #[doc(hidden)]
    #[must_use]
    pub const fn speriod(mut self, operations: usize) -> Self {
        self.sorting = Sorting::Every(operations);
        self
    }

    /// Most operations of one table in a round: the paper's bcnt. Without this option, rounds are bounded by the memory
    /// that they give back. For experiments.
    #[doc(hidden)]
    #[must_use]
    pub const fn bcnt(mut self, operations: usize) -> Self {
        self.bcnt = operations;
        self
    }

    /// How commits that wait for stable storage share flushes of the log. For comparison: every scheme promises the
    /// same, and the default is the fastest.
    #[must_use]
    pub const fn flush_scheme(mut self, scheme: FlushScheme) -> Self {
        self.flush_scheme = scheme;
        self
    }

    /// How long writes wait for a key that another transaction has locked
    /// ([`Transaction::get_for_update`](crate::Transaction::get_for_update)); by default a second. Transactions wait as
    /// long, unless their options say otherwise.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// # use std::time::Duration;
    /// let db = braid::Options::new().lock_timeout(Duration::from_millis(20)).open(&path)?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// let mut tx = db.begin()?;
    /// tx.get_for_update(&users, "ada")?;
    /// assert!(matches!(users.put("ada", "1815"), Err(braid::Error::LockTimeout { .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Bytes of the log, counted from its end, that are kept at least, for readers of its changes
    /// ([`Database::changes`](crate::Database::changes)). With 0, the default, only the log that recovery needs is
    /// kept, which may be little.
    ///
    /// - Space. The kept log takes this many bytes and up to one log segment (16 MiB) more.
    /// - Large values. Large values that were replaced or deleted since, and those of dropped tables, stay as long as a
    ///   kept commit names them. Their bytes count, so where they are many, fewer commits are kept.
    /// - Full disk. The kept log is given up before a write is refused for good.
    /// - Duration. The option holds for one opening; an opening without this option gives up the whole kept log.
    ///
    /// ```
    /// # fn main() -> braid::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let path = directory.path().join("data");
    /// use braid::{Options, Seq};
    ///
    /// let db = Options::new().retain_log_bytes(1 << 30).open(&path)?;
    /// let users = db.table("users", braid::Structure::BTree)?;
    /// users.put("ada", "1815")?;
    /// db.checkpoint()?; // recovery does not need the log any more
    /// assert_eq!(db.changes(Seq(0))?.count(), 2); // the table, and the put
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn retain_log_bytes(mut self, bytes: u64) -> Self {
        self.retain_log_bytes = bytes;
        self
    }

    /// The part of the sum of all memory that is the open transactions' own. Scans may read ahead as much again.
    pub(crate) fn part_bytes(&self) -> Option<u64> {
        self.memory_bytes.map(|bytes| bytes / PART)
    }

    /// The part of the sum of all memory for buffer pool and write buffer. The remainder is a part for transactions,
    /// one for reads, and two for the holes in the memory of the pool and of the allocator.
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_reads_what_it_prints() {
        let lazy = [0, 1, 500, 300_000, 1_234_567, 250_000_000, 1_099_511_627_776].map(Duration::from_nanos);
        for durability in [Durability::Sync, Durability::Os].into_iter().chain(lazy.map(Durability::Lazy)) {
            assert_eq!(durability.to_string().parse::<Durability>().expect("reads"), durability);
        }
        for other in ["eventually", "lazy", "lazy:", "lazy:-1", "lazy:nan", "lazy:inf", "lazy:1e300"] {
            assert!(other.parse::<Durability>().is_err(), "{other}");
        }
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
        let hinted = |hints| TableOptions::new().hints(hints);
        named(hinted(TableHints::new().insert_share(1.5)), "insert_share");
        named(hinted(TableHints::new().batched_share(f64::NAN)), "batched_share");
        named(hinted(TableHints::new().records(0)), "records");
        named(hinted(TableHints::new().record_bytes(0)), "record_bytes");
        named(TableOptions::new().history(1), "history");
        let least = TableHints::new().insert_share(1.0).batched_share(0.0).records(1).record_bytes(1);
        assert!(hinted(least).check(Structure::BTree).is_ok());
    }
}
