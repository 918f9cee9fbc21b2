//! Files that stay open for reading.
//!
//! A database may have many more files than a process may have open. Files that are read stay open until others need
//! their places: [`OPEN_PART`] of the number that the system lets the process have open. A reader of a file keeps the
//! file open beyond that.
//!
//! Invariant: a released file is not handed out again, nor kept open, because [`OpenFiles::forget`] follows its
//! removal. A thread that opened the file before its removal, and would keep the file open now, sees that a file was
//! forgotten meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::RandomState;
use psync::File;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use rustix::process::{Resource, getrlimit};

use crate::Result;

/// The share of the files that the process may have open: one in this many.
const OPEN_PART: u64 = 4;
/// Minimum number of open files.
const OPEN_MIN: u64 = 32;
/// Maximum number of open files.
const OPEN_MAX: u64 = 4096;

/// Open files by name.
type Files = Cache<String, File, UnitWeighter, RandomState>;

/// Open files of a directory, each by the way of opening: past the page cache or through the page cache.
pub(crate) struct OpenFiles {
    direct: Files,
    buffered: Files,
    /// Number of forgotten files.
    forgotten: AtomicU64,
}

impl OpenFiles {
    /// As many files as this process can afford.
    pub(crate) fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::with_most(usize::try_from((limit / OPEN_PART).clamp(OPEN_MIN, OPEN_MAX)).unwrap_or(usize::MAX))
    }

    /// At most `most` files, half of them for each way of reading, because few are read in both ways.
    fn with_most(most: usize) -> Self {
        let files = || {
            let (most, hasher, lifecycle) = (most / 2, RandomState::default(), DefaultLifecycle::default());
            Cache::with(most, most as u64, UnitWeighter, hasher, lifecycle)
        };
        Self { direct: files(), buffered: files(), forgotten: AtomicU64::new(0) }
    }

    /// The file of that name, opened now unless already open.
    pub(crate) fn get_or_open(&self, name: &str, direct: bool, open: impl FnOnce() -> Result<File>) -> Result<File> {
        let files = if direct { &self.direct } else { &self.buffered };
        if let Some(file) = files.get(name) {
            return Ok(file);
        }
        let before = self.forgotten.load(Ordering::SeqCst);
        let file = open()?;
        files.insert(name.to_owned(), file.clone());
        // The forgotten file may have been this one.
        if self.forgotten.load(Ordering::SeqCst) != before {
            files.remove(name);
        }
        Ok(file)
    }

    /// Closes the file of that name, which is gone.
    pub(crate) fn forget(&self, name: &str) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.direct.remove(name);
        self.buffered.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use psync::sim::SimDisk;
    use psync::{OpenOptions, Psync};

    use super::*;

    fn open(psync: &Psync, name: &str) -> Result<File> {
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        Ok(psync.open(Path::new(name), &options)?)
    }

    #[test]
    fn files_stay_open_and_are_bounded() {
        let (psync, files, opened) = (SimDisk::new(1).psync(), OpenFiles::with_most(64), Cell::new(0));
        let get = |name: &str, direct| {
            let counted = || {
                opened.set(opened.get() + 1);
                open(&psync, name)
            };
            files.get_or_open(name, direct, counted).expect("opened");
        };
        for _ in 0..3 {
            get("/one", true);
        }
        assert_eq!(opened.get(), 1);
        get("/one", false);
        assert_eq!(opened.get(), 2, "the other way of reading is another file");
        files.forget("/one");
        get("/one", true);
        get("/one", false);
        assert_eq!(opened.get(), 4);
        (0..1000).for_each(|number| get(&format!("/{number}"), number % 2 == 0));
        assert!(files.direct.len() <= 32 && files.buffered.len() <= 32);
    }

    #[test]
    fn a_file_that_goes_while_it_is_opened_is_not_kept() {
        let (psync, files) = (SimDisk::new(1).psync(), OpenFiles::with_most(64));
        for direct in [true, false] {
            let open_and_lose = || {
                let file = open(&psync, "/one")?;
                psync.remove(Path::new("/one"))?;
                files.forget("/one");
                Ok(file)
            };
            files.get_or_open("/one", direct, open_and_lose).expect("was there");
            assert_eq!(files.direct.len() + files.buffered.len(), 0);
            let gone = || Ok(psync.open(Path::new("/one"), &OpenOptions::default())?);
            files.get_or_open("/one", direct, gone).expect_err("is gone");
        }
    }

    #[test]
    fn what_cannot_be_opened_is_tried_again() {
        let (psync, files) = (SimDisk::new(1).psync(), OpenFiles::with_most(64));
        let none = || Ok(psync.open(Path::new("/one"), &OpenOptions::default())?);
        files.get_or_open("/one", true, none).expect_err("there is none");
        open(&psync, "/one").expect("made");
        files.get_or_open("/one", true, none).expect("opened");
    }
}
