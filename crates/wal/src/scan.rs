//! Reading groups back.
//!
//! 1. A [`Scanner`] reads one window of a segment at a time, in one read; bytes that a short file lacks are zero. A
//!    window holds whole groups, so a longer group makes the window longer.
//! 2. [`Scanner::follow`] follows the chain of groups across pads and segments, up to the first group that does not
//!    check.
//! 3. [`Scanner::statements`] looks for whole groups behind that place, where no chain leads. The durable positions
//!    that they state tell a torn tail from damage.
//! 4. A [patient](Scanner::patient) scanner takes unreadable blocks for zeros, block by block.
//!
//! Invariants:
//!
//! - Memory is bounded: one window, the windows still in use by others ([`Scanner::loaded`]), and [`WINDOWS_BEFORE`].
//! - Bytes are believed only after their checksums have checked.
//! - Within a chain epochs do not fall, and seqs rise.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use checksum::crc32c;
use memchr::memmem::Finder;
use psync::{BLOCK, Buffer, File, Psync, Request};
use space::{FileStore, StreamKind};

use crate::format::{
    ALIGNMENT, Flaw, GROUP_HEADER, GROUP_MAGIC, GroupHeader, GroupType, SEGMENT_HEADER, SegmentHeader, WholeGroup,
};
use crate::geometry::Geometry;
use crate::segment::{DIRECTORY, SegmentFile};
use crate::{Error, Lsn, Result};

/// Bytes of one of several reads.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// Reads in one batch.
const READS: usize = 4;

/// Most bytes of a segment in one window, except for a longer group: few enough for a processor's cache.
const WINDOW_BYTES_MAX: usize = 512 << 10;

/// Windows that others may still use while the next is read, as a rule.
pub(crate) const WINDOWS_BEFORE: usize = 6;

/// Windows in a segment of moderate length.
const WINDOWS: usize = 8;

/// Bytes of a segment that are read at a time.
pub(crate) fn window_bytes(geometry: Geometry) -> usize {
    (geometry.segment_len() / WINDOWS / BLOCK * BLOCK).clamp(BLOCK, WINDOW_BYTES_MAX)
}

/// Reads groups out of segment files.
pub(crate) struct Scanner<'a> {
    psync: &'a Psync,
    geometry: Geometry,
    database: [u8; 16],
    files: &'a BTreeMap<u64, Arc<SegmentFile>>,
    loaded: Option<Window>,
    /// Earlier windows. Their memory is reused for reads once no other holder is left.
    before: VecDeque<Arc<Buffer>>,
    is_patient: bool,
}

/// Bytes of a segment from a position on.
struct Window {
    first: Lsn,
    bytes: Arc<Buffer>,
}

impl Window {
    /// The bytes from a position on, if there are at least `length` of them.
    fn get(&self, lsn: Lsn, length: usize) -> Option<&[u8]> {
        self.bytes.get(usize::try_from(lsn.0.checked_sub(self.first.0)?).ok()?..).filter(|rest| rest.len() >= length)
    }

    /// The bytes from a position on, if they include all of the group that begins there.
    fn group(&self, lsn: Lsn) -> Option<&[u8]> {
        self.get(lsn, GROUP_HEADER).filter(|rest| GroupHeader::claimed_length(rest) <= rest.len())
    }
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
    /// The epoch in which the log was closed there.
    closed_in: Option<u64>,
}

impl ChainEnd {
    /// A chain end behind which any group can begin.
    pub(crate) const fn before(lsn: Lsn) -> Self {
        Self { lsn, epoch: 0, next_seq: 0, durable: Lsn(0), flaw: None, closed_in: None }
    }

