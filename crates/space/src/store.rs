//! A database directory.
//!
//! Owns the path of the directory, the counters of every stream of I/O in it, and the set of directories whose entries
//! changed since their last sync.
//!
//! 1. A file is named relative to the directory, at most one level down (`data`, `wal/7.log`). Its parent is made when
//!    needed.
//! 2. Creating or releasing a file notes its directory, and [`FileStore::sync_directories`] makes all noted directories
//!    durable. If the store is open for writing, the first call also makes the names durable that lead to the
//!    directory, because they may be as new as its files.
//! 3. Every file counts its I/O in the counters of its [`StreamKind`].
//! 4. Files that are read repeatedly stay open ([`FileStore::open_kept`]), a bounded number of them.
//!
//! Invariant: a name never leads out of the directory. Left to others: locking, file contents and their durability.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use psync::{Counters, File, OpenOptions, Psync, Request};

use crate::above::{self, Above, parent_of};
use crate::open_files::OpenFiles;
use crate::{Error, Result};

/// The purpose of a file. I/O is counted by kind, and a device that can separate streams does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamKind {
    /// The log.
    Wal,
    /// Documents: values too large for an index.
    Doc,
    /// Pages of indexes.
    Node,
    /// Files of the newest level of an LSM tree.
    L0,
    /// Files of the levels below.
    Ln,
    /// Superblock and other small files that locate the rest.
    Meta,
}

impl StreamKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [Self::Wal, Self::Doc, Self::Node, Self::L0, Self::Ln, Self::Meta];

    /// Its name, in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::Doc => "doc",
            Self::Node => "node",
            Self::L0 => "l0",
            Self::Ln => "l1+",
            Self::Meta => "meta",
        }
    }
}

impl fmt::Display for StreamKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A database directory; clones are the same one.
#[derive(Clone)]
pub struct FileStore {
    psync: Psync,
    inner: Arc<Inner>,
}

struct Inner {
    directory: PathBuf,
    read_only: bool,
    counters: [Arc<Counters>; StreamKind::ALL.len()],
    /// Directories whose entries changed since they were last synced.
    changed: Mutex<BTreeSet<PathBuf>>,
    /// Directories with the names that lead to this one, until they are synced.
    above: Mutex<Vec<Above>>,
    /// Held while directories are synced: a caller that finds nothing noted must still wait for the sync that took the
    /// notes.
    syncing: Mutex<()>,
    /// The failure that ended all syncing.
    failed: OnceLock<Error>,
    open: OpenFiles,
}

impl FileStore {
    /// The store in `directory`, which is created unless the store is for reading only.
    ///
    /// # Errors
    /// When the directory is missing and the store is read-only, or cannot be created.
    pub fn open(psync: Psync, directory: &Path, read_only: bool) -> Result<Self> {
        let (mut changed, mut above) = (BTreeSet::new(), Vec::new());
        if !psync.exists(directory)? {
            if read_only {
                // Fails and gives the reason.
                psync.list(directory)?;
            }
            // The directories above may be missing too.
            for made in directory.ancestors() {
                if made.as_os_str().is_empty() || psync.exists(made)? {
                    break;
                }
                changed.insert(parent_of(made));
            }
            psync.create_directory(directory)?;
        } else if !read_only {
            above = above::of(&psync, directory);
        }
        let inner = Inner {
            directory: directory.to_owned(),
            read_only,
            counters: StreamKind::ALL.map(|_| Arc::default()),
            changed: Mutex::new(changed),
            above: Mutex::new(above),
            syncing: Mutex::default(),
            failed: OnceLock::new(),
            open: OpenFiles::new(),
        };
        Ok(Self { psync, inner: Arc::new(inner) })
    }

    /// The same store, with another bound on requests in flight. Earlier clones keep theirs.
    #[must_use]
    pub fn with_pio_max(mut self, pio_max: usize) -> Self {
        self.psync = self.psync.with_pio_max(pio_max);
        self
    }

    /// The I/O that serves the files of the store.
    #[must_use]
    pub fn psync(&self) -> &Psync {
        &self.psync
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Whether the store is open for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.read_only
    }

