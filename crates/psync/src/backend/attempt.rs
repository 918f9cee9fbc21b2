//! One transfer tried once: the bytes to move, and the outcome as the kernel reports it.

use std::io;

/// The transfer of one attempt. The submitter of the attempt owns the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transfer {
    Read {
        memory: *mut u8,
        length: usize,
    },
    /// With `durable`, the bytes transferred are on stable storage when the outcome is reported, with the metadata
    /// needed to read them.
    Write {
        memory: *const u8,
        length: usize,
        durable: bool,
    },
    Flush,
}

#[expect(unsafe_code, reason = "an attempt may be made by another thread than the one that asks for it")]
// SAFETY: a transfer is an address and a length; the user of the address answers for it. The memory stays valid and is
// used by nobody else until the outcome is reported, on whatever thread, as `Lane::push` demands.
unsafe impl Send for Transfer {}

/// Most bytes of one attempt, which every system takes at once. Longer transfers are continued.
pub(crate) const ATTEMPT_BYTES_MAX: usize = 1 << 30;

/// A completed attempt: bytes transferred, or a negative `errno`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) slot: u32,
    pub(crate) outcome: i64,
}

/// The outcome of a call that returned a count, or -1 with `errno` set.
pub(crate) fn outcome(returned: libc::ssize_t) -> i64 {
    if returned >= 0 {
        returned as i64
    } else {
        -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}
