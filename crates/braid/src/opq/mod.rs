//! The operation queues (OPQ) of a table: every visible operation that its structure does not have yet (PIO §3.1.3).
//!
//! 1. The keys of a table are cut into [`Sections`], each with a queue of its own.
//! 2. Operations are appended: bytes go to an [`Arena`], a fixed-size [`Entry`] to a vector, and a hash table maps
//!    each key to its newest entry; entries of one key are chained from newest to oldest. A point lookup costs one probe; one of a key
//!    that a [`filter`] does not know takes no lock.
//! 3. Every `speriod` operations the unsorted tail becomes a sorted run; runs of similar size are merged, so that a range meets a
//!    logarithmic number of runs and a short tail.
//! 4. Some full queues are frozen together: [`Frozen`] sorts them whole, keeps of each key the newest version and those a snapshot can
//!    see, and is the batch that a structure applies.
//!
//! What recovery replays waits in a [`Sequence`], without table and runs, until it is known which section it belongs to.
//!
//! Invariants: entries are never changed or removed; all entries of one commit are appended before its seq is visible, so a
//! reader at a visible seq sees all of a commit or nothing. A queue covers a gapless interval of seqs of its section.
//!
//! Left to others: what to freeze and when, and what is visible.

mod arena;
mod entries;
mod filter;
mod frozen;
mod queue;
mod sections;
mod sequence;

pub(crate) use arena::ARENA_BYTES_MAX;
pub(crate) use frozen::Frozen;
pub(crate) use queue::{Opq, SORT_PERIOD, Step};
pub(crate) use sections::{Sections, SectionsWalk};
pub(crate) use sequence::Sequence;