    /// Counters of all files of a kind that were opened through this store.
    #[must_use]
    pub fn counters(&self, kind: StreamKind) -> &Arc<Counters> {
        &self.inner.counters[kind as usize]
    }

    /// The path of the file `name`.
    ///
    /// # Errors
    /// [`Error::Name`] when the path would not be inside the directory.
    pub fn path_of(&self, name: &str) -> Result<PathBuf> {
        let plain = name.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'));
        if !plain {
            return Err(Error::Name { name: name.to_owned() });
        }
        Ok(self.inner.directory.join(name))
    }

    /// Creates the file `name`, which must not exist, and its directory if missing. The entry is durable after
    /// [`FileStore::sync_directories`]. With `direct`, the page cache is bypassed where the file system allows that.
    ///
    /// # Errors
    /// When the store is read-only, the name is not inside the directory, the file exists or the system refuses. Also
    /// when a directory could not be synced before, because then the entry would never be durable.
    pub fn create(&self, kind: StreamKind, name: &str, direct: bool) -> Result<File> {
        let path = self.path_of(name)?;
        self.writable("create", &path)?;
        self.check_syncing()?;
        let parent = parent_of(&path);
        if parent != self.inner.directory {
            // Noted under the lock, so that any caller that finds the file there finds the note, too.
            let mut changed = self.inner.changed.lock();
            if !self.psync.exists(&parent)? {
                self.psync.create_directory(&parent)?;
                changed.insert(parent_of(&parent));
            }
        }
        let file = self.psync.open(
            &path,
            &OpenOptions {
                write: true,
                create_new: true,
                direct,
                counters: Some(Arc::clone(self.counters(kind))),
                ..OpenOptions::default()
            },
        )?;
        self.note(parent);
        Ok(file)
    }

    /// Opens the file `name`, which must exist; for writing too unless the store is read-only.
    ///
    /// # Errors
    /// When the name is not inside the store, the file is missing or the system refuses.
    pub fn open_existing(&self, kind: StreamKind, name: &str, direct: bool) -> Result<File> {
        let path = self.path_of(name)?;
        Ok(self.psync.open(
            &path,
            &OpenOptions {
                write: !self.inner.read_only,
                direct,
                counters: Some(Arc::clone(self.counters(kind))),
                ..OpenOptions::default()
            },
        )?)
    }

    /// As [`FileStore::open_existing`], for a file that is read repeatedly. The file stays open until it is released,
    /// or until other files need its place.
    ///
    /// # Errors
    /// As [`FileStore::open_existing`].
    pub fn open_kept(&self, kind: StreamKind, name: &str, direct: bool) -> Result<File> {
        self.inner.open.get_or_open(name, direct, || self.open_existing(kind, name, direct))
    }

