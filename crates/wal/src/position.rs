//! The position of a record, alone or in the group of a slot.
//!
//! The leader of a slot reserves space for the whole group; the bytes of the group come later.

use std::sync::Arc;

use crate::Lsn;
use crate::flush::Wish;
use crate::format::{GROUP_HEADER, GroupHeader, GroupType};
use crate::slot::{Joined, Place};
use sync::{AtomicU32, Mutex, Ordering};

/// The position of an appended record.
#[derive(Clone, Debug)]
pub struct Position {
    /// The record's sequence number; 0 when none was asked for.
    pub seq: u64,
    /// Where the record begins; replay shows the record under the same position.
    pub lsn: Lsn,
    /// Where the record ends: the argument for [`crate::Wal::flush_through`].
    pub end: Lsn,
    /// The group that the record shares with other records of a slot, if it was appended through one.
    pub(crate) group: Option<Arc<Reserved>>,
}

/// Space for a group whose bytes come later.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) lsn: Lsn,
    pub(crate) first_seq: u64,
    pub(crate) joined: Joined,
    /// The sealed group, between its completion and its writing.
    bytes: Mutex<Option<Vec<u8>>>,
    /// Members that asked to be durable.
    asked: AtomicU32,
}

impl Reserved {
    pub(crate) fn new(lsn: Lsn, first_seq: u64, joined: Joined) -> Arc<Self> {
        Arc::new(Self { lsn, first_seq, joined, bytes: Mutex::new(None), asked: AtomicU32::new(0) })
    }

    /// A member's position.
    pub(crate) fn position(self: &Arc<Self>, place: Place, space: usize) -> Position {
        let lsn = Lsn(self.lsn.0 + (GROUP_HEADER + place.offset()) as u64);
        let (seq, end) = (self.first_seq + u64::from(place.index), Lsn(lsn.0 + space as u64));
        Position { seq, lsn, end, group: Some(Arc::clone(self)) }
    }

    /// The wish of a member that wants to be durable: the first member to ask asks for the whole group, a later one for
    /// its own record.
    pub(crate) fn wish(&self, end: Lsn) -> Wish {
        if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            Wish::Group(Lsn(self.lsn.0 + self.space() as u64))
        } else {
            Wish::Member(end)
        }
    }

    /// Takes the group's bytes, from [`GROUP_HEADER`] on, and seals them. From now on the writer may take them.
    pub(crate) fn fill(&self, mut bytes: Vec<u8>, database: &[u8; 16], epoch: u64, durable: Lsn) {
        let header = GroupHeader {
            kind: GroupType::Records,
            length: u32::try_from(bytes.len()).expect("a group fits into a segment of at most 1 GiB"),
            records: self.joined.members,
            lsn: self.lsn,
            epoch,
            durable,
            first_seq: self.first_seq,
        };
        header.seal(database, &mut bytes);
        assert_eq!(bytes.len(), self.space(), "a group takes the space that was reserved");
        *self.bytes.lock() = Some(bytes);
    }

    /// Takes the sealed group, if it is complete.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        self.bytes.lock().take()
    }

    fn space(&self) -> usize {
        GROUP_HEADER + self.joined.bytes
    }
}
