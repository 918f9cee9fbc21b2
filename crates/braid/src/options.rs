//! What can be chosen when a database is opened. Everything else is measured or derived.

use std::{fmt, path::Path, str::FromStr, time::Duration};

use psync::{BackendKind, Psync};

use crate::{Database, Error, Result};

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// On stable storage when it returns.
    #[default]
    Sync,
    /// Handed to the operating system when it returns: survives a killed process, not a power cut.
    Os,
    /// In memory when it returns; the flush that makes it durable begins at most this much later.
    Lazy(Duration),
}

impl fmt::Display for Durability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => formatter.write_str("sync"),
            Self::Os => formatter.write_str("os"),
            Self::Lazy(interval) => write!(formatter, "lazy:{}", interval.as_millis()),
        }
    }
}

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

/// The index structure of a table, chosen when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// The PIO B-tree: updated in place, for reads and updates in any order.
    BTree,
}

impl fmt::Display for Structure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BTree => formatter.write_str("btree"),
        }
    }
}

impl FromStr for Structure {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "btree" => Ok(Self::BTree),
            _ => Err(Error::Option { option: "structure", problem: format!("{text:?} is not btree") }),
        }
    }
}

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) cache_bytes: u64,
    pub(crate) write_buffer_bytes: u64,
    pub(crate) durability: Durability,
    pub(crate) backend: Option<BackendKind>,
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) segment_bytes: u64,
    pub(crate) leaf_pages: u32,
    pub(crate) background: bool,
}

const SMALLEST_CACHE: u64 = 1 << 20;
const SMALLEST_WRITE_BUFFER: u64 = 64 << 10;
const SMALLEST_SEGMENT: u64 = 64 << 10;
const LARGEST_SEGMENT: u64 = 1 << 30;

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            write_buffer_bytes: 64 << 20,
            durability: Durability::Sync,
            backend: None,
            read_only: false,
            create: true,
            segment_bytes: 16 << 20,
            leaf_pages: 4,
            background: true,
        }
    }
}

impl Options {
    /// The defaults: 256 MiB of cache, 64 MiB of write buffer, [`Durability::Sync`], the best I/O backend there is.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the buffer pool that all tables share; at least 1 MiB.
    #[must_use]
    pub const fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Bytes of operations that wait in memory for their structure, over all tables; at least 64 KiB.
    #[must_use]
    pub const fn write_buffer_bytes(mut self, bytes: u64) -> Self {
        self.write_buffer_bytes = bytes;
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

    /// Pages of a leaf of tables created now. For tests and experiments.
    #[doc(hidden)]
    #[must_use]
    pub const fn leaf_pages(mut self, pages: u32) -> Self {
        self.leaf_pages = pages;
        self
    }

    /// Without background threads their work is done by the calls that make it due. For tests that must repeat exactly.
    #[doc(hidden)]
    #[must_use]
    pub const fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Opens the database at `path`.
    ///
    /// # Errors
    /// When it can't be opened: see [`Error::kind`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        let psync = Psync::new(self.backend)?;
        self.open_on(psync, path.as_ref())
    }

    /// Opens the database at `path` of `psync`'s storage: a simulated disk, say.
    ///
    /// # Errors
    /// When it can't be opened: see [`Error::kind`].
    #[doc(hidden)]
    pub fn open_on(self, psync: Psync, path: &Path) -> Result<Database> {
        self.check()?;
        Database::open_with(psync, path, &self)
    }

    fn check(&self) -> Result<()> {
        let least = |option, bytes: u64, least: u64| {
            if bytes < least {
                return Err(Error::Option { option, problem: format!("{bytes} bytes is below the least, {least}") });
            }
            Ok(())
        };
        least("cache_bytes", self.cache_bytes, SMALLEST_CACHE)?;
        least("write_buffer_bytes", self.write_buffer_bytes, SMALLEST_WRITE_BUFFER)?;
        least("segment_bytes", self.segment_bytes, SMALLEST_SEGMENT)?;
        if self.segment_bytes > LARGEST_SEGMENT || !self.segment_bytes.is_multiple_of(space::PAGE as u64) {
            let problem = format!("{} is not a multiple of 4096 up to 1 GiB", self.segment_bytes);
            return Err(Error::Option { option: "segment_bytes", problem });
        }
        if !(1..=256).contains(&self.leaf_pages) {
            return Err(Error::Option {
                option: "leaf_pages",
                problem: format!("{} is not 1 to 256", self.leaf_pages),
            });
        }
        if let Durability::Lazy(interval) = self.durability
            && interval.is_zero()
        {
            return Err(Error::Option { option: "durability", problem: "lazy needs an interval above 0".into() });
        }
        Ok(())
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
    }
}
