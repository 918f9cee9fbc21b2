//! The mixes, distributions and orders of the core workloads.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

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

    fn from_str(text: &str) -> Result<Self, String> {
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

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Hashed, Self::Ordered]
            .into_iter()
            .find(|order| order.to_string() == text)
            .ok_or_else(|| format!("`{text}` is neither hashed nor ordered"))
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
