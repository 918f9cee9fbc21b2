//! The work done with a store: one row of the report each.
//!
//! 1. A [`Work`] is the name of a row: the kind of work and the number of threads. [`Work::all`] lists the rows in the
//!    order of measurement: rows that change a database follow rows that only read the database.
//! 2. [`carry_out`] does the work and returns named figures ([`Metric`]).
//!
//! Invariants: every value that is read is checked, and every scan's records are counted; a database to be read was
//! written by a process that is gone, and its pages are not in the operating system's cache.

mod commit;
mod create;
mod device;
mod fill;
mod queue;
mod read;
mod scan;
mod seek;
mod warm;
mod ycsb;

use std::path::{Path, PathBuf};

use bench::ycsb::{Core, Distribution};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use crate::drive::Pace;
use crate::error::{Error, Result};
use crate::store::{Contestant, Durability, Memory, Store};

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Puts every record, in batches, in random order or in that of the keys.
    Fill { set: Set, sorted: bool },
    /// Looks up keys of existing records.
    Get { set: Set, threads: usize },
    /// Looks up keys that do not exist.
    Absent { threads: usize },
    /// Looks up a batch of keys in one call.
    MultiGet,
    /// Scans of so many records.
    Scan { records: u64 },
    /// A core workload of YCSB.
    Ycsb { core: Core, distribution: Distribution },
    /// Looks up records that are in memory.
    Warm { threads: usize },
    /// Puts single records on stable storage.
    Commit { threads: usize },
    /// Pushes jobs, claims the first and acknowledges it.
    Queue { threads: usize },
    /// Looks for the first pair from some key on, beside a writer.
    Seek,
    /// Makes databases, and removes them.
    Create { threads: usize },
}

/// A set of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// With values of 100 bytes.
    Small,
    /// With values of 1 KiB, and so many that the bytes are about the same.
    Large,
}

/// Threads of YCSB's clients.
pub(crate) const YCSB_THREADS: usize = 8;
/// Threads that look up absent keys.
const ABSENT_THREADS: usize = 8;
/// Threads that work at a queue of jobs.
const QUEUE_THREADS: usize = 8;
/// Threads that make databases.
const CREATE_THREADS: usize = 4;
/// Keys of one multi-get.
pub(crate) const MULTI_GET_KEYS: usize = 128;
/// Records of one commit of a fill.
pub(crate) const FILL_BATCH: usize = 1000;

impl Set {
    /// Bytes of a value.
    pub(crate) const fn value_bytes(self) -> usize {
        match self {
            Self::Small => 100,
            Self::Large => 1024,
        }
    }

    /// Number of records in this set, given the number of small ones.
    pub(crate) const fn records(self, small: u64) -> u64 {
        match self {
            Self::Small => small,
            Self::Large => small.div_ceil(9),
        }
    }

    /// Directory of the set's databases.
    pub(crate) const fn directory(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

impl Work {
    /// Every row, in the order of measurement.
    pub(crate) fn all() -> Vec<Self> {
        let (small, large) = (Set::Small, Set::Large);
        let mut all = vec![Self::Fill { set: small, sorted: true }, Self::Fill { set: small, sorted: false }];
        all.extend([1, 8, 32].map(|threads| Self::Get { set: small, threads }));
        all.extend([Self::Absent { threads: ABSENT_THREADS }, Self::MultiGet]);
        all.extend([100, 10_000, 1_000_000].map(|records| Self::Scan { records }));
        for core in [Core::C, Core::B, Core::F, Core::A, Core::E] {
            let distributions = [Distribution::Zipfian, Distribution::Uniform];
            all.extend(distributions.map(|distribution| Self::Ycsb { core, distribution }));
        }
        all.push(Self::Fill { set: large, sorted: false });
        all.extend([1, 8, 32].map(|threads| Self::Get { set: large, threads }));
        all.extend([1, 2].map(|threads| Self::Warm { threads }));
        all.extend([1, 8, 64].map(|threads| Self::Commit { threads }));
        all.extend([Self::Queue { threads: QUEUE_THREADS }, Self::Seek, Self::Create { threads: CREATE_THREADS }]);
        all
    }

    /// The row's name on the command line and in files.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Fill { set: Set::Small, sorted: true } => "fill-sorted".into(),
            Self::Fill { set: Set::Small, sorted: false } => "fill-random".into(),
            Self::Fill { set: Set::Large, .. } => "1kib-fill".into(),
            Self::Get { set: Set::Small, threads } => format!("cold-get-{threads}"),
            Self::Get { set: Set::Large, threads } => format!("1kib-get-{threads}"),
            Self::Absent { threads } => format!("absent-get-{threads}"),
            Self::MultiGet => "multi-get".into(),
            Self::Scan { records } => format!("scan-{records}"),
            Self::Ycsb { core, distribution } => format!("ycsb-{}-{distribution}", core_name(core)),
            Self::Warm { threads } => format!("warm-get-{threads}"),
            Self::Commit { threads } => format!("commit-{threads}"),
            Self::Queue { threads } => format!("queue-{threads}"),
            Self::Seek => "seek-while-writing".into(),
            Self::Create { threads } => format!("create-{threads}"),
        }
    }

    /// The row of that name.
    pub(crate) fn named(name: &str) -> Result<Self> {
        let unknown = || Error::Invalid(format!("there is no row `{name}`"));
        Self::all().into_iter().find(|work| work.name() == name).ok_or_else(unknown)
    }

    /// The set whose database the row needs, or makes for other rows.
    pub(crate) const fn database(self) -> Option<Set> {
        match self {
            Self::Fill { set, sorted: false } | Self::Get { set, .. } => Some(set),
            Self::Absent { .. } | Self::MultiGet | Self::Scan { .. } | Self::Ycsb { .. } => Some(Set::Small),
            Self::Fill { sorted: true, .. }
            | Self::Warm { .. }
            | Self::Commit { .. }
            | Self::Queue { .. }
            | Self::Seek
            | Self::Create { .. } => None,
        }
    }

