//! The write-ahead log: segments, group commit, checksums, replay.
//!
//! The log is an endless row of bytes; an [`Lsn`] is a position in it. It is cut into segments of equal size, each a file that
//! was written once before it is used, so that a flush changes no metadata of the file system.
//!
//! 1. [`Wal::append`] takes log space and, if asked, the next sequence number in one atomic step, so **the order of seqs is the
//!    order of the log** (`space`). A thread that finds the end of the log free copies its record there; one that does not joins a slot,
//!    whose leader takes space for all in it, and they copy at the same time (`array`, `slot`).
//! 2. [`Wal::write_through`] closes the open group and writes what is there, one write at a time; what is appended meanwhile gathers
//!    in the next group (`write`). Written bytes survive the process.
//! 3. [`Wal::commit`] and [`Wal::flush_through`] queue a request; whoever wins writes and flushes once for all that queued, and wakes them when
//!    it succeeded (`flush`, and in other ways: [`FlushScheme`]). Files of the layer above that the records refer to ([`Companions`]) are
//!    flushed in the same batch.
//! 4. [`Wal::trim`] recycles the files of segments that no checkpoint needs; [`Wal::prepare`] makes new ones ahead of time
//!    (`segment`).
//! 5. A [`Reader`] follows the log behind its writer, from any seq that is still there (`reader`).
//! 6. [`Wal::open`] walks the groups from the checkpoint's position, tells a torn tail from damage, and hands every record to
//!    its caller (`replay`).
//! 7. A [`Salvage`] reads what is left of a damaged log, over its holes (`salvage`).
//!
//! Invariants: what is written is a prefix of the log without a hole, and so is what is durable; a group never crosses a segment;
//! no two writes of one block are in flight together; after a failed write or flush nothing is written any more, and every
//! call says why.
//!
//! Left to others: what records mean, when to checkpoint, the uuid and the epoch of the database, and excluding a second
//! process.

mod append;
mod array;
mod backoff;
mod check;
mod error;
mod failure;
mod flush;
mod format;
#[cfg(test)]
mod format_tests;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod geometry;
#[cfg(all(test, feature = "shuttle"))]
mod models;
mod reader;
mod replay;
mod salvage;
mod scan;
mod scheme;
mod segment;
mod settle;
mod show;
mod slot;
#[cfg(all(test, not(feature = "shuttle")))]
mod slot_tests;
mod space;
mod stats;
mod types;
mod wal;
mod write;

pub use error::{Error, Result};
pub use failure::Failure;
pub use reader::Reader;
pub use salvage::{Hints, Hole, Left, Salvage};
pub use scheme::{FlushScheme, UnknownFlushScheme};
pub use segment::{QUIET_ROOM, beyond_new};
pub use stats::Stats;
pub use types::{
    Alone, Claim, Companions, Group, Lsn, Options, Position, Record, Records, Replayed, SEGMENT_BYTES_DEFAULT, Verdict,
};
pub use wal::{Announce, Wal};
