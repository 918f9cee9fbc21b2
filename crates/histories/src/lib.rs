//! Histories of concurrent transactions: made from seeds, recorded, and searched for isolation anomalies.
//!
//! The method is that of Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations"
//! (PVLDB 14(3), 2020), with the anomalies of Adya, "Weak Consistency" (MIT, 1999). The crate knows a store only by two
//! small traits.
//!
//! 1. A [`Workload`] makes plans of transactions from a seed: points and ranges of few keys, some of them hot
//!    (`workload`).
//! 2. A [`Runner`] carries the plans out against a [`Store`]: step by step in an order that the seed gives, or with
//!    threads. The operations of each transaction and their results are recorded as a [`History`] (`run`).
//! 3. [`check`] infers facts that hold in every execution that explains the reads: the order in which the versions of a
//!    key were written, the readers of each version, and the readers that missed a version (`inference`, `lists`,
//!    `registers`).
//! 4. These dependencies between transactions form a graph. A cycle in the graph is an [`Anomaly`], named by its edges
//!    (`cycles`). Some anomalies show without a graph: reads of aborted writes, or of elements never written.
//!
//! Keys have one of two models:
//!
//! - A **list** key is appended to. A read shows all elements in the order in which they were appended, so each read
//!   tells the whole history of the key.
//! - A **register** is overwritten. Its versions are ordered only where a transaction wrote a register that it had
//!   read, or where the store tells the seqs of commits.
//!
//! A read of a range is a read of each of its keys, including the keys that were not found: these were empty lists, or
//! absent registers. A phantom is therefore a read that missed a write of one key.
//!
//! Invariants:
//!
//! - A reported anomaly is one in every execution that could have made the history. A merely likely anomaly is not
//!   reported.
//! - A history made in steps is the same each time for the same seed.
//!
//! Left to others: stores, and the isolation that they promise.

mod anomaly;
mod cycles;
mod findings;
mod history;
mod inference;
mod lists;
mod registers;
mod run;
mod store;
mod workload;

pub use anomaly::{Anomaly, Dependency, DependencyKind, Kind, Proof, Report};
pub use history::{Element, History, HistoryError, Isolation, Key, Operation, Outcome, Transaction, TxnId};
pub use inference::{Options, check, check_with};
pub use run::Runner;
pub use store::{Failure, Store, Txn};
pub use workload::{Model, Plan, Step, Workload};
