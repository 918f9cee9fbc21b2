//! The configuration of a run: one workload and its sizes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use braid::{Compression, Durability, Structure};

use crate::error::within;
use crate::values::Values;
use crate::ycsb::{Core, Settings};
use crate::{Error, Result, keys, ycsb};

/// The table that workloads fill and read; YCSB workloads have another.
pub const TABLE: &str = "bench";

/// The table of the workload of jobs.
pub(crate) const QUEUE_TABLE: &str = "queue";

/// One workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Puts every key once, in key order, into an empty table.
    FillSeq,
    /// Puts every key once, in an order that is a random permutation, into an empty table.
    FillRandom,
    /// Puts random keys that exist already.
    Overwrite,
    /// One `get` at a time.
    ReadRandom,
    /// `get_many` of a batch of random keys at a time.
    MultiReadRandom,
    /// A scan in key order.
    ReadSeq,
    /// Seeks to a random key and reads the records that follow.
    SeekRandom,
    /// One `get` at a time, both while queued puts are applied and without any writes: the cost of the writes to the
    /// reads.
    ReadWhileWriting,
    /// Seeks to a random key and reads the records that follow, while another thread writes at a set rate.
    SeekRandomWhileWriting,
    /// Commits, each waited for.
    Commit,
    /// Jobs that are pushed, claimed as the first waiting job, and acknowledged.
    Queue,
    /// Inserts the records of YCSB, in the order of their indexes, into an empty table.
    YcsbLoad,
    /// A core workload of YCSB.
    Ycsb(Core),
}

impl Workload {
    /// Every workload, in the order of the help text.
    pub const ALL: [Self; 18] = [
        Self::FillSeq,
        Self::FillRandom,
        Self::Overwrite,
        Self::ReadRandom,
        Self::MultiReadRandom,
        Self::ReadSeq,
        Self::SeekRandom,
        Self::ReadWhileWriting,
        Self::SeekRandomWhileWriting,
        Self::Commit,
        Self::Queue,
        Self::YcsbLoad,
        Self::Ycsb(Core::A),
        Self::Ycsb(Core::B),
        Self::Ycsb(Core::C),
        Self::Ycsb(Core::D),
        Self::Ycsb(Core::E),
        Self::Ycsb(Core::F),
    ];

    /// The workload's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FillSeq => "fillseq",
            Self::FillRandom => "fillrandom",
            Self::Overwrite => "overwrite",
            Self::ReadRandom => "readrandom",
            Self::MultiReadRandom => "multireadrandom",
            Self::ReadSeq => "readseq",
            Self::SeekRandom => "seekrandom",
            Self::ReadWhileWriting => "readwhilewriting",
            Self::SeekRandomWhileWriting => "seekrandomwhilewriting",
            Self::Commit => "commit",
            Self::Queue => "queue",
            Self::YcsbLoad => "ycsb-load",
            Self::Ycsb(Core::A) => "ycsb-a",
            Self::Ycsb(Core::B) => "ycsb-b",
            Self::Ycsb(Core::C) => "ycsb-c",
            Self::Ycsb(Core::D) => "ycsb-d",
            Self::Ycsb(Core::E) => "ycsb-e",
            Self::Ycsb(Core::F) => "ycsb-f",
        }
    }

    /// Whether the workload starts from an empty table.
    #[must_use]
    pub const fn fills(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::Queue | Self::YcsbLoad)
    }

    /// Whether the operations are writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        self.fills() || matches!(self, Self::Overwrite | Self::Commit)
    }

    /// Whether at least some of the operations are reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        !self.writes()
    }

    /// Whether nothing is written while the workload runs.
    #[must_use]
    pub const fn only_reads(self) -> bool {
        match self {
            Self::ReadWhileWriting | Self::SeekRandomWhileWriting => false,
            Self::Ycsb(core) => core.only_reads(),
            _ => self.reads(),
        }
    }

    /// Whether the puts are applied before the workload's time ends. Each slice of a mix applies its queued puts within
    /// its own time, so that the slice pays for them and the device is quiet while the limit is measured.
    #[must_use]
    pub const fn drains(self) -> bool {
        match self {
            Self::Commit | Self::ReadWhileWriting | Self::SeekRandomWhileWriting => false,
            _ => !self.only_reads(),
        }
    }

    /// The table that the workload fills or reads.
    #[must_use]
    pub const fn table(self) -> &'static str {
        match self {
            Self::Queue => QUEUE_TABLE,
            _ if self.is_ycsb() => ycsb::TABLE,
            _ => TABLE,
        }
    }

    /// Whether the workload is of YCSB.
    #[must_use]
    pub const fn is_ycsb(self) -> bool {
        matches!(self, Self::YcsbLoad | Self::Ycsb(_))
    }

    /// Whether the workload runs for a time, in slices with the device's limit measured between them, rather than for a
    /// number of records.
    #[must_use]
    pub const fn is_sliced(self) -> bool {
        self.reads() || matches!(self, Self::Commit)
    }

    /// Whether another thread writes while the workload runs. Its figures are then compared with those of the same
    /// reads without a writer.
    #[must_use]
    pub(crate) const fn has_writer(self) -> bool {
        matches!(self, Self::ReadWhileWriting | Self::SeekRandomWhileWriting)
    }

    /// Operations of this workload in one call when the command line gives no number.
    #[must_use]
    pub const fn default_batch(self) -> usize {
        match self {
            Self::MultiReadRandom => 128,
            Self::SeekRandom => 10,
            _ => 1,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL.into_iter().find(|workload| workload.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|workload| workload.name()).collect();
            format!("no workload `{text}`: choose from {}", names.join(", "))
        })
    }
}

