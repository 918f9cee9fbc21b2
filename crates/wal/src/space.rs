//! The end of the log: space, seqs, and the bytes that are not written yet.
//!
//! 1. A direct append takes space at the end of the log, and the next seq if asked, and copies its record: one step
//!    under one lock. Such records gather in the open group.
//! 2. The leader of a slot takes space for a whole group, and the seqs of its members, in one step too. The bytes come
//!    later ([`Reserved`]), without the lock.
//! 3. Unwritten space is a row of [`Piece`]s without a gap: batches of copied records, which do not cross segments, and
//!    reserved groups.
//! 4. A record or a group that does not fit into the rest of the segment goes into the next one. The open group is
//!    closed, and a pad marks the rest as unused if a group header fits there.
//! 5. A record that is longer than a segment begins in the next segment, and each of its parts fills one, the last part
//!    excepted.
//! 6. The writer takes pieces from the front, up to the first whose bytes are missing, and seals them outside the lock.
//!    A writer that gets as far as the open group closes that group.
//!
//! Invariants:
//!
//! - The order of seqs is the order of positions.
//! - The space taken has no hole.
//! - When a record is refused for want of spare segments, nothing has changed.
//! - The segment in which the log ends is filled only by records whose claim would have let them enter that segment.
//!
//! Left to others: files, writing, and the meaning of records.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::format::{GROUP_HEADER, GroupHeader, GroupType, push_record, record_space};
use crate::geometry::Geometry;
use crate::parts::stretch;
use crate::position::Reserved;
use crate::record::NewRecord;
use crate::segment::{Pool, SegmentFile, Wanted};
use crate::slot::Joined;
use crate::{Claim, Lsn, Position};

/// Most bytes that a batch allocates before it needs them.
const ROOM_BYTES_MAX: usize = 64 << 10;

/// A group within a batch.
#[derive(Clone, Copy, Debug)]
struct Span {
    kind: GroupType,
    begin: usize,
    end: usize,
    records: u32,
    sequenced: u32,
    first_seq: u64,
}

/// Bytes of one segment that are to be written in one piece.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) number: u64,
    pub(crate) segment: Arc<SegmentFile>,
    /// The segment's header must be written too.
    pub(crate) activate: bool,
    pub(crate) lsn: Lsn,
    pub(crate) bytes: Vec<u8>,
    /// Groups that are to be sealed.
    spans: Vec<Span>,
    /// Groups that are sealed.
    sealed: usize,
}

impl Batch {
    fn new(number: u64, segment: Arc<SegmentFile>, activate: bool, lsn: Lsn, room: usize) -> Self {
        let bytes = Vec::with_capacity(room);
        Self { number, segment, activate, lsn, bytes, spans: Vec::new(), sealed: 0 }
    }

    fn begin_group(&mut self, kind: GroupType, first_seq: u64) {
        let begin = self.bytes.len();
        self.bytes.resize(begin + GROUP_HEADER, 0);
        let end = self.bytes.len();
        self.spans.push(Span { kind, begin, end, records: 0, sequenced: 0, first_seq });
    }

    fn group_is_open(&self) -> bool {
        self.spans.last().is_some_and(|span| span.kind == GroupType::Records)
    }

    pub(crate) fn groups(&self) -> usize {
        self.sealed + self.spans.len()
    }

    /// Writes headers and checksums of all groups.
    pub(crate) fn seal(&mut self, database: &[u8; 16], epoch: u64, durable: Lsn) {
        for span in &self.spans {
            let header = GroupHeader {
                kind: span.kind,
                length: u32::try_from(span.end - span.begin).expect("a group fits into a segment of at most 1 GiB"),
                records: span.records,
                lsn: Lsn(self.lsn.0 + span.begin as u64),
                epoch,
                durable,
                first_seq: span.first_seq,
            };
            header.seal(database, &mut self.bytes[span.begin..span.end]);
        }
    }
}

