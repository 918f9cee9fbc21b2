//! A simulated disk seen through the crate's own seams: as a backend, as a tree of names, as a file's handle.

#![expect(unsafe_code, reason = "a backend transfers into memory given by address")]

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::disk::{Disk, SharedNode};
use super::service::Service;
use crate::backend::{Backend, BackendKind, CallLane, Lane, Transfer};
use crate::file::{self, File, FileInner};
use crate::names::{Identity, Lock, Names};
use crate::{Error, OpenOptions, Result};

/// One life of a disk.
#[derive(Clone)]
pub(super) struct Simulated {
    disk: Arc<Mutex<Disk>>,
    life: u64,
}

impl Simulated {
    pub(super) fn new(disk: Arc<Mutex<Disk>>, life: u64) -> Self {
        Self { disk, life }
    }

    /// Calls the device as which the disk serves requests, if there is one.
    pub(super) fn serve<R>(&self, with: impl FnOnce(&mut Service) -> R) -> Option<R> {
        self.disk.lock().service().map(with)
    }

    /// # Safety
    /// The transfer's memory is valid for its length.
    pub(super) unsafe fn perform(&self, file: &FileInner, offset: u64, transfer: Transfer) -> i64 {
        let file::Handle::Simulated(handle) = &file.handle else {
            return -i64::from(libc::EBADF);
        };
        // SAFETY: handed on to the caller.
        match unsafe { handle.call(offset, transfer) } {
            Ok(count) => i64::try_from(count).expect("a buffer has at most isize::MAX bytes"),
            Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

/// An open file of a simulated disk.
pub(crate) struct Handle {
    disk: Arc<Mutex<Disk>>,
    life: u64,
    node: SharedNode,
    write: bool,
}

impl Handle {
    pub(crate) fn len(&self) -> io::Result<u64> {
        let disk = self.disk.lock();
        disk.alive(self.life)?;
        Ok(self.node.lock().len() as u64)
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.lock().set_len(self.life, &self.node, len)
    }

    pub(crate) fn reserve(&self, range: &Range<u64>) -> io::Result<()> {
        self.check_writable()?;
        self.disk.lock().reserve(self.life, &self.node, range)
    }

    pub(crate) fn punch(&self, range: &Range<u64>) -> io::Result<()> {
        self.check_writable()?;
        self.disk.lock().punch(self.life, &self.node, range)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.write { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }

    /// # Safety
    /// The transfer's memory is valid for its length.
    unsafe fn call(&self, offset: u64, transfer: Transfer) -> io::Result<usize> {
        let mut disk = self.disk.lock();
        match transfer {
            Transfer::Read { memory, length } => {
                // SAFETY: valid for `length`, initialised because it is a `Buffer`'s, and used by nobody else.
                let into = unsafe { std::slice::from_raw_parts_mut(memory, length) };
                disk.read(self.life, &self.node, offset, into)
            }
            Transfer::Write { memory, length, durable } => {
                self.check_writable()?;
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(memory, length) };
                disk.write(self.life, &self.node, offset, bytes, durable)?;
                Ok(length)
            }
            Transfer::Flush => disk.flush(self.life, &self.node).map(|()| 0),
        }
    }
}

impl Backend for Simulated {
    fn kind(&self) -> BackendKind {
        BackendKind::Sync
    }

    unsafe fn call(&self, file: &FileInner, offset: u64, transfer: Transfer) -> i64 {
        self.wait_for(transfer);
        // SAFETY: handed on to the caller.
        unsafe { self.perform(file, offset, transfer) }
    }

    /// None where requests are not served as by a device, because they are done at once.
    fn now(&self) -> Option<Instant> {
        self.time()
    }

    fn lane(&self) -> io::Result<Box<dyn Lane>> {
        let calls = || Box::new(CallLane::new(Arc::new(self.clone()))) as Box<dyn Lane>;
        Ok(self.lane_of_service().unwrap_or_else(calls))
    }
}

/// A lock of a simulated disk, released when dropped or when the power goes.
pub(crate) struct HeldLock {
    simulated: Simulated,
    path: PathBuf,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.simulated.disk.lock().unlock(self.simulated.life, &self.path);
    }
}

impl Names for Simulated {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<File> {
        if (options.create || options.create_new) && !options.write {
            let error = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(Error::path("open", path, error));
        }
        let unit = options.direct.then(|| self.disk.lock().unit());
        let node = self
            .disk
            .lock()
            .open(self.life, path, options.create, options.create_new)
            .map_err(|error| Error::path("open", path, error))?;
        let handle = Handle { disk: Arc::clone(&self.disk), life: self.life, node, write: options.write };
        Ok(File::new(path, unit, options.counters.clone(), file::Handle::Simulated(handle)))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.disk.lock().create_directory(self.life, path).map_err(|error| Error::path("create directory", path, error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.disk.lock().remove(self.life, path).map_err(|error| Error::path("remove", path, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.lock().rename(self.life, from, to).map_err(|error| Error::path("rename", from, error))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.disk.lock().list(self.life, path).map_err(|error| Error::path("list", path, error))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.lock().exists(self.life, path).map_err(|error| Error::path("look for", path, error))
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.disk.lock().sync_directory(self.life, path).map_err(|error| Error::path("flush directory", path, error))
    }

    /// None, because the next disk may have a directory with the same identity.
    fn identity(&self, _path: &Path) -> Option<Identity> {
        None
    }

    fn lock(&self, path: &Path, shared: bool) -> Result<Lock> {
        let locked =
            self.disk.lock().lock(self.life, path, shared).map_err(|error| Error::path("lock", path, error))?;
        if !locked {
            return Err(Error::Locked { path: path.to_owned(), holder: Some(std::process::id()) });
        }
        Ok(Lock::simulated(HeldLock { simulated: self.clone(), path: path.to_owned() }))
    }
}
