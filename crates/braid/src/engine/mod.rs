//! What all handles of one open database share: its parts, its doors, and what becomes of an error.
//!
//! Invariant: after a failed write or flush nothing is written any more.
//!
//! Left to others: commits ([`crate::commit`]), what they change ([`crate::commit::carry_out`]), tables ([`crate::commit::schema`]), applying queues
//! ([`crate::upkeep::worker`]), checkpoints, recovery, reading.

pub(crate) mod budget;
pub(crate) mod cleaning;
pub(crate) mod counters;
pub(crate) mod handle;
pub(crate) mod health;
pub(crate) mod keeper;
pub(crate) mod learned;
pub(crate) mod loans;
pub(crate) mod pressure;
pub(crate) mod publish;
pub(crate) mod recent;
pub(crate) mod retention;
pub(crate) mod signal;
pub(crate) mod snapshot;
pub(crate) mod sweeps;
pub(crate) mod threads;
pub(crate) mod tuning;
pub(crate) mod unflushed;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use index::Seq;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use psync::Lock;
use space::{FileStore, PagedFile};
use wal::{Lsn, Wal};

use crate::{
    engine::{
        budget::Budget,
        cleaning::Cleaning,
        counters::{EngineCounters, Recovery},
        health::Health,
        keeper::Keeper,
        loans::Loans,
        pressure::Pressure,
        publish::Publisher,
        recent::Recent,
        retention::{Kept, Retention},
        signal::Signal,
        snapshot::Snapshots,
        sweeps::Sweeps,
        threads::Threads,
        tuning::Tuning,
        unflushed::UnflushedDocuments,
    },
    error::{Error, ErrorKind, Result},
    format::Image,
    options::Options,
    root::superblock::SuperblockFile,
    structures::tree::Trees,
    tables::{
        catalog::{Catalog, TableCore},
        usage,
    },
    words::clock::Clock,
};

/// So many bytes of log are replayed in less time than it takes to write a checkpoint.
const QUICK_BYTES: u64 = 64 << 10;

/// As long as no more than this is in files of segments, so many bytes of log are enough for deletes and upkeep among others.
const LITTLE_BYTES: u64 = 4 << 20;
const LITTLE_LOG_BYTES: u64 = 192 << 10;

/// What all handles of one open database share.
pub(crate) struct Engine {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
    pub(crate) store: FileStore,
    pub(crate) pages: Arc<PagedFile>,
    pub(crate) trees: Trees,
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
    work: Work,
    pub(crate) threads: Threads,
    pub(crate) clock: Arc<Clock>,
    pub(crate) superblock: Mutex<SuperblockFile>,
    /// What the newest image has; none where recovery has brought more.
    saved: Mutex<Option<Saved>>,
    pub(crate) unflushed: Arc<UnflushedDocuments>,
    /// Bytes of all queues that take operations.
    pub(crate) active_bytes: AtomicU64,
    /// Held by whoever changes structures, and by whoever needs them still.
    pub(crate) maintenance: Mutex<()>,
    pub(crate) counters: EngineCounters,
    /// One creation or drop of a table at a time.
    pub(crate) schema: Mutex<()>,
    /// Held for reading by every write from its admission until it is visible.
    pub(crate) writing: RwLock<()>,
    closed: AtomicBool,
    reserves: Mutex<Reserves>,
    /// Why what earlier processes learned of the device could not be used.
    pub(crate) learned_unusable: Option<String>,
    _lock: Option<Lock>,
}

/// What the log and the data file keep for deletes and upkeep, beside files of segments.
#[derive(Default)]
struct Reserves {
    /// Bytes that were written to such files, with those that were there when the database was opened, since the log last gave room back.
    bytes: u64,
    /// What is kept is enough for so many.
    enough_for: u64,
    /// How often the log gave room back.
    rests: u64,
}

/// How far an image goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Saved {
    /// It has all commits up to this one.
    visible: Seq,
    /// And everything else that is logged up to here.
    log_end: Lsn,
}

