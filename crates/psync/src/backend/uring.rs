//! `io_uring`: rings that threads keep; a whole batch is one system call.
//!
//! 1. A lane takes an idle ring of its thread, or makes one. Threads share nothing. A ring for batches belongs to one
//!    thread for good, so the kernel works its completions off when that thread asks for them. A roaming ring lets the
//!    kernel put completions there at any time, and costs the same.
//! 2. `push` fills submission entries. Entries that find the submission queue full wait for `reap`, which fills the
//!    queue again.
//! 3. `reap` takes every completion that is there. If those are not enough, `reap` submits and waits with one
//!    `io_uring_enter`.
//! 4. A write through the page cache is a plain call made at once, because it is a copy in memory, which ext4 and
//!    others would hand to a kernel worker instead of doing it in the ring. A durable one waits for the device and is
//!    left to that worker.
//!
//! Invariant: the completion queue has room for every attempt in flight ([`CAPACITY`]), so it cannot overflow.
//!
//! Not used, for a reason:
//!
//! - Registered files and buffers changed nothing that could be told from noise, measured on 128 random direct reads of
//!   4 KiB per batch. They would also tie buffers to a ring.
//! - Linked or drained entries for writes and their flush. A kernel worker does every flush of a ring, and has to wake;
//!   the caller wakes after it.
//!
//! A flush after eight direct writes, measured:
//!
//! | flush | time |
//! |---|---|
//! | plain `fdatasync` when the writes are complete | fastest |
//! | the ring's drained entry | 3 to 15 % longer |
//! | the end of a chain, in which the writes wait for one another | 2.8 times as long |
//! | drained entry on a ring with deferred completions (Linux 6.18) | never completed |

#![expect(unsafe_code, reason = "submission entries hold memory by address")]

use std::collections::VecDeque;
use std::io;

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::idle::Idle;
use super::{ATTEMPT_BYTES_MAX, Backend, BackendKind, Done, Lane, Transfer, call};
use crate::file::FileInner;

/// Submission entries of a ring.
const ENTRIES: u32 = 256;

/// Most attempts in flight of one lane, and completion entries of its ring.
const CAPACITY: u32 = 1024;

/// The largest number of times in a row that the kernel may refuse a submission as too busy before the ring counts as
/// broken.
const BUSY_MAX: u32 = 1000;

thread_local! {
    static IDLE: Idle<Ring> = const { Idle::new() };
    static IDLE_ROAMING: Idle<Ring> = const { Idle::new() };
}

/// The backend. Rings belong to threads, so the backend itself holds nothing.
pub(super) struct Uring;

impl Backend for Uring {
    fn kind(&self) -> BackendKind {
        BackendKind::IoUring
    }

    unsafe fn call(&self, file: &FileInner, offset: u64, transfer: Transfer) -> i64 {
        // SAFETY: handed on to the caller.
        unsafe { call::attempt(file.descriptor(), offset, transfer) }
    }

    fn lane(&self) -> io::Result<Box<dyn Lane>> {
        UringLane::open(false)
    }

    fn roaming_lane(&self) -> io::Result<Box<dyn Lane>> {
        UringLane::open(true)
    }
}

struct Ring {
    ring: IoUring,
    roaming: bool,
    /// Entries that found the submission queue full.
    waiting: VecDeque<squeue::Entry>,
    /// Entries in the submission queue that the kernel has not taken.
    staged: usize,
    /// Entries that the kernel has taken and not completed.
    in_flight: usize,
}

impl Ring {
    fn new(roaming: bool) -> io::Result<Self> {
        let ring = Self::build(roaming)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
        if needed.into_iter().any(|code| !probe.is_supported(code)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel's io_uring cannot read and write plain memory (needs Linux 5.6)",
            ));
        }
        Ok(Self { ring, roaming, waiting: VecDeque::new(), staged: 0, in_flight: 0 })
    }

    /// A ring of which the kernel asks no more attention than needed; a plain one where the kernel is too old.
    fn build(roaming: bool) -> io::Result<IoUring> {
        let mut newest = IoUring::builder();
        newest.setup_cqsize(CAPACITY).setup_coop_taskrun();
        if !roaming {
            newest.setup_single_issuer().setup_defer_taskrun();
        }
        match newest.build(ENTRIES) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            other => return other,
        }
        IoUring::builder().setup_cqsize(CAPACITY).build(ENTRIES)
    }

    /// Takes an entry whose memory and descriptor stay valid until it completes.
    fn push(&mut self, entry: squeue::Entry) {
        self.waiting.push_back(entry);
        self.stage();
    }

    /// Moves waiting entries into the submission queue, as far as there is room.
    fn stage(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.waiting.front() {
            // SAFETY: `Lane::push` demands that the entry's memory and descriptor stay valid until it completes.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.waiting.pop_front();
            self.staged += 1;
        }
    }

    /// Entries that are not complete.
    fn outstanding(&self) -> usize {
        self.waiting.len() + self.staged + self.in_flight
    }

    /// Submits, and waits until `wait` completions are there if everything could be submitted, with one
    /// `io_uring_enter`.
    fn enter(&mut self, wait: usize) -> io::Result<()> {
        self.stage();
        let wait = if self.waiting.is_empty() { wait } else { 0 };
        let taken = self.ring.submit_and_wait(wait);
        let left = self.ring.submission().len();
        self.in_flight += self.staged - left;
        self.staged = left;
        taken.map(|_| ())
    }

    fn take(&mut self, done: &mut Vec<Done>) -> usize {
        let before = done.len();
        done.extend(self.ring.completion().map(|entry| Done {
            slot: u32::try_from(entry.user_data()).expect("the user data of an entry is a slot"),
            outcome: i64::from(entry.result()),
        }));
        let count = done.len() - before;
        self.in_flight -= count;
        count
    }
}

