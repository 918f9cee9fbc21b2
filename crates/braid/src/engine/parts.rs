//! The parts that an engine is put together from.

use std::{path::PathBuf, sync::Arc};

use index::Time;
use psync::Lock;
use space::{FileStore, PagedFile};
use wal::Wal;

use crate::{
    engine::{counters::Recovery, retention::Kept, tuning::Tuning, unflushed::UnflushedDocuments},
    options::Options,
    root::superblock::SuperblockFile,
    structures::Structures,
    tables::catalog::Catalog,
};

/// The parts of an engine that need no log.
pub(crate) struct Files {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
    pub(crate) store: FileStore,
    pub(crate) pages: Arc<PagedFile>,
    pub(crate) structures: Structures,
    pub(crate) superblock: SuperblockFile,
    pub(crate) unflushed: Arc<UnflushedDocuments>,
    pub(crate) lock: Option<Lock>,
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
