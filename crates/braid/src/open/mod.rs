//! Opening: a directory is locked, and its database is created or recovered.
//!
//! A directory without a superblock is accepted only if nothing in it belongs to another owner. A superblock that does
//! not yet have its final name means that creation did not end. Nothing in such a directory was acknowledged, so the
//! database is created anew.
//!
//! Exception: the directory holds more than a creation makes. Then somebody gave the superblock of a database that
//! name, and salvage may find something there.

pub(crate) mod assembly;
pub(crate) mod backlog;
pub(crate) mod recovery;

use std::path::Path;

use index::Time;
use psync::{
    Lock, Psync,
    probe::{LEARNED_NAME, LEARNED_SCRATCH_NAME, PROFILE_NAME, PROFILE_SCRATCH_NAME},
};
use space::{FileStore, PagedFile, StreamKind};
use wal::{Group, Lsn, Verdict};

use crate::{
    engine::{
        Engine,
        counters::Recovery,
        parts::{Contents, Files},
        retention::Kept,
    },
    error::{Error, Result},
    open::assembly::log_options,
    options::Options,
    root::{
        DATA,
        superblock::{self, SuperblockFile},
    },
    tables::catalog::Catalog,
    upkeep::{checkpoint, worker},
    words::{structure::Structure, unforeseen},
};

pub(crate) const LOCK: &str = "LOCK";
/// The most bytes of the data file after a creation, also by an earlier version.
const CREATED_DATA_BYTES: u64 = 256 << 10;
/// Names that a directory may hold before its superblock exists.
const OURS: [&str; 8] =
    [LOCK, superblock::NAME, "wal", "doc", PROFILE_NAME, PROFILE_SCRATCH_NAME, LEARNED_NAME, LEARNED_SCRATCH_NAME];

/// Whether a database directory has a file or directory of that name.
pub(crate) fn is_ours(name: &str) -> bool {
    [DATA, space::Reserve::NAME, superblock::UNFINISHED].contains(&name) || is_before_superblock(name)
}

fn is_before_superblock(name: &str) -> bool {
    OURS.contains(&name) || Structure::directories().any(|directory| directory == name)
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
    let mut foreign = names.iter().find(|name| !is_before_superblock(name)).cloned();
    for directory in ["wal", "doc"].into_iter().chain(Structure::directories()) {
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
    for directory in ["doc"].into_iter().chain(Structure::directories()) {
        let inside = store.list(directory)?.into_iter().next();
        more = more.or(inside.map(|name| format!("{directory}/{name}")));
    }
    if store.exists(DATA)? && store.open_existing(StreamKind::Node, DATA, false)?.len()? > CREATED_DATA_BYTES {
        more = more.or(Some(DATA.to_owned()));
    }
    let in_log = || wal::beyond_new(store).map_err(Error::from);
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
        Err(error) if read_only && crate::error::io_kind(&error) != crate::error::ErrorKind::Io => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Creates a database, perhaps over the rest of an interrupted creation.
fn create(path: &Path, options: &Options, store: FileStore, lock: Option<Lock>) -> Result<Engine> {
    let database = unforeseen::bytes();
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
    let files = Files::new(path, options, store, superblock, lock, 0, |store| PagedFile::create(store, DATA))?;
    let log_options = wal::Options { creates: true, ..log_options(options, &files.superblock, Lsn(0), Lsn(0), 1) };
    let replay = &mut |_: &Group<'_>| Ok(Verdict::Tail);
    let (wal, _) = files.open_log(&log_options, replay)?;
    let (replayed, kept) = (Recovery::default(), Kept::ALL);
    let contents = Contents { wal, catalog: Catalog::new(1), replayed, kept, time: Time(0) };
    let engine = Engine::new(files, contents, worker::WORK);
    checkpoint::write_first(&engine)?;
    engine.superblock.lock().finish(&engine.store)?;
    Ok(engine)
}
