//! Reading groups back.
//!
//! 1. A [`Scanner`] reads one segment at a time, whole, with large reads in one batch; bytes that a short file lacks are zero.
//! 2. [`Scanner::follow`] follows the chain of groups across pads and segments, until one does not check.
//! 3. [`Scanner::statements`] looks for whole groups behind that place, where no chain leads: what they say was durable tells a
//!    torn tail from damage.
//! 4. A scanner that is [patient](Scanner::patient) takes what a device cannot read for zeros, block by block.
//!
//! Invariants: memory is one segment, and those that others still look at ([`Scanner::loaded`]); nothing is believed before its checksums are; within a chain epochs do not fall, seqs rise.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use psync::{BLOCK, Buffer, File, Psync, Request, Spares};
use space::{FileStore, StreamKind};

use crate::format::{ALIGNMENT, Flaw, GROUP_HEADER, GroupHeader, GroupType, SEGMENT_HEADER, SegmentHeader, WholeGroup};
use crate::geometry::Geometry;
use crate::segment::SegmentFile;
use crate::{Error, Lsn, Result};

/// Bytes of one read.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// Reads in one batch.
const READS: usize = 4;

/// Reads groups out of segment files.
pub(crate) struct Scanner<'a> {
    psync: &'a Psync,
    geometry: Geometry,
    database: [u8; 16],
    files: &'a BTreeMap<u64, Arc<SegmentFile>>,
    loaded: Option<(u64, Arc<Vec<u8>>)>,
    /// Memory of segments that were loaded before, for others once nobody looks at it.
    before: Vec<Arc<Vec<u8>>>,
    spares: Spares,
    is_patient: bool,
}

/// Where a chain of groups ended.
#[derive(Clone, Debug)]
pub(crate) struct ChainEnd {
    /// Where the next group would be.
    pub(crate) lsn: Lsn,
    /// Epoch of the last group.
    pub(crate) epoch: u64,
    /// Seq behind the last group's.
    pub(crate) next_seq: u64,
    /// The largest durable position that a group states.
    pub(crate) durable: Lsn,
    /// Why no group is there; none when the visitor stopped.
    pub(crate) flaw: Option<Flaw>,
}

impl ChainEnd {
    /// Where any group can begin.
    pub(crate) const fn before(lsn: Lsn) -> Self {
        Self { lsn, epoch: 0, next_seq: 0, durable: Lsn(0), flaw: None }
    }

    /// Goes on behind a group that comes there.
    pub(crate) fn pass(&mut self, geometry: Geometry, header: &GroupHeader, next_seq: u64) {
        self.lsn = behind(geometry, header);
        self.epoch = header.epoch;
        self.next_seq = next_seq;
        self.durable = self.durable.max(header.durable);
    }
}

/// What groups behind the end of the chain say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statements {
    /// The largest durable position.
    pub(crate) durable: Lsn,
    /// The largest epoch.
    pub(crate) epoch: u64,
}

