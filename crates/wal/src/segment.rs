//! The files of segments.
//!
//! 1. A file `wal/<index>.log` is made once: it is written with zeros to the size of a segment, flushed, and its
//!    directory entry made durable. From then on a flush of the file changes no metadata of the file system. Where the
//!    log takes so many bytes between two flushes that this does not count ([`BULK_BYTES_PER_FLUSH`]), zeros would
//!    double the bytes written. There the room of the file is only reserved; once filled, the file is like any other.
//! 2. A file is *live* while it holds a segment of the log, and *spare* otherwise. A spare still holds zeros, or the
//!    header and groups of an older segment. Neither is believed, because number, positions or epoch do not fit.
//! 3. A spare becomes live when the log grows into the next segment. The writer of the first group writes the segment's
//!    header in the same batch, so one flush of one file covers both.
//! 4. Trimmed segments become spare again. As many spares stay as recent trims recycled, plus the reserve; the others
//!    are unlinked. Once writing has stopped, three stay, or none where the log was moved into a young segment.
//! 5. Spares are made ahead of time by [`Pool::prepare`]; an append makes one only when the one needed is missing.
//!    Three are held ready: one to grow into, two in reserve.
//! 6. In a *young* segment spares come with its use, one with each quarter. Young are the very first segment of a log,
//!    and a segment into which the log was moved once writing had stopped ([`Pool::young`]). So opening a new log makes
//!    a single file, and a small or quiet log keeps that one. The file is short at first and grows with the log, four
//!    times as long each time; so does a file that was cut while the log ended in it. Until the spares are there, a put
//!    leaves half of a young segment's room, and a delete a quarter ([`SegmentFile::part_for`]).
//! 7. For each live segment the seq is known with which its records begin, so that a reader finds its place ([`Live`]).
//! 8. When a file could not be made, [`Pool::prepare`] pauses ([`BackOff`]), because each attempt on a nearly full disk
//!    writes up to a whole segment, only to unlink it again.
//!
//! Invariants:
//!
//! - A file is flushed here only before it is live, because the thread that learns of a failed flush of the log has to
//!   be the one that reports what is durable (`Pool::grow`).
//! - No two live files have the same number.
//! - A put leaves two spares, a delete one ([`Claim`]). So a full disk can still log a delete and, behind all deletes,
//!   the records that allow a trim.
//! - A put that needs a spare makes the reserve before it takes one. A put in a young segment leaves as much of the
//!   segment.
//!
//! Left to others: contents, and when a segment is no longer needed.

mod file;
mod found;
mod live;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;
use psync::{Buffer, File, Request};
use seeded::Bug;
use space::{FileStore, StreamKind};

pub(crate) use file::{DIRECTORY, SegmentFile};
use file::{FIRST_ROOM, file_name};
pub use found::beyond_new;
pub(crate) use found::{Found, discover, open_all};
pub(crate) use live::Live;

use crate::backoff::BackOff;
use crate::failure::Sticky;
use crate::geometry::Geometry;
use crate::stats::{Counters, add};
use crate::{Claim, Error, Lsn, Result};

/// Spares to hold ready: one to grow into, and the reserve.
pub(crate) const SPARES: usize = Claim::Put.leaves() + 1;

/// Most spares that are kept, however much was trimmed at once.
const SPARES_MAX: u64 = 64;

/// Bytes of one write that fills a file with zeros. The page cache keeps the bytes of one write as one folio. Each time
/// a group is written into the folio and flushed, the kernel goes over all of its blocks. On ext4 (Linux 6.18) folios
/// of 1 MiB cost each commit 4 to 5 µs of a processor, smaller ones in proportion less.
const ZERO_WRITE_BYTES: usize = 256 << 10;
const ZERO_WRITES_PER_RUN: usize = 16;

/// The factor by which a short segment grows.
const ROOM_GROWTH: u64 = 4;
/// Bytes of a segment into which the log is moved once writing has stopped.
pub const QUIET_ROOM: u64 = 1 << 20;
/// From this many bytes of log per flush on, the metadata that a flush has to write costs less than zeros would.
const BULK_BYTES_PER_FLUSH: u64 = 1 << 20;

/// A record was refused; this must be made first.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// So many spare segments.
    Spares(usize),
    /// A longer segment.
    Room(Arc<SegmentFile>),
    /// A new opening, because the log was closed.
    Opening,
}

/// Bytes of log per flush of late.
#[derive(Debug, Default)]
struct Pace {
    /// Bytes and flushes at the last look.
    bytes: u64,
    flushes: u64,
    is_bulk: bool,
}

