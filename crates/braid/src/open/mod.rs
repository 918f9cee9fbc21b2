//! Opening: a directory is locked, and its database is created or recovered.
//!
//! A directory without a superblock is accepted only if nothing in it belongs to another owner. A superblock that does
//! not yet have its final name means that creation did not end. Nothing in such a directory was acknowledged, so the
//! database is created anew.
//!
//! Exception: the directory holds more than a creation makes. Then somebody gave the superblock of a database that
//! name, and salvage may find something there.

pub(crate) mod backlog;
pub(crate) mod recovery;

use std::{path::Path, sync::Arc};

use index::{ReadAhead, Time};
use psync::{
    Lock, Psync,
    probe::{LEARNED_NAME, LEARNED_SCRATCH_NAME, PROFILE_NAME, PROFILE_SCRATCH_NAME},
};
use rand::RngCore;
use space::{FileStore, PagedFile, StreamKind};
use wal::{Group, Lsn, Verdict, Wal};

use crate::{
    engine::{
        Engine, Parts,
        counters::Recovery,
        retention::Kept,
        tuning::{self, Tuning},
        unflushed::UnflushedDocuments,
    },
    error::{Error, Result, convert::log_error},
    options::Options,
    root::{
        DATA,
        superblock::{self, SuperblockFile},
    },
    structures::tree::Trees,
    tables::catalog::Catalog,
    upkeep::{checkpoint, worker},
    words::clock::Clock,
};

pub(crate) const LOCK: &str = "LOCK";
/// The most bytes of the data file after a creation, also by an earlier version.
const CREATED_DATA_BYTES: u64 = 256 << 10;
/// Names that a directory may hold before its superblock exists.
const OURS: [&str; 9] = [
    LOCK,
    superblock::NAME,
    "wal",
    "doc",
    "node",
    PROFILE_NAME,
    PROFILE_SCRATCH_NAME,
    LEARNED_NAME,
    LEARNED_SCRATCH_NAME,
];

/// Whether a database directory has a file or directory of that name.
pub(crate) fn is_ours(name: &str) -> bool {
    [DATA, space::Reserve::NAME, superblock::UNFINISHED].contains(&name) || OURS.contains(&name)
}

/// Opens or creates the database at `path`.
pub(crate) fn open(psync: Psync, path: &Path, options: &Options) -> Result<Engine> {
    let existed = psync.exists(path)?;
    if !existed && (options.read_only || !options.create) {
        return Err(Error::NoDatabase { path: path.to_owned() });
    }
    let names = if existed { psync.list(path)? } else { Vec::new() };
    let is_there = |name: &str| names.iter().any(|other| other == name);
    if !is_there(superblock::NAME) {
        if !is_there(superblock::UNFINISHED) {
            check_ours(&psync, path, &names)?;
        }
        if options.read_only || !options.create {
            return Err(Error::NoDatabase { path: path.to_owned() });
        }
    }
    let store = FileStore::open(psync, path, options.read_only)?;
    let lock = lock(&store, path, options.read_only)?;
    // Asked once more, because the database may have been created before the lock was taken.
    if store.exists(superblock::NAME)? {
        let superblock = SuperblockFile::open(&store)?;
        if superblock.current().image.is_some() {
            return recovery::recover(path, options, store, superblock, lock);
        }
        // Builds that did not use another name left a superblock without an image when a creation was cut off.
        if options.read_only {
            return Err(Error::NoDatabase { path: path.to_owned() });
        }
    } else {
        check_unfinished(&store, path)?;
    }
    create(path, options, store, lock)
}

/// Accepts a directory without a superblock only if nothing in it belongs to another owner.
fn check_ours(psync: &Psync, path: &Path, names: &[String]) -> Result<()> {
    let mut foreign = names.iter().find(|name| !OURS.contains(&name.as_str())).cloned();
    for directory in ["wal", "doc", "node"] {
        if psync.exists(&path.join(directory))? {
            let inside = psync.list(&path.join(directory))?.into_iter().next();
            foreign = foreign.or(inside.map(|name| format!("{directory}/{name}")));
        }
    }
    foreign.map_or(Ok(()), |name| {
        let reason = format!("it holds {name:?} and no superblock");
        Err(Error::ForeignFile { path: path.to_owned(), reason })
    })
}

