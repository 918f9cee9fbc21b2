//! The log: open, write, flush, trim.
//!
//! Owns the order in which the parts of the log meet:
//!
//! 1. Records are appended in `append`.
//! 2. Groups are written by the writer, the thread that has the turn of `write`.
//! 3. Groups are made durable by the leader of a flush in `flush`.
//!
//! Invariants:
//!
//! - A file is on the list of touched files before its bytes count as written, so every flush that begins later
//!   includes the file.
//! - A segment's header is written in the same batch as its first group.
//! - No write makes the kernel read the old bytes of a recycled segment ([`written_with`]).

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use psync::{BLOCK, Buffer, File, Psync, Request};
use seeded::Bug;
use space::FileStore;

use crate::array::Array;
use crate::failure::Sticky;
use crate::flush::{Flusher, Wish, Work};
use crate::format::{GroupType, SegmentHeader};
use crate::geometry::Geometry;
use crate::position::Reserved;
use crate::record::NewRecord;
use crate::replay::{Recovered, recover};
use crate::scan::Scanner;
use crate::segment::{DIRECTORY, Live, Pool, SPARES};
use crate::settle::settle;
use crate::show::Replayer;
use crate::space::{Batch, Space};
use crate::stats::{Counters, add};
use crate::write::Writer;
use crate::{Claim, Companions, Error, Lsn, Options, Position, Replayed, Result};
use sync::{AtomicU64, Mutex, Ordering};

/// Most bytes of the payload of a sequenced record.
pub const SEQUENCED_BYTES_MAX: u64 = 1 << 30;
/// Most bytes that are copied into buffers at a time, unless a segment has more.
const WRITTEN_TOGETHER_MAX: usize = 8 << 20;

/// A write-ahead log. All methods may be called from many threads at once. Dropping the log writes nothing: unflushed
/// records may be lost.
pub struct Wal {
    pub(crate) geometry: Geometry,
    pub(crate) replayed: Replayed,
    /// None when read-only.
    pub(crate) log: Option<Log>,
    /// For reading the log.
    pub(crate) psync: Psync,
    pub(crate) database: [u8; 16],
    /// The segments of a read-only log.
    pub(crate) still: Live,
}

/// A log that is open for writing.
pub(crate) struct Log {
    pub(crate) geometry: Geometry,
    pub(crate) psync: Psync,
    pub(crate) database: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) companions: Arc<dyn Companions>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) failure: Arc<Sticky>,
    pub(crate) pool: Pool,
    pub(crate) space: Mutex<Space>,
    /// Position behind the last record, for readers that need no lock otherwise.
    pub(crate) end: AtomicU64,
    /// The position from which a recovery would replay.
    pub(crate) start: AtomicU64,
    pub(crate) array: Array<Arc<Reserved>>,
    pub(crate) writer: Writer,
    pub(crate) touched: Mutex<Touched>,
    pub(crate) flusher: Flusher,
}

/// Log files that were written.
#[derive(Default)]
pub(crate) struct Touched {
    /// Since the last flush, oldest first.
    files: Vec<File>,
    /// The last one, flushed or not.
    newest: Option<File>,
}

impl Wal {
    /// Opens the log in `wal/` of a store, which is made if missing. Shows every group from [`Options::start`] on to
    /// `replay`. Unless read-only, the accepted log is durable on return, with all `companions` that are unflushed by
    /// then, and new records follow the accepted log.
    ///
    /// # Errors
    /// Errors of the replayer, and:
    ///
    /// - [`Error::Corrupt`] when a part that was known durable is damaged;
    /// - [`Error::Foreign`], [`Error::NewerVersion`], [`Error::SegmentSize`], [`Error::EpochUsed`] when the files are
    ///   not of this log;
    /// - [`Error::Full`] when a segment is needed and the disk is full;
    /// - [`Error::Io`].
    ///
    /// No accepted record is lost by an error.
    pub fn open<E: From<Error>>(
        store: &FileStore, options: &Options, companions: Arc<dyn Companions>, replay: Replayer<'_, E>,
    ) -> std::result::Result<(Self, Replayed), E> {
        let recovered = recover(store, options, replay)?;
        let (geometry, replayed) = (recovered.geometry, recovered.replayed.clone());
        let (log, still) = if options.read_only {
            (None, recovered.live)
        } else {
            (Some(Log::open(store, options, companions, recovered)?), Live::default())
        };
        let (psync, database) = (store.psync().clone(), options.database);
        Ok((Self { geometry, replayed: replayed.clone(), log, psync, database, still }, replayed))
    }

