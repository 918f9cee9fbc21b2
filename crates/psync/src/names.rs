//! Directories, names and locks.

#![expect(unsafe_code, reason = "asks the kernel for the alignment that direct I/O needs")]

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use crate::file::{File, Handle, retry_interrupted};
use crate::{BLOCK, Error, OpenOptions, Result, SECTOR, sim};

/// Files and directories by name: the system's, or a simulated disk's.
pub(crate) trait Names: Send + Sync {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<File>;
    fn create_directory(&self, path: &Path) -> Result<()>;
    fn remove(&self, path: &Path) -> Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    fn list(&self, path: &Path) -> Result<Vec<String>>;
    fn exists(&self, path: &Path) -> Result<bool>;
    fn sync_directory(&self, path: &Path) -> Result<()>;
    fn identity(&self, path: &Path) -> Option<Identity>;
    fn lock(&self, path: &Path, shared: bool) -> Result<Lock>;
}

/// The identity that tells a directory from every other, also from a later directory with the same inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
    born: SystemTime,
}

/// A lock on a file, held until dropped. The lock does not outlive the process.
#[must_use = "the lock is released when this is dropped"]
pub struct Lock(Held);

enum Held {
    /// The open file carries the lock; the file contains an exclusive holder's process id.
    System {
        file: fs::File,
        exclusive: bool,
    },
    Simulated {
        _held: sim::HeldLock,
    },
}

impl Lock {
    pub(crate) fn simulated(held: sim::HeldLock) -> Self {
        Self(Held::Simulated { _held: held })
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Lock")
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Held::System { file, exclusive } = &self.0 {
            if *exclusive {
                // Only so that a later reader of the file does not find the number of a process that has left.
                let _ = file.set_len(0);
            }
            // Closing the file is not enough: a process that another thread is starting has a copy of the descriptor
            // until that process runs its program.
            let _ = file.unlock();
        }
    }
}

/// The file system.
pub(crate) struct SystemNames;

impl Names for SystemNames {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<File> {
        if options.direct {
            match open_with(path, options, true) {
                Ok(file) => {
                    if let Some(unit) = direct_unit(&file) {
                        return Ok(File::new(path, Some(unit), options.counters.clone(), Handle::System(file)));
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(error) => return Err(Error::path("open", path, error)),
            }
            // A file system may refuse O_DIRECT after it has created the file, so that "new" no longer holds.
            let again =
                OpenOptions { create: options.create || options.create_new, create_new: false, ..options.clone() };
            return open_buffered(path, &again);
        }
        open_buffered(path, options)
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).map_err(|error| Error::path("create directory", path, error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| Error::path("remove", path, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|error| Error::path("rename", from, error))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let failed = |error| Error::path("list", path, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                continue;
            }
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|error| Error::path("look for", path, error))
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        // The empty path is how `Path::parent` names the working directory.
        let directory = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let opened = fs::File::open(directory).map_err(|error| Error::path("open directory", path, error))?;
        retry_interrupted(|| opened.sync_all()).map_err(|error| Error::path("flush directory", path, error))
    }

    fn identity(&self, path: &Path) -> Option<Identity> {
        let metadata = fs::metadata(path).ok()?;
        Some(Identity { device: metadata.dev(), inode: metadata.ino(), born: metadata.created().ok()? })
    }

    fn lock(&self, path: &Path, shared: bool) -> Result<Lock> {
        let failed = |error| Error::path("lock", path, error);
        let mut file = if shared {
            open_shared_lock(path).map_err(failed)?
        } else {
            fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?
        };
        let locked = if shared { file.try_lock_shared() } else { file.try_lock() };
        match locked {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(Error::Locked { path: path.to_owned(), holder: holder(&mut file) });
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        if !shared {
            let told = file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
            match told {
                // The lock holds all the same, and a full disk is no reason to refuse the files on that disk.
                Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {}
                told => told.map_err(failed)?,
            }
        }
        Ok(Lock(Held::System { file, exclusive: !shared }))
    }
}

fn open_buffered(path: &Path, options: &OpenOptions) -> Result<File> {
    open_with(path, options, false)
        .map(|file| File::new(path, None, options.counters.clone(), Handle::System(file)))
        .map_err(|error| Error::path("open", path, error))
}

fn open_with(path: &Path, options: &OpenOptions, direct: bool) -> io::Result<fs::File> {
    let mut open = fs::OpenOptions::new();
    open.read(true).write(options.write).create(options.create).create_new(options.create_new);
    if direct {
        open.custom_flags(libc::O_DIRECT);
    }
    let file = retry_interrupted(|| open.open(path))?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    Ok(file)
}

/// The unit in which the file takes direct I/O, of offsets, lengths and memory; none where the file has no unit that
/// divides [`BLOCK`]. Where the kernel cannot tell (before Linux 6.1), the successful open for direct I/O must do.
fn direct_unit(file: &fs::File) -> Option<usize> {
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is empty and terminated, so the call asks about the descriptor; `status` has room for the
    // answer.
    let returned = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, status.as_mut_ptr())
    };
    // SAFETY: all of it is integers and was zeroed.
    let status = unsafe { status.assume_init() };
    if returned != 0 || status.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Some(BLOCK);
    }
    let fits = |alignment: usize| alignment != 0 && BLOCK.is_multiple_of(alignment);
    let [memory, offset] = [status.stx_dio_mem_align, status.stx_dio_offset_align].map(|alignment| alignment as usize);
    (fits(memory) && fits(offset)).then_some(offset.max(memory).max(SECTOR))
}

/// Opens a lock file for a shared lock, which needs no more than read permission if the file is there.
fn open_shared_lock(path: &Path) -> io::Result<fs::File> {
    match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
        }
        other => other,
    }
}

/// The process named in a lock file, if that process still runs: a killed one leaves its number behind.
fn holder(file: &mut fs::File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    Path::new("/proc").join(pid.to_string()).exists().then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_dropped_is_free_though_its_descriptor_was_inherited() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("LOCK");
        for shared in [false, true] {
            let lock = SystemNames.lock(&path, shared).expect("free");
            let Held::System { file, .. } = &lock.0 else { panic!("of the system") };
            // A process that is being started has such a copy until it runs its program.
            let inherited = file.try_clone().expect("a copy");
            SystemNames.lock(&path, false).map(drop).expect_err("held");
            drop(lock);
            drop(SystemNames.lock(&path, false).expect("free again"));
            drop(inherited);
        }
    }
}