/// An unwritten stretch of the log, in one segment.
#[derive(Debug)]
enum Piece {
    Copied(Batch),
    Reserved(Reservation),
}

/// A reserved group and its segment.
#[derive(Debug)]
struct Reservation {
    number: u64,
    segment: Arc<SegmentFile>,
    activate: bool,
    reserved: Arc<Reserved>,
}

impl Piece {
    fn lsn(&self) -> Lsn {
        match self {
            Self::Copied(batch) => batch.lsn,
            Self::Reserved(reservation) => reservation.reserved.lsn,
        }
    }

    /// The bytes to write, or the piece itself while its bytes are missing.
    fn into_batch(self) -> Result<Batch, Self> {
        match self {
            Self::Copied(batch) => Ok(batch),
            Self::Reserved(reservation) => {
                let Some(bytes) = reservation.reserved.take() else {
                    return Err(Self::Reserved(reservation));
                };
                let Reservation { number, segment, activate, reserved } = reservation;
                Ok(Batch { number, segment, activate, lsn: reserved.lsn, bytes, spans: Vec::new(), sealed: 1 })
            }
        }
    }
}

/// The end of the log.
#[derive(Debug)]
pub(crate) struct Space {
    geometry: Geometry,
    number: u64,
    segment: Arc<SegmentFile>,
    /// The least claim that the current segment is open to. A lesser claim is let in while there are as many spares as
    /// that claim leaves.
    claim: Claim,
    /// The header of the current segment was not taken for writing yet.
    activate: bool,
    end: Lsn,
    next_seq: u64,
    pieces: VecDeque<Piece>,
    pending: usize,
    /// Bytes of the last batch that was taken: the probable need of the next one, allocated at once so that the batch
    /// does not grow under the lock.
    room: usize,
    is_closed: bool,
}

impl Space {
    /// An end of the log at `end`, where a group can begin, in `segment`.
    pub(crate) fn new(geometry: Geometry, segment: Arc<SegmentFile>, activate: bool, end: Lsn, next_seq: u64) -> Self {
        assert_eq!(geometry.normal(end), end, "a group can begin there");
        let number = geometry.number(end);
        // The first put checks whether the spares exist, if any are required.
        let claim = Claim::Upkeep;
        Self {
            geometry,
            number,
            segment,
            claim,
            activate,
            end,
            next_seq,
            pieces: VecDeque::new(),
            pending: 0,
            room: 0,
            is_closed: false,
        }
    }

    /// Position behind the last record.
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// The seq that the next sequenced record gets.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Bytes that no writer has taken yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Ends the log for appends, with the mark of a close if there is room for one. Returns whether there is.
    pub(crate) fn close(&mut self) -> bool {
        let marks =
            !self.is_closed && self.rest() >= GROUP_HEADER && self.has_room(GROUP_HEADER, Claim::Upkeep).is_ok();
        if marks {
            self.push_mark(GroupType::Closing);
        }
        self.is_closed = true;
        marks
    }

    /// Appends a group without records: the mark of an opening or a close of the log.
    pub(crate) fn push_mark(&mut self, kind: GroupType) {
        let first_seq = self.next_seq;
        self.batch().begin_group(kind, first_seq);
        self.grow(GROUP_HEADER);
    }

    /// Ends the current segment and goes on in `segment`, with a group without records. Returns false, and does
    /// nothing, where the pad has no room.
    pub(crate) fn turn_over(&mut self, segment: &Arc<SegmentFile>, pool: &Pool) -> bool {
        if self.is_closed || self.has_room(GROUP_HEADER.min(self.rest()), Claim::Upkeep).is_err() {
            return false;
        }
        pool.enlist(self.number + 1, segment, self.next_seq);
        self.enter(Arc::clone(segment));
        self.claim = Claim::Upkeep;
        self.push_mark(GroupType::Opening);
        true
    }