    /// Appends a record of a kind of the caller's (not 0), its payload gathered from parts. A `sequenced` record gets
    /// the next seq, and may be longer than a segment. The record is in memory only until a write or a flush; records
    /// appended by later calls are written no earlier. On a full disk, `claim` says how far the record may go into the
    /// segments that are left.
    ///
    /// # Errors
    /// [`Error::Full`]: nothing was appended, and the log is as good as before. Each call tries to make the missing
    /// segment, however short ago another attempt failed. [`Error::RecordTooLarge`], [`Error::ReadOnly`],
    /// [`Error::Failed`].
    ///
    /// # Panics
    /// When `kind` is 0.
    pub fn append(&self, kind: u8, payload: &[&[u8]], sequenced: bool, claim: Claim) -> Result<Position> {
        self.append_announced(kind, payload, sequenced, claim, &mut |_| {})
    }

    /// As [`Wal::append`], and calls `announce` with the record's position after the append and before the record can
    /// be written. So every record that is written or durable was announced. The end of the log may be locked during
    /// the call, so `announce` has to be short and must not use the log.
    ///
    /// # Errors
    /// As [`Wal::append`]. On an error `announce` was not called, unless `announce` panicked, which is a failure of the
    /// log.
    ///
    /// # Panics
    /// When `kind` is 0.
    pub fn append_announced(
        &self, kind: u8, payload: &[&[u8]], sequenced: bool, claim: Claim, announce: Announce<'_>,
    ) -> Result<Position> {
        assert_ne!(kind, 0, "0 is no kind of a record");
        let log = self.log()?;
        let bytes = payload.iter().fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
        let max = if sequenced { SEQUENCED_BYTES_MAX } else { self.record_bytes_max() };
        let payload_len = u32::try_from(bytes).ok().filter(|_| bytes <= max);
        let payload_len = payload_len.ok_or(Error::RecordTooLarge { bytes, max })?;
        log.append(&NewRecord { kind, payload, payload_len, sequenced }, claim, announce)
    }

    /// Returns when all records below `end`, or below the end of the log if that is less, are written. Written records
    /// survive the process, not the machine.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::ReadOnly`].
    pub fn write_through(&self, end: Lsn) -> Result<()> {
        self.log()?.write_through(end).map(drop)
    }

    /// Returns when all records below `end`, or below the end of the log if that is less, and all companions that they
    /// refer to are on stable storage. One flush serves all waiting callers.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::ReadOnly`].
    pub fn flush_through(&self, end: Lsn) -> Result<()> {
        self.flush_through_then(end, &|| {})
    }

