//! Reading the log behind its writer.
//!
//! 1. A [`Reader`] finds the segment that holds the first record that the reader lacks, by the seqs with which segments
//!    begin. Then it follows the groups from the segment's beginning, so at most one segment is read for nothing.
//! 2. A read takes [`READ_BYTES`] at a time, more where one group is longer, and never goes beyond the written
//!    position.
//! 3. Segments are recycled while a reader reads. After each read the reader checks whether the file still holds the
//!    segment. If so, no new use of the file wrote to it meanwhile. If not, the reader looks for its place anew, and
//!    reports an error where that place was trimmed.
//!
//! Invariants:
//!
//! - A record is shown once, in the order of seqs, after its group has checked.
//! - Bytes of an older use of a file, and of a tail that was dropped, are not shown, because they are behind the
//!   written position or not in the chain.
//! - A reader holds nothing up.
//!
//! Left to others: which of the records shown are visible.

use std::sync::Arc;

use psync::File;

use crate::format::{Flaw, GROUP_HEADER, GroupHeader, Record, SEGMENT_HEADER};
use crate::parts::Parts;
use crate::scan::{READ_BYTES, behind, read_range};
use crate::segment::{Live, SegmentFile};
use crate::{Error, Lsn, Result, Wal};

/// Reads the records that have a seq, in order, from a given seq on.
#[derive(Debug)]
pub struct Reader {
    /// The last seq that was passed.
    seen: u64,
    /// None where the place has to be looked for.
    place: Option<Place>,
    /// The parts of a record up to the place.
    parts: Parts,
}

/// The position of the next group, and the lowest epoch and seq that the group can have.
#[derive(Clone, Copy, Debug)]
struct Place {
    lsn: Lsn,
    epoch: u64,
    next_seq: u64,
}

impl Reader {
    /// A reader of the records above a seq.
    #[must_use]
    pub fn new(after: u64) -> Self {
        Self { seen: after, place: None, parts: Parts::default() }
    }

    /// The last seq that was shown or passed.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Shows the records of some more groups. Returns false once all written records have been read.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when a record that the reader lacks is gone; [`Error::Corrupt`], [`Error::Io`]. The next call
    /// tries again.
    pub fn read(&mut self, wal: &Wal, show: &mut dyn FnMut(Record<'_>)) -> Result<bool> {
        let geometry = wal.geometry;
        // Each turn but the last finds that the segment was recycled meanwhile, or goes to another segment.
        loop {
            let written = wal.written();
            let place = match self.place.take() {
                Some(place) => Some(place),
                None => {
                    self.parts = Parts::default();
                    self.locate(wal)?
                }
            };
            let Some(place) = place.filter(|place| place.lsn < written) else {
                self.place = place;
                return Ok(false);
            };
            let number = geometry.number(place.lsn);
            let Some(segment) = wal.segment(number) else { continue };
            let end = written.min(geometry.base(number + 1));
            let bytes = fetch(wal, &segment, place.lsn, end);
            // Bytes read while the file was this segment are the log's. Since then the file may have been cut.
            if !wal.segment(number).is_some_and(|now| Arc::ptr_eq(&now, &segment)) {
                continue;
            }
            let bytes = bytes?;
            let (place, records) = self.follow(wal, place, &bytes, &segment.file, show)?;
            self.place = Some(place);
            if records {
                return Ok(true);
            }
        }
    }

    /// The beginning of the segment that holds the record behind the last one seen, or will hold it. None where that
    /// record has no segment yet.
    fn locate(&self, wal: &Wal) -> Result<Option<Place>> {
        let seq = self.seen.saturating_add(1);
        let (found, oldest) = wal.with_live(|live| (live.find(seq), live.starts().next()));
        match (found, oldest) {
            (Some((number, first_seq)), _) => {
                // The segment may begin amid a record, whose seq is the one before.
                let next_seq = first_seq.saturating_sub(1);
                Ok(Some(Place { lsn: wal.geometry.first(number), epoch: 0, next_seq }))
            }
            (None, Some((_, oldest))) => Err(Error::Trimmed { seq, oldest }),
            (None, None) => {
                let oldest = wal.last_seq().saturating_add(1);
                if seq < oldest { Err(Error::Trimmed { seq, oldest }) } else { Ok(None) }
            }
        }
    }

    /// Shows the whole groups of `bytes`, which begin at `place`. Returns the place behind them, and whether a record
    /// was shown.
    fn follow(
        &mut self, wal: &Wal, mut place: Place, bytes: &[u8], file: &File, show: &mut dyn FnMut(Record<'_>),
    ) -> Result<(Place, bool)> {
        let geometry = wal.geometry;
        let damaged = |flaw: Flaw, lsn: Lsn| flaw.at(file.path().to_owned(), geometry.offset(lsn) as u64);
        let (mut at, mut shown) = (0, false);
        while at < bytes.len() {
            let group = match GroupHeader::open(&wal.database, place.lsn, &bytes[at..]) {
                Ok(group) => group,
                // A group cut off at the end; the next read begins with it.
                Err(_) if at > 0 => break,
                Err(flaw) => return Err(damaged(flaw, place.lsn)),
            };
            let header = &group.header;
            let in_order = header.follows(place.epoch, place.next_seq);
            in_order.map_err(|flaw| damaged(flaw, place.lsn))?;
            for record in self.parts.take(&group) {
                if record.seq > self.seen {
                    self.seen = record.seq;
                    shown = true;
                    show(record);
                }
            }
            self.parts.forget_shown(header.kind);
            at += header.length as usize;
            let lsn = behind(geometry, header);
            place = Place { lsn, epoch: header.epoch, next_seq: group.next_seq };
            if geometry.offset(lsn) == SEGMENT_HEADER {
                break;
            }
        }
        Ok((place, shown))
    }
}

/// The written bytes from a place on: whole groups, up to [`READ_BYTES`], or one longer group.
fn fetch(wal: &Wal, segment: &SegmentFile, from: Lsn, end: Lsn) -> Result<Vec<u8>> {
    let rest = usize::try_from(end.0 - from.0).expect("a segment is at most 1 GiB");
    let offset = wal.geometry.offset(from);
    // A segment with a shorter file has a pad before the file's end.
    let there = usize::try_from(segment.room()).unwrap_or(usize::MAX).saturating_sub(offset).max(GROUP_HEADER);
    let rest = rest.min(there);
    let mut bytes = Vec::new();
    read_range(&wal.psync, &segment.file, offset, rest.min(READ_BYTES), &mut bytes)?;
    let first = GroupHeader::peek(&wal.database, from, &bytes).map_or(0, |header| header.length as usize);
    if first > bytes.len() {
        let had = bytes.len();
        read_range(&wal.psync, &segment.file, offset + had, first.min(rest) - had, &mut bytes)?;
    }
    Ok(bytes)
}

impl Wal {
    /// Where the segments begin that exist, oldest first: a position, and the seq that the first sequenced record
    /// that begins behind the position has, or would have. A [`Reader`] can begin with any of these seqs, and with all
    /// above the first.
    #[must_use]
    pub fn segment_starts(&self) -> Vec<(Lsn, u64)> {
        let of = |live: &Live| live.starts().map(|(number, seq)| (self.geometry.first(number), seq)).collect();
        self.with_live(of)
    }

    fn with_live<R>(&self, with: impl FnOnce(&Live) -> R) -> R {
        match &self.log {
            Some(log) => log.pool.with_live(with),
            None => with(&self.still),
        }
    }

    fn segment(&self, number: u64) -> Option<Arc<SegmentFile>> {
        self.with_live(|live| live.file(number).cloned())
    }
}
