//! The operation queue (OPQ) of a table: every visible operation that its structure does not have yet (PIO §3.1.3).
//!
//! 1. Operations are appended: bytes go to an [`Arena`], a fixed-size [`Entry`] to a vector, and a hash table maps
//!    each key to its newest entry; entries of one key are chained from newest to oldest. A point lookup costs one probe.
//! 2. Every `SORT_PERIOD` operations (PIO's speriod) the unsorted tail becomes a sorted run; runs of similar size are
//!    merged, so that a range meets a logarithmic number of runs and a short tail.
//! 3. A full queue is frozen: [`Frozen`] sorts it whole, keeps of each key the newest version and those a snapshot can see,
//!    and is the batch that a structure applies.
//!
//! Invariants: entries are never changed or removed; all entries of one commit are appended before its seq is visible, so a
//! reader at a visible seq sees all of a commit or nothing. A queue covers a gapless interval of seqs.
//!
//! Left to others: when to freeze, and what is visible.

mod arena;
mod frozen;
mod queue;

pub(crate) use frozen::Frozen;
pub(crate) use queue::{Opq, Step};
