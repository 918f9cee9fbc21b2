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
mod mix;
mod pace;
mod record;
mod settings;

pub use acknowledged::Acknowledged;
pub use calls::{KindReport, Latency, LatencyFrom, YcsbReport};
pub use generator::{Requests, Zipfian};
pub use mix::{Core, Distribution, InsertOrder, Kind, SCAN_RECORDS_MAX, TABLE};
pub use record::{Shape, fnv_hash};
pub use settings::Settings;

pub(crate) use calls::Kinds;
pub(crate) use clients::{Clients, existing_records};
