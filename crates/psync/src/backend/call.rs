//! `sync`: every attempt is a plain system call, made at once.

#![expect(unsafe_code, reason = "system calls on memory given by address")]

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::{ATTEMPT_BYTES_MAX, Backend, BackendKind, Done, Lane, Transfer, outcome};
use crate::file::FileInner;

/// The answer of a kernel without `RWF_DSYNC` (before Linux 4.7), or of a sandbox without `pwritev2`.
const UNKNOWN_FLAG: i64 = -(libc::EOPNOTSUPP as i64);
const UNKNOWN_CALL: i64 = -(libc::ENOSYS as i64);

/// The backend of plain calls.
pub(crate) struct System;

impl Backend for System {
    fn kind(&self) -> BackendKind {
        BackendKind::Sync
    }

    unsafe fn call(&self, file: &FileInner, offset: u64, transfer: Transfer) -> i64 {
        // SAFETY: handed on to the caller.
        unsafe { attempt(file.descriptor(), offset, transfer) }
    }

    fn lane(&self) -> io::Result<Box<dyn Lane>> {
        Ok(Box::new(CallLane::new(Arc::new(Self))))
    }
}

/// One attempt as one system call.
///
/// # Safety
/// The transfer's memory is valid for its length during the call.
pub(super) unsafe fn attempt(descriptor: RawFd, offset: u64, transfer: Transfer) -> i64 {
    let Ok(offset) = libc::off_t::try_from(offset) else {
        return -i64::from(libc::EINVAL);
    };
    match transfer {
        Transfer::Read { memory, length } => {
            let length = length.min(ATTEMPT_BYTES_MAX);
            // SAFETY: the caller's memory is valid for `length` bytes; a bad descriptor is an error, not undefined.
            outcome(unsafe { libc::pread(descriptor, memory.cast(), length, offset) })
        }
        Transfer::Write { memory, length, durable: true } => {
            // SAFETY: the caller's memory is valid for as many bytes.
            unsafe { write_durably(descriptor, offset, memory, length.min(ATTEMPT_BYTES_MAX)) }
        }
        Transfer::Write { memory, length, durable: false } => {
            let length = length.min(ATTEMPT_BYTES_MAX);
            // SAFETY: as above.
            outcome(unsafe { libc::pwrite(descriptor, memory.cast(), length, offset) })
        }
        Transfer::Flush => flush(descriptor),
    }
}

/// Writes bytes and puts them on stable storage; where no single call does that, everything else of the file too.
///
/// # Safety
/// The memory is valid for `length` bytes during the call.
unsafe fn write_durably(descriptor: RawFd, offset: libc::off_t, memory: *const u8, length: usize) -> i64 {
    let vector = libc::iovec { iov_base: memory.cast_mut().cast(), iov_len: length };
    // SAFETY: `vector` describes the caller's memory, which a write only reads.
    let written = outcome(unsafe { libc::pwritev2(descriptor, &raw const vector, 1, offset, libc::RWF_DSYNC) });
    if !matches!(written, UNKNOWN_FLAG | UNKNOWN_CALL) {
        return written;
    }
    // SAFETY: the caller's memory is valid for `length` bytes.
    let written = outcome(unsafe { libc::pwrite(descriptor, memory.cast(), length, offset) });
    if written <= 0 {
        return written;
    }
    match flush(descriptor) {
        0 => written,
        failed => failed,
    }
}

fn flush(descriptor: RawFd) -> i64 {
    // SAFETY: takes no memory.
    outcome(unsafe { libc::fdatasync(descriptor) } as libc::ssize_t)
}

/// A lane that completes each attempt before `push` returns, by its backend's plain call.
pub(crate) struct CallLane {
    backend: Arc<dyn Backend>,
    done: Vec<Done>,
}

impl CallLane {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, done: Vec::new() }
    }
}

impl Lane for CallLane {
    fn capacity(&self) -> usize {
        1
    }

    unsafe fn push(&mut self, slot: u32, file: &FileInner, offset: u64, transfer: Transfer) {
        // SAFETY: the caller keeps the memory valid for longer than this call.
        let outcome = unsafe { self.backend.call(file, offset, transfer) };
        self.done.push(Done { slot, outcome });
    }

    fn reap(&mut self, _wait: usize, done: &mut Vec<Done>) -> io::Result<()> {
        done.append(&mut self.done);
        Ok(())
    }
}