impl Pace {
    /// Looks again once the log has taken enough since the last look. True when flushes are so rare that their cost
    /// does not count.
    fn look(&mut self, bytes: u64, flushes: u64) -> bool {
        let taken = bytes - self.bytes;
        if taken >= BULK_BYTES_PER_FLUSH {
            let flushed = flushes - self.flushes;
            *self = Self { bytes, flushes, is_bulk: taken / flushed.max(1) >= BULK_BYTES_PER_FLUSH };
        }
        self.is_bulk
    }
}

#[derive(Debug, Default)]
struct State {
    live: Live,
    spares: VecDeque<Arc<SegmentFile>>,
    /// Indices of all files that exist or are being made.
    indices: BTreeSet<u64>,
    /// Segments that a trim recycles: the largest recent count, which decays by an eighth at each trim.
    demand: u64,
    back_off: BackOff,
    pace: Pace,
}

impl State {
    /// Takes out the spares beyond the reserve and those that the log grows into before the next trim.
    fn take_excess(&mut self) -> Vec<Arc<SegmentFile>> {
        let demand = usize::try_from(self.demand.min(SPARES_MAX)).expect("a small number");
        let keep = SPARES.max(demand + Claim::Put.leaves());
        let excess = self.spares.len().saturating_sub(keep);
        self.spares.drain(..excess).collect()
    }
}

/// All segment files of a log that is open for writing.
#[derive(Debug)]
pub(crate) struct Pool {
    store: FileStore,
    geometry: Geometry,
    counters: Arc<Counters>,
    failure: Arc<Sticky>,
    state: Mutex<State>,
    /// Held while files are made, so that many callers in need of one file make only one.
    making: Mutex<()>,
}

impl Pool {
    /// Takes over the files of a log: the live segments, and all other files as spares. Spares that are too short for
    /// use are removed.
    pub(crate) fn adopt(
        store: FileStore, geometry: Geometry, counters: Arc<Counters>, failure: Arc<Sticky>, found: Vec<Found>,
        live: Live,
    ) -> Result<Self> {
        let mut state = State { live, ..State::default() };
        for Found { segment, len, .. } in found {
            let is_live = state.live.0.values().any(|(live, _)| Arc::ptr_eq(live, &segment));
            if !is_live && len < geometry.segment_bytes() {
                store.release(&segment.name())?;
                continue;
            }
            state.indices.insert(segment.index);
            if !is_live {
                state.spares.push_back(segment);
            }
        }
        Ok(Self { store, geometry, counters, failure, state: Mutex::new(state), making: Mutex::new(()) })
    }

    /// The file of a live segment.
    pub(crate) fn live(&self, number: u64) -> Option<Arc<SegmentFile>> {
        self.state.lock().live.file(number).cloned()
    }

    /// Number of the oldest live segment.
    pub(crate) fn first_live(&self) -> Option<u64> {
        self.state.lock().live.0.keys().next().copied()
    }

    /// Shows the live segments.
    pub(crate) fn with_live<R>(&self, with: impl FnOnce(&Live) -> R) -> R {
        with(&self.state.lock().live)
    }