    /// Whether the file `name` exists.
    ///
    /// # Errors
    /// When the name is not inside the store or the system cannot tell.
    pub fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.psync.exists(&self.path_of(name)?)?)
    }

    /// Unlinks the file `name`; does nothing if the file is gone already. A reader that has the file open keeps its
    /// content.
    ///
    /// # Errors
    /// When the store is read-only, the name is not inside the directory or the system refuses.
    pub fn release(&self, name: &str) -> Result<()> {
        let path = self.path_of(name)?;
        self.writable("remove", &path)?;
        let removed = self.psync.remove(&path);
        self.inner.open.forget(name);
        match removed {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => {
                self.note(parent_of(&path));
                Ok(())
            }
        }
    }

    /// Renames the file `from` to `to`, in the same directory, in one step; open files stay open. The name is durable
    /// after [`FileStore::sync_directories`].
    ///
    /// # Errors
    /// When the store is read-only, a name is not inside the directory, the file is missing or the system refuses; or a
    /// directory could not be synced before.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path_of(from)?, self.path_of(to)?);
        self.writable("rename", &from)?;
        self.check_syncing()?;
        self.psync.rename(&from, &to)?;
        self.note(parent_of(&to));
        Ok(())
    }

    /// Names of the files in a subdirectory (`""` is the directory itself), without the name of the subdirectory. Empty
    /// if the subdirectory is missing.
    ///
    /// # Errors
    /// When the name is not inside the store or the system refuses.
    pub fn list(&self, subdirectory: &str) -> Result<Vec<String>> {
        let path = self.directory_of(subdirectory)?;
        if !self.psync.exists(&path)? {
            return Ok(Vec::new());
        }
        let mut names = self.psync.list(&path)?;
        names.sort_unstable();
        Ok(names)
    }

    /// Notes a subdirectory (`""` is the directory itself) as if its entries had just been made, because the process
    /// that made them may have ended before they were durable. Does nothing if the subdirectory is missing.
    ///
    /// # Errors
    /// When the name is not inside the store or the system cannot tell.
    pub fn note_found(&self, subdirectory: &str) -> Result<()> {
        let path = self.directory_of(subdirectory)?;
        if self.psync.exists(&path)? {
            self.note(path);
        }
        Ok(())
    }

    /// Makes every entry durable that was created, released or noted before the call, by any caller.
    ///
    /// # Errors
    /// When a directory cannot be synced, or could not be before: then the durable entries are unknown, and no later
    /// sync would tell. A directory that could only not be opened is tried again by the next call.
    pub fn sync_directories(&self) -> Result<()> {
        let _syncing = self.inner.syncing.lock();
        self.check_syncing()?;
        let mut changed = std::mem::take(&mut *self.inner.changed.lock());
        let mut above = std::mem::take(&mut *self.inner.above.lock());
        let sync = |directory: &Path| self.psync.sync_directory(directory).err();
        // A directory above the database that we may not read, or that cannot be synced, is left to its creator.
        let sync_above = |above: &Above| sync(&above.directory).filter(|error| !error.io().is_some_and(is_refusal));
        let failed = changed.iter().filter_map(|directory| sync(directory)).chain(above.iter().filter_map(sync_above));
        // A failure to flush a directory takes precedence.
        let outcome =
            failed.min_by_key(|error| !error.is_flush_failure()).map_or(Ok(()), |error| Err(Error::from(error)));
        match &outcome {
            Err(error) if error.is_flush_failure() => drop(self.inner.failed.set(error.clone())),
            Err(_) => {
                self.inner.above.lock().append(&mut above);
                self.inner.changed.lock().append(&mut changed);
            }
            Ok(()) => above::note_synced(above),
        }
        outcome
    }

    /// Flushes these files, and meanwhile does the work of [`FileStore::sync_directories`].
    ///
    /// # Errors
    /// When a file cannot be flushed, and as [`FileStore::sync_directories`]. Of several failures, a failed flush of a
    /// directory comes first because it is permanent, and a full disk comes last ([`psync::Error::of_both`]).
    pub fn flush_with_names(&self, files: &[&File]) -> Result<()> {
        let mut flushes = self.psync.stream(files.len());
        files.iter().for_each(|file| flushes.push(Request::flush(file, 0)));
        flushes.submit();
        let named = self.sync_directories();
        let unflushed = flushes.filter_map(|flush| flush.result.err());
        let unflushed = unflushed.fold(None, |one, other| psync::Error::of_both(one, Some(other)));
        match (named, unflushed) {
            (Err(error), _) if error.is_flush_failure() => Err(error),
            (_, Some(error)) => Err(error.into()),
            (named, None) => named,
        }
    }

    fn check_syncing(&self) -> Result<()> {
        self.inner.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The path of a subdirectory (`""` is the directory itself).
    fn directory_of(&self, subdirectory: &str) -> Result<PathBuf> {
        if subdirectory.is_empty() { Ok(self.inner.directory.clone()) } else { self.path_of(subdirectory) }
    }

    fn note(&self, directory: PathBuf) {
        self.inner.changed.lock().insert(directory);
    }

    pub(crate) fn writable(&self, operation: &'static str, path: &Path) -> Result<()> {
        if self.inner.read_only {
            return Err(Error::ReadOnly { operation, path: path.to_owned() });
        }
        Ok(())
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FileStore({})", self.inner.directory.display())
    }
}

/// Whether a directory is not ours to sync, as opposed to a failed sync.
fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported)
}
