//! The core workloads of YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", `SoCC` 2010), as its core
//! package defines them.
//!
//! 1. A [`Core`] workload is a mix of two kinds of operations, chosen at random, and a [`Distribution`] of the
//!    requested records ([`Requests`]).
//! 2. The key of a record is `user` and a number, its value the record's fields one after another ([`Shape`]). Each
//!    field by itself identifies the write that made the field, so that a reader detects a torn field, a field of
//!    another record, and a record that is put together from two.
//! 3. A record inserted by the run can be requested as soon as its insert, and all inserts before, have returned
//!    ([`Acknowledged`]).
//!
//! Where a key-value store leaves a choice, the choice is that of YCSB's binding to `RocksDB`. A record is one value,
//! so an update of one field reads the record, changes the field and puts the record; a read-modify-write reads the
//! record once more before. Neither is a transaction.

mod acknowledged;
mod calls;
mod clients;
mod generator;
mod pace;
mod record;

pub use acknowledged::Acknowledged;
pub use calls::{KindReport, Latency, LatencyFrom, YcsbReport};
pub use generator::{Requests, Zipfian};
pub use record::{Shape, fnv_hash};

pub(crate) use calls::Kinds;
pub(crate) use clients::{Clients, existing_records};

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::{Error, Result};

/// The table of records.
pub const TABLE: &str = "usertable";

/// Records of the longest scan; lengths are uniform from 1 on.
pub const SCAN_RECORDS_MAX: u64 = 100;

/// A workload of the core package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// Half reads, half updates, of popular records.
    A,
    /// Reads and a few updates, of popular records.
    B,
    /// Reads of popular records.
    C,
    /// Reads of the newest records, and a few inserts.
    D,
    /// Short scans from popular records on, and a few inserts.
    E,
    /// Half reads, half read-modify-writes, of popular records.
    F,
}

/// The kind of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Reads a record.
    Read,
    /// Writes one field of a record.
    Update,
    /// Puts a new record.
    Insert,
    /// Reads up to [`SCAN_RECORDS_MAX`] records in key order.
    Scan,
    /// Reads a record, then updates it.
    ReadModifyWrite,
}

impl Kind {
    /// The printed name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read-modify-write",
        }
    }
}

impl Core {
    /// All workloads.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];

    /// The more frequent kind of operation, its share, and the other kind.
    #[must_use]
    pub const fn mix(self) -> (Kind, f64, Kind) {
        match self {
            Self::A => (Kind::Read, 0.5, Kind::Update),
            Self::B => (Kind::Read, 0.95, Kind::Update),
            Self::C => (Kind::Read, 1.0, Kind::Read),
            Self::D => (Kind::Read, 0.95, Kind::Insert),
            Self::E => (Kind::Scan, 0.95, Kind::Insert),
            Self::F => (Kind::Read, 0.5, Kind::ReadModifyWrite),
        }
    }

    /// The kind that a number below 1 chooses.
    #[must_use]
    pub fn choose(self, number: f64) -> Kind {
        let (frequent, share, other) = self.mix();
        if number < share { frequent } else { other }
    }

    /// Share of inserts among the operations.
    #[must_use]
    pub fn insert_share(self) -> f64 {
        let (_, share, other) = self.mix();
        if other == Kind::Insert { 1.0 - share } else { 0.0 }
    }

    /// Whether the workload only reads.
    #[must_use]
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::C)
    }

    /// The distribution of requests unless the configuration has another.
    #[must_use]
    pub const fn distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest,
            _ => Distribution::Zipfian,
        }
    }
}

/// The distribution of the requested records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// All records present at the beginning are equally frequent.
    Uniform,
    /// A few records are popular, and scattered over all of them.
    Zipfian,
    /// A few records are popular, the first ones most.
    Clustered,
    /// The newer a record, the more popular.
    Latest,
}

impl Distribution {
    const ALL: [Self; 4] = [Self::Uniform, Self::Zipfian, Self::Clustered, Self::Latest];

    const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipfian => "zipfian",
            Self::Clustered => "clustered",
            Self::Latest => "latest",
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|distribution| distribution.name() == text)
            .ok_or_else(|| format!("`{text}` is none of uniform, zipfian, clustered, latest"))
    }
}

/// The order of keys in which records are inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertOrder {
    /// A record's number is the hash of its index, so the order of insertion is unrelated to the order of keys.
    Hashed,
    /// A record's number is its index.
    Ordered,
}

impl fmt::Display for InsertOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Hashed => "hashed",
            Self::Ordered => "ordered",
        })
    }
}

impl FromStr for InsertOrder {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        [Self::Hashed, Self::Ordered]
            .into_iter()
            .find(|order| order.to_string() == text)
            .ok_or_else(|| format!("`{text}` is neither hashed nor ordered"))
    }
}

/// Further parameters of a YCSB workload.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The shape of the records.
    pub shape: Shape,
    /// Whether an update writes all fields of its record without reading the record before. Otherwise an update reads
    /// the record and writes one field.
    pub write_all_fields: bool,
    /// The distribution of requests, if not the workload's own.
    pub distribution: Option<Distribution>,
    /// Operations of a mix over all slices. Without this number the mix runs for a time.
    pub operations: Option<u64>,
    /// Operations of a mix per second, of all threads together. Without a target each thread does one operation after
    /// another.
    pub target: Option<f64>,
}

impl Settings {
    /// The distribution of requests in a run of `core`.
    #[must_use]
    pub fn distribution(&self, core: Core) -> Distribution {
        self.distribution.unwrap_or(core.distribution())
    }

    /// Refuses a configuration that cannot be run in so many slices.
    pub(crate) fn check(&self, pairs: usize) -> Result<()> {
        self.shape.check()?;
        if let Some(operations) = self.operations.filter(|operations| *operations < pairs as u64) {
            let what = format!("operations are {operations}: each of {pairs} pairs needs one; give fewer pairs");
            return Err(Error::Invalid(what));
        }
        match self.target {
            Some(target) if !(target.is_finite() && target > 0.0) => {
                Err(Error::Invalid(format!("target is {target} operations per second: must be above 0")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for distribution in Distribution::ALL {
            assert_eq!(distribution.to_string().parse(), Ok(distribution));
        }
        for order in [InsertOrder::Hashed, InsertOrder::Ordered] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        assert!("zipf".parse::<Distribution>().expect_err("no such name").contains("zipfian"));
        assert!("random".parse::<InsertOrder>().expect_err("no such name").contains("hashed"));
    }

    #[test]
    fn a_number_chooses_by_share() {
        for core in Core::ALL {
            let (frequent, share, other) = core.mix();
            assert_eq!(core.choose(0.0), frequent);
            assert_eq!(core.choose(share - 0.001), frequent);
            assert_eq!(core.choose(share), other);
        }
        assert_eq!(Core::ALL.map(|core| (core.insert_share() * 100.0).round()), [0.0, 0.0, 0.0, 5.0, 5.0, 0.0]);
    }
}