    /// As [`Wal::flush_through`]. Where the caller's thread flushes, it calls `moved` before it wakes the others, as
    /// for [`Wal::commit`].
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::ReadOnly`].
    pub fn flush_through_then(&self, end: Lsn, moved: &dyn Fn()) -> Result<()> {
        self.log()?.flush_through(end, moved)
    }

    /// As [`Wal::flush_through`] for an appended record. The thread that flushes calls `moved` before it wakes the
    /// others. So work that follows from the new durable position is done once for all of them, not once by each.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::ReadOnly`].
    pub fn commit(&self, position: &Position, moved: &dyn Fn()) -> Result<()> {
        let log = self.log()?;
        let wish = match &position.group {
            Some(group) => group.wish(position.end),
            None => Wish::Through(position.end),
        };
        log.flusher.flush_through(wish, &Committing { log, moved })
    }

    /// Closes the log: notes the end and the durable position, in a group that is written and not flushed. An opening
    /// that finds this group need not look for more behind the end, and knows that bytes missing before the durable
    /// position were damaged, and not lost by a crash. Does nothing where the segment has no room for the group.
    ///
    /// Later appends fail, because no opening would find them. [`Wal::end`] is behind the group from now on.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::ReadOnly`].
    pub fn close(&self) -> Result<()> {
        let log = self.log()?;
        log.failure.check()?;
        let has_room = {
            let mut space = log.space.lock();
            let has_room = space.close();
            log.note_end(&space);
            has_room
        };
        if has_room { log.write_through(log.end()).map(drop) } else { Ok(()) }
    }

    /// All records below this position are written.
    #[must_use]
    pub fn written(&self) -> Lsn {
        self.log.as_ref().map_or(self.replayed.end, |log| log.writer.written())
    }

    /// All records below this position are on stable storage.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.log.as_ref().map_or(self.replayed.durable, |log| log.flusher.durable())
    }

    /// Position behind the last record.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.log.as_ref().map_or(self.replayed.end, Log::end)
    }

    /// The last seq that was given out; 0 when none was.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.log.as_ref().map_or(self.replayed.last_seq, |log| log.space.lock().next_seq() - 1)
    }

    /// Recycles the segments that are wholly below `before`, the position from which the newest durable checkpoint
    /// replays.
    ///
    /// # Errors
    /// When an unneeded file cannot be removed; the log goes on. [`Error::ReadOnly`].
    pub fn trim(&self, before: Lsn) -> Result<()> {
        self.trim_keeping(before, before)
    }

    /// As [`Wal::trim`] for a checkpoint that replays from `start` on, but the log between `keep` and `start` stays,
    /// for readers ([`crate::Reader`]).
    ///
    /// # Errors
    /// As [`Wal::trim`].
    pub fn trim_keeping(&self, keep: Lsn, start: Lsn) -> Result<()> {
        let log = self.log()?;
        let durable = log.flusher.durable();
        log.start.store(start.min(durable).0, Ordering::Release);
        log.pool.trim(self.geometry.number(keep.min(start).min(durable)))
    }

    /// Whether [`Wal::turn_over`] would do anything.
    #[must_use]
    pub fn is_beyond(&self, most: u64) -> bool {
        self.log.as_ref().is_some_and(|log| log.pool.is_beyond(log.end(), most))
    }

    /// Moves the log into a short segment ([`crate::QUIET_ROOM`]) if the segment in which the log ends and the spares
    /// take more than `most` bytes. The short segment grows with the log, as the very first segment does. Returns
    /// whether the log was moved.
    ///
    /// For a caller that knows of no more writes. The caller then writes a checkpoint, trims the log before, and gives
    /// the spares back ([`Wal::rest`]).
    ///
    /// # Errors
    /// [`Error::Io`]; the log goes on as before. [`Error::Failed`], [`Error::ReadOnly`].
    pub fn turn_over(&self, most: u64) -> Result<bool> {
        let log = self.log()?;
        log.failure.check()?;
        let Some(segment) = log.pool.young(log.end(), most)? else { return Ok(false) };
        let is_over = {
            let mut space = log.space.lock();
            let is_over = space.turn_over(&segment, &log.pool);
            log.note_end(&space);
            is_over
        };
        if !is_over {
            log.pool.discard(segment)?;
        }
        Ok(is_over)
    }

    /// Gives back the segments that are kept because the log took so much of late: for a caller that knows of no more
    /// writes. After [`Wal::turn_over`], gives back all segments that the log is not in.
    ///
    /// # Errors
    /// As [`Wal::trim`].
    pub fn rest(&self) -> Result<()> {
        let log = self.log()?;
        log.pool.rest(log.end())
    }

    /// Makes segments ahead of time, so that no append has to: for a background thread, after each trim and now and
    /// then. Returns at once when there are enough: three spares, one that the log grows into next and two in reserve
    /// for deletes and upkeep ([`Claim`]). A log that is still in its very first segment, or in a short one after
    /// `turn_over`, has one spare for each quarter in use. So a small database does not pay for three.
    ///
    /// After a failed attempt calls do nothing, without an error, for a pause that doubles with each failure, up to a
    /// minute. The pause ends early when [`Wal::trim`] recycles segments, or when an append makes one.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`]: the log goes on with its present segments. [`Error::Failed`],
    /// [`Error::ReadOnly`].
    pub fn prepare(&self) -> Result<()> {
        let log = self.log()?;
        log.failure.check()?;
        log.pool.prepare(log.end(), Instant::now)
    }

    /// Makes the segments that a record of so many bytes would fill, ahead of its append.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn prepare_for(&self, record_bytes: u64, claim: Claim) -> Result<()> {
        let log = self.log()?;
        log.failure.check()?;
        let count = self.geometry.parts(usize::try_from(record_bytes).unwrap_or(usize::MAX));
        log.pool.make_row(claim.leaves().saturating_add(count))
    }

    /// Gives back segments that were made for a record ([`Self::prepare_for`]) which was not appended.
    ///
    /// # Errors
    /// As [`Self::trim`].
    pub fn unprepare(&self) -> Result<()> {
        self.log()?.pool.shed()
    }

    /// Most bytes of room that [`Self::prepare`] takes of the disk.
    #[must_use]
    pub fn prepared_bytes(&self) -> u64 {
        SPARES as u64 * self.geometry.segment_bytes()
    }

    /// Makes `bytes` of room behind the end of the log, at most to the end of the segment; a part of the room belongs
    /// to deletes and upkeep. If `bytes` is a whole segment or more, also makes the segments in reserve for deletes and
    /// upkeep. For a caller that is about to fill the disk with other files than the log's.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`], [`Error::Failed`], [`Error::ReadOnly`].
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let log = self.log()?;
        log.failure.check()?;
        log.pool.make_room(log.end(), bytes)?;
        if bytes < self.geometry.segment_bytes() { Ok(()) } else { log.pool.make_spares(Claim::Put.leaves()) }
    }

    /// The failure after which the log takes no more records, if there was one.
    #[must_use]
    pub fn failed(&self) -> Option<Error> {
        self.log.as_ref().and_then(|log| log.failure.get())
    }

    /// Most bytes of the payload of a record that fits into a segment. Only a sequenced record may be longer.
    #[must_use]
    pub fn record_bytes_max(&self) -> u64 {
        self.geometry.record_bytes_max() as u64
    }

    fn log(&self) -> Result<&Log> {
        self.log.as_ref().ok_or(Error::ReadOnly)
    }
}

