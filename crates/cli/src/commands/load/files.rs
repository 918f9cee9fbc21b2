//! A directory of files: path -> content.
//!
//! 1. Several threads walk the directory together and read files, because one at a time would leave the device idle
//!    most of the time.
//! 2. The calling thread receives the read files and commits their contents.
//!
//! Invariants:
//!
//! - At most [`IN_FLIGHT_BYTES`] of content, or one file, is in memory between the two.
//! - Only regular files are opened.
//! - The database's own directory is left out.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde::Serialize;

use super::Loader;
use crate::exit::{Error, Result};
use crate::interrupt;
use crate::progress::Progress;
use crate::units::count;

/// Threads that read files.
const READERS: usize = 8;
/// Bytes that are read but not yet committed.
const IN_FLIGHT_BYTES: u64 = 32 << 20;
/// Files that are read but not yet committed.
const IN_FLIGHT_FILES: usize = 256;
/// Problems that are printed one by one; the others are only counted.
const PRINTED_MAX: u64 = 20;

/// Counts of files that were not loaded, by reason.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Skipped {
    /// Files and directories that could not be read.
    pub(crate) unreadable: u64,
    /// Files whose path is longer than a key can be.
    pub(crate) long_paths: u64,
    /// Files larger than a value can be.
    pub(crate) large_files: u64,
    /// Symbolic links, which are not followed.
    pub(crate) symbolic_links: u64,
    /// Sockets, pipes and devices.
    pub(crate) special_files: u64,
    /// Directories seen, which are no problem.
    #[serde(skip)]
    pub(crate) directories: u64,
}

impl Skipped {
    /// Adds the counts of another directory.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.unreadable += other.unreadable;
        self.long_paths += other.long_paths;
        self.large_files += other.large_files;
        self.symbolic_links += other.symbolic_links;
        self.special_files += other.special_files;
        self.directories += other.directories;
    }

    /// The number of failures among these.
    pub(crate) const fn failures(&self) -> u64 {
        self.unreadable + self.long_paths + self.large_files
    }

    /// The counts in words; `None` if every file was loaded.
    pub(crate) fn describe(&self) -> Option<String> {
        let parts = [
            (self.unreadable, "unreadable"),
            (self.long_paths, "with a path over the key limit"),
            (self.large_files, "over the value limit"),
            (self.symbolic_links, "symbolic links"),
            (self.special_files, "sockets, pipes or devices"),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{} {what}", count(*number)))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Loads every file below `root` except those of the database in `database`.
pub(crate) fn load_files(
    root: &Path, database: &Path, loader: &mut Loader<'_>, progress: &Progress,
) -> Result<Skipped> {
    let walk = Mutex::new(Walk::new(root, database)?);
    let budget = Budget::default();
    let (sender, receiver) = sync_channel(IN_FLIGHT_FILES);
    let skipped = thread::scope(|scope| {
        for _ in 0..READERS {
            let (walk, budget, sender) = (&walk, &budget, sender.clone());
            scope.spawn(move || read_files(root, walk, budget, &sender));
        }
        drop(sender);
        let result = take(&receiver, &budget, loader, progress);
        // Readers that wait for room must see that no more room will come.
        budget.close();
        drop(receiver);
        result
    })?;
    let walk = walk.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Skipped {
        symbolic_links: walk.symbolic_links,
        special_files: walk.special_files,
        directories: walk.directories,
        ..skipped
    })
}

/// The result of a reader for one path.
enum Found {
    File { key: Vec<u8>, value: Vec<u8> },
    LongPath(PathBuf),
    LargeFile(PathBuf, u64),
    Unreadable(PathBuf, io::Error),
}

fn take(receiver: &Receiver<Found>, budget: &Budget, loader: &mut Loader<'_>, progress: &Progress) -> Result<Skipped> {
    let mut skipped = Skipped::default();
    let mut files = 0;
    for found in receiver {
        let problem = match found {
            Found::File { key, value } => {
                loader.add(&key, &value, None)?;
                progress.advance(value.len() as u64);
                files += 1;
                if files % 256 == 0 {
                    progress.message(format!("{} files", count(files)));
                }
                budget.give(value.len() as u64);
                continue;
            }
            Found::LongPath(path) => {
                skipped.long_paths += 1;
                format!(
                    "left out {}: its path has more than {} bytes, the limit of a key",
                    path.display(),
                    braid::Structure::BTree.key_bytes_max()
                )
            }
            Found::LargeFile(path, bytes) => {
                skipped.large_files += 1;
                format!(
                    "left out {}: it has {bytes} bytes, the limit of a value is {}",
                    path.display(),
                    braid::VALUE_BYTES_MAX
                )
            }
            Found::Unreadable(path, error) => {
                skipped.unreadable += 1;
                format!("left out {}: {error}", path.display())
            }
        };
        match skipped.failures() {
            printed if printed <= PRINTED_MAX => progress.warn(&problem),
            printed if printed == PRINTED_MAX + 1 => progress.warn("more were left out; they are counted at the end"),
            _ => {}
        }
    }
    Ok(skipped)
}

fn read_files(root: &Path, walk: &Mutex<Walk>, budget: &Budget, sender: &SyncSender<Found>) {
    loop {
        let next = if interrupt::came() { None } else { lock(walk).next() };
        let Some(next) = next else { return };
        let found = match next {
            Ok((path, bytes)) => read_file(root, path, bytes, budget),
            Err((path, error)) => Some(Found::Unreadable(path, error)),
        };
        let Some(found) = found else { return };
        if sender.send(found).is_err() {
            return;
        }
    }
}

/// Reads one file; `None` after the budget is closed.
fn read_file(root: &Path, path: PathBuf, bytes: u64, budget: &Budget) -> Option<Found> {
    let key = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes().to_vec();
    if key.len() > braid::Structure::BTree.key_bytes_max() {
        return Some(Found::LongPath(path));
    }
    if bytes > braid::VALUE_BYTES_MAX {
        return Some(Found::LargeFile(path, bytes));
    }
    if !budget.take(bytes) {
        return None;
    }
    let value = match open_regular(&path).and_then(|file| read_at_most(file, bytes)) {
        Ok(value) => value,
        Err(error) => {
            budget.give(bytes);
            return Some(Found::Unreadable(path, error));
        }
    };
    // The file may have changed since its length was read. The budget counts the bytes read, because those are given
    // back later.
    budget.adjust(bytes, value.len() as u64);
    if value.len() as u64 > braid::VALUE_BYTES_MAX {
        budget.give(value.len() as u64);
        return Some(Found::LargeFile(path, value.len() as u64));
    }
    Some(Found::File { key, value })
}

/// Opens a path that was a regular file a moment ago, without following a link or waiting for a pipe in its place.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is no regular file any more")) }
}

