//! Log space and the open group.
//!
//! 1. Appending takes space at the end of the log, and the next seq if asked, and copies the record there: one step under one
//!    lock.
//! 2. Space that is not written yet is a row of [`Batch`]es, one per segment; the last one ends in the open group.
//! 3. When a record does not fit into the rest of the segment, the open group is closed, a pad marks the rest as unused, and
//!    the record opens a group in the next segment.
//! 4. The writer takes all batches at once, which closes the open group, and seals them outside the lock.
//!
//! Invariants: batches are contiguous, and the last one always has a group; the order of seqs is the order of positions; when
//! a record is not let in for want of spare segments, nothing has changed; the segment that the log ends in is filled only by
//! records whose claim would have let them enter it.
//!
//! Left to others: files, writing, and what a record means.

use std::sync::Arc;

use crate::format::{GROUP_HEADER, GroupHeader, GroupType, push_record, record_space};
use crate::geometry::Geometry;
use crate::segment::{Pool, SegmentFile};
use crate::{Claim, Lsn, Position};

/// A record to append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRecord<'a> {
    pub(crate) kind: u8,
    pub(crate) payload: &'a [&'a [u8]],
    pub(crate) payload_len: u32,
    pub(crate) sequenced: bool,
}

/// A record was not let in: so many spare segments must be there first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) spares: usize,
}

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
    /// The segment's header has to be written too.
    pub(crate) activate: bool,
    pub(crate) lsn: Lsn,
    pub(crate) bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Batch {
    fn new(number: u64, segment: Arc<SegmentFile>, activate: bool, lsn: Lsn) -> Self {
        Self { number, segment, activate, lsn, bytes: Vec::new(), spans: Vec::new() }
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
        self.spans.len()
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

/// The end of the log.
#[derive(Debug)]
pub(crate) struct Space {
    geometry: Geometry,
    number: u64,
    segment: Arc<SegmentFile>,
    /// The least claim that the current segment is open to. A lesser one is let in when there are the spares that it leaves.
    claim: Claim,
    /// The header of the current segment is not taken for writing yet.
    activate: bool,
    end: Lsn,
    next_seq: u64,
    batches: Vec<Batch>,
    pending: usize,
}

impl Space {
    /// The log goes on at `end`, where a group can begin, in `segment`.
    pub(crate) fn new(geometry: Geometry, segment: Arc<SegmentFile>, activate: bool, end: Lsn, next_seq: u64) -> Self {
        assert_eq!(geometry.normal(end), end, "a group can begin there");
        let number = geometry.number(end);
        // The spares come with the use of the first segment. In any other the first put looks whether they are there.
        let claim = if number == 0 { Claim::Put } else { Claim::Upkeep };
        Self { geometry, number, segment, claim, activate, end, next_seq, batches: Vec::new(), pending: 0 }
    }

    /// Position behind the last record.
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// The seq that the next sequenced record gets.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Bytes that no writer took yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Puts the group there that marks an opening of the log.
    pub(crate) fn push_opening(&mut self) {
        let first_seq = self.next_seq;
        self.batch().begin_group(GroupType::Opening, first_seq);
        self.grow(GROUP_HEADER);
    }

    /// Takes space for a record, and a seq, and copies it, going on in a segment of the pool if needed. An error says how many
    /// spares the pool must have first, and nothing has changed.
    pub(crate) fn append(&mut self, record: &NewRecord<'_>, claim: Claim, pool: &Pool) -> Result<Position, Wanted> {
        let space = record_space(record.payload_len as usize);
        let open = self.batches.last().is_some_and(Batch::group_is_open);
        if space + if open { 0 } else { GROUP_HEADER } > self.rest() {
            let segment = pool.take(self.number + 1, claim).ok_or(Wanted { spares: claim.leaves() + 1 })?;
            self.enter(segment);
            self.claim = claim;
        } else if claim < self.claim {
            if pool.spares() < claim.leaves() {
                return Err(Wanted { spares: claim.leaves() });
            }
            self.claim = claim;
        }
        let first_seq = self.next_seq;
        let batch = self.batch();
        if !batch.group_is_open() {
            batch.begin_group(GroupType::Records, first_seq);
            self.grow(GROUP_HEADER);
        }
        let lsn = self.end;
        self.copy(record, space);
        let seq = if record.sequenced { self.next_seq } else { 0 };
        self.next_seq += u64::from(record.sequenced);
        Ok(Position { seq, lsn, end: self.end })
    }

    fn copy(&mut self, record: &NewRecord<'_>, space: usize) {
        let batch = self.batch();
        let span = batch.spans.last_mut().expect("a group is open");
        let delta = record.sequenced.then_some(span.sequenced);
        span.records += 1;
        span.sequenced += u32::from(record.sequenced);
        span.end += space;
        push_record(&mut batch.bytes, record.kind, delta, record.payload, record.payload_len);
        debug_assert_eq!(batch.bytes.len(), span_end(batch), "a record takes the space that was counted");
        self.grow(space);
    }

    /// Hands everything over to the writer, with the position behind it; none when there is nothing.
    pub(crate) fn take(&mut self) -> Option<(Vec<Batch>, Lsn)> {
        if self.batches.is_empty() {
            return None;
        }
        self.pending = 0;
        Some((std::mem::take(&mut self.batches), self.end))
    }

    fn rest(&self) -> usize {
        let rest = self.geometry.base(self.number + 1).0 - self.end.0;
        usize::try_from(rest).expect("a segment is at most 1 GiB")
    }

    /// The batch that the end of the log is in.
    fn batch(&mut self) -> &mut Batch {
        if self.batches.last().is_none_or(|batch| batch.number != self.number) {
            let activate = std::mem::take(&mut self.activate);
            self.batches.push(Batch::new(self.number, Arc::clone(&self.segment), activate, self.end));
        }
        self.batches.last_mut().expect("just pushed")
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