impl Log {
    fn open(
        store: &FileStore, options: &Options, companions: Arc<dyn Companions>, recovered: Recovered,
    ) -> Result<Self> {
        let Recovered { geometry, replayed, is_closed, next_seq, live, replayed_files, found } = recovered;
        let counters = Arc::new(Counters::default());
        if replayed.durable < replayed.end {
            settle(
                store.psync(),
                geometry,
                &mut Scanner::new(store.psync(), geometry, options.database, &replayed_files),
                replayed.durable,
                replayed.end,
                companions.take_unflushed(),
            )?;
        }
        if !found.is_empty() && !replayed.closed {
            // An earlier life may have ended before it made their entries durable.
            store.note_found("")?;
            store.note_found(DIRECTORY)?;
            store.sync_directories()?;
        }
        let failure = Arc::new(Sticky::default());
        let pool = Pool::adopt(store.clone(), geometry, Arc::clone(&counters), Arc::clone(&failure), found, live)?;
        let end = replayed.end;
        let number = geometry.number(end);
        let (segment, activate) = match pool.live(number) {
            Some(segment) => (segment, false),
            None if number == 0 => (pool.make_first(next_seq)?, true),
            None => (pool.make_next(number, next_seq)?, true),
        };
        pool.go_on_in(number, &segment);
        // The group that marks the opening needs no claim, so room for it is made here: a file that a crash left short
        // could end before the group.
        pool.make_room(end, BLOCK as u64)?;
        let log = Self {
            geometry,
            psync: store.psync().clone(),
            database: options.database,
            epoch: options.epoch,
            companions,
            pool,
            space: Mutex::new(Space::new(geometry, segment, activate, end, next_seq)),
            end: AtomicU64::new(end.0),
            start: AtomicU64::new(options.start.0),
            // A group of a slot fits into any segment.
            array: Array::new(geometry.record_bytes_max()),
            writer: Writer::new(Arc::clone(&failure), end),
            touched: Mutex::default(),
            flusher: Flusher::new(options.flush_scheme, Arc::clone(&failure), Arc::clone(&counters), end),
            counters,
            failure,
        };
        // A new log holds no older groups from which its own would have to be told apart.
        if activate && number == 0 {
            if !options.creates {
                store.sync_directories()?;
            }
            return Ok(log);
        }
        let opening = {
            let mut space = log.space.lock();
            space.push_mark(GroupType::Opening);
            log.note_end(&space);
            space.end()
        };
        // Nothing is behind the end of a closed log but what earlier openings dropped. A chain through a newer group of
        // the segment leads to none of that, so this mark can wait for the first flush.
        let can_wait = is_closed && end > geometry.first(number);
        if can_wait {
            log.write_through(opening).map(drop)?
        } else {
            log.flush_through(opening, &|| {})?
        }
        Ok(log)
    }

