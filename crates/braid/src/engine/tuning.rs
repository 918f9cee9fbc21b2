//! Choices that follow from the device and the expected work: leaf sizes, the division of memory, requests in flight.
//!
//! 1. The device counts as an ordinary NVMe drive, so the same options give the same database everywhere, and nothing
//!    is measured. A measured profile takes effect only on request: by [`Options::profile`], or by the file
//!    `device.json` of the database, which `braid device --save` writes.
//! 2. The cost model (`btree::cost`) chooses. Explicit options take precedence over its choices.
//! 3. The figures that the database learned from its own requests (`learned`) are shown beside the profile. They take
//!    effect in the same two ways alone.
//! 4. A structure that is built anew gets settings that suit the contents of its table and the requests to that table
//!    since it was opened ([`crate::engine::settings`]).
//!
//! Left to others: the model itself, and measuring (`psync::probe`).

use std::path::Path;

use btree::cost::{self, Memory, Workload};
use index::{Stats, Use};
use psync::{
    Psync,
    probe::{self, DeviceProfile},
};

use crate::{
    options::{self, Options, TableHints},
    tables::traffic::Shares,
    words::structure::Structure,
};

/// Without a sum of all memory, the least that open transactions may hold, however small the write buffer is.
const SMALLEST_TRANSACTION_BYTES: u64 = 1 << 20;
/// Without a sum of all memory, the least that scans and batches may read together: enough for one long scan.
const SMALLEST_READ_AHEAD_BYTES: u64 = 4 << 20;
/// Bytes of an entry of a leaf besides key and value, about.
const ENTRY_BYTES: u64 = 10;

/// The choices for an open database, and their source.
pub(crate) struct Tuning {
    pub(crate) profile: DeviceProfile,
    pub(crate) source: ProfileSource,
    leaf_pages: Option<u32>,
    lends: bool,
    pub(crate) cache_bytes: u64,
    pub(crate) write_buffer_bytes: u64,
    /// Bytes for open transactions, apart from what they take of the cache.
    pub(crate) transaction_bytes: u64,
    /// Most bytes that scans read ahead, and batches read, together.
    pub(crate) read_ahead_bytes: u64,
}

/// The source of the device profile that a database uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum ProfileSource {
    /// [`Options::profile`].
    Options,
    /// The database's file `device.json`, which `braid device --save` wrote.
    Saved,
    /// No profile was given: the database uses that of an ordinary NVMe drive ([`DeviceProfile::default`]).
    OrdinaryDrive,
}

/// The profile that choices follow from: the one of the options, else the one that the database keeps, else that of an
/// ordinary drive. Figures learned from requests count only where they were given or saved as one of these.
pub(crate) fn profile(options: &Options, psync: &Psync, path: &Path) -> (DeviceProfile, ProfileSource) {
    if let Some(profile) = &options.profile {
        return (profile.clone(), ProfileSource::Options);
    }
    match probe::known(psync, path) {
        Some(profile) => (profile, ProfileSource::Saved),
        None => (DeviceProfile::default(), ProfileSource::OrdinaryDrive),
    }
}

impl Tuning {
    /// The choices for a database with `data_bytes` bytes of data.
    pub(crate) fn new(options: &Options, (profile, source): (DeviceProfile, ProfileSource), data_bytes: u64) -> Self {
        let (cache_bytes, write_buffer_bytes) = divide(options, &profile, data_bytes);
        let usual = (write_buffer_bytes / 3).max(SMALLEST_TRANSACTION_BYTES);
        Self {
            profile,
            source,
            leaf_pages: options.leaf_pages,
            lends: options.lends,
            cache_bytes,
            write_buffer_bytes,
            transaction_bytes: options.part_bytes().unwrap_or(usual),
            read_ahead_bytes: options.part_bytes().unwrap_or(usual.max(SMALLEST_READ_AHEAD_BYTES)),
        }
    }

    /// Settings of the structure of a new table: what the options say, or what is `given`, or what suits the use
    /// that `hints` tell.
    pub(crate) fn settings(&self, structure: Structure, hints: &TableHints, given: Option<&[u8]>) -> Vec<u8> {
        (structure.facts().choose)(&Use { given, ..self.used(&self.profile, hints) })
    }

    /// Settings of the structure of an existing table, by the profile in use or another one: for the table's number of
    /// entries, and their average size.
    pub(crate) fn settings_now(
        &self, profile: &DeviceProfile, structure: Structure, stats: &Stats, shares: Shares,
    ) -> Vec<u8> {
        let entries = stats.entries.max(1);
        let record_bytes = (stats.entry_bytes / entries).saturating_sub(ENTRY_BYTES).max(1);
        let hints = TableHints::new().records(entries).record_bytes(record_bytes);
        let hints = hints.insert_share(shares.insert).batched_share(shares.batched);
        (structure.facts().choose)(&self.used(profile, &hints))
    }

