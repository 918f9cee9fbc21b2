//! Append-only documents: values too large for an index.
//!
//! A [`DocLog`] holds the documents of one table in segment files `doc/<table>-<segment>.doc`, or the nodes of a table
//! whose index is append-only ([`Content`]).
//!
//! 1. `append` reserves room at the end of the active segment under a short lock, and writes all documents of the call
//!    in one psync, through the page cache. A [`DocPointer`] holds the place of a document and its checksum. Documents
//!    that refer to one another come one by one from an [`Appender`], which knows the place of each before it is
//!    written. A log may compress the documents that it appends ([`Compression`]); the pointer holds the compression
//!    and the original length.
//! 2. The files written are handed to the log (`take_unflushed`), whose flush makes documents durable together with the
//!    commits that refer to them.
//! 3. `read_many` reads any number of documents in one psync and checks every one of them.
//! 4. Per segment, the bytes of live documents are counted: `retain` when a version refers to a document,
//!    `drop_document` when none does any more. A segment without live bytes is unlinked by `release_dead`.
//! 5. Documents that outlived their neighbours are relocated: they are read ([`DocLog::read_stored`]) and appended anew
//!    ([`DocLog::mover`]), to segments of their own, so that the old segments die.
//! 6. Recovery rewrites documents that may not be on the device (`rewrite`) before it relies on them.
//! 7. A [`DocImage`] is the part of a checkpoint for a log: the segments and their live bytes. `open` seals them all; a
//!    log opened anew writes to a new segment.
//! 8. If all references to documents are lost, documents of one length are found by their headers
//!    ([`DocLog::find_by_length`]).
//!
//! Invariants:
//!
//! - The bytes of a document never change once `append` has returned.
//! - Segment numbers are not reused.
//! - A read returns the bytes that were appended or an error, because header, length and checksum are bound to table,
//!   segment and offset.
//!
//! Left to others: which documents are live, when a pointer is durable, and when no reader needs a dead segment any
//! more.

mod ahead;
mod appender;
mod codec;
mod compression;
mod error;
mod fetch;
mod files;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod limits;
mod log;
mod pack;
mod read;
mod rewrite;
mod search;
mod segments;
mod unflushed;

pub use ahead::ReadAhead;
pub use appender::{Appender, PackedDocuments};
pub use codec::Flaw;
pub use compression::Compression;
pub use error::{Error, Result};
pub use files::Content;
pub use format::{DocImage, DocLength, DocPointer, SegmentId, SegmentImage};
pub use limits::DOCUMENT_BYTES_MAX;
pub use log::{DocLog, Reads, SEGMENT_BYTES_DEFAULT};
pub use search::tables_with;
pub use segments::{Retained, Stats, Usage};
pub use unflushed::Unflushed;