    /// Whether the row makes a database in an empty directory.
    pub(crate) const fn makes(self) -> bool {
        match self {
            Self::Fill { .. } | Self::Warm { .. } | Self::Commit { .. } => true,
            Self::Queue { .. } | Self::Seek | Self::Create { .. } => true,
            Self::Get { .. } | Self::Absent { .. } | Self::MultiGet | Self::Scan { .. } | Self::Ycsb { .. } => false,
        }
    }

    /// Whether the memory of the row's process is limited, as for rows that read data many times as large.
    pub(crate) const fn is_limited(self) -> bool {
        !self.makes()
    }

    /// The device limit that is measured before each store, for comparison with the row's rate.
    pub(crate) const fn device(self) -> Option<DeviceLimit> {
        match self {
            Self::Get { threads, .. } | Self::Absent { threads } => Some(DeviceLimit::Reads { depth: threads }),
            Self::MultiGet => Some(DeviceLimit::Reads { depth: MULTI_GET_KEYS }),
            Self::Commit { .. } | Self::Queue { .. } | Self::Create { .. } => Some(DeviceLimit::Flushes),
            _ => None,
        }
    }
}

const fn core_name(core: Core) -> char {
    match core {
        Core::A => 'a',
        Core::B => 'b',
        Core::C => 'c',
        Core::D => 'd',
        Core::E => 'e',
        Core::F => 'f',
    }
}

/// A limit of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DeviceLimit {
    /// Random reads of 4 KiB, with so many in flight.
    Reads { depth: usize },
    /// Writes of 4 KiB, each with its flush.
    Flushes,
}

/// The parameters of a row.
pub(crate) struct Place<'a> {
    pub(crate) contestant: &'a Contestant,
    /// Directory of the database, present or future.
    pub(crate) directory: PathBuf,
    pub(crate) memory: Memory,
    /// Records with small values.
    pub(crate) records: u64,
    pub(crate) pace: Pace,
    pub(crate) seed: u64,
}

impl Place<'_> {
    fn open(&self, durability: Durability) -> Result<Box<dyn Store>> {
        (self.contestant.open)(&self.directory, self.memory, durability)
    }

    /// An empty directory for a database.
    fn make(&self) -> Result<()> {
        clear(&self.directory)?;
        std::fs::create_dir_all(&self.directory).map_err(Error::io("creating", &self.directory))
    }

    fn random(&self, thread: usize) -> SmallRng {
        SmallRng::seed_from_u64(bench::keys::mix(self.seed ^ bench::keys::mix(thread as u64)))
    }
}

/// Removes a directory with its contents, if the directory exists.
pub(crate) fn clear(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("removing", directory)(error)),
        _ => Ok(()),
    }
}

/// A named figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) metric: Metric,
    pub(crate) value: f64,
}

/// The meaning of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Operations, or records of a scan or a fill, per second.
    PerSecond,
    /// For a fill: records per second until all are in the structure and on stable storage.
    FlushedPerSecond,
    /// Bytes read from the device for each operation.
    ReadPerOperation,
    /// Bytes that the device wrote for each operation, including the file system's own writes.
    WrittenPerOperation,
    /// The same for each byte of keys and values.
    WrittenPerByte,
    /// Bytes of files for each byte of keys and values.
    SpacePerByte,
    /// Most bytes of memory that the group of the process had, including the page cache.
    PeakMemory,
}

impl Metric {
    /// The metric's name in files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "per_second",
            Self::FlushedPerSecond => "flushed_per_second",
            Self::ReadPerOperation => "read_bytes_per_operation",
            Self::WrittenPerOperation => "device_written_bytes_per_operation",
            Self::WrittenPerByte => "device_written_bytes_per_byte",
            Self::SpacePerByte => "space_bytes_per_byte",
            Self::PeakMemory => "peak_memory_bytes",
        }
    }
}

/// Does the work of a row.
pub(crate) fn carry_out(work: Work, place: &Place<'_>) -> Result<Vec<Figure>> {
    match work {
        Work::Fill { set, sorted } => fill::run(place, set, sorted),
        Work::Get { set, threads } => read::get(place, set, threads),
        Work::Absent { threads } => read::absent(place, threads),
        Work::MultiGet => read::multi_get(place),
        Work::Scan { records } => scan::run(place, records),
        Work::Ycsb { core, distribution } => ycsb::run(place, core, distribution),
        Work::Warm { threads } => warm::run(place, threads),
        Work::Commit { threads } => commit::run(place, threads),
        Work::Queue { threads } => queue::run(place, threads),
        Work::Seek => seek::run(place),
        Work::Create { threads } => create::run(place, threads),
    }
}

pub(crate) use warm::records as warm_records;

pub(crate) use device::{measure as measure_device, prepare as prepare_device};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_one_row() {
        let all = Work::all();
        for work in &all {
            assert_eq!(Work::named(&work.name()).expect("known"), *work);
        }
        assert!(Work::named("cold-get").is_err());
        assert_eq!(all.len(), 32);
    }

    #[test]
    fn what_changes_a_database_comes_after_what_reads_it() {
        let all = Work::all();
        let last_read = all.iter().rposition(|work| matches!(work, Work::Scan { .. }));
        let first_mix = all.iter().position(|work| matches!(work, Work::Ycsb { .. }));
        assert!(last_read < first_mix);
        assert!(matches!(all[first_mix.expect("some")], Work::Ycsb { core: Core::C, .. }));
    }
}
