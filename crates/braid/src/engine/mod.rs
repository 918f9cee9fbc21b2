//! The engine: the state that all handles of one open database share, its doors, and the treatment of errors.
//!
//! Invariant: after a failed write or flush nothing more is written.
//!
//! Left to others: commits ([`crate::commit`]), their changes ([`crate::commit::carry_out`]), tables
//! ([`crate::commit::schema`]), applying queues ([`crate::upkeep::worker`]), checkpoints, recovery, reading.

mod assertions;
pub(crate) mod budget;
pub(crate) mod cleaning;
pub(crate) mod counters;
pub(crate) mod delays;
pub(crate) mod handle;
pub(crate) mod health;
pub(crate) mod horizon;
pub(crate) mod keeper;
pub(crate) mod kept;
pub(crate) mod learned;
pub(crate) mod learned_file;
pub(crate) mod loans;
pub(crate) mod log_ahead;
pub(crate) mod lookups;
pub(crate) mod parts;
pub(crate) mod pressure;
pub(crate) mod publish;
pub(crate) mod recent;
pub(crate) mod retention;
mod running;
mod settings;
pub(crate) mod signal;
pub(crate) mod snapshot;
pub(crate) mod stretches;
mod sweep_requests;
pub(crate) mod sweeps;
pub(crate) mod threads;
pub(crate) mod tuning;
pub(crate) mod unflushed;
pub(crate) mod upkeep;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use index::Seq;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use psync::{File, Lock, Request};
use space::{FileStore, PagedFile};
use wal::{Lsn, Wal};

use crate::{
    engine::{
        budget::Budget,
        cleaning::Cleaning,
        counters::EngineCounters,
        health::Health,
        keeper::Keeper,
        loans::Loans,
        lookups::Lookups,
        parts::{Contents, Files},
        pressure::{LogLimit, Pressure},
        publish::Publisher,
        recent::Recent,
        retention::Retention,
        signal::Signal,
        snapshot::Snapshots,
        stretches::Stretches,
        sweeps::Sweeps,
        threads::Threads,
        tuning::Tuning,
        unflushed::UnflushedDocuments,
        upkeep::Upkeep,
    },
    error::{Error, ErrorKind, Result},
    format::Image,
    options::Options,
    root::superblock::SuperblockFile,
    structures::{Structures, pool::Taker},
    tables::{
        catalog::{Catalog, TableCore},
        usage,
    },
    words::clock::Clock,
};

/// Replaying this many bytes of log takes less time than writing a checkpoint.
const QUICK_BYTES: u64 = 64 << 10;

/// Up to this many bytes in files of segments, `LITTLE_LOG_BYTES` of log are enough room, the share of deletes and
/// upkeep included.
const LITTLE_BYTES: u64 = 4 << 20;
const LITTLE_LOG_BYTES: u64 = 192 << 10;

/// The state that all handles of one open database share.
pub(crate) struct Engine {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
    pub(crate) store: FileStore,
    pub(crate) pages: Arc<PagedFile>,
    pub(crate) structures: Structures,
    pub(crate) wal: Wal,
    pub(crate) catalog: Catalog,
    pub(crate) publisher: Publisher,
    pub(crate) snapshots: Snapshots,
    pub(crate) recent: Recent,
    pub(crate) transactions: Budget,
    pub(crate) pressure: Pressure,
    pub(crate) loans: Loans,
    pub(crate) sweeps: Sweeps,
    pub(crate) cleaning: Cleaning,
    pub(crate) retention: Retention,
    pub(crate) health: Health,
    pub(crate) signal: Signal,
    pub(crate) keeper: Keeper,
    pub(crate) lookups: Lookups,
    work: Work,
    pub(crate) threads: Threads,
    pub(crate) clock: Arc<Clock>,
    pub(crate) superblock: Mutex<SuperblockFile>,
    /// The extent of the newest image; none where recovery has replayed records beyond that image.
    saved: Mutex<Option<Saved>>,
    pub(crate) unflushed: Arc<UnflushedDocuments>,
    /// Bytes of all queues that take operations.
    pub(crate) active_bytes: AtomicU64,
    /// Held by the worker during its turn, and by whoever changes a table as a whole or needs all of them unchanged.
    pub(crate) upkeep: Mutex<Upkeep>,
    pub(crate) stretches: Stretches,
    /// Held during a flush of the log for pages, or of files that the log or an image will refer to.
    pub(crate) flushing: Mutex<()>,
    /// Held during a commit whose record is longer than a segment of the log.
    pub(crate) long_commit: Mutex<()>,
    pub(crate) counters: EngineCounters,
    /// One creation or drop of a table at a time.
    pub(crate) schema: Mutex<()>,
    /// Every write holds this for reading from its admission until its commit has its place, and a change that is no
    /// commit until the change is visible.
    pub(crate) writing: RwLock<()>,
    closed: AtomicBool,
    reserves: Mutex<Reserves>,
    /// The reason why the figures that earlier processes learned of the device could not be used.
    pub(crate) learned_unusable: Option<String>,
    _lock: Option<Lock>,
}

