//! The log: open, write, flush, trim.
//!
//! Owns the order in which its parts meet: records are appended in `append`, groups are written by
//! whoever has `write`'s turn, and made durable by whoever leads in `flush`.
//!
//! Invariants: a file is on the list of touched files before the position of what was written to it counts as written, so the
//! flush that begins later includes it; a segment's header is written in the same batch as its first group; no write makes the kernel read what a recycled
//! segment held before ([`written_with`]).

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use psync::{BLOCK, Buffer, File, Psync, Request};
use seeded::Bug;
use space::FileStore;

use crate::array::Array;
use crate::failure::Sticky;
use crate::flush::{Flusher, Wish, Work};
use crate::format::SegmentHeader;
use crate::geometry::Geometry;
use crate::replay::{Recovered, Replayer, recover};
use crate::scan::Scanner;
use crate::segment::{DIRECTORY, Live, Pool};
use crate::settle::settle;
use crate::space::{Batch, NewRecord, Reserved, Space};
use crate::stats::{Counters, add};
use crate::write::Writer;
use crate::{Claim, Companions, Error, Lsn, Options, Position, Replayed, Result, Stats};
use sync::{AtomicU64, Mutex, Ordering};

/// A write-ahead log. All of it may be used from many threads at once. Dropping it writes nothing: what was not flushed may
/// be lost.
pub struct Wal {
    pub(crate) geometry: Geometry,
    pub(crate) replayed: Replayed,
    /// None when read-only.
    pub(crate) log: Option<Log>,
    /// What it is read with.
    pub(crate) psync: Psync,
    pub(crate) database: [u8; 16],
    /// Its segments, when read-only.
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
    /// Position behind the last record, for those who do not need the lock else.
    pub(crate) end: AtomicU64,
    /// Where a recovery would begin to replay.
    start: AtomicU64,
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
    /// Opens the log in `wal/` of a store, which is made if it is not there, and shows every group from [`Options::start`] on to
    /// `replay`. Unless read-only, the accepted log is durable on return, with all `companions` that are unflushed by
    /// then, and the log goes on where the accepted log ends.
    ///
    /// # Errors
    /// Of the replayer; [`Error::Corrupt`] when something that was known durable is damaged; [`Error::Foreign`],
    /// [`Error::NewerVersion`], [`Error::SegmentSize`], [`Error::EpochUsed`] when the files are not this log's;
    /// [`Error::Full`] when a segment is needed and the disk is full; [`Error::Io`]. Nothing that was accepted is lost by it.
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

    /// Appends a record of a kind of the caller's (not 0), its payload gathered from parts, and gives it the next seq if it is to
    /// be `sequenced`. It is in memory only until it is written or flushed; calls that come after it in the
    /// log are written no earlier. On a full disk, `claim` says how far it may go into the segments that are left.
    ///
    /// # Errors
    /// [`Error::Full`]: nothing was appended, and the log is as good as before. Each call tries to make the segment that it
    /// lacks, however short ago another failed. [`Error::RecordTooLarge`], [`Error::ReadOnly`],
    /// [`Error::Failed`].
    ///
    /// # Panics
    /// When `kind` is 0.
    pub fn append(&self, kind: u8, payload: &[&[u8]], sequenced: bool, claim: Claim) -> Result<Position> {
        self.append_announced(kind, payload, sequenced, claim, &mut |_| {})
    }

    /// As [`Wal::append`]. `announce` is called with the record's position once it is appended, and before it can be
    /// written: what is written, or durable, was announced. It may be called with the end of the log locked, so it has
    /// to be short and to leave the log alone.
    ///
    /// # Errors
    /// As [`Wal::append`]; then it was not called, unless it has panicked, which is a failure of the log.
    ///
    /// # Panics
    /// When `kind` is 0.
    pub fn append_announced(
        &self, kind: u8, payload: &[&[u8]], sequenced: bool, claim: Claim, announce: Announce<'_>,
    ) -> Result<Position> {
        assert_ne!(kind, 0, "0 is no kind of a record");
        let log = self.log()?;
        let bytes = payload.iter().fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
        let max = self.record_bytes_max();
        let payload_len = u32::try_from(bytes).ok().filter(|_| bytes <= max);
        let payload_len = payload_len.ok_or(Error::RecordTooLarge { bytes, max })?;
        log.append(&NewRecord { kind, payload, payload_len, sequenced }, claim, announce)
    }