    /// Live and spare files.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.live.0.len() as u64, state.spares.len() as u64)
    }

    /// Spare files.
    pub(crate) fn spares(&self) -> usize {
        self.state.lock().spares.len()
    }

    /// Makes a spare live as segment `number`, whose records begin with `first_seq`. None when there are no more spares
    /// than the claim leaves to others ([`Pool::make_spares`]).
    pub(crate) fn take(&self, number: u64, claim: Claim, first_seq: u64) -> Option<Arc<SegmentFile>> {
        self.take_row(number, 1, claim, first_seq)?.pop()
    }

    /// As `take`, for `count` segments from `number` on, which the record of `seq` begins and goes on in.
    pub(crate) fn take_row(&self, number: u64, count: usize, claim: Claim, seq: u64) -> Option<Vec<Arc<SegmentFile>>> {
        let mut state = self.state.lock();
        if state.spares.len() < claim.leaves() + count {
            return None;
        }
        let segments: Vec<_> = state.spares.drain(..count).collect();
        for (at, segment) in (0..).zip(&segments) {
            // The first record that begins behind the first segment is the next one.
            state.live.insert(number + at, Arc::clone(segment), seq + u64::from(at > 0));
        }
        Some(segments)
    }

    /// The opened log goes on in segment `number`. A short segment counts as young. So does the only segment of a log
    /// without spares, because a full disk may give no reserve; deletes then have a part of the segment for themselves.
    pub(crate) fn go_on_in(&self, number: u64, segment: &SegmentFile) {
        let is_alone = self.spares() == 0 && self.first_live() == Some(number);
        if is_alone || !segment.is_whole(self.geometry.segment_bytes()) {
            segment.is_young.store(true, Ordering::Relaxed);
        }
    }

    /// Makes the spares that a log with this end should have ready. Does nothing during the pause after a failure.
    ///
    /// # Errors
    /// As [`Pool::make_spares`].
    pub(crate) fn prepare(&self, end: Lsn, clock: impl Fn() -> Instant) -> Result<()> {
        let (short, spares) = {
            let state = self.state.lock();
            let last = state.live.file(self.geometry.number(end));
            let spares = self.spares_ready(last, end);
            let last = last.filter(|last| self.is_short(last, end)).cloned();
            if (last.is_none() && state.spares.len() >= spares) || !state.back_off.is_over(clock()) {
                return Ok(());
            }
            (last, spares)
        };
        let grown = short.map_or(Ok(()), |segment| self.grow(&segment, segment.room()));
        let made = grown.and_then(|()| self.make_spares(spares));
        if made.is_err() {
            self.state.lock().back_off.failed(clock());
        }
        made
    }

    /// Whether the segment in which the log ends should grow soon: half of the room open to a put is filled.
    fn is_short(&self, segment: &SegmentFile, end: Lsn) -> bool {
        let (room, most) = (segment.room(), self.geometry.segment_bytes());
        room < most && self.geometry.offset(end) as u64 >= segment.room_for(Claim::Put, most) / 2
    }

    /// Grows the segment in which the log ends until it has `bytes` of room behind the end, or is as long as any.
    ///
    /// # Errors
    /// As [`Pool::make_spares`].
    pub(crate) fn make_room(&self, end: Lsn, bytes: u64) -> Result<()> {
        let Some(segment) = self.live(self.geometry.number(end)) else { return Ok(()) };
        let needed = (self.geometry.offset(end) as u64).saturating_add(bytes).min(self.geometry.segment_bytes());
        while segment.room() < needed {
            self.grow(&segment, segment.room())?;
        }
        Ok(())
    }

    /// Spares to hold ready when the log ends at `end`, in the segment `last`.
    fn spares_ready(&self, last: Option<&Arc<SegmentFile>>, end: Lsn) -> usize {
        if !last.is_some_and(|last| last.is_young()) {
            return SPARES;
        }
        let quarters = 4 * self.geometry.offset(end) as u64 / self.geometry.segment_bytes();
        usize::try_from(quarters).map_or(SPARES, |quarters| quarters.min(SPARES))
    }

    /// Makes files until there are so many spares.
    ///
    /// # Errors
    /// [`Error::Full`] when the disk is full; nothing is left of the file that did not fit.
    pub(crate) fn make_spares(&self, spares: usize) -> Result<()> {
        let _turn = self.making.lock();
        while self.spares() < spares {
            let segment = self.make(self.geometry.segment_bytes(), true, false)?;
            let mut state = self.state.lock();
            state.spares.push_back(segment);
            state.back_off.end();
        }
        Ok(())
    }

    /// As `make_spares`, for a record that takes several. Where they do not all fit, those beyond the usual ones are
    /// removed again, because others lack their room.
    pub(crate) fn make_row(&self, spares: usize) -> Result<()> {
        let made = self.make_spares(spares);
        if made.is_err() {
            // What cannot be removed stays a spare. The caller learns why the segments could not be made.
            let _ = self.shed();
        }
        made
    }

    /// Removes the spares beyond those that the log needs as a rule.
    pub(crate) fn shed(&self) -> Result<()> {
        let excess = self.state.lock().take_excess();
        self.remove(excess)
    }

    /// Makes the spares, or the room, that an append lacked.
    ///
    /// # Errors
    /// As [`Pool::make_spares`].
    pub(crate) fn provide(&self, wanted: &Wanted) -> Result<()> {
        match wanted {
            Wanted::Spares(spares) => self.make_row(*spares),
            Wanted::Room(segment) => self.grow(segment, segment.room()),
            Wanted::Opening => Err(Error::Closed),
        }
    }

    /// The file of segment `number`, in which nothing is written yet: a spare, a new file, or a young one where a whole
    /// segment does not fit on the disk.
    ///
    /// # Errors
    /// As [`Pool::make_spares`].
    pub(crate) fn make_next(&self, number: u64, first_seq: u64) -> Result<Arc<SegmentFile>> {
        match self.make_spares(1) {
            Ok(()) => {
                let spare = self.take(number, Claim::Upkeep, first_seq);
                Ok(spare.expect("a spare was just prepared, and nobody else takes one"))
            }
            Err(full @ Error::Full { .. }) => {
                let _turn = self.making.lock();
                let segment = self.make(FIRST_ROOM.min(self.geometry.segment_bytes()), true, true).map_err(|_| full)?;
                self.enlist(number, &segment, first_seq);
                Ok(segment)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the file of a log in which nothing is written yet. Its zeros are durable with the first flush of the log,
    /// its entry once the caller has synced directories.
    ///
    /// # Errors
    /// As [`Pool::make_spares`].
    pub(crate) fn make_first(&self, first_seq: u64) -> Result<Arc<SegmentFile>> {
        let _turn = self.making.lock();
        let segment = self.make(FIRST_ROOM.min(self.geometry.segment_bytes()), false, true)?;
        self.enlist(0, &segment, first_seq);
        Ok(segment)
    }

    /// Whether the segment in which the log ends and the spares take more than `most` bytes, and a young segment would
    /// take less.
    pub(crate) fn is_beyond(&self, end: Lsn, most: u64) -> bool {
        let state = self.state.lock();
        let last = state.live.file(self.geometry.number(end)).map_or(0, |last| last.room());
        let bytes = self.geometry.segment_bytes();
        last + state.spares.len() as u64 * bytes > most && QUIET_ROOM.min(most) < bytes
    }

    /// A young segment for the log to move into: a spare that was cut, or a new file. None unless the segment in which
    /// the log ends and the spares take more than `most` bytes, and where the disk has no room for the file.
    pub(crate) fn young(&self, end: Lsn, most: u64) -> Result<Option<Arc<SegmentFile>>> {
        let _turn = self.making.lock();
        if !self.is_beyond(end, most) {
            return Ok(None);
        }
        let room = QUIET_ROOM.min(most);
        let spare = self.state.lock().spares.pop_back();
        let Some(spare) = spare else {
            return match self.make(room, true, true) {
                Err(Error::Full { .. }) => Ok(None),
                made => made.map(Some),
            };
        };
        if let Err(error) = spare.file.set_len(room) {
            events::warn!(%error, "a segment could not be cut, so the log stays as long as it is");
            self.state.lock().spares.push_back(spare);
            return Ok(None);
        }
        spare.room.store(room, Ordering::Release);
        spare.is_young.store(true, Ordering::Relaxed);
        Ok(Some(spare))
    }

    /// Makes a young segment live.
    pub(crate) fn enlist(&self, number: u64, segment: &Arc<SegmentFile>, first_seq: u64) {
        self.state.lock().live.insert(number, Arc::clone(segment), first_seq);
    }

    /// Removes a young segment that was not used.
    pub(crate) fn discard(&self, segment: Arc<SegmentFile>) -> Result<()> {
        self.remove(vec![segment])
    }

    /// Grows a segment that has no more than `room`, unless it is as long as any.
    ///
    /// The new bytes are not flushed here; they are durable with the next flush of the log. A failed flush drops groups
    /// written before it, and the system reports the failure to only one of the threads that flush the file. A flush
    /// here could take that report, and another thread would acknowledge lost groups.
    fn grow(&self, segment: &SegmentFile, room: u64) -> Result<()> {
        let _turn = self.making.lock();
        let (now, most) = (segment.room(), self.geometry.segment_bytes());
        if now > room || now >= most {
            return Ok(());
        }
        let grown = (now.max(FIRST_ROOM) * ROOM_GROWTH).min(most);
        if let Err(error) = self.fill(&segment.file, now, grown) {
            // The part already written takes room that others may lack.
            if let Err(cut) = segment.file.set_len(now) {
                events::warn!(error = %cut, "room of a segment that could not be completed stays behind");
            }
            return Err(match self.full(error) {
                Error::Io(cause) => self.failure.set("write", cause),
                full => full,
            });
        }
        if seeded::on(Bug::GrownFlushForgotten) {
            drop(self.store.psync().run_all(vec![Request::flush(&segment.file, 0)]));
        }
        segment.room.store(grown, Ordering::Release);
        self.state.lock().back_off.end();
        Ok(())
    }

    fn make(&self, bytes: u64, flush: bool, is_young: bool) -> Result<Arc<SegmentFile>> {
        let index = {
            let mut state = self.state.lock();
            let index = (0..).zip(&state.indices).find(|(free, used)| free != *used).map(|(free, _)| free);
            let index = index.unwrap_or(state.indices.len() as u64);
            state.indices.insert(index);
            index
        };
        let made = self.make_at(index, bytes, flush);
        if made.is_err() {
            // The rest is found too short, or spare, at the next opening.
            if let Err(error) = self.store.release(&file_name(index)) {
                events::warn!(%error, index, "a segment file that could not be completed stays behind");
            }
            self.state.lock().indices.remove(&index);
        }
        let file = made.map_err(|error| self.full(error))?;
        add(&self.counters.segments_created, 1);
        Ok(SegmentFile::new(index, file, bytes, is_young))
    }

    /// With `flush` the file and its entry are durable on return.
    fn make_at(&self, index: u64, bytes: u64, flush: bool) -> Result<File> {
        let name = file_name(index);
        let file = match self.store.create(StreamKind::Wal, &name, false) {
            Err(space::Error::Io(error)) if error.is_already_exists() => {
                // Left behind by a removal that failed.
                self.store.release(&name)?;
                self.store.create(StreamKind::Wal, &name, false)?
            }
            created => created?,
        };
        self.fill(&file, 0, bytes)?;
        if flush {
            self.store.psync().run_all(vec![Request::flush(&file, 0)])?;
            self.store.sync_directories()?;
        }
        Ok(file)
    }

    /// Gives a file room of its own from one offset to another.
    fn fill(&self, file: &File, from: u64, to: u64) -> Result<()> {
        if self.is_bulk() && file.reserve(from..to)? { Ok(()) } else { write_zeros(&self.store, file, from, to) }
    }

    fn is_bulk(&self) -> bool {
        let [bytes, flushes] =
            [&self.counters.group_bytes, &self.counters.flushes].map(|counter| counter.load(Ordering::Relaxed));
        self.state.lock().pace.look(bytes, flushes)
    }

    fn full(&self, error: Error) -> Error {
        let (Error::Io(cause) | Error::Space(space::Error::Io(cause))) = &error else { return error };
        // A file whose flush failed was new: it is gone, and the next one is another file. A directory stays, and is
        // not synced again.
        let is_directory = matches!(cause, psync::Error::Path { .. }) && cause.is_flush_failure();
        if !cause.is_disk_full() || is_directory {
            return error;
        }
        let directory = self.store.directory().to_owned();
        Error::Full { directory, segment_bytes: self.geometry.segment_bytes(), cause: error.to_string() }
    }

    /// Recycles the segments below `number`.
    pub(crate) fn trim(&self, number: u64) -> Result<()> {
        let excess = {
            let mut state = self.state.lock();
            let rest = state.live.0.split_off(&number);
            let trimmed = std::mem::replace(&mut state.live.0, rest);
            if trimmed.is_empty() {
                return Ok(());
            }
            let count = trimmed.len() as u64;
            add(&self.counters.segments_recycled, count);
            state.demand = count.max(state.demand - state.demand.div_ceil(8));
            let is_whole = |segment: &Arc<SegmentFile>| segment.is_whole(self.geometry.segment_bytes());
            let (whole, mut excess): (Vec<_>, Vec<_>) =
                trimmed.into_values().map(|(segment, _)| segment).partition(is_whole);
            whole.iter().for_each(|segment| segment.is_young.store(false, Ordering::Relaxed));
            state.spares.extend(whole);
            state.back_off.end();
            excess.extend(state.take_excess());
            excess
        };
        self.remove(excess)
    }

    /// Keeps only the minimum of spares, because writing has stopped and the log ends at `end`.
    pub(crate) fn rest(&self, end: Lsn) -> Result<()> {
        let excess = {
            let mut state = self.state.lock();
            state.demand = 0;
            let last = state.live.file(self.geometry.number(end));
            if self.spares_ready(last, end) == 0 { state.spares.drain(..).collect() } else { state.take_excess() }
        };
        self.remove(excess)
    }

    /// Removes spares. Those that cannot be removed are spares again, and the first error is returned.
    fn remove(&self, excess: Vec<Arc<SegmentFile>>) -> Result<()> {
        let mut failed = Ok(());
        for segment in excess {
            let removed = self.store.release(&segment.name());
            let mut state = self.state.lock();
            match removed {
                Ok(()) => drop(state.indices.remove(&segment.index)),
                Err(error) => {
                    state.spares.push_front(segment);
                    failed = failed.and(Err(error.into()));
                }
            }
        }
        failed
    }
}

/// Writes zeros from one offset to another.
fn write_zeros(store: &FileStore, file: &File, from: u64, to: u64) -> Result<()> {
    let mut at = from;
    while at < to {
        let mut writes = Vec::new();
        while at < to && writes.len() < ZERO_WRITES_PER_RUN {
            let length = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZERO_WRITE_BYTES);
            writes.push(Request::write(file, at, Buffer::zeroed(length), 0));
            at += length as u64;
        }
        store.psync().run_all(writes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
