//! The assembly of an engine, whether its database was created or recovered.
//!
//! 1. [`Files`] are the parts that need no log.
//! 2. Their log is opened, and replayed where there is one ([`Files::open_log`]).
//! 3. With the contents that this gives, they become an engine ([`Files::assemble`]).

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use index::{ReadAhead, Time};
use psync::Lock;
use space::{FileStore, PagedFile};
use wal::{Group, Lsn, Replayed, Verdict, Wal};

use crate::{
    engine::{
        Engine, Parts,
        counters::Recovery,
        retention::Kept,
        tuning::{self, Tuning},
        unflushed::UnflushedDocuments,
    },
    error::{Error, Result},
    options::Options,
    root::superblock::{self, SuperblockFile},
    structures::tree::Trees,
    tables::catalog::Catalog,
    upkeep::worker,
    words::clock::Clock,
};

/// The parts of an engine that need no log.
pub(crate) struct Files {
    path: PathBuf,
    options: Options,
    tuning: Tuning,
    pub(crate) store: FileStore,
    pub(crate) pages: Arc<PagedFile>,
    pub(crate) trees: Trees,
    pub(crate) superblock: SuperblockFile,
    pub(crate) unflushed: Arc<UnflushedDocuments>,
    lock: Option<Lock>,
}

/// The contents of a database, once its log is open.
pub(crate) struct Contents {
    pub(crate) wal: Wal,
    pub(crate) catalog: Catalog,
    pub(crate) replayed: Recovery,
    pub(crate) kept: Kept,
    /// No later time is known.
    pub(crate) time: Time,
}

impl Files {
    /// The files of a database with `data_bytes` bytes in use, whose data file `pages` makes or opens. The superblock
    /// has counted this opening already.
    pub(crate) fn new(
        path: &Path, options: &Options, store: FileStore, superblock: SuperblockFile, lock: Option<Lock>,
        data_bytes: u64, pages: impl FnOnce(&FileStore) -> space::Result<PagedFile>,
    ) -> Result<Self> {
        let tuning = Tuning::new(options, tuning::profile(options, store.psync(), path), data_bytes);
        let store = store.with_pio_max(tuning.pio_max());
        let pages = Arc::new(pages(&store)?);
        let trees = trees(&store, &pages, &tuning, &superblock, path)?;
        let (path, options, unflushed) = (path.to_owned(), options.clone(), Arc::default());
        Ok(Self { path, options, tuning, store, pages, trees, superblock, unflushed, lock })
    }

    /// Opens the log, and shows its groups to `replay`.
    pub(crate) fn open_log<E: From<wal::Error>>(
        &self, options: &wal::Options, replay: &mut dyn FnMut(&Group<'_>) -> std::result::Result<Verdict, E>,
    ) -> std::result::Result<(Wal, Replayed), E> {
        let companions = Arc::clone(&self.unflushed) as Arc<dyn wal::Companions>;
        Wal::open(&self.store, options, companions, replay)
    }

    /// The engine of these files with these contents.
    pub(crate) fn assemble(self, contents: Contents) -> Engine {
        let Self { path, options, tuning, store, pages, trees, superblock, unflushed, lock } = self;
        let Contents { wal, catalog, replayed, kept, time } = contents;
        let clock = Arc::new(Clock::new(options.clock.clone(), time));
        let work = worker::WORK;
        Engine::new(Parts {
            path,
            options,
            tuning,
            store,
            pages,
            trees,
            wal,
            catalog,
            superblock,
            unflushed,
            lock,
            replayed,
            kept,
            clock,
            work,
        })
    }
}

/// The parts that all trees share. The incarnations of trees begin with the epoch.
fn trees(
    store: &FileStore, pages: &Arc<PagedFile>, tuning: &Tuning, superblock: &SuperblockFile, path: &Path,
) -> Result<Trees> {
    let epoch = superblock.current().epoch;
    let epoch = u32::try_from(epoch).map_err(|_| Error::Corrupt {
        file: path.join(superblock::NAME).display().to_string(),
        offset: 0,
        what: "the open-epoch".into(),
        expected: "fewer than 2^32 opens".into(),
        found: epoch.to_string(),
    })?;
    let read_ahead = Arc::new(ReadAhead::new(tuning.read_ahead_bytes));
    let segment_bytes = superblock.current().segment_bytes;
    let btree = btree::Shared::new(Arc::clone(pages), tuning.cache_bytes, epoch)
        .with_gap(tuning.gap_pages())
        .with_lookups_in_flight(tuning.lookups_in_flight())
        .with_longer_leaves(!tuning.sets_leaf_pages());
    let memory = (tuning.cache_bytes, tuning.loans_bytes());
    Ok(Trees::new(store, btree, memory, read_ahead, segment_bytes))
}

/// The options of a log that is replayed from `start`, and is known durable up to `durable_floor`.
pub(crate) fn log_options(
    options: &Options, superblock: &SuperblockFile, start: Lsn, durable_floor: Lsn, next_seq: u64,
) -> wal::Options {
    let current = superblock.current();
    wal::Options {
        segment_bytes: current.segment_bytes,
        epoch: current.epoch,
        database: current.database,
        start,
        keep: None,
        durable_floor,
        clean_end: None,
        next_seq,
        read_only: options.read_only,
        flush_scheme: options.flush_scheme,
        creates: false,
    }
}
