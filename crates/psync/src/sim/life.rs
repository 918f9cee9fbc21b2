//! One life of a simulated disk: from one start to the next crash.

#![expect(unsafe_code, reason = "transfers into memory given by address")]

use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::Disk;
use super::service::Service;
use crate::backend::Transfer;
use crate::file::{self, FileInner};

/// One life of a disk.
#[derive(Clone)]
pub(super) struct Simulated {
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) life: u64,
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