/// Disk space that the log and the data file hold for deletes and upkeep, before files of segments can take all of the
/// disk.
#[derive(Default)]
struct Reserves {
    /// Bytes written to files of segments since the log last gave room back. After opening this includes the bytes that
    /// were there already.
    bytes: u64,
    /// The reserved room is enough for this many bytes.
    enough_for: u64,
    /// The number of times that the log gave room back.
    rests: u64,
}

/// The extent of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Saved {
    /// The image has all commits up to this one.
    visible: Seq,
    /// The image has every other record up to here.
    log_end: Lsn,
}

/// The part of the buffer pool that open transactions may take, as its divisor.
const TRANSACTIONS_POOL_PART: u64 = 4;

/// The work of threads that stands above the engine.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Runs until the database closes or fails.
    pub(crate) run: fn(&Arc<Engine>),
    /// Does the due work where no thread does.
    pub(crate) inline: fn(&Engine),
    /// Answers lookups until no more come.
    pub(crate) look_up: fn(&Arc<Engine>),
}

impl Engine {
    /// Puts an engine together.
    pub(crate) fn new(files: Files, contents: Contents, work: Work) -> Self {
        let Files { path, options, tuning, store, pages, structures, superblock, unflushed, lock } = files;
        let Contents { wal, catalog, replayed, kept, time } = contents;
        // Segments keep the length that they were made with, whatever the options ask for.
        let options = Options { segment_bytes: superblock.current().segment_bytes, ..options };
        let (visible, log_end) = (Seq(wal.last_seq()), wal.end());
        let log_limit = LogLimit::new(tuning.write_buffer_bytes, options.segment_bytes);
        let log_from = Lsn(log_end.0 - wal.bytes_to_replay());
        let clock = Arc::new(Clock::new(options.clock.clone(), time));
        Self {
            publisher: Publisher::new(visible, log_end),
            snapshots: Snapshots::default(),
            recent: Recent::default(),
            transactions: Budget::new(tuning.transaction_bytes, tuning.cache_bytes / TRANSACTIONS_POOL_PART),
            pressure: Pressure::new(tuning.write_buffer_bytes, log_limit, log_from, options.background),
            loans: Loans::new(tuning.loans_bytes()),
            sweeps: Sweeps::default(),
            cleaning: Cleaning::default(),
            retention: Retention::new(options.retain_log_bytes, kept, &wal),
            health: Health::default(),
            signal: Signal::default(),
            keeper: Keeper::new(Arc::clone(&clock)),
            lookups: Lookups::default(),
            work,
            threads: Threads::default(),
            superblock: Mutex::new(superblock),
            saved: Mutex::new((replayed.records == 0).then_some(Saved { visible, log_end })),
            active_bytes: AtomicU64::new(0),
            upkeep: Mutex::default(),
            stretches: Stretches::default(),
            flushing: Mutex::default(),
            long_commit: Mutex::default(),
            counters: EngineCounters::new(replayed),
            schema: Mutex::new(()),
            writing: RwLock::new(()),
            closed: AtomicBool::new(false),
            reserves: Mutex::new(Reserves { bytes: usage::bytes_of(&catalog.live()), ..Reserves::default() }),
            learned_unusable: learned_file::recall(store.psync(), &path),
            path,
            options,
            tuning,
            store,
            pages,
            structures,
            wal,
            catalog,
            clock,
            unflushed,
            _lock: lock,
        }
    }

