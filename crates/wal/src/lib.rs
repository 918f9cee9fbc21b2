//! The write-ahead log: segments, group commit, checksums, replay.
//!
//! The log is an endless row of bytes; an [`Lsn`] is a position in that row. The log is cut into segments of equal
//! size. Each segment is a file that is written once before its use, so that a flush changes no metadata of the file
//! system.
//!
//! 1. [`Wal::append`] takes log space and, if asked, the next sequence number in one atomic step. So **the order of
//!    seqs is the order of the log** (`space`). A thread that finds the end of the log free copies its record there.
//!    Another thread joins a slot; the leader of the slot takes space for all members, and they copy at the same time
//!    (`array`, `slot`).
//! 2. [`Wal::write_through`] closes the open group and writes the pending bytes, one write at a time. Records appended
//!    meanwhile gather in the next group (`write`). Written bytes survive the process.
//! 3. [`Wal::commit`] and [`Wal::flush_through`] queue a request. One caller leads: it writes and flushes once for all
//!    queued requests, and then wakes their callers with the outcome (`flush`; for other ways see [`FlushScheme`]).
//!    Files of the layer above that the records refer to ([`Companions`]) are flushed in the same batch.
//! 4. [`Wal::trim`] recycles the files of segments that no checkpoint needs; [`Wal::prepare`] makes new files ahead of
//!    time (`segment`).
//! 5. A [`Reader`] follows the log behind its writer, from any seq that the log still holds (`reader`).
//! 6. [`Wal::open`] walks the groups from the position of the checkpoint, tells a torn tail from damage, and hands
//!    every record to its caller (`replay`).
//! 7. A record that is longer than a segment is cut into parts, which fill segments of their own (`parts`).
//! 8. A [`Salvage`] reads the remains of a damaged log, over its holes (`salvage`).
//!
//! Invariants:
//!
//! - The written part of the log is a prefix without a hole, and so is the durable part.
//! - A group never crosses a segment.
//! - No two writes of one block are in flight together.
//! - After a failed write or flush nothing more is written, and every refused call gives that failure as its reason.
//!
//! Left to others: the meaning of records, the time of checkpoints, the uuid and the epoch of the database, and
//! excluding a second process.

mod append;
mod array;
mod backoff;
mod check;
mod claim;
mod error;
mod extent;
mod failure;
mod flush;
mod format;
#[cfg(test)]
mod format_tests;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod geometry;
mod lsn;
#[cfg(all(test, feature = "shuttle"))]
mod models;
mod parts;
mod position;
mod reader;
mod record;
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

pub use claim::Claim;
pub use error::{Error, Failure, Result};
pub use format::{Record, Records};
pub use lsn::Lsn;
pub use position::Position;
pub use reader::Reader;
pub use salvage::{Hints, Hole, Left, Salvage};
pub use scheme::{FlushScheme, UnknownFlushScheme};
pub use segment::{QUIET_ROOM, beyond_new};
pub use stats::Stats;
pub use types::{Alone, Companions, Group, Options, Replayed, SEGMENT_BYTES_DEFAULT, Verdict};
pub use wal::{Announce, SEQUENCED_BYTES_MAX, Wal};
