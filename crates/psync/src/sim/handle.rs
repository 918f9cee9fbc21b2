//! A simulated disk in the hands of its users: open files and held locks, each of one life.

#![expect(unsafe_code, reason = "transfers into memory given by address")]

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::Disk;
use super::node::SharedNode;
use crate::backend::Transfer;

/// An open file of a simulated disk.
pub(crate) struct Handle {
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) life: u64,
    pub(super) node: SharedNode,
    pub(super) write: bool,
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

    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.disk.lock().free_bytes()
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
    pub(super) unsafe fn call(&self, offset: u64, transfer: Transfer) -> io::Result<usize> {
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

/// A lock of a simulated disk, released when dropped or when the power goes.
pub(crate) struct HeldLock {
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) life: u64,
    pub(super) path: PathBuf,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.disk.lock().unlock(self.life, &self.path);
    }
}