/// Fails if an unfinished database has records or tables. An interrupted creation leaves neither.
fn check_unfinished(store: &FileStore, path: &Path) -> Result<()> {
    let mut more = store.list("")?.into_iter().find(|name| !is_ours(name));
    for directory in ["doc", "node"] {
        let inside = store.list(directory)?.into_iter().next();
        more = more.or(inside.map(|name| format!("{directory}/{name}")));
    }
    if store.exists(DATA)? && store.open_existing(StreamKind::Node, DATA, false)?.len()? > CREATED_DATA_BYTES {
        more = more.or(Some(DATA.to_owned()));
    }
    let in_log = || wal::beyond_new(store).map_err(|error| log_error(error, path));
    let Some(name) = more.map_or_else(in_log, |name| Ok(Some(name)))? else { return Ok(()) };
    let reason = format!(
        "it has no complete superblock, and {name:?} is more than a creation leaves that was cut off; `braid salvage` copies what is left of a database"
    );
    Err(Error::ForeignFile { path: path.to_owned(), reason })
}

/// Locks the database: alone, or together with other readers.
pub(crate) fn lock(store: &FileStore, path: &Path, read_only: bool) -> Result<Option<Lock>> {
    let file = path.join(LOCK);
    match store.psync().lock(&file, read_only) {
        Ok(lock) => Ok(Some(lock)),
        Err(psync::Error::Locked { holder, .. }) => {
            let holder = holder.map_or_else(|| "that did not leave its id".to_owned(), |pid| pid.to_string());
            Err(Error::Locked { path: path.to_owned(), holder })
        }
        // A reader without write access to the directory has no lock file to lock, and neither has a writer.
        Err(error) if read_only && crate::error::convert::io_kind(&error) != crate::error::ErrorKind::Io => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Creates a database, perhaps over the rest of an interrupted creation.
fn create(path: &Path, options: &Options, store: FileStore, lock: Option<Lock>) -> Result<Engine> {
    let mut database = [0; 16];
    rand::rng().fill_bytes(&mut database);
    // Other files of an interrupted creation go before its superblock, because the superblock marks them as such.
    let mut left: Vec<_> =
        store.list("wal")?.iter().filter(|name| name.ends_with(".log")).map(|name| format!("wal/{name}")).collect();
    left.extend(store.exists(DATA)?.then(|| DATA.to_owned()));
    if !left.is_empty() {
        left.iter().try_for_each(|name| store.release(name))?;
        store.sync_directories()?;
    }
    store.release(superblock::UNFINISHED)?;
    let superblock = SuperblockFile::create(&store, database, options.segment_bytes)?;
    store.sync_directories()?;
    let epoch = superblock.current().epoch;
    let tuning = Tuning::new(options, tuning::profile(options, store.psync(), path), 0);
    let store = store.with_pio_max(tuning.pio_max());
    let pages = Arc::new(PagedFile::create(&store, DATA)?);
    let trees = trees(&store, &pages, &tuning, &superblock, epoch, path)?;
    let unflushed = Arc::new(UnflushedDocuments::default());
    let log_options = wal::Options { creates: true, ..log_options(options, &superblock, epoch, Lsn(0), Lsn(0), 1) };
    let companions = Arc::clone(&unflushed) as Arc<dyn wal::Companions>;
    let replay = &mut |_: &Group<'_>| Ok::<_, wal::Error>(Verdict::Tail);
    let (wal, _) = Wal::open(&store, &log_options, companions, replay).map_err(|error| log_error(error, path))?;
    let catalog = Catalog::new(1);
    let parts = Parts {
        work: worker::WORK,
        path: path.to_owned(),
        options: options.clone(),
        tuning,
        store,
        pages,
        trees,
        wal,
        catalog,
        superblock,
        unflushed,
        lock,
        replayed: Recovery::default(),
        kept: Kept::ALL,
        clock: Arc::new(Clock::new(options.clock.clone(), Time(0))),
    };
    let engine = Engine::new(parts);
    checkpoint::write_first(&engine)?;
    engine.superblock.lock().finish(&engine.store)?;
    Ok(engine)
}

/// The parts that all trees share. The incarnations of trees begin with the epoch.
pub(crate) fn trees(
    store: &FileStore, pages: &Arc<PagedFile>, tuning: &Tuning, superblock: &SuperblockFile, epoch: u64, path: &Path,
) -> Result<Trees> {
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

pub(crate) fn log_options(
    options: &Options, superblock: &SuperblockFile, epoch: u64, start: Lsn, durable_floor: Lsn, next_seq: u64,
) -> wal::Options {
    let current = superblock.current();
    wal::Options {
        segment_bytes: current.segment_bytes,
        epoch,
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