    /// The group that begins there, if it checks and can follow; else the flaw is noted.
    fn admit<'g>(&mut self, group: std::result::Result<WholeGroup<'g>, Flaw>) -> Option<WholeGroup<'g>> {
        let group = group.and_then(|group| group.header.follows(self.epoch, self.next_seq).map(|()| group));
        let group = group.and_then(|group| match group.header.kind {
            GroupType::Closing => {
                self.closed_in = Some(group.header.epoch);
                self.durable = self.durable.max(group.header.durable);
                Err(Flaw::new("group", "one of the log", "the mark of a close"))
            }
            _ => Ok(group),
        });
        group.map_err(|flaw| self.flaw = Some(flaw)).ok()
    }

    /// Whether the log was once closed there.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed_in.is_some()
    }

    /// Whether the log was closed there in this epoch. If it is the last one, nothing is behind.
    pub(crate) fn is_closed_in(&self, epoch: u64) -> bool {
        self.closed_in == Some(epoch)
    }

    /// Moves the end behind a group that begins there.
    pub(crate) fn pass(&mut self, geometry: Geometry, header: &GroupHeader, next_seq: u64) {
        self.lsn = behind(geometry, header);
        self.epoch = header.epoch;
        self.next_seq = next_seq;
        self.durable = self.durable.max(header.durable);
        self.closed_in = None;
    }
}

/// The statements of groups behind the end of the chain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statements {
    /// The largest durable position.
    pub(crate) durable: Lsn,
    /// The largest epoch.
    pub(crate) epoch: u64,
}

