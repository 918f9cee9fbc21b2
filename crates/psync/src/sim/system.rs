//! A simulated disk seen through the crate's own seams: as a backend, and as a tree of names.

#![expect(unsafe_code, reason = "a backend transfers into memory given by address")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::handle::{Handle, HeldLock};
use super::life::Simulated;
use crate::backend::{Backend, BackendKind, CallLane, Lane, Transfer};
use crate::file::{self, File, FileInner};
use crate::names::{Identity, Lock, Names};
use crate::{Error, OpenOptions, Result};

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
        let held = HeldLock { disk: Arc::clone(&self.disk), life: self.life, path: path.to_owned() };
        Ok(Lock::simulated(held))
    }
}
