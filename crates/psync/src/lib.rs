//! Batched I/O on flash SSDs: many reads, writes and flushes in one call.
//!
//! This is the *psync I/O* of Roh et al., "B+-tree Index Optimization by Exploiting Internal Parallelism of Flash-based
//! Solid State Drives" (PVLDB 5(4), 2011, section 2.3). The unit of this synchronous call is an array of requests, so
//! that one thread keeps all dies of an SSD busy.
//!
//! 1. A [`Psync`] opens the best backend that the machine allows ([`BackendKind`]), and opens [`File`]s.
//! 2. [`Psync::run`] takes a batch of [`Request`]s and returns when all are complete. [`Psync::stream`] keeps a fixed
//!    number of requests in flight and hands completions out as they come.
//! 3. The device reads and writes memory of [`Buffer`]s. A request owns its buffer from submission to completion, so no
//!    caller can free or change bytes that the kernel still uses.
//! 4. [`probe`] measures the device, and derives a profile from the requests of its users.
//! 5. [`sim`] is a disk in memory that loses power, tears writes and fails on demand.
//!
//! Invariants:
//!
//! - Every request gets exactly one [`Completion`] with its own result.
//! - A short transfer is continued, so success means all bytes.
//! - A [`Operation::Flush`] starts after every write that precedes it in the same batch or stream is complete.
//! - The bytes of a successful [`Operation::WriteDurably`] are on stable storage, without a flush.
//!
//! Left to others: the meaning of the bytes, checksums, and the reaction to a failed write or flush.

mod backend;
mod buffer;
mod counters;
mod error;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod json;
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
mod writer;

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
pub use writer::Writer;
