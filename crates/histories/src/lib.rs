//! Histories of concurrent transactions: made from seeds, recorded, and searched for isolation anomalies.
//!
//! After Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations" (PVLDB 14(3), 2020), with the
//! anomalies of Adya, "Weak Consistency" (MIT, 1999). It knows nothing of any store but two small traits.
//!
//! 1. A [`Workload`] makes plans of transactions from a seed: points and ranges, few keys, some of them hot (`workload`).
//! 2. A [`Runner`] carries them out against a [`Store`]: step by step in an order that the seed gives, or with threads, and records
//!    what each transaction did and saw as a [`History`] (`run`).
//! 3. [`check`] finds out what must have happened in every execution that explains what was seen: in which order the versions of a key
//!    were written, who read which, who missed which (`inference`, `lists`, `registers`).
//! 4. What transactions owe one another then is a graph, and a cycle in it is an [`Anomaly`], named by its edges (`cycles`). Some
//!    anomalies show without a graph: reads of what was aborted, or never written.
//!
//! A **list** key is appended to, and a read shows all elements in the order in which they were appended: so each read tells the whole
//! history of the key. A **register** is overwritten; versions are ordered only where a transaction wrote what it had read, or where
//! the store tells the seqs of commits. A read of a range is a read of each of its keys, of those it did not find too: these were
//! empty lists, or absent. So a phantom is a read that missed a write of one key.
//!
//! Invariants: what is reported is an anomaly in every execution that could have made the history; of what is only likely, nothing is
//! said. A history that the same seed makes in steps is the same each time.
//!
//! Left to others: stores, and which isolation they promise.

mod anomaly;
mod cycles;
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