    /// Fails when nothing may be written.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        if self.is_closed() {
            return Err(Error::Closed);
        }
        self.health.check()
    }

    /// Whether the doors are closed: no more writes are admitted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether a close may skip the checkpoint, because the next opening replays the log as fast as a checkpoint would
    /// be written.
    ///
    /// A checkpoint is still needed where (1) states are retained, (2) kept log is to be given up, or (3) values
    /// expire, because the checkpoint keeps the time by which they have expired.
    pub(crate) fn is_quick_to_replay(&self) -> bool {
        let needs_one = |table: &Arc<TableCore>| table.settings().history > 0 || table.is_expiring();
        let retains = self.catalog.live().iter().any(needs_one);
        let gives_up = self.options.retain_log_bytes == 0 && self.wal.bytes_kept() > self.wal.bytes_retained();
        self.health.check().is_ok() && !retains && !gives_up && self.wal.bytes_to_replay() <= QUICK_BYTES
    }

    /// Closes the doors for writes, and waits for the writes under way. False where the doors were closed before.
    pub(crate) fn close_doors(&self) -> bool {
        if self.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.pressure.close();
        self.let_writes_end();
        true
    }

    /// Ends a close: no write and no background work is under way any more. Where the newest image has everything, the
    /// superblock notes that, so that the next opening need not read the log. Otherwise the log notes where the log
    /// ends.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let _held = self.upkeep.lock();
        let _alone = self.stretches.alone();
        if self.health.check().is_err() {
            return Ok(());
        }
        self.flush_log()?;
        let waits = self.catalog.live().iter().any(|table| table.oldest_unapplied().is_some());
        if waits || !self.is_saved() {
            return Ok(self.wal.close()?);
        }
        self.superblock.lock().mark_clean(self.wal.end())
    }

    /// Notes `image` as the newest one.
    pub(crate) fn note_checkpoint(&self, image: &Image) {
        *self.saved.lock() = Some(Saved { visible: image.visible, log_end: image.flush_ends_below });
        self.counters.checkpointed();
    }

    /// Whether the newest image has every logged record.
    pub(crate) fn is_saved(&self) -> bool {
        // The order matters: where the end, which is read second, is still the end of the image, no seq was assigned
        // before that read.
        let visible = Seq(self.wal.last_seq());
        *self.saved.lock() == Some(Saved { visible, log_end: self.wal.end() })
    }

    /// Keeps the doors open until a change that is no commit has ended.
    pub(crate) fn keep_open(&self) -> RwLockReadGuard<'_, ()> {
        self.writing.read()
    }

    /// Waits for the writes under way to become visible. Every later write sees all state that was set before this
    /// call.
    pub(crate) fn let_writes_end(&self) {
        let placed = {
            let _no_writes = self.writing.write();
            Seq(self.wal.last_seq())
        };
        if self.publisher.visible() < placed {
            match self.wal.flush_through_then(self.wal.end(), &|| self.publish()) {
                Ok(()) => self.publish(),
                Err(error) => self.fail(Error::from(error).cause()),
            }
            // Without this end, nothing becomes visible any more, which whoever waits for a write is told.
            let _ = self.publisher.wait(placed);
        }
    }

    /// Takes so many bytes of the buffer pool, in place of those that `taker` took before.
    pub(crate) fn take_from_pool(&self, taker: Taker, bytes: u64) {
        self.structures.take_from_pool(taker, bytes, || usage::footprints(&self.catalog.live()));
    }

    /// Has all visible operations applied, and a checkpoint written where wanted.
    pub(crate) fn ask(&self, checkpoint: bool) -> Result<()> {
        self.check_writable()?;
        self.wait_for(self.signal.post(checkpoint))
    }

    /// As `ask` with a checkpoint. While no writer is active, also gives back all space that a database at rest does
    /// not need. With `cut`, the data file gives back its surplus in any case.
    pub(crate) fn ask_for_rest(&self, cut: bool) -> Result<()> {
        self.check_writable()?;
        self.wait_for(self.signal.post_rest(cut))
    }

    fn wait_for(&self, ticket: u64) -> Result<()> {
        self.work_inline();
        self.signal.answer(ticket).map_err(|error| {
            let closed = || Error::Failed { cause: "the background worker has ended".into() };
            error.or_else(|| self.health.check().err()).unwrap_or_else(closed)
        })
    }

    /// Ends all writing because of `cause`.
    pub(crate) fn fail(&self, cause: impl ToString) {
        self.health.fail(cause);
        self.publisher.fail();
        self.pressure.close();
        self.keeper.stop();
        self.signal.fail();
    }

    /// The reason why nothing becomes visible any more.
    pub(crate) fn why_ended(&self) -> String {
        self.health.cause().unwrap_or("publishing ended").to_owned()
    }

    /// The error for a commit that is in the log but may or may not be durable.
    pub(crate) fn outcome_unknown(&self) -> Error {
        Error::OutcomeUnknown { cause: self.why_ended() }
    }

    /// Fails when the table was dropped.
    pub(crate) fn check_live(&self, table: &TableCore) -> Result<()> {
        if table.dropped() > Seq(0) {
            return Err(Error::NoSuchTable { name: table.name.clone() });
        }
        Ok(())
    }

    /// Reserves log room for deletes and upkeep, and pages of the data file, before `coming` bytes go to other files.
    /// Those files could fill the disk while the log and the data file are still small.
    ///
    /// A small reserve of log is enough as long as the other files are small.
    pub(crate) fn make_reserves(&self, coming: u64) -> Result<()> {
        let (bytes, rests) = {
            let mut reserves = self.reserves.lock();
            reserves.bytes = reserves.bytes.saturating_add(coming);
            if reserves.bytes <= reserves.enough_for {
                return Ok(());
            }
            (reserves.bytes, reserves.rests)
        };
        let (room, enough_for) =
            if bytes <= LITTLE_BYTES { (LITTLE_LOG_BYTES, LITTLE_BYTES) } else { (u64::MAX, u64::MAX) };
        self.pages.make_reserve().map_err(|error| self.write_error(error.into()))?;
        self.wal.reserve(room).map_err(|error| self.write_error(error.into()))?;
        let mut reserves = self.reserves.lock();
        // A rest may have given the room back meanwhile.
        if reserves.rests == rests {
            reserves.enough_for = enough_for;
        }
        Ok(())
    }

    /// Notes that bytes for which reserves were made found no room, and will come again.
    pub(crate) fn forget_coming(&self, bytes: u64) {
        let mut reserves = self.reserves.lock();
        reserves.bytes = reserves.bytes.saturating_sub(bytes);
    }

    /// Notes that the log has given its room back. The next few bytes need only the small reserve again.
    pub(crate) fn forget_reserves(&self) {
        let mut reserves = self.reserves.lock();
        *reserves = Reserves { rests: reserves.rests + 1, ..Reserves::default() };
    }

    /// Sorts the error of a write. A failed write or flush ends all writing, unless the write failed for lack of space
    /// alone.
    pub(crate) fn write_error(&self, error: Error) -> Error {
        if error.is_write_failure() && !error.is_no_space() {
            self.fail(error.cause());
        }
        // Beside a stretch of a compaction the disk may be full for a moment only. The kept log stays until the disk is
        // full without one.
        let is_full = error.kind() == ErrorKind::DiskFull && !self.stretches.are_under_way();
        if is_full && self.retention.yield_space() {
            self.signal.kick();
        }
        error
    }

    /// Makes the whole log durable. Pages without a reader, which a change in the log has given up, are free then.
    pub(crate) fn flush_log(&self) -> Result<()> {
        // Whoever comes second finds the pages that the first has taken.
        let _one = self.flushing.lock();
        let unread = self.pages.take_unread();
        self.wal.flush_through(self.wal.end())?;
        self.pages.release_unread(unread);
        Ok(())
    }

    /// Runs requests with flushes of files that the log or an image will refer to. The system tells a failed flush of a
    /// file once, so one thread at a time does this, and a failure is noted before the next.
    pub(crate) fn run_with_flushes(&self, requests: Vec<Request>) -> Result<()> {
        let _one = self.flushing.lock();
        self.health.check()?;
        self.store.psync().run_all(requests).map_err(|error| self.write_error(error.into()))?;
        Ok(())
    }

    /// As [`Engine::run_with_flushes`], for these files and the names of all files that were made.
    pub(crate) fn flush_with_names(&self, files: &[File]) -> Result<()> {
        let _one = self.flushing.lock();
        self.health.check()?;
        let files: Vec<&File> = files.iter().collect();
        self.store.flush_with_names(&files).map_err(|error| self.write_error(error.into()))
    }

    /// Makes the whole log durable, including a record that takes effect once durable. A failure ends all writing, and
    /// leaves the outcome of the record unknown.
    pub(crate) fn flush_record(&self) -> Result<()> {
        self.flush_log().map_err(|error| {
            self.fail(error.cause());
            self.outcome_unknown()
        })
    }

    /// As [`Publisher::between`], but with the end of the log as the position once the last commit is visible. Records
    /// behind that commit change no table by themselves, so they are no longer needed. On a full disk such a record
    /// could pin a segment, and no commit goes in without that segment.
    pub(crate) fn between_publications<R>(&self, with: impl FnOnce(Seq, Lsn) -> R) -> R {
        // The order matters: a commit that gets its seq later has its record behind this end.
        let (end, last) = (self.wal.end(), Seq(self.wal.last_seq()));
        self.publisher
            .between(|visible, frontier| with(visible, if visible >= last { frontier.max(end) } else { frontier }))
    }

    /// Without background threads, does their work until none is left or a step fails.
    pub(crate) fn work_inline(&self) {
        if !self.options.background {
            (self.work.inline)(self);
        }
    }
}