    /// Returns when everything below `end`, or all there is, is written: it survives the process, not the machine.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::ReadOnly`].
    pub fn write_through(&self, end: Lsn) -> Result<()> {
        self.log()?.write_through(end).map(drop)
    }

    /// Returns when everything below `end`, or all there is, and all companions that it refers to, are on stable storage. One
    /// flush serves all that wait.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::ReadOnly`].
    pub fn flush_through(&self, end: Lsn) -> Result<()> {
        self.log()?.flush_through(end, &|| {})
    }

    /// As [`Wal::flush_through`] for an appended record. The thread that flushes calls `moved` before it wakes the others, so that what
    /// they would each do next, for all that is durable now, is done once.
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

    /// Says in the log how far it is durable, in a group that is written and not flushed: so an opening that finds it knows that what is missing before it was damaged, and not lost by a crash. Nothing,
    /// where there is no room for that.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::ReadOnly`].
    pub fn state_durable(&self) -> Result<()> {
        let log = self.log()?;
        log.failure.check()?;
        let has_room = {
            let mut space = log.space.lock();
            let has_room = space.has_room_for_mark();
            if has_room {
                space.push_opening();
                log.note_end(&space);
            }
            has_room
        };
        if has_room { log.write_through(log.end()).map(drop) } else { Ok(()) }
    }

    /// Everything below is written.
    #[must_use]
    pub fn written(&self) -> Lsn {
        self.log.as_ref().map_or(self.replayed.end, |log| log.writer.written())
    }

    /// Everything below is on stable storage.
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

    /// Recycles the segments that are wholly below `before`, from which on the newest durable checkpoint replays.
    ///
    /// # Errors
    /// When a file that is not needed cannot be removed; the log goes on. [`Error::ReadOnly`].
    pub fn trim(&self, before: Lsn) -> Result<()> {
        self.trim_keeping(before, before)
    }

    /// As [`Wal::trim`] for a checkpoint that replays from `start` on, but what lies between `keep` and there stays, for readers ([`crate::Reader`]).
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

    /// Where the segment that the log ends in and the spares take more than `most` bytes, the log goes on in a short one ([`crate::QUIET_ROOM`]), which grows with it as the very first segment does: for
    /// a caller that takes it that nobody writes now. He writes a checkpoint, which trims what is before, and then has the spares given back ([`Wal::rest`]). Whether it does.
    ///
    /// # Errors
    /// [`Error::Io`]; the log goes on as it is. [`Error::Failed`], [`Error::ReadOnly`].
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

    /// Gives back the segments that are kept for as much log as there was of late: nobody writes now. After [`Wal::turn_over`], all that the log is not in.
    ///
    /// # Errors
    /// As [`Wal::trim`].
    pub fn rest(&self) -> Result<()> {
        let log = self.log()?;
        log.pool.rest(log.end())
    }

    /// Makes segments ahead of time, so that no append has to: for a background thread, after each trim and now and then. Returns
    /// at once when there are enough: three spares, the one that the log grows into next and two in reserve for deletes and
    /// upkeep ([`Claim`]). In its very first segment a log has one for each quarter that is in use, so that a small
    /// database does not pay for them.
    ///
    /// After an attempt that failed, calls do nothing, without an error, for a pause that doubles with each failure, up to a
    /// minute; [`Wal::trim`] ends the pause when it has recycled segments, and so does an append that could make one.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`]: the log goes on with what it has. [`Error::Failed`], [`Error::ReadOnly`].
    pub fn prepare(&self) -> Result<()> {
        let log = self.log()?;
        log.failure.check()?;
        log.pool.prepare(log.end(), Instant::now)
    }