    /// Takes space for a record, and a seq if asked, and copies the record, going on in a segment of the pool if
    /// needed. On an error, which says what must be made first, nothing has changed.
    pub(crate) fn append(&mut self, record: &NewRecord<'_>, claim: Claim, pool: &Pool) -> Result<Position, Wanted> {
        if record.payload_len as usize > self.geometry.record_bytes_max() {
            return self.append_parts(record, claim, pool);
        }
        let space = record_space(record.payload_len as usize);
        let open = matches!(self.pieces.back(), Some(Piece::Copied(batch)) if batch.group_is_open());
        self.admit(space + if open { 0 } else { GROUP_HEADER }, claim, pool)?;
        let first_seq = self.next_seq;
        let batch = self.batch();
        if !batch.group_is_open() {
            batch.begin_group(GroupType::Records, first_seq);
            self.grow(GROUP_HEADER);
        }
        let lsn = self.end;
        let NewRecord { kind, payload, payload_len, sequenced } = *record;
        self.copy(kind, payload.iter().copied(), payload_len, sequenced);
        let seq = if record.sequenced { self.next_seq } else { 0 };
        self.next_seq += u64::from(record.sequenced);
        Ok(Position { seq, lsn, end: self.end, group: None })
    }

    /// As `append`, for a sequenced record that is longer than a segment.
    fn append_parts(&mut self, record: &NewRecord<'_>, claim: Claim, pool: &Pool) -> Result<Position, Wanted> {
        if self.is_closed {
            return Err(Wanted::Opening);
        }
        assert!(record.sequenced, "parts without a seq are passed over");
        let (length, most) = (record.payload_len as usize, self.geometry.record_bytes_max());
        let count = self.geometry.parts(length);
        // The pad still goes into this segment.
        self.has_room(GROUP_HEADER.min(self.rest()), claim)?;
        let seq = self.next_seq;
        let segments = pool.take_row(self.number + 1, count, claim, seq);
        let segments = segments.ok_or(Wanted::Spares(claim.leaves() + count))?;
        let mut lsn = self.end;
        for (part, segment) in segments.into_iter().enumerate() {
            self.enter(segment);
            let kind = match part {
                0 => GroupType::FirstPart,
                _ if part + 1 < count => GroupType::FurtherPart,
                _ => GroupType::LastPart,
            };
            let (from, to) = (part * most, length.min((part + 1) * most));
            let bytes = u32::try_from(to - from).expect("a part of fewer bytes than the record");
            let batch = self.batch();
            batch.bytes.reserve_exact(GROUP_HEADER + record_space(to - from));
            batch.begin_group(kind, seq);
            self.grow(GROUP_HEADER);
            if part == 0 {
                lsn = self.end;
            }
            self.copy(record.kind, stretch(record.payload, from, to), bytes, kind == GroupType::LastPart);
        }
        self.claim = claim;
        self.next_seq += 1;
        Ok(Position { seq, lsn, end: self.end, group: None })
    }

    /// Takes space for the group of a slot, and seqs for its members, as [`Space::append`] does for a record.
    pub(crate) fn reserve(&mut self, joined: Joined, claim: Claim, pool: &Pool) -> Result<Arc<Reserved>, Wanted> {
        let space = GROUP_HEADER + joined.bytes;
        self.admit(space, claim, pool)?;
        let (lsn, first_seq) = (self.end, self.next_seq);
        let reserved = Reserved::new(lsn, first_seq, joined);
        self.pieces.push_back(Piece::Reserved(Reservation {
            number: self.number,
            segment: Arc::clone(&self.segment),
            activate: std::mem::take(&mut self.activate),
            reserved: Arc::clone(&reserved),
        }));
        self.next_seq += u64::from(joined.members);
        self.grow(space);
        Ok(reserved)
    }

