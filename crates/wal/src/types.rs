//! The words of the log's interface.

use std::fmt;
use std::sync::Arc;

use psync::File;

use crate::FlushScheme;
use crate::space::Reserved;

pub use crate::format::{Record, Records};

/// Size of a segment unless a database asks for another.
pub const SEGMENT_BYTES_DEFAULT: u64 = 16 << 20;

/// A byte position in the endless log. Positions are multiples of 8; the first record is not at 0, for every segment begins
/// with a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// What a record is for, and so how far it may go into the spare segments that are left when a full disk allows no new one.
///
/// | spares left | may be entered by |
/// |---|---|
/// | 3 or more | all |
/// | 2 | [`Claim::Delete`], [`Claim::Upkeep`] |
/// | 1 | [`Claim::Upkeep`] |
///
/// The rest of a segment belongs to those who could have entered it, so a put does not fill up what a delete was let into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// It makes the database larger: it leaves at least two spare segments behind.
    Put,
    /// It makes the database smaller in the end, as deletes do: it leaves at least one spare segment behind.
    Delete,
    /// What has to be logged before the log can be trimmed, such as the ends of flushes and of tables: it may take the last.
    Upkeep,
}

impl Claim {
    /// Spare segments that are there for others.
    pub(crate) const fn leaves(self) -> usize {
        match self {
            Self::Put => 2,
            Self::Delete => 1,
            Self::Upkeep => 0,
        }
    }
}

/// Where an appended record is.
#[derive(Clone, Debug)]
pub struct Position {
    /// Its sequence number; 0 when none was asked for.
    pub seq: u64,
    /// Where it begins; replay shows it under the same position.
    pub lsn: Lsn,
    /// Where it ends: what [`crate::Wal::flush_through`] takes.
    pub end: Lsn,
    /// The group that it shares with other records of a slot, if it does.
    pub(crate) group: Option<Arc<Reserved>>,
}

/// Files outside the log that records refer to, and that must be durable no later than the records.
pub trait Companions: Send + Sync {
    /// The files written since the last call. A file counts from the moment its write completed, and must be on the list
    /// before the record that refers to it is appended.
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
    /// read-only the newest that is known, and only [`Options::clean_end`] is held against it.
    pub epoch: u64,
    /// Identity of the database.
    pub database: [u8; 16],
    /// Records from here on are replayed: the checkpoint's position, durable when the checkpoint was written.
    pub start: Lsn,
    /// The segments from the one that holds this position on are kept, though replay begins later: they can be read ([`crate::Reader`]). They
    /// were kept by every trim since ([`crate::Wal::trim_keeping`]). Without it nothing is kept but what replay needs.
    pub keep: Option<Lsn>,
    /// The log is known to be durable up to here, because the checkpoint says so.
    pub durable_floor: Lsn,
    /// The log ends here: who had it open last has closed it, and nothing was written since. Then nothing of it is read, and nothing is replayed, unless a group
    /// begins there of the epoch in which it was closed (the one before [`Options::epoch`], or that one when read-only) or of a later one: so an old mark hides nothing.
    pub clean_end: Option<Lsn>,
    /// The first seq to give out is at least this. The checkpoint holds the seq behind its last one, for the records before
    /// `start` may be gone.
    pub next_seq: u64,
    /// Replay only: nothing is written, nothing can be appended.
    pub read_only: bool,
    /// Which flushes serve which calls.
    pub flush_scheme: FlushScheme,
    /// The caller makes directory entries durable before anything is appended, as part of what it creates.
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
}

/// What a replayer says to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is applied.
    Accept,
    /// It is not whole: what it refers to is missing. Only for a group that is not known durable: the log ends before it.
    Tail,
    /// It depends on whether the group was durable, which is not known yet: it is to be shown once more when that is.
    Wait,
}

/// A whole group, as replay shows it.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Where it begins.
    pub lsn: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// The opening that wrote it.
    pub epoch: u64,
    /// Whether it is known to have been durable: damage in it, or in what it refers to, is no torn tail then. None where that may still turn out.
    pub durable: Option<bool>,
    pub(crate) records: Records<'a>,
}

impl<'a> Group<'a> {
    /// Its records from [`Options::start`] on, in order.
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        self.records.clone()
    }
}

/// What replay found.
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
    /// The last seq that was given out before, as far as the log or the checkpoint tells; 0 when none.
    pub last_seq: u64,
    /// Why the log ends there.
    pub tail: String,
    /// Whether it had been closed ([`Options::clean_end`]): then it was not read, and the names of its files are on stable storage.
    pub closed: bool,
}
