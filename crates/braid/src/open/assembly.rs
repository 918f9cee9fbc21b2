//! The assembly of an engine, whether its database was created or recovered.
//!
//! 1. [`Files`] are the parts that need no log.
//! 2. Their log is opened, and replayed where there is one ([`Files::open_log`]).
//! 3. With the contents that this gives, they become an engine ([`Engine::new`](crate::engine::Engine::new)).

use std::{path::Path, sync::Arc};

use index::{Home, ReadAhead};
use psync::Lock;
use space::{FileStore, PagedFile, Reserve};
use wal::{Group, Lsn, Replayed, Verdict, Wal};

use crate::{
    engine::{
        parts::Files,
        tuning::{self, Tuning},
    },
    error::{Error, Result},
    options::Options,
    root::superblock::{self, SuperblockFile},
    structures::Structures,
};

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
        let structures = structures(&store, &pages, &tuning, &superblock, path)?;
        let (path, options, unflushed) = (path.to_owned(), options.clone(), Arc::default());
        Ok(Self { path, options, tuning, store, pages, structures, superblock, unflushed, lock })
    }

    /// Opens the log, and shows its groups to `replay`.
    pub(crate) fn open_log(
        &self, options: &wal::Options, replay: &mut dyn FnMut(&Group<'_>) -> Result<Verdict>,
    ) -> Result<(Wal, Replayed)> {
        let companions = Arc::clone(&self.unflushed) as Arc<dyn wal::Companions>;
        Wal::open(&self.store, options, companions, replay)
    }
}

/// The shared parts of structures.
fn structures(
    store: &FileStore, pages: &Arc<PagedFile>, tuning: &Tuning, superblock: &SuperblockFile, path: &Path,
) -> Result<Structures> {
    let epoch = superblock.current().epoch;
    let epoch = u32::try_from(epoch).map_err(|_| Error::Corrupt {
        file: path.join(superblock::NAME).display().to_string(),
        offset: 0,
        what: "the open-epoch".into(),
        expected: "fewer than 2^32 opens".into(),
        found: epoch.to_string(),
    })?;
    Ok(Structures::new(&Home {
        store,
        pages: Some(pages),
        reserve: Arc::new(Reserve::new(store)),
        read_ahead: Arc::new(ReadAhead::new(tuning.read_ahead_bytes)),
        cache_bytes: tuning.cache_bytes,
        loans_bytes: tuning.loans_bytes(),
        segment_bytes: superblock.current().segment_bytes,
        epoch,
        lookups_in_flight: tuning.lookups_in_flight(),
        gap_pages: Some(tuning.gap_pages()),
        has_longer_leaves: !tuning.sets_leaf_pages(),
    }))
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
