//! Batched I/O on flash SSDs: many reads, writes and flushes in one call.
//!
//! This is the *psync I/O* of Roh et al., "B+-tree Index Optimization by Exploiting Internal Parallelism of Flash-based Solid
//! State Drives" (PVLDB 5(4), 2011, section 2.3): a synchronous call whose unit is an array of requests, so that one thread
//! keeps all dies of an SSD busy.
//!
//! 1. A [`Psync`] is opened on the best backend that the machine allows ([`BackendKind`]), and opens [`File`]s.
//! 2. [`Psync::run`] takes a batch of [`Request`]s and returns when all are complete; [`Psync::stream`] keeps a fixed number
//!    in flight and hands completions out as they come.
//! 3. Memory that the device reads or writes is a [`Buffer`]. A request owns it from submission to completion, so no
//!    caller can free or change bytes that the kernel still uses.
//! 4. [`probe`] measures what the device can do, and says what the requests of its users showed of that; [`sim`] is a disk in memory that loses power, tears writes and fails on demand.
//!
//! Invariants: every request gets exactly one [`Completion`] with its own result; a short transfer is continued, so success
//! means all bytes; a [`Operation::Flush`] starts after every write that precedes it in the same batch or stream is complete; an
//! [`Operation::WriteDurably`] that succeeded is on stable storage, by itself.
//!
//! Left to others: what the bytes mean, checksums, and what to do after a failed write or flush.

mod backend;
mod buffer;
mod counters;
mod error;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod learn;
mod names;
pub mod probe;
mod profile;
mod psync;
mod queue;
mod request;
pub mod sim;
mod spares;
mod stream;
mod traffic;

pub use backend::BackendKind;
pub use buffer::{BLOCK, Buffer, SECTOR};
pub use counters::{Counters, CountersSnapshot};
pub use error::{Error, Result};
pub use file::{File, OpenOptions};
pub use names::{Identity, Lock};
pub use psync::{PIO_MAX_DEFAULT, PIO_MAX_LIMIT, Psync};
pub use request::{Completion, Operation, Request};
pub use spares::Spares;
pub use stream::Stream;
pub use traffic::Background;
