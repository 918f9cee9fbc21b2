//! An open file, on a real or a simulated disk.

#![expect(
    unsafe_code,
    reason = "reserves room on the disk and gives it back, which has no safe interface in the standard library"
)]

use std::fmt;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Counters, Error, Result, sim};

/// How a file is opened. The default opens an existing file for reading, through the page cache.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Open for writing as well as reading.
    pub write: bool,
    /// Create the file if none is there. Needs `write`.
    pub create: bool,
    /// Create the file, and fail if one is there. Needs `write`.
    pub create_new: bool,
    /// Bypass the page cache (`O_DIRECT`). Where the file system has no direct I/O, the file is opened buffered, and
    /// [`File::is_direct`] says so.
    pub direct: bool,
    /// Counters of completed requests; `None` gives the file counters of its own.
    pub counters: Option<Arc<Counters>>,
}

/// An open file; clones are the same file. Closed with the last clone; a request in flight holds a clone.
#[derive(Clone)]
pub struct File(pub(crate) Arc<FileInner>);

pub(crate) struct FileInner {
    pub(crate) path: PathBuf,
    /// The unit of a file that bypasses the page cache.
    pub(crate) direct_unit: Option<usize>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) handle: Handle,
}

pub(crate) enum Handle {
    System(fs::File),
    Simulated(sim::Handle),
}

impl FileInner {
    /// The descriptor; -1, which the system answers with EBADF, for a simulated file.
    pub(crate) fn descriptor(&self) -> RawFd {
        match &self.handle {
            Handle::System(file) => file.as_raw_fd(),
            Handle::Simulated(_) => -1,
        }
    }
}

impl File {
    pub(crate) fn new(
        path: &Path, direct_unit: Option<usize>, counters: Option<Arc<Counters>>, handle: Handle,
    ) -> Self {
        let counters = counters.unwrap_or_default();
        Self(Arc::new(FileInner { path: path.to_owned(), direct_unit, counters, handle }))
    }

    /// The path under which the file was opened.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether the file bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.0.direct_unit.is_some()
    }

    /// The unit in bytes of which offsets and lengths of requests must be multiples. The unit is 1 for a file that uses
    /// the page cache. For a file that bypasses the page cache, the file system and device decide, from
    /// [`crate::SECTOR`] to [`crate::BLOCK`].
    pub fn unit(&self) -> usize {
        self.0.direct_unit.unwrap_or(1)
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn len(&self) -> Result<u64> {
        match &self.0.handle {
            Handle::System(file) => file.metadata().map(|metadata| metadata.len()),
            Handle::Simulated(handle) => handle.len(),
        }
        .map_err(|source| Error::path("find the length of", &self.0.path, source))
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Cuts or grows the file; new bytes read as zero. Durable with the next flush.
    ///
    /// # Errors
    /// When the system refuses, for example because the disk is full.
    pub fn set_len(&self, len: u64) -> Result<()> {
        match &self.0.handle {
            Handle::System(file) => retry_interrupted(|| file.set_len(len)),
            Handle::Simulated(handle) => handle.set_len(len),
        }
        .map_err(|source| Error::path("set the length of", &self.0.path, source))
    }

    /// Reserves disk space for a range of the file, and makes the file at least as long as the range's end. New bytes
    /// read as zero, although nothing is written. Durable with the next flush. `false`, with nothing done, where the
    /// file system cannot.
    ///
    /// The flush of the first write into such space also writes metadata of the file system.
    ///
    /// # Errors
    /// When the system refuses, for example because the disk is full. Then the file may be longer, and has to be cut.
    pub fn reserve(&self, range: Range<u64>) -> Result<bool> {
        let outcome = match &self.0.handle {
            Handle::System(file) => retry_interrupted(|| allocate(file, 0, &range)),
            Handle::Simulated(handle) => handle.reserve(&range).map(|()| true),
        };
        outcome.map_err(|source| Error::path("reserve room for", &self.0.path, source))
    }

    /// Bytes that are free in the file system, perhaps not for this process; none where the system does not tell.
    ///
    /// Where something found no room, and this has not grown since, another try is in vain. That matters, because on
    /// ext4 a write that fails for want of room takes several commits of the journal.
    pub fn free_bytes(&self) -> Option<u64> {
        match &self.0.handle {
            Handle::System(file) => {
                let facts = rustix::fs::fstatvfs(file).ok()?;
                // A `tmpfs` without a size counts no blocks.
                (facts.f_blocks > 0).then(|| facts.f_bfree.saturating_mul(facts.f_frsize))
            }
            Handle::Simulated(handle) => handle.free_bytes(),
        }
    }

    /// Gives the disk space of a range of whole blocks inside the file back; the range reads as zero from then on. A
    /// write there is a write into new space. Durable with the next flush. `false`, with nothing done, where the file
    /// system cannot.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn punch(&self, range: Range<u64>) -> Result<bool> {
        let outcome = match &self.0.handle {
            Handle::System(file) => {
                retry_interrupted(|| allocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, &range))
            }
            Handle::Simulated(handle) => handle.punch(&range).map(|()| true),
        };
        outcome.map_err(|source| Error::path("give room back of", &self.0.path, source))
    }

    /// The counters of completed requests of this file.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.0.counters
    }
}

/// Reserves disk space, or gives disk space back; `false` where the file system cannot.
fn allocate(file: &fs::File, mode: libc::c_int, range: &Range<u64>) -> io::Result<bool> {
    if range.is_empty() {
        return Ok(true);
    }
    let offset = |at: u64| libc::off_t::try_from(at).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG));
    let (start, length) = (offset(range.start)?, offset(range.end - range.start)?);
    // SAFETY: the call takes an open descriptor, and numbers.
    if unsafe { libc::fallocate(file.as_raw_fd(), mode, start, length) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(false),
        _ => Err(error),
    }
}

/// Repeats a call as long as a signal interrupts the call.
pub(crate) fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl PartialEq for File {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for File {}

impl Hash for File {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for File {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "File({})", self.0.path.display())
    }
}