    /// Finds so much space for this claim: in the segment in which the log ends, or in the next one.
    fn admit(&mut self, space: usize, claim: Claim, pool: &Pool) -> Result<(), Wanted> {
        if self.is_closed {
            return Err(Wanted::Opening);
        }
        if space > self.rest() {
            // The pad still goes into this segment.
            self.has_room(GROUP_HEADER.min(self.rest()), claim)?;
            let segment = pool.take(self.number + 1, claim, self.next_seq);
            let segment = segment.ok_or(Wanted::Spares(claim.leaves() + 1))?;
            self.enter(segment);
            self.claim = claim;
            return Ok(());
        }
        self.has_room(space, claim)?;
        let end = (self.geometry.offset(self.end) + space) as u64;
        if claim < self.claim && !self.segment.needs_no_spares(end, claim) {
            if pool.spares() < claim.leaves() {
                return Err(Wanted::Spares(claim.leaves()));
            }
            self.claim = claim;
        }
        Ok(())
    }

    /// Whether the file of the segment is long enough.
    fn has_room(&self, space: usize, claim: Claim) -> Result<(), Wanted> {
        let (end, bytes) = ((self.geometry.offset(self.end) + space) as u64, self.geometry.segment_bytes());
        if end <= self.segment.room_for(claim, bytes) { Ok(()) } else { Err(Wanted::Room(Arc::clone(&self.segment))) }
    }

    /// Copies a record, or a part of one, into the group at the end.
    fn copy<'a>(&mut self, kind: u8, payload: impl IntoIterator<Item = &'a [u8]>, payload_len: u32, sequenced: bool) {
        let space = record_space(payload_len as usize);
        let batch = self.batch();
        let span = batch.spans.last_mut().expect("a group is open");
        let delta = sequenced.then_some(span.sequenced);
        span.records += 1;
        span.sequenced += u32::from(sequenced);
        span.end += space;
        push_record(&mut batch.bytes, kind, delta, payload, payload_len);
        debug_assert_eq!(batch.bytes.len(), span_end(batch), "a record takes the space that was counted");
        self.grow(space);
    }

    /// Hands over to the writer the complete pieces from the front on, and the position behind them.
    pub(crate) fn take(&mut self) -> (Vec<Batch>, Lsn) {
        let mut taken = Vec::with_capacity(self.pieces.len());
        while let Some(piece) = self.pieces.pop_front() {
            match piece.into_batch() {
                Ok(batch) => {
                    self.pending -= batch.bytes.len();
                    self.room = batch.bytes.len().min(ROOM_BYTES_MAX);
                    taken.push(batch);
                }
                Err(piece) => {
                    self.pieces.push_front(piece);
                    break;
                }
            }
        }
        (taken, self.pieces.front().map_or(self.end, Piece::lsn))
    }

    fn rest(&self) -> usize {
        let rest = self.geometry.base(self.number + 1).0 - self.end.0;
        usize::try_from(rest).expect("a segment is at most 1 GiB")
    }

    /// The batch at the end of the log.
    fn batch(&mut self) -> &mut Batch {
        let goes_on = matches!(self.pieces.back(), Some(Piece::Copied(batch)) if batch.number == self.number);
        if !goes_on {
            let activate = std::mem::take(&mut self.activate);
            let batch = Batch::new(self.number, Arc::clone(&self.segment), activate, self.end, self.room);
            self.pieces.push_back(Piece::Copied(batch));
        }
        match self.pieces.back_mut() {
            Some(Piece::Copied(batch)) => batch,
            _ => unreachable!("a batch is last, or was just pushed"),
        }
    }

    fn grow(&mut self, bytes: usize) {
        self.end = Lsn(self.end.0 + bytes as u64);
        self.pending += bytes;
    }

    /// Ends the current segment with a pad and goes on in the next.
    fn enter(&mut self, segment: Arc<SegmentFile>) {
        if self.rest() >= GROUP_HEADER {
            let first_seq = self.next_seq;
            self.batch().begin_group(GroupType::Pad, first_seq);
            self.pending += GROUP_HEADER;
        }
        self.number += 1;
        self.segment = segment;
        self.activate = true;
        self.end = self.geometry.first(self.number);
    }
}

fn span_end(batch: &Batch) -> usize {
    batch.spans.last().map_or(0, |span| span.end)
}