struct UringLane {
    /// Taken only by `drop`.
    ring: Option<Ring>,
    /// Attempts done by plain calls.
    called: Vec<Done>,
}

impl UringLane {
    fn open(roaming: bool) -> io::Result<Box<dyn Lane>> {
        // A thread that is ending keeps nothing.
        let idle = if roaming { &IDLE_ROAMING } else { &IDLE }.try_with(Idle::take).ok().flatten();
        let ring = idle.map_or_else(|| Ring::new(roaming), Ok)?;
        Ok(Box::new(Self { ring: Some(ring), called: Vec::new() }))
    }

    fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("a lane has its ring until it is dropped")
    }
}

impl Lane for UringLane {
    fn capacity(&self) -> usize {
        CAPACITY as usize
    }

    unsafe fn push(&mut self, slot: u32, file: &FileInner, offset: u64, transfer: Transfer) {
        let descriptor = types::Fd(file.descriptor());
        if matches!(transfer, Transfer::Write { durable: false, .. }) && file.direct_unit.is_none() {
            // SAFETY: the memory is valid, as the caller promises.
            let outcome = unsafe { call::attempt(descriptor.0, offset, transfer) };
            self.called.push(Done { slot, outcome });
            return;
        }
        self.ring().push(entry(descriptor, offset, transfer).user_data(u64::from(slot)));
    }

    fn reap(&mut self, wait: usize, done: &mut Vec<Done>) -> io::Result<()> {
        let mut wait = wait.saturating_sub(self.called.len());
        done.append(&mut self.called);
        let ring = self.ring();
        let mut busy = 0;
        wait = wait.saturating_sub(ring.take(done));
        loop {
            if wait == 0 && ring.outstanding() == ring.in_flight {
                return Ok(());
            }
            let entered = ring.enter(wait);
            wait = wait.saturating_sub(ring.take(done));
            match entered {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) && busy < BUSY_MAX => {
                    busy += 1;
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for UringLane {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take()
            && ring.outstanding() == 0
        {
            let idle = if ring.roaming { &IDLE_ROAMING } else { &IDLE };
            // A thread that is ending keeps nothing.
            let _ = idle.try_with(|idle| idle.keep(ring));
        }
    }
}

/// The submission entry of a transfer.
fn entry(descriptor: types::Fd, offset: u64, transfer: Transfer) -> squeue::Entry {
    match transfer {
        Transfer::Read { memory, length } => {
            opcode::Read::new(descriptor, memory, attempt_length(length)).offset(offset).build()
        }
        Transfer::Write { memory, length, durable } => {
            let flags = if durable { libc::RWF_DSYNC } else { 0 };
            opcode::Write::new(descriptor, memory, attempt_length(length)).offset(offset).rw_flags(flags).build()
        }
        Transfer::Flush => opcode::Fsync::new(descriptor).flags(types::FsyncFlags::DATASYNC).build(),
    }
}

/// An attempt's length in the kernel's type; the remaining bytes are another attempt.
fn attempt_length(length: usize) -> u32 {
    u32::try_from(length.min(ATTEMPT_BYTES_MAX)).expect("the most bytes of an attempt fit in 32 bits")
}

#[cfg(test)]
mod tests {
    use super::super::idle;
    use super::*;

    #[test]
    fn only_a_durable_write_carries_the_flag() {
        let mut bytes = [1; 4];
        let write = |durable| Transfer::Write { memory: bytes.as_ptr(), length: 4, durable };
        let transfers = [write(false), write(true), Transfer::Read { memory: bytes.as_mut_ptr(), length: 4 }];
        let flags = transfers.map(|transfer| {
            let entry = entry(types::Fd(0), 0, transfer);
            // SAFETY: an entry is the kernel's `struct io_uring_sqe` and nothing else: 64 plain bytes.
            let raw: [u8; 64] = unsafe { std::mem::transmute(entry) };
            // `rw_flags` is the word at offset 28.
            i32::from_ne_bytes([raw[28], raw[29], raw[30], raw[31]])
        });
        assert_eq!(flags, [0, libc::RWF_DSYNC, 0]);
    }

    #[test]
    fn a_thread_keeps_its_ring_when_nothing_is_in_it() {
        idle::keeps_its_queue(&Uring, || IDLE.with(|idle| idle.take().is_some()));
    }
}