    /// Position behind the last record.
    fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }

    pub(crate) fn note_end(&self, space: &Space) {
        self.end.store(space.end().0, Ordering::Release);
    }

    /// Returns when all records below `end`, or below the end of the log if that is less, are written. Returns the
    /// position up to which the log is written: the end of a group.
    pub(crate) fn write_through(&self, end: Lsn) -> Result<Lsn> {
        self.writer.write_through(end.min(self.end()), || self.failure.guard("write", || self.write()))
    }

    fn flush_through(&self, end: Lsn, moved: &dyn Fn()) -> Result<()> {
        self.flusher.flush_through(Wish::Through(end.min(self.end())), &Committing { log: self, moved })
    }

    /// Writes all appended bytes up to the first group that is still being copied, and returns the end of the last
    /// written group. One call at a time.
    pub(crate) fn write(&self) -> Result<Lsn> {
        let (mut batches, end) = self.space.lock().take();
        if batches.is_empty() {
            return Ok(end);
        }
        let durable = self.flusher.durable();
        for batch in &mut batches {
            batch.seal(&self.database, self.epoch, durable);
            add(&self.counters.groups, batch.groups() as u64);
            add(&self.counters.group_bytes, batch.bytes.len() as u64);
        }
        let run = |requests| self.psync.run_all(requests).map_err(|cause| self.failure.set("write", cause));
        let (mut requests, mut bytes) = (Vec::with_capacity(2), 0);
        // Neighbours in a segment go in one write, because they share a block.
        for row in batches.chunk_by(|one, next| one.number == next.number) {
            let own: usize = row.iter().map(|batch| batch.bytes.len()).sum();
            if bytes + own > WRITTEN_TOGETHER_MAX && !requests.is_empty() {
                run(mem::take(&mut requests))?;
                bytes = 0;
            }
            bytes += own;
            self.push_writes(row, &mut requests);
        }
        run(requests)?;
        let mut touched = self.touched.lock();
        for batch in batches {
            let file = &batch.segment.file;
            if touched.files.last() != Some(file) {
                touched.files.push(file.clone());
                touched.newest = Some(file.clone());
            }
        }
        Ok(end)
    }

    /// Writes of batches that follow each other in one segment.
    fn push_writes(&self, row: &[Batch], requests: &mut Vec<Request>) {
        let first = &row[0];
        let file = &first.segment.file;
        if first.activate {
            let header = SegmentHeader {
                database: self.database,
                number: first.number,
                segment_bytes: self.geometry.segment_bytes(),
                epoch: self.epoch,
            };
            requests.push(Request::write(file, 0, Buffer::from_slice(&header.encode()), 0));
        }
        let offset = self.geometry.offset(first.lsn);
        let parts: Vec<&[u8]> = row.iter().map(|batch| batch.bytes.as_slice()).collect();
        let bytes = parts.iter().map(|part| part.len()).sum();
        let buffer = Buffer::gathered(&parts, written_with(offset, bytes));
        requests.push(Request::write(file, offset as u64, buffer, 0));
    }

    /// Makes all writes that completed before the call durable.
    fn flush(&self) -> Result<()> {
        let mut files = {
            let mut touched = self.touched.lock();
            let files = mem::take(&mut touched.files);
            // A scheme that flushes more often than necessary still flushes a file.
            if files.is_empty() { Vec::from_iter(touched.newest.clone()) } else { files }
        };
        if seeded::on(Bug::FlushOverHole)
            && let Some(newest) = files.pop()
        {
            files = vec![newest];
        }
        files.extend(self.companions.take_unflushed());
        let flushes = files.iter().map(|file| Request::flush(file, 0)).collect();
        self.psync.run_all(flushes).map(drop).map_err(|cause| self.failure.set("flush", cause))
    }
}

/// Bytes of a write that brings `bytes` of the log to this offset. A write whose last block holds no earlier bytes of
/// the log fills that block up with zeros. The reason is the page cache. A partial write to a block that is no longer
/// in the cache, as in a segment used long ago, makes the kernel read the old bytes first. The writer, and all threads
/// that wait for it, would then wait for the device.
const fn written_with(offset: usize, bytes: usize) -> usize {
    let end = offset + bytes;
    let is_first = offset.is_multiple_of(BLOCK) || offset / BLOCK < end / BLOCK;
    if is_first { end.next_multiple_of(BLOCK) - offset } else { bytes }
}

/// Called with a record's position before the record can be written.
pub type Announce<'a> = &'a mut dyn FnMut(&Position);

/// The flusher's access to the log on behalf of a caller.
struct Committing<'a> {
    log: &'a Log,
    moved: &'a dyn Fn(),
}

impl Work for Committing<'_> {
    fn write(&self, end: Lsn) -> Result<Lsn> {
        self.log.write_through(end)
    }

    fn written(&self) -> Lsn {
        self.log.writer.written()
    }

    fn flush(&self) -> Result<()> {
        self.log.failure.guard("flush", || self.log.flush())
    }

    fn moved(&self) -> Result<()> {
        self.log.failure.guard("flush", || {
            (self.moved)();
            Ok(())
        })
    }
}