    /// Makes so many bytes of room from the end of the log on, of which deletes and upkeep have a part for themselves, or a whole segment, and where that is less the
    /// segments in reserve for them: for a caller that is about to fill the disk with something else than the log.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`], [`Error::Failed`], [`Error::ReadOnly`].
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let log = self.log()?;
        log.failure.check()?;
        log.pool.make_room(log.end(), bytes)?;
        if bytes < self.geometry.segment_bytes() { Ok(()) } else { log.pool.make_spares(Claim::Put.leaves()) }
    }

    /// Bytes of log that a recovery would replay.
    #[must_use]
    pub fn bytes_to_replay(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| self.end().0.saturating_sub(log.start.load(Ordering::Acquire)))
    }

    /// Bytes of log from the beginning of the oldest segment that a recovery would read to the end.
    #[must_use]
    pub fn bytes_retained(&self) -> u64 {
        let Some(log) = &self.log else { return 0 };
        let needed = self.geometry.number(Lsn(log.start.load(Ordering::Acquire)));
        self.bytes_from(log.pool.first_live().map(|first| first.max(needed)))
    }

    /// Bytes of log from the beginning of the oldest segment that is there to the end.
    #[must_use]
    pub fn bytes_kept(&self) -> u64 {
        self.bytes_from(self.log.as_ref().and_then(|log| log.pool.first_live()))
    }

    fn bytes_from(&self, first: Option<u64>) -> u64 {
        first.map_or(0, |first| self.end().0.saturating_sub(self.geometry.base(first).0))
    }

    /// Why the log takes nothing any more, if so.
    #[must_use]
    pub fn failed(&self) -> Option<Error> {
        self.log.as_ref().and_then(|log| log.failure.get())
    }

    /// What the log did since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Some(log) = &self.log else {
            return Stats::default();
        };
        let (segments_live, segments_spare) = log.pool.counts();
        Stats { segments_live, segments_spare, ..log.counters.snapshot() }
    }

    /// Most bytes that the payload of a record may have: it must fit into a segment.
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
        let Recovered { geometry, replayed, next_seq, live, replayed_files, found } = recovered;
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
        // What marks the opening asks nobody: a file that a crash left short could end before it.
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
        // Nothing is in a new log that its groups would have to be told from.
        if activate && number == 0 {
            if !options.creates {
                store.sync_directories()?;
            }
            return Ok(log);
        }
        let opened = {
            let mut space = log.space.lock();
            space.push_opening();
            log.note_end(&space);
            space.end()
        };
        log.flush_through(opened, &|| {})?;
        Ok(log)
    }

    /// Position behind the last record.
    fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }

    pub(crate) fn note_end(&self, space: &Space) {
        self.end.store(space.end().0, Ordering::Release);
    }

    /// Returns when everything below `end`, or all there is, is written: up to where, the end of a group.
    pub(crate) fn write_through(&self, end: Lsn) -> Result<Lsn> {
        self.writer.write_through(end.min(self.end()), || self.failure.guard("write", || self.write()))
    }

    fn flush_through(&self, end: Lsn, moved: &dyn Fn()) -> Result<()> {
        self.flusher.flush_through(Wish::Through(end.min(self.end())), &Committing { log: self, moved })
    }

    /// Writes all that was appended and is there, and says up to where that is. One at a time.
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
        let mut requests = Vec::with_capacity(2);
        // Neighbours in a segment go in one write, for they share a block.
        for row in batches.chunk_by(|one, next| one.number == next.number) {
            self.push_writes(row, &mut requests);
        }
        self.psync.run_all(requests).map_err(|cause| self.failure.set("write", cause))?;
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

    /// Makes everything durable that was written before the call.
    fn flush(&self) -> Result<()> {
        let mut files = {
            let mut touched = self.touched.lock();
            let files = mem::take(&mut touched.files);
            // A scheme that flushes once more than it has to does flush.
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

/// Bytes of a write that brings `bytes` of the log to this offset: it fills the last block with zeros, if it is the first that has bytes of that. Of a block that is
/// not in the page cache any more, as of a segment that was used long ago, and of which only a part is written, the kernel would read what it held before; the caller,
/// and all who wait for it, would wait for the device.
const fn written_with(offset: usize, bytes: usize) -> usize {
    let end = offset + bytes;
    let is_first = offset.is_multiple_of(BLOCK) || offset / BLOCK < end / BLOCK;
    if is_first { end.next_multiple_of(BLOCK) - offset } else { bytes }
}

/// Told where a record is, before it can be written.
pub type Announce<'a> = &'a mut dyn FnMut(&Position);

/// What the flusher works with on behalf of a caller.
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