/// Where the group behind this one is in its chain, or would be.
pub(crate) fn behind(geometry: Geometry, group: &GroupHeader) -> Lsn {
    match group.kind {
        GroupType::Pad => geometry.first(geometry.number(group.lsn) + 1),
        _ => geometry.normal(Lsn(group.lsn.0 + u64::from(group.length))),
    }
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(
        psync: &'a Psync, geometry: Geometry, database: [u8; 16], files: &'a BTreeMap<u64, Arc<SegmentFile>>,
    ) -> Self {
        Self { psync, geometry, database, files, loaded: None, before: VecDeque::new(), is_patient: false }
    }

    /// The same scanner, for a log that cannot all be read.
    pub(crate) fn patient(mut self) -> Self {
        self.is_patient = true;
        self
    }

    /// The position of the group whose first record is at `start`. If there is no whole one, that of the first group
    /// of the segment.
    ///
    /// A group that itself begins at `start` does not count: if the log once ended there, that group may be of a tail
    /// that was dropped, and only the groups before it tell.
    pub(crate) fn begin(&mut self, start: Lsn) -> Result<Lsn> {
        let first = self.geometry.first(self.geometry.number(start));
        let lsn = Lsn(start.0.saturating_sub(GROUP_HEADER as u64));
        if lsn <= first {
            return Ok(first);
        }
        let group = self.open(lsn)?.and_then(std::result::Result::ok);
        let holds_start = group.is_some_and(|group| lsn.0 + u64::from(group.header.length) > start.0);
        Ok(if holds_start { lsn } else { first })
    }

    /// Shows the groups from `end` on that can follow in its chain to `visit`, until a group does not check or `visit`
    /// returns false.
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

    /// The group at `end`. If there is none, the reason is noted in `end`.
    pub(crate) fn group(&mut self, end: &mut ChainEnd) -> Result<Option<WholeGroup<'_>>> {
        let geometry = self.geometry;
        let Some(group) = self.open(end.lsn)? else {
            let number = geometry.number(end.lsn);
            end.flaw = Some(Flaw::new("segment", format!("segment {number}"), "none"));
            return Ok(None);
        };
        Ok(end.admit(group))
    }

    /// Shows the groups from `end` on that are in the window of the first one, until a group does not check. The first
    /// group is read if necessary.
    pub(crate) fn follow_in_window(
        &mut self, end: &mut ChainEnd, mut visit: impl FnMut(&WholeGroup<'_>),
    ) -> Result<()> {
        let geometry = self.geometry;
        if let Some(group) = self.group(end)? {
            visit(&group);
            end.pass(geometry, &group.header, group.next_seq);
        }
        let Some(window) = self.loaded.as_ref().filter(|_| end.flaw.is_none()) else { return Ok(()) };
        let database = crc32c(&self.database);
        while let Some(rest) = window.group(end.lsn) {
            let Some(group) = end.admit(GroupHeader::open_of(database, end.lsn, rest)) else { break };
            visit(&group);
            end.pass(geometry, &group.header, group.next_seq);
        }
        Ok(())
    }

    /// The statements of whole groups behind `lsn`, where the chain ended.
    pub(crate) fn statements(&mut self, lsn: Lsn) -> Result<Statements> {
        let mut statements = Statements::default();
        self.whole_groups(lsn, &mut |group| {
            statements.durable = statements.durable.max(group.header.durable);
            statements.epoch = statements.epoch.max(group.header.epoch);
            true
        })?;
        Ok(statements)
    }

    /// Shows whole groups from `lsn` on, wherever they are, in their order, while `visit` returns true.
    pub(crate) fn whole_groups(&mut self, lsn: Lsn, visit: &mut dyn FnMut(&WholeGroup<'_>) -> bool) -> Result<()> {
        let geometry = self.geometry;
        let magic = Finder::new(&GROUP_MAGIC);
        for (number, segment) in self.files.range(geometry.number(lsn)..) {
            let there = self.length(segment)?;
            let mut at = if *number == geometry.number(lsn) { geometry.offset(lsn) } else { SEGMENT_HEADER };
            while at + GROUP_HEADER <= there {
                let position = |at: usize| Lsn(geometry.base(*number).0 + at as u64);
                let bytes = self.bytes(position(at), GROUP_HEADER)?.unwrap_or_default();
                let is_candidate = |skip: &usize| {
                    skip.is_multiple_of(ALIGNMENT) && GroupHeader::is_candidate(position(at + skip), &bytes[*skip..])
                };
                let Some(skip) = magic.find_iter(bytes).find(is_candidate) else {
                    // Fewer bytes than a header may begin one.
                    at += bytes.len().saturating_sub(GROUP_HEADER) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
                    continue;
                };
                at += skip;
                let Some(Ok(group)) = self.open(position(at))? else {
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
        let bytes = self.bytes(lsn, GROUP_HEADER)?;
        Ok(bytes.is_some_and(|bytes| GroupHeader::claimed_lsn(bytes) == Some(lsn)))
    }

    /// The segments with these numbers that exist, and their files.
    pub(crate) fn segments(&self, numbers: RangeInclusive<u64>) -> Vec<(u64, File)> {
        self.files.range(numbers).map(|(number, segment)| (*number, segment.file.clone())).collect()
    }

    /// Reads the header of segment `number` and the groups from `from` to `end` anew, and shows them once they check:
    /// part by part, each with the offset at which the part begins. All of these groups were accepted before. Where no
    /// group begins at `from`, earlier ones are shown too.
    pub(crate) fn checked(
        &mut self, number: u64, from: Lsn, end: Lsn, show: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let geometry = self.geometry;
        let path = self.files.get(&number).map(|segment| segment.file.path().to_owned()).unwrap_or_default();
        let damaged = |flaw: Flaw, at: usize| flaw.at(path.clone(), at as u64);
        self.loaded = None;
        let header =
            self.bytes(self.geometry.base(number), SEGMENT_HEADER)?.and_then(|bytes| bytes.get(..SEGMENT_HEADER));
        let header = header.unwrap_or_default();
        if !SegmentHeader::decode(header).is_ok_and(|header| header.number == number) {
            return Err(damaged(Flaw::new("segment header", format!("that of segment {number}"), "another"), 0));
        }
        show(0, header)?;
        let (mut at, from) = (geometry.first(number), geometry.normal(from));
        if from > at && matches!(self.open(from)?, Some(Ok(_))) {
            at = from;
        }
        while at < end && geometry.number(at) == number {
            let (first, begin) = (at, geometry.offset(at));
            let length = loop {
                let none = || Flaw::new("segment", format!("segment {number}"), "none");
                let group = self.open(at)?.unwrap_or_else(|| Err(none()));
                let header = group.map_err(|flaw| damaged(flaw, geometry.offset(at)))?.header;
                let length = geometry.offset(at) - begin + header.length as usize;
                at = behind(geometry, &header);
                if at >= end || !self.has(at) {
                    break length;
                }
            };
            show(begin, &self.bytes(first, length)?.unwrap_or_default()[..length])?;
        }
        Ok(())
    }

    /// Reads the place where the chain ended once more, past the page cache. Returns a flaw if the next group is there
    /// on this read.
    ///
    /// Nothing else is compared, because after a failed flush the system may have pages that the device never got.
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
        let is_next =
            |header: &GroupHeader| header.kind != GroupType::Closing && header.follows(end.epoch, end.next_seq).is_ok();
        let Some(header) = header.filter(is_next) else {
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

    /// The window that was loaded last, and the position of its beginning.
    pub(crate) fn loaded(&self) -> Option<(Lsn, Arc<Buffer>)> {
        self.loaded.as_ref().map(|window| (window.first, Arc::clone(&window.bytes)))
    }

    /// Whether the loaded window suffices to tell if a group is at `lsn`.
    pub(crate) fn has(&self, lsn: Lsn) -> bool {
        let rest = self.loaded.as_ref().and_then(|window| window.get(lsn, GROUP_HEADER));
        rest.is_some_and(|rest| {
            GroupHeader::claimed_length(rest) <= rest.len() || claimed(self.geometry, lsn, rest) <= rest.len()
        })
    }

    /// The group at `lsn`, or its flaw; none where there is no such segment.
    fn open(&mut self, lsn: Lsn) -> Result<Option<std::result::Result<WholeGroup<'_>, Flaw>>> {
        let (geometry, database) = (self.geometry, self.database);
        let mut length = GROUP_HEADER;
        if self.loaded.as_ref().is_none_or(|window| window.group(lsn).is_none()) {
            let Some(head) = self.bytes(lsn, GROUP_HEADER)? else { return Ok(None) };
            let claimed = claimed(geometry, lsn, head);
            // A user's value may hold a forged length, so a long length needs a header that checks.
            if claimed <= head.len() || GroupHeader::peek(&database, lsn, head).is_some() {
                length = claimed;
            }
        }
        let bytes = self.bytes(lsn, length)?;
        Ok(bytes.map(|bytes| GroupHeader::open(&database, lsn, bytes)))
    }

    /// The bytes from a position to the end of the window: at least `length`, which must fit into the segment. None
    /// where there is no such segment.
    fn bytes(&mut self, lsn: Lsn, length: usize) -> Result<Option<&[u8]>> {
        if self.loaded.as_ref().is_none_or(|window| window.get(lsn, length).is_none()) {
            let (number, at) = (self.geometry.number(lsn), self.geometry.offset(lsn));
            let Some(segment) = self.files.get(&number) else { return Ok(None) };
            self.before.extend(self.loaded.take().map(|window| window.bytes));
            let (from, there) = (at / BLOCK * BLOCK, self.length(segment)?);
            // A group cut off by the window's end is read once more with the next window, so the window is long enough
            // to keep that share small.
            let end = (at + length + window_bytes(self.geometry)).min(there).max(from);
            let memory = self.memory(end - from);
            let mut bytes = self.read(segment, from, memory)?;
            if bytes.len() < at + length - from {
                bytes = Buffer::gathered(&[&bytes], at + length - from);
            }
            let first = Lsn(self.geometry.base(number).0 + from as u64);
            self.loaded = Some(Window { first, bytes: Arc::new(bytes) });
        }
        Ok(self.loaded.as_ref().and_then(|window| window.get(lsn, length)))
    }

    /// Bytes that a segment's file has.
    fn length(&self, segment: &SegmentFile) -> Result<usize> {
        Ok(usize::try_from(segment.file.len()?).unwrap_or(usize::MAX).min(self.geometry.segment_len()))
    }

    /// A buffer of so many bytes for a read. Memory is reused, because touching memory for the first time takes longer
    /// than reading a log into that memory from the page cache.
    fn memory(&mut self, length: usize) -> Buffer {
        let free = self.before.iter().position(|bytes| Arc::strong_count(bytes) == 1);
        let free = free.and_then(|place| self.before.remove(place)).and_then(Arc::into_inner);
        self.before.drain(..self.before.len().saturating_sub(WINDOWS_BEFORE));
        free.and_then(|bytes| bytes.reused(length)).unwrap_or_else(|| Buffer::for_read(length))
    }

    /// The bytes of a segment from an offset on, as many as the buffer has room for.
    fn read(&self, segment: &SegmentFile, from: usize, buffer: Buffer) -> Result<Buffer> {
        let length = buffer.len();
        if length == 0 {
            return Ok(buffer);
        }
        let request = Request::read(&segment.file, from as u64, buffer, 0);
        match self.psync.run_all(vec![request]) {
            Err(_) if self.is_patient => {
                Ok(Buffer::from_slice(&read_patiently(self.psync, &segment.file, from, length)?))
            }
            read => Ok(read?.pop().flatten().expect("a read hands its buffer back")),
        }
    }
}

/// Bytes from a position on that are needed to tell whether a group is there. `head` is the beginning of the supposed
/// group.
fn claimed(geometry: Geometry, lsn: Lsn, head: &[u8]) -> usize {
    GroupHeader::claimed_length(head).clamp(GROUP_HEADER, geometry.rest(lsn))
}

/// Reads `length` bytes of a file from an offset on, or as many as the file has, with zeros for the blocks that cannot
/// be read.
pub(crate) fn read_patiently(psync: &Psync, file: &File, from: usize, length: usize) -> Result<Vec<u8>> {
    let length = usize::try_from(file.len()?).unwrap_or(usize::MAX).saturating_sub(from).min(length);
    let starts = (0..length).step_by(BLOCK);
    let reads =
        starts.map(|at| Request::read(file, (from + at) as u64, Buffer::zeroed(BLOCK.min(length - at)), at as u64));
    let mut bytes = vec![0; length];
    for completion in psync.run(reads.collect()) {
        if let (Ok(()), Some(block)) = (&completion.result, &completion.buffer) {
            let at = usize::try_from(completion.tag).expect("a segment is at most 1 GiB");
            bytes[at..at + block.len()].copy_from_slice(block);
        }
    }
    Ok(bytes)
}

/// The error of a flaw at a position of the log.
pub(crate) fn damage(store: &FileStore, scanner: &Scanner<'_>, lsn: Lsn, flaw: Flaw) -> Error {
    let (file, offset) = scanner.place(lsn);
    let file = file.unwrap_or_else(|| store.directory().join(DIRECTORY));
    flaw.at(file, offset)
}

/// Appends a part of a file to `bytes`, in large reads, a few in one batch.
pub(crate) fn read_range(psync: &Psync, file: &File, from: usize, length: usize, bytes: &mut Vec<u8>) -> Result<()> {
    let starts: Vec<usize> = (0..length).step_by(READ_BYTES).collect();
    for batch in starts.chunks(READS) {
        let reads = batch.iter().map(|&at| {
            let buffer = Buffer::for_read(READ_BYTES.min(length - at));
            Request::read(file, (from + at) as u64, buffer, at as u64)
        });
        for buffer in psync.run_all(reads.collect())? {
            bytes.extend_from_slice(&buffer.expect("a read hands its buffer back"));
        }
    }
    Ok(())
}