fn read_at_most(file: File, expected: u64) -> io::Result<Vec<u8>> {
    let mut value = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
    file.take(braid::VALUE_BYTES_MAX + 1).read_to_end(&mut value)?;
    Ok(value)
}

/// Files below a directory, in the order of their names.
struct Walk {
    /// Directories still to be listed, the next one last.
    waiting: Vec<PathBuf>,
    files: VecDeque<(PathBuf, u64)>,
    left_out: Option<PathBuf>,
    symbolic_links: u64,
    special_files: u64,
    directories: u64,
}

impl Walk {
    fn new(root: &Path, database: &Path) -> Result<Self> {
        let database = database.canonicalize().ok();
        let inside = root.canonicalize().map_err(Error::io("reading", root))?;
        let left_out = database.and_then(|database| Some(root.join(database.strip_prefix(inside).ok()?)));
        Ok(Self {
            waiting: vec![root.to_owned()],
            files: VecDeque::new(),
            left_out,
            symbolic_links: 0,
            special_files: 0,
            directories: 0,
        })
    }

    fn next(&mut self) -> Option<std::result::Result<(PathBuf, u64), (PathBuf, io::Error)>> {
        loop {
            if let Some(file) = self.files.pop_front() {
                return Some(Ok(file));
            }
            let directory = self.waiting.pop()?;
            if self.left_out.as_ref() == Some(&directory) {
                continue;
            }
            if let Err(error) = self.list(&directory) {
                return Some(Err((directory, error)));
            }
        }
    }

    /// Queues the entries of a directory. A failing entry ends the list: the error of the directory then stands for all
    /// entries left out.
    fn list(&mut self, directory: &Path) -> io::Result<()> {
        self.directories += 1;
        let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_unstable_by_key(fs::DirEntry::file_name);
        let mut directories = Vec::new();
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                self.files.push_back((entry.path(), entry.metadata()?.len()));
            } else if kind.is_symlink() {
                self.symbolic_links += 1;
            } else {
                self.special_files += 1;
            }
        }
        self.waiting.extend(directories.into_iter().rev());
        Ok(())
    }
}

/// The limit of bytes in memory.
#[derive(Default)]
struct Budget {
    state: Mutex<BudgetState>,
    changed: Condvar,
}

#[derive(Default)]
struct BudgetState {
    used: u64,
    closed: bool,
}

impl Budget {
    /// Waits for room; a file larger than all room waits until no other is in memory. False after the budget is closed.
    fn take(&self, bytes: u64) -> bool {
        let full = |state: &mut BudgetState| !state.closed && state.used > 0 && state.used + bytes > IN_FLIGHT_BYTES;
        let mut state = self.changed.wait_while(lock(&self.state), full).unwrap_or_else(PoisonError::into_inner);
        state.used += bytes;
        !state.closed
    }

    fn give(&self, bytes: u64) {
        self.adjust(bytes, 0);
    }

    fn adjust(&self, taken: u64, used: u64) {
        let mut state = lock(&self.state);
        state.used = state.used.saturating_sub(taken) + used;
        self.changed.notify_all();
    }

    fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }
}

/// Ignores poisoning: a panic of another thread is passed on by its join, and the state is whole at every step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(walk: &mut Walk) -> Vec<String> {
        std::iter::from_fn(|| walk.next())
            .map(|file| file.expect("readable").0.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn a_walk_sees_files_once_and_follows_nothing() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let root = directory.path();
        fs::create_dir_all(root.join("b/deep")).expect("made");
        fs::create_dir(root.join("database")).expect("made");
        for name in ["a", "b/c", "b/deep/d", "database/data", "z"] {
            fs::write(root.join(name), name).expect("written");
        }
        std::os::unix::fs::symlink("a", root.join("link")).expect("linked");
        std::os::unix::fs::symlink("..", root.join("b/up")).expect("linked");
        let mut walk = Walk::new(root, &root.join("database")).expect("walked");
        let names: Vec<_> =
            ["a", "z", "b/c", "b/deep/d"].iter().map(|name| root.join(name).to_string_lossy().into_owned()).collect();
        assert_eq!(all(&mut walk), names);
        assert_eq!((walk.symbolic_links, walk.directories), (2, 3));
    }

    #[test]
    fn a_budget_lets_one_large_file_through_and_no_two() {
        let budget = Budget::default();
        assert!(budget.take(IN_FLIGHT_BYTES * 2));
        thread::scope(|scope| {
            let second = scope.spawn(|| budget.take(1));
            budget.give(IN_FLIGHT_BYTES * 2);
            assert!(second.join().expect("no panic"));
        });
        budget.close();
        assert!(!budget.take(IN_FLIGHT_BYTES));
    }
}