/// One workload and its sizes.
#[derive(Clone, Debug)]
pub struct Config {
    /// The workload.
    pub workload: Workload,
    /// Records in the table.
    pub num: u64,
    /// Bytes of a key, at least [`Config::KEY_SIZE_MIN`].
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Client threads.
    pub threads: usize,
    /// Operations in one call: keys of a `get_many`, puts of a write batch, records read after a seek.
    pub batch: usize,
    /// Durability of writes; stated in every report.
    pub durability: Durability,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Time of a sliced workload, over all slices. The others run for `num` records, however long that takes. No limit
    /// of the device is measured for longer.
    pub duration: Option<Duration>,
    /// Number of pairs (limit, slice) of a sliced workload.
    pub pairs: usize,
    /// Empty the database's cache and the operating system's before the run.
    pub cold: bool,
    /// Share of puts, from 0 to 1, for which the cost model chooses the leaves of a table that a fill creates.
    pub insert_share: f64,
    /// Structure of a table that the run creates.
    pub structure: Structure,
    /// Compression of large values of a table that the run creates.
    pub compression: Compression,
    /// Share of a value that is zeros, from 0 to 1; the other bytes do not compress. YCSB values have no zeros.
    pub compressible: f64,
    /// Warm-up of a sliced workload, which does not count [default: as long as a slice, a second at most].
    pub warm_up: Option<Duration>,
    /// Options of YCSB workloads alone.
    pub ycsb: Settings,
    /// Cache bytes of the open database, for the report.
    pub cache_bytes: u64,
    /// Write buffer bytes of the open database, for the report.
    pub write_buffer_bytes: u64,
}

impl Config {
    /// A key begins with its index as 8 bytes.
    pub const KEY_SIZE_MIN: usize = 8;
    /// Time of a sliced workload over all slices when [`Config::duration`] is none.
    pub const DURATION: Duration = Duration::from_secs(5);
    /// Most client threads.
    pub const THREADS_MAX: usize = 1024;
    /// Most operations in one call.
    pub const BATCH_MAX: usize = 1 << 20;

    /// Refuses a configuration that cannot be run.
    ///
    /// # Errors
    /// Names the option, its value and its limit.
    pub fn check(&self) -> Result<()> {
        within("num", self.num, 1, u64::MAX >> 2)?;
        let key_bytes_max = self.structure.key_bytes_max();
        within("key size", self.key_size as u64, Self::KEY_SIZE_MIN as u64, key_bytes_max as u64)?;
        within("value size", self.value_size as u64, 0, braid::VALUE_BYTES_MAX)?;
        within("threads", self.threads as u64, 1, Self::THREADS_MAX as u64)?;
        within("batch", self.batch as u64, 1, Self::BATCH_MAX as u64)?;
        within("pairs", self.pairs as u64, 1, 1000)?;
        if !(0.0..=1.0).contains(&self.insert_share) {
            return Err(Error::Invalid(format!("insert share is {}: must be from 0 to 1", self.insert_share)));
        }
        if !(0.0..=1.0).contains(&self.compressible) {
            return Err(Error::Invalid(format!("compressible share is {}: must be from 0 to 1", self.compressible)));
        }
        if self.workload.is_ycsb() { self.ycsb.check(self.pairs) } else { Ok(()) }
    }

    /// Bytes of a key; of the longest key where sizes differ.
    #[must_use]
    pub const fn key_bytes(&self) -> usize {
        if self.workload.is_ycsb() { self.ycsb.shape.key_bytes() } else { self.key_size }
    }

    /// Bytes of a value.
    #[must_use]
    pub const fn value_bytes(&self) -> usize {
        if self.workload.is_ycsb() { self.ycsb.shape.value_bytes() } else { self.value_size }
    }

    /// The kind of the values.
    pub(crate) const fn values(&self) -> Values {
        Values { zeros: self.compressible }
    }

    /// Operations of a slice, where their number is given. A slice is one of [`Self::pairs`], or the whole run.
    pub(crate) fn slice_operations(&self, slice: usize) -> Option<u64> {
        match self.workload {
            Workload::Ycsb(_) => self.ycsb.operations.map(|operations| {
                let share = keys::share(operations, slice, self.pairs);
                share.end - share.start
            }),
            workload if workload.is_sliced() => None,
            _ => Some(self.num),
        }
    }

    /// Bytes of one record as the user counts them: key and value.
    #[must_use]
    pub const fn record_bytes(&self) -> u64 {
        self.key_bytes() as u64 + self.value_bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
            assert_ne!(workload.reads(), workload.writes());
        }
        assert!("fillrand".parse::<Workload>().expect_err("no such name").contains("fillrandom"));
    }
}
