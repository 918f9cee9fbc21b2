//! The words of the log's interface.

use psync::File;

use crate::format::Records;
use crate::{FlushScheme, Lsn};

/// Size of a segment unless a database asks for another.
pub const SEGMENT_BYTES_DEFAULT: u64 = 16 << 20;

/// Files outside the log that records refer to, and that must be durable no later than the records.
pub trait Companions: Send + Sync {
    /// The files written since the last call. A file counts from the moment its write completed, and must be on the
    /// list before the record that refers to the file is appended.
    fn take_unflushed(&self) -> Vec<File>;
}

/// No files outside the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Companions for Alone {
    fn take_unflushed(&self) -> Vec<File> {
        Vec::new()
    }
}

/// How a log is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a segment: a multiple of 4096 from 16 KiB to 1 GiB, the same for the life of the database.
    pub segment_bytes: u64,
    /// Number of this opening: larger than at any earlier opening, and durable before the log is opened. When
    /// read-only, the newest epoch that is known; then only [`Options::clean_end`] and the mark of a close are compared
    /// with it.
    pub epoch: u64,
    /// Identity of the database.
    pub database: [u8; 16],
    /// Replay begins here: the checkpoint's position, which was durable when the checkpoint was written.
    pub start: Lsn,
    /// The segments from the one that holds this position on are kept, though replay begins later, and can be read
    /// ([`crate::Reader`]). Every trim since must have kept them ([`crate::Wal::trim_keeping`]). Without this option
    /// only the segments that replay needs are kept.
    pub keep: Option<Lsn>,
    /// The log is known to be durable up to here, because the checkpoint says so.
    pub durable_floor: Lsn,
    /// The log ends here, because its last user closed the log and nothing was written since. Nothing is then read or
    /// replayed.
    ///
    /// Exception: a group begins here whose epoch is that of the closing or a later one. The epoch of the closing is
    /// the one before [`Options::epoch`], or `epoch` itself when read-only. The log is then read as any other, so an
    /// old mark hides nothing.
    pub clean_end: Option<Lsn>,
    /// A lower bound of the first seq to give out. The checkpoint holds the seq behind its last one, because the
    /// records before `start` may be gone.
    pub next_seq: u64,
    /// Replay only: nothing is written, and appends fail.
    pub read_only: bool,
    /// Which flushes serve which calls.
    pub flush_scheme: FlushScheme,
    /// The caller makes directory entries durable before the first append, together with the other files that the
    /// caller creates.
    pub creates: bool,
}

impl Options {
    /// Options of an empty log of a database.
    #[must_use]
    pub fn new(database: [u8; 16], epoch: u64) -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            epoch,
            database,
            start: Lsn(0),
            keep: None,
            durable_floor: Lsn(0),
            clean_end: None,
            next_seq: 1,
            read_only: false,
            flush_scheme: FlushScheme::default(),
            creates: false,
        }
    }

    /// The newest epoch in which the log can have been closed.
    pub(crate) const fn last_epoch(&self) -> u64 {
        self.epoch - !self.read_only as u64
    }
}

/// The replayer's answer to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The group is applied.
    Accept,
    /// The group refers to something that is missing. Allowed only for a group that is not known durable: the log ends
    /// before the group.
    Tail,
    /// The answer depends on whether the group was durable, which is not known yet. The group is shown once more when
    /// that is known.
    Wait,
}

/// A whole group, as replay shows it.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Where the group begins.
    pub lsn: Lsn,
    /// Where the group ends.
    pub end: Lsn,
    /// The opening that wrote the group.
    pub epoch: u64,
    /// Whether the group is known to have been durable. If so, damage in the group, or in data that its records refer
    /// to, is not a torn tail. None while that is not known yet.
    pub durable: Option<bool>,
    pub(crate) records: Records<'a>,
}

impl<'a> Group<'a> {
    /// The group's records from [`Options::start`] on, in order.
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        self.records.clone()
    }
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Where the accepted log ends, and goes on.
    pub end: Lsn,
    /// The log is known to have been durable up to here.
    pub durable: Lsn,
    /// Groups shown and accepted.
    pub groups: u64,
    /// Records shown and accepted.
    pub records: u64,
    /// Payload bytes of these records.
    pub bytes: u64,
    /// The last seq given out before, as far as the log or the checkpoint tells; 0 when none.
    pub last_seq: u64,
    /// Why the log ends at `end`.
    pub tail: String,
    /// Whether the log had been closed ([`Options::clean_end`]). If so, the log was not read, and the names of its
    /// files are on stable storage.
    pub closed: bool,
}