/// The parts that opening puts together.
pub(crate) struct Parts {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
    pub(crate) store: FileStore,
    pub(crate) pages: Arc<PagedFile>,
    pub(crate) trees: Trees,
    pub(crate) wal: Wal,
    pub(crate) catalog: Catalog,
    pub(crate) superblock: SuperblockFile,
    pub(crate) unflushed: Arc<UnflushedDocuments>,
    pub(crate) lock: Option<Lock>,
    pub(crate) replayed: Recovery,
    pub(crate) kept: Kept,
    pub(crate) clock: Arc<Clock>,
    pub(crate) work: Work,
}

/// The worker, which stands above the engine.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Runs until the database closes or fails.
    pub(crate) run: fn(&Arc<Engine>),
    /// Does what is due, where there is no thread for it.
    pub(crate) inline: fn(&Engine),
}

impl Engine {
    /// Puts an engine together after recovery.
    pub(crate) fn new(parts: Parts) -> Self {
        let (visible, end) = (Seq(parts.wal.last_seq()), parts.wal.end());
        let pressure = Pressure::new(parts.tuning.write_buffer_bytes, parts.options.background);
        let transactions = Budget::new(parts.tuning.transaction_bytes);
        let segment_bytes = usage::bytes_of(&parts.catalog.live());
        Self {
            learned_unusable: learned::recall(parts.store.psync(), &parts.path),
            pressure,
            loans: Loans::new(parts.tuning.loans_bytes()),
            retention: Retention::new(parts.options.retain_log_bytes, parts.kept, &parts.wal),
            path: parts.path,
            // Whatever was asked for, segments are as long as they were made.
            options: Options { segment_bytes: parts.superblock.current().segment_bytes, ..parts.options },
            tuning: parts.tuning,
            store: parts.store,
            pages: parts.pages,
            trees: parts.trees,
            wal: parts.wal,
            catalog: parts.catalog,
            publisher: Publisher::new(visible, end),
            snapshots: Snapshots::default(),
            recent: Recent::default(),
            transactions,
            sweeps: Sweeps::default(),
            cleaning: Cleaning::default(),
            health: Health::default(),
            signal: Signal::default(),
            keeper: Keeper::new(Arc::clone(&parts.clock)),
            threads: Threads::new(parts.work.run),
            work: parts.work,
            clock: parts.clock,
            superblock: Mutex::new(parts.superblock),
            saved: Mutex::new((parts.replayed.records == 0).then_some(Saved { visible, log_end: end })),
            unflushed: parts.unflushed,
            active_bytes: AtomicU64::new(0),
            maintenance: Mutex::new(()),
            counters: EngineCounters::new(parts.replayed),
            schema: Mutex::new(()),
            writing: RwLock::new(()),
            closed: AtomicBool::new(false),
            reserves: Mutex::new(Reserves { bytes: segment_bytes, ..Reserves::default() }),
            _lock: parts.lock,
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

    /// Whether no more writes are let in.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether a close can leave what is not in the newest image to the next opening, which has it back as fast as a checkpoint would be written. Where states are retained, log is to be given up, or the time
    /// is to be kept by which values have expired, a checkpoint does that.
    pub(crate) fn is_quick_to_replay(&self) -> bool {
        let needs_one = |table: &Arc<TableCore>| table.settings().history > 0 || table.is_expiring();
        let retains = self.catalog.live().iter().any(needs_one);
        let gives_up = self.options.retain_log_bytes == 0 && self.wal.bytes_kept() > self.wal.bytes_retained();
        self.health.check().is_ok() && !retains && !gives_up && self.wal.bytes_to_replay() <= QUICK_BYTES
    }

    /// Lets no more writes in and waits for those under way. False where that was done before.
    pub(crate) fn close_doors(&self) -> bool {
        if self.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.pressure.close();
        self.let_writes_end();
        true
    }

    /// Notes that the newest image is all there is, if it is, so that the next opening need not read the log, and else in the log how far that is durable. Nobody writes any more, nor does anything in the
    /// background.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let _still = self.maintenance.lock();
        if self.health.check().is_err() {
            return Ok(());
        }
        self.flush_log()?;
        let waits = self.catalog.live().iter().any(|table| table.oldest_unapplied().is_some());
        if waits || !self.is_saved() {
            return self.wal.state_durable().map_err(|error| self.log_error(error));
        }
        self.superblock.lock().mark_clean(self.wal.end())
    }

    /// This image is the newest now.
    pub(crate) fn note_checkpoint(&self, image: &Image) {
        *self.saved.lock() = Some(Saved { visible: image.visible, log_end: image.flush_ends_below });
        self.counters.checkpointed();
    }

    /// Whether nothing was logged that the newest image does not have.
    pub(crate) fn is_saved(&self) -> bool {
        // In this order: where the end is as it was, no seq was given out before it.
        let visible = Seq(self.wal.last_seq());
        *self.saved.lock() == Some(Saved { visible, log_end: self.wal.end() })
    }

    /// Keeps others from closing the doors while a change that is no commit ends.
    pub(crate) fn keep_open(&self) -> RwLockReadGuard<'_, ()> {
        self.writing.read()
    }