/// Where the group behind one is in its chain, or would be.
pub(crate) fn behind(geometry: Geometry, group: &GroupHeader) -> Lsn {
    match group.kind {
        GroupType::Pad => geometry.first(geometry.number(group.lsn) + 1),
        GroupType::Records | GroupType::Opening => geometry.normal(Lsn(group.lsn.0 + u64::from(group.length))),
    }
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(
        psync: &'a Psync, geometry: Geometry, database: [u8; 16], files: &'a BTreeMap<u64, Arc<SegmentFile>>,
    ) -> Self {
        Self { psync, geometry, database, files, loaded: None, before: Vec::new(), spares: spares(), is_patient: false }
    }

    /// The same, for a log of which not all can be read.
    pub(crate) fn patient(mut self) -> Self {
        self.is_patient = true;
        self
    }

    /// Shows the groups from `end` on, which can come behind what it says, to `visit`, until one does not check or `visit` says no.
    pub(crate) fn follow<E: From<Error>>(
        &mut self, mut end: ChainEnd, visit: &mut dyn FnMut(&WholeGroup<'_>) -> std::result::Result<bool, E>,
    ) -> std::result::Result<ChainEnd, E> {
        let geometry = self.geometry;
        while let Some(group) = self.group(&mut end)? {
            if !visit(&group)? {
                return Ok(end);
            }
            end.pass(geometry, &group.header, group.next_seq);
        }
        Ok(end)
    }

    /// The group that comes at `end`; where none does, that says why.
    pub(crate) fn group(&mut self, end: &mut ChainEnd) -> Result<Option<WholeGroup<'_>>> {
        let (geometry, database) = (self.geometry, self.database);
        let number = geometry.number(end.lsn);
        let Some(bytes) = self.load(number)? else {
            end.flaw = Some(Flaw::new("segment", format!("segment {number}"), "none"));
            return Ok(None);
        };
        let group = GroupHeader::open(&database, end.lsn, &bytes[geometry.offset(end.lsn)..]);
        let group = group.and_then(|group| group.header.follows(end.epoch, end.next_seq).map(|()| group));
        Ok(group.map_err(|flaw| end.flaw = Some(flaw)).ok())
    }

    /// What whole groups behind `lsn`, where the chain ended, say.
    pub(crate) fn statements(&mut self, lsn: Lsn) -> Result<Statements> {
        let mut statements = Statements::default();
        self.whole_groups(lsn, &mut |group| {
            statements.durable = statements.durable.max(group.header.durable);
            statements.epoch = statements.epoch.max(group.header.epoch);
            true
        })?;
        Ok(statements)
    }

    /// Shows whole groups from `lsn` on, wherever they are, in their order, while `visit` says so.
    pub(crate) fn whole_groups(&mut self, lsn: Lsn, visit: &mut dyn FnMut(&WholeGroup<'_>) -> bool) -> Result<()> {
        let (geometry, database) = (self.geometry, self.database);
        let numbers: Vec<u64> = self.files.range(geometry.number(lsn)..).map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(bytes) = self.load(number)? else {
                continue;
            };
            let mut at = if number == geometry.number(lsn) { geometry.offset(lsn) } else { SEGMENT_HEADER };
            while at + GROUP_HEADER <= bytes.len() {
                let position = Lsn(geometry.base(number).0 + at as u64);
                let group = GroupHeader::is_candidate(position, &bytes[at..])
                    .then(|| GroupHeader::open(&database, position, &bytes[at..]).ok())
                    .flatten();
                let Some(group) = group else {
                    at += ALIGNMENT;
                    continue;
                };
                if !visit(&group) {
                    return Ok(());
                }
                at += group.header.length as usize;
            }
        }
        Ok(())
    }

    /// Whether a group was begun at `lsn`, whole or not.
    pub(crate) fn is_begun(&mut self, lsn: Lsn) -> Result<bool> {
        let at = self.geometry.offset(lsn);
        let bytes = self.load(self.geometry.number(lsn))?;
        Ok(bytes.is_some_and(|bytes| GroupHeader::claimed_lsn(&bytes[at..]) == Some(lsn)))
    }

    /// The segments of these numbers that there are, and their files.
    pub(crate) fn segments(&self, numbers: RangeInclusive<u64>) -> Vec<(u64, File)> {
        self.files.range(numbers).map(|(number, segment)| (*number, segment.file.clone())).collect()
    }

    /// All bytes of segment `number`, read anew, of which the header and every group below `end` check.
    pub(crate) fn checked(&mut self, number: u64, end: Lsn) -> Result<&[u8]> {
        let (geometry, database) = (self.geometry, self.database);
        let path = self.files.get(&number).map(|segment| segment.file.path().to_owned()).unwrap_or_default();
        self.loaded = None;
        let bytes = self.load(number)?.unwrap_or_default();
        let damaged = |flaw: Flaw, at: usize| flaw.at(path.clone(), at as u64);
        let header = SegmentHeader::decode(&bytes[..SEGMENT_HEADER.min(bytes.len())]);
        if !header.is_ok_and(|header| header.number == number) {
            return Err(damaged(Flaw::new("segment header", format!("that of segment {number}"), "another"), 0));
        }
        let mut at = geometry.first(number);
        while at < end && geometry.number(at) == number {
            let offset = geometry.offset(at);
            let group = GroupHeader::open(&database, at, &bytes[offset..]).map_err(|flaw| damaged(flaw, offset))?;
            at = behind(geometry, &group.header);
        }
        Ok(bytes)
    }

    /// Reads what is where the chain ended once more, past the page cache; what is wrong if the next group is there then.
    ///
    /// Nothing else is compared: after a flush that failed, the system may have pages that the device never got.
    pub(crate) fn read_again(&self, store: &FileStore, end: &ChainEnd) -> Result<Option<Flaw>> {
        let (geometry, lsn) = (self.geometry, end.lsn);
        let Some(segment) = self.files.get(&geometry.number(lsn)) else { return Ok(None) };
        let file = store.open_existing(StreamKind::Wal, &segment.name(), true)?;
        let there = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(geometry.segment_len()) / BLOCK * BLOCK;
        let (from, at) = (geometry.offset(lsn) / BLOCK * BLOCK, geometry.offset(lsn) % BLOCK);
        let read = |bytes: usize| {
            let mut again = Vec::new();
            let length = bytes.next_multiple_of(BLOCK).min(there.saturating_sub(from));
            read_range(store.psync(), &file, from, length, &mut again)?;
            Ok::<_, Error>(again)
        };
        let head = read(at + GROUP_HEADER)?;
        let header = head.get(at..).and_then(|head| GroupHeader::peek(&self.database, lsn, head));
        let Some(header) = header.filter(|header| header.follows(end.epoch, end.next_seq).is_ok()) else {
            return Ok(None);
        };
        let whole = read(at + header.length as usize)?;
        let group = whole.get(at..).and_then(|whole| GroupHeader::open(&self.database, lsn, whole).ok());
        Ok(group.map(|_| Flaw::new("group", "the same when it is read again", "a whole one, where there was none")))
    }

    /// Where a position is on disk, for messages.
    pub(crate) fn place(&self, lsn: Lsn) -> (Option<PathBuf>, u64) {
        let file = self.files.get(&self.geometry.number(lsn));
        (file.map(|segment| segment.file.path().to_owned()), self.geometry.offset(lsn) as u64)
    }

    /// The bytes of the segment that was loaded last.
    pub(crate) fn loaded(&self) -> Arc<Vec<u8>> {
        self.loaded.as_ref().map(|(_, bytes)| Arc::clone(bytes)).unwrap_or_default()
    }

    fn load(&mut self, number: u64) -> Result<Option<&[u8]>> {
        let Some(segment) = self.files.get(&number) else {
            return Ok(None);
        };
        if self.loaded.as_ref().is_none_or(|(loaded, _)| *loaded != number) {
            self.before.extend(self.loaded.take().map(|(_, bytes)| bytes));
            let free = self.before.iter().position(|bytes| Arc::strong_count(bytes) == 1);
            let free = free.and_then(|free| Arc::into_inner(self.before.swap_remove(free)));
            let mut bytes = free.unwrap_or_default();
            self.read(segment, &mut bytes)?;
            self.loaded = Some((number, Arc::new(bytes)));
        }
        Ok(self.loaded.as_ref().map(|(_, bytes)| bytes.as_slice()))
    }

    fn read(&mut self, segment: &SegmentFile, bytes: &mut Vec<u8>) -> Result<()> {
        let length = self.geometry.segment_len();
        let there = usize::try_from(segment.file.len()?).unwrap_or(usize::MAX).min(length);
        bytes.clear();
        bytes.reserve_exact(length);
        let read = read_range_with(self.psync, &segment.file, 0, there, bytes, &mut self.spares);
        if read.is_err() && self.is_patient {
            *bytes = read_patiently(self.psync, &segment.file, there)?;
        } else {
            read?;
        }
        bytes.resize(length, 0);
        Ok(())
    }
}

