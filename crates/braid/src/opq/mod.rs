//! The operation queues (OPQ) of a table: every visible operation that its structure does not have yet (PIO §3.1.3).
//!
//! 1. The keys of a table are cut into [`Sections`], each with a queue of its own.
//! 2. Operations are appended: bytes go to an [`Arena`], a fixed-size [`Entry`] to a vector. A tree ([`ordered`]) leads
//!    to the newest entry of each key, in key order; entries of one key are chained from newest to oldest. A point
//!    lookup of a key that is not in the [`filter`] takes no lock. For experiments a queue has the order of the paper
//!    instead: sorted runs, and a tail that is sorted every `speriod` operations ([`runs`]).
//! 3. Some full queues are frozen together. [`Frozen`] keeps the newest version of each key and those that a snapshot
//!    can see, and is the batch that a structure applies.
//!
//! Operations that recovery replays wait in a [`Sequence`], without an order, until their section is known. All
//! operations of a section are then put in order at once ([`Opq::of`]).
//!
//! Invariants: entries of a queue are never changed or removed; all entries of one commit are appended before its seq
//! is visible, so a reader at a visible seq sees all of a commit or nothing. A queue covers a gapless interval of seqs
//! of its section.
//!
//! Left to others: which queues to freeze and when, and which seqs are visible.

mod arena;
mod entries;
mod filter;
mod frozen;
mod ordered;
mod queue;
mod runs;
mod sections;
mod sequence;
mod sort;

pub(crate) use arena::ARENA_BYTES_MAX;
pub(crate) use frozen::Frozen;
pub(crate) use queue::{Opq, Pass, Passed, Sorting, Step};
pub(crate) use sections::{Sections, SectionsWalk};
pub(crate) use sequence::Sequence;