    fn used<'a>(&self, profile: &'a DeviceProfile, hints: &TableHints) -> Use<'a> {
        Use {
            profile,
            cache_bytes: self.cache_bytes,
            write_buffer_bytes: self.write_buffer_bytes,
            records: hints.records,
            record_bytes: hints.record_bytes,
            insert_share: hints.insert_share,
            batched_share: hints.batched_share,
            leaf_pages: self.leaf_pages,
            given: None,
        }
    }

    /// Whether the options set the size of all leaves.
    pub(crate) const fn sets_leaf_pages(&self) -> bool {
        self.leaf_pages.is_some()
    }

    /// Requests that the database keeps in flight.
    pub(crate) fn pio_max(&self) -> usize {
        cost::pio_max(&self.profile)
    }

    /// Requests that a batch of lookups keeps in flight.
    pub(crate) fn lookups_in_flight(&self) -> usize {
        cost::lookups_in_flight(&self.profile)
    }

    /// A gap of up to this many pages is read together with the pages on both sides, because one more request would
    /// cost at least as much.
    pub(crate) fn gap_pages(&self) -> usize {
        cost::gap_pages(&self.profile)
    }

    /// Sets how much the I/O of background work makes way for reads ([`psync::Background`]): as much as possible.
    /// Background work that is behind the writers keeps the device just busy instead.
    pub(crate) fn pace(&self, psync: &Psync, is_behind: bool) {
        psync.set_background_depth(if is_behind { self.profile.parallelism() } else { 1 });
    }

    /// Most bytes that the write buffer lends to the cache.
    pub(crate) const fn loans_bytes(&self) -> u64 {
        if self.lends { self.write_buffer_bytes } else { 0 }
    }
}

fn workload(hints: &TableHints, memory: Memory) -> Workload {
    Workload {
        records: hints.records,
        record_bytes: hints.record_bytes,
        insert_share: hints.insert_share,
        batched_share: hints.batched_share,
        memory,
    }
}

/// Cache and write buffer: as the options say, or as the model divides the sum that they give.
fn divide(options: &Options, profile: &DeviceProfile, data_bytes: u64) -> (u64, u64) {
    match (options.divided_bytes(), options.cache_bytes, options.write_buffer_bytes) {
        (Some(bytes), None, None) => {
            let usual = TableHints::new();
            let records = (data_bytes / usual.record_bytes).max(usual.records);
            let choice = cost::choose(profile, &workload(&usual.records(records), Memory::Total { bytes }));
            let write_buffer = choice.write_buffer_bytes.min(options::LARGEST_WRITE_BUFFER);
            (bytes - write_buffer, write_buffer)
        }
        (Some(bytes), Some(cache), None) => (cache, bytes.saturating_sub(cache)),
        (Some(bytes), None, Some(write_buffer)) => (bytes.saturating_sub(write_buffer), write_buffer),
        (_, cache, write_buffer) => {
            (cache.unwrap_or(options::CACHE_BYTES), write_buffer.unwrap_or(options::WRITE_BUFFER_BYTES))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinary() -> (DeviceProfile, ProfileSource) {
        (DeviceProfile::default(), ProfileSource::OrdinaryDrive)
    }

    fn divided(options: &Options) -> (u64, u64) {
        divide(options, &DeviceProfile::default(), 0)
    }

    #[test]
    fn what_the_options_say_goes_first() {
        const M: u64 = 1 << 20;
        assert_eq!(divided(&Options::new()), (256 * M, 36 * M));
        assert_eq!(divided(&Options::new().cache_bytes(5 * M)), (5 * M, 36 * M));
        let sum = Options::new().memory_bytes(160 * M);
        assert_eq!(divided(&sum.clone().cache_bytes(90 * M)), (90 * M, 30 * M));
        assert_eq!(divided(&sum.clone().write_buffer_bytes(90 * M)), (30 * M, 90 * M));
        let all = sum.clone().cache_bytes(7 * M).write_buffer_bytes(9 * M);
        assert_eq!(divided(&all), (7 * M, 9 * M));
        let (cache, write_buffer) = divided(&sum);
        assert_eq!(cache + write_buffer, 120 * M);
        assert!(cache >= write_buffer && write_buffer >= 120 * M / 32, "{cache} {write_buffer}");
        let parts = |options: &Options| {
            let tuning = Tuning::new(options, ordinary(), 0);
            (tuning.transaction_bytes, tuning.read_ahead_bytes)
        };
        assert_eq!(parts(&sum), (10 * M, 10 * M));
        assert_eq!(parts(&Options::new()), (12 * M, 12 * M));
        assert_eq!(parts(&Options::new().write_buffer_bytes(M)), (M, 4 * M));
    }

    #[test]
    fn a_table_that_is_written_gets_larger_leaves_than_one_that_is_read() {
        let tuning = Tuning::new(&Options::new(), ordinary(), 0);
        let stats = Stats { entries: 20_000_000, entry_bytes: 20_000_000 * 126, ..Stats::default() };
        let pages = |settings: Vec<u8>| u32::from_le_bytes(settings.try_into().expect("those of a tree"));
        let leaves = |insert| {
            let shares = Shares { insert, batched: 0.0 };
            pages(tuning.settings_now(&tuning.profile, Structure::BTree, &stats, shares))
        };
        assert!(leaves(0.05) < leaves(0.95), "{} {}", leaves(0.05), leaves(0.95));
        let fixed = Tuning::new(&Options::new().leaf_pages(3), ordinary(), 0);
        let given = 5_u32.to_le_bytes();
        assert_eq!(pages(fixed.settings(Structure::BTree, &TableHints::new(), Some(&given))), 3);
        assert_eq!(pages(tuning.settings(Structure::BTree, &TableHints::new(), Some(&given))), 5);
    }
}
