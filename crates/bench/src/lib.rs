//! Workloads, and the device's own limits to hold them against.
//!
//! 1. A [`Config`] names one [`Workload`] and its sizes. [`run()`] carries the workload out on an open database and
//!    returns a [`Report`].
//! 2. Workloads without a natural end (reads, commits) are cut into slices. Before each slice, [`limits`] measures the
//!    device itself on the same file system in the same minute. The report gives the medians over these pairs, because
//!    a machine's speed drifts more between two minutes than between two stores.
//! 3. Keys and values are functions of an index ([`keys`], [`values`]), so a read workload can tell a right value from
//!    a wrong one without knowing how the table was filled. [`ycsb`] has the records, generators and clients of YCSB's
//!    core workloads.
//! 4. [`crash`] is a workload of numbered commits to be killed in the middle, and the check of the records that must
//!    remain.
//! 5. [`reproduce`] repeats the experiments of papers, with the other index structures of [`trees`] and the trace of
//!    [`tpcc`].
//!
//! Invariants:
//!
//! - I/O of a limit measurement is never counted as I/O of the workload.
//! - The rate of a fill, and of a mix that writes, includes the wait until queued operations are applied.
//! - A wrong value is an error, never a number in a table.
//!
//! Left to others: parsing arguments and printing (the command line), and profiling a device for the cost model
//! (`psync::probe`).

mod config;
mod error;
mod latency;
mod report;
mod run;
mod seen;
mod slice;
mod watch;
mod workload;

pub mod block;
pub mod cgroup;
pub mod crash;
pub mod keys;
pub mod limits;
pub mod process;
pub mod queue;
pub mod reproduce;
pub mod tpcc;
pub mod trees;
pub mod values;
pub mod ycsb;

pub use config::{Config, TABLE, Workload};
pub use error::{Error, Result};
pub use report::{DepthRate, Limit, Report};
pub use run::{existing_records, run};
pub use seen::ReadCount;
pub use watch::Watch;