/// Reads the first `length` bytes of a file, or as many as it has, with zeros for the blocks that cannot be read.
pub(crate) fn read_patiently(psync: &Psync, file: &File, length: usize) -> Result<Vec<u8>> {
    let length = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(length);
    let starts = (0..length).step_by(BLOCK);
    let reads = starts.map(|at| Request::read(file, at as u64, Buffer::zeroed(BLOCK.min(length - at)), at as u64));
    let mut bytes = vec![0; length];
    for completion in psync.run(reads.collect()) {
        if let (Ok(()), Some(block)) = (&completion.result, &completion.buffer) {
            let at = usize::try_from(completion.tag).expect("a segment is at most 1 GiB");
            bytes[at..at + block.len()].copy_from_slice(block);
        }
    }
    Ok(bytes)
}

/// Buffers for who reads often.
const fn spares() -> Spares {
    Spares::new(READS * READ_BYTES)
}

/// Appends a part of a file to `bytes`, in large reads, a few in one batch.
pub(crate) fn read_range(psync: &Psync, file: &File, from: usize, length: usize, bytes: &mut Vec<u8>) -> Result<()> {
    read_range_with(psync, file, from, length, bytes, &mut spares())
}

/// The same, with buffers that were used before.
fn read_range_with(
    psync: &Psync, file: &File, from: usize, length: usize, bytes: &mut Vec<u8>, spares: &mut Spares,
) -> Result<()> {
    let starts: Vec<usize> = (0..length).step_by(READ_BYTES).collect();
    for batch in starts.chunks(READS) {
        let reads = batch.iter().map(|&at| {
            let buffer = spares.take(READ_BYTES.min(length - at));
            Request::read(file, (from + at) as u64, buffer, at as u64)
        });
        for buffer in psync.run_all(reads.collect())? {
            let buffer = buffer.expect("a read hands its buffer back");
            bytes.extend_from_slice(&buffer);
            spares.keep(buffer);
        }
    }
    Ok(())
}