    /// Waits for the writes that are under way; what was set before this is seen by all later ones.
    pub(crate) fn let_writes_end(&self) {
        drop(self.writing.write());
    }

    /// Has everything that is visible now applied, and a checkpoint written where wanted.
    pub(crate) fn ask(&self, checkpoint: bool) -> Result<()> {
        self.check_writable()?;
        self.wait_for(self.signal.post(checkpoint))
    }

    /// The same, with a checkpoint, and where nobody writes all is given back that is not needed at rest; what the data file does not need in any case, where that is to be `cut`.
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
        self.signal.fail();
    }

    /// Why nothing becomes visible any more.
    pub(crate) fn why_ended(&self) -> String {
        self.health.cause().unwrap_or("publishing ended").to_owned()
    }

    /// What a commit is told that was logged, and of which nobody knows whether it is durable.
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

    /// Gives the log room for deletes and upkeep, and the data file pages, before so many bytes go to other files: they can fill the disk while these two are still small. As long as there is
    /// little in those files, the log needs little.
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
        self.wal.reserve(room).map_err(|error| self.write_error(self.log_error(error)))?;
        let mut reserves = self.reserves.lock();
        // Others may have come to rest meanwhile, and given it back.
        if reserves.rests == rests {
            reserves.enough_for = enough_for;
        }
        Ok(())
    }

    /// The log has given its room back. Of what comes from now on little needs little again.
    pub(crate) fn forget_reserves(&self) {
        let mut reserves = self.reserves.lock();
        *reserves = Reserves { rests: reserves.rests + 1, ..Reserves::default() };
    }

    /// Sorts the error of a write: a failed write or flush ends all writing, unless there was only no space for the write.
    pub(crate) fn write_error(&self, error: Error) -> Error {
        let no_space = error.kind() == ErrorKind::DiskFull && !error.is_flush_failure();
        if error.is_write_failure() && !no_space {
            self.fail(error.cause());
        }
        if error.kind() == ErrorKind::DiskFull && self.retention.yield_space() {
            self.signal.kick();
        }
        error
    }

    /// Makes the whole log durable.
    pub(crate) fn flush_log(&self) -> Result<()> {
        self.wal.flush_through(self.wal.end()).map_err(|error| self.log_error(error))
    }

    /// Makes the whole log durable, with a record that counts from then on: a failure ends all writing, and leaves the record's outcome unknown.
    pub(crate) fn flush_record(&self) -> Result<()> {
        self.flush_log().map_err(|error| {
            self.fail(error.cause());
            self.outcome_unknown()
        })
    }

    /// As [`Publisher::between`], but what the log has behind the last commit, which changes no table by itself, is not needed any more once that is visible:
    /// on a full disk it could pin a segment that no commit goes in without.
    pub(crate) fn between_publications<R>(&self, with: impl FnOnce(Seq, Lsn) -> R) -> R {
        // In this order: what gets its seq later is behind that end.
        let (end, last) = (self.wal.end(), Seq(self.wal.last_seq()));
        self.publisher
            .between(|visible, frontier| with(visible, if visible >= last { frontier.max(end) } else { frontier }))
    }

    /// A log error as the database tells it.
    pub(crate) fn log_error(&self, error: wal::Error) -> Error {
        crate::error::convert::log_error(error, &self.path)
    }

    /// Without background threads, does what they would do, until there is nothing more to do or it fails.
    pub(crate) fn work_inline(&self) {
        (self.work.inline)(self);
    }
}
