//! `libaio`: Linux native asynchronous I/O, by raw system calls.
//!
//! 1. A lane takes an idle context of its thread, or makes one.
//! 2. `push` gathers control blocks. `reap` hands them over with `io_submit`, which may take only some of them, and
//!    waits with `io_getevents`.
//! 3. A request that the kernel refuses at submission gets its own error; the requests after it are submitted again.
//! 4. A plain call replaces a request that the kernel or the file cannot do asynchronously (`EINVAL`): a flush before
//!    Linux 4.18, a durable write before 4.13, a device without asynchronous I/O.

#![expect(unsafe_code, reason = "raw system calls on memory given by address")]

use std::io;
use std::ptr;

use super::idle::Idle;
use super::{ATTEMPT_BYTES_MAX, Backend, BackendKind, Done, Lane, Transfer, call};
use crate::file::FileInner;

/// Most attempts in flight of one lane.
const CAPACITY: usize = 256;

/// The largest number of times in a row that the kernel may refuse a submission as too busy before the context counts
/// as broken.
const BUSY_MAX: u32 = 1000;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_CMD_FDSYNC: u16 = 3;

/// `RWF_DSYNC`, as a control block has that flag.
const RW_FLAGS_DURABLE: u32 = libc::RWF_DSYNC.cast_unsigned();

/// `struct iocb` of the kernel (include/uapi/linux/aio_abi.h), on a little-endian machine.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    memory: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

/// `struct io_event` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    block: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<ControlBlock>() == 64 && size_of::<Event>() == 32);
const _: () = assert!(cfg!(target_endian = "little"));

thread_local! {
    static IDLE: Idle<Context> = const { Idle::new() };
}

/// The backend. Contexts belong to threads, so the backend itself holds nothing.
pub(super) struct Aio;

impl Backend for Aio {
    fn kind(&self) -> BackendKind {
        BackendKind::Libaio
    }

    unsafe fn call(&self, file: &FileInner, offset: u64, transfer: Transfer) -> i64 {
        // SAFETY: handed on to the caller.
        unsafe { call::attempt(file.descriptor(), offset, transfer) }
    }

    fn lane(&self) -> io::Result<Box<dyn Lane>> {
        let idle = IDLE.try_with(Idle::take).ok().flatten();
        let context = idle.map_or_else(Context::new, Ok)?;
        Ok(Box::new(AioLane { context: Some(context), gathered: Vec::new(), called: Vec::new(), in_flight: 0 }))
    }
}

/// A kernel context (`aio_context_t`), and room for its events.
struct Context {
    number: libc::c_ulong,
    events: Vec<Event>,
}

impl Context {
    fn new() -> io::Result<Self> {
        let mut number: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's number to the address given.
        let returned = unsafe { libc::syscall(libc::SYS_io_setup, CAPACITY, &raw mut number) };
        if returned < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { number, events: vec![Event::default(); CAPACITY] })
    }

    /// Hands over control blocks; returns how many were taken.
    ///
    /// # Safety
    /// The memory and descriptors that the blocks name stay valid until they complete.
    unsafe fn submit(&self, blocks: &mut [*mut ControlBlock]) -> io::Result<usize> {
        // SAFETY: `blocks` points to as many valid control blocks, which the kernel copies; the caller promises the
        // rest.
        let returned = unsafe { libc::syscall(libc::SYS_io_submit, self.number, blocks.len(), blocks.as_mut_ptr()) };
        usize::try_from(returned).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for at least `wait` events, and gives out those that came.
    fn events(&mut self, wait: usize) -> io::Result<&[Event]> {
        // SAFETY: `events` has room for as many events as the kernel is told; no timeout.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.number,
                wait,
                self.events.len(),
                self.events.as_mut_ptr(),
                ptr::null_mut::<libc::timespec>(),
            )
        };
        let count = usize::try_from(returned).map_err(|_| io::Error::last_os_error())?;
        Ok(&self.events[..count])
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is owned; the kernel waits for the requests in flight in the context.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.number) };
    }
}

struct AioLane {
    /// Taken only by `drop`.
    context: Option<Context>,
    gathered: Vec<ControlBlock>,
    /// Attempts done by plain calls or refused at submission.
    called: Vec<Done>,
    in_flight: usize,
}

impl AioLane {
    /// Submits the gathered blocks. On return none of them is left unless the kernel is too busy.
    fn submit(&mut self) -> io::Result<()> {
        let context = self.context.as_ref().expect("a lane has its context until it is dropped");
        let mut blocks: Vec<*mut ControlBlock> = self.gathered.iter_mut().map(ptr::from_mut).collect();
        let mut first = 0;
        while first < blocks.len() {
            // SAFETY: `Lane::push` demands that memory and file stay valid until the slot is reported.
            let submitted = unsafe { context.submit(&mut blocks[first..]) };
            let error = match submitted {
                Ok(count) if count > 0 => {
                    first += count;
                    self.in_flight += count;
                    continue;
                }
                Ok(_) => io::Error::from_raw_os_error(libc::EAGAIN),
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => {
                    self.gathered.drain(..first);
                    return Err(error);
                }
                errno => {
                    // The kernel refuses the first block and takes none after it.
                    let errno = errno.unwrap_or(libc::EIO);
                    self.called.push(refused(&self.gathered[first], errno));
                    first += 1;
                }
            }
        }
        self.gathered.clear();
        Ok(())
    }

    fn take(&mut self, wait: usize, done: &mut Vec<Done>) -> io::Result<()> {
        let context = self.context.as_mut().expect("a lane has its context until it is dropped");
        let events = match context.events(wait) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => &[],
            other => other?,
        };
        self.in_flight -= events.len();
        done.extend(events.iter().map(|event| Done { slot: slot(event.data), outcome: event.result }));
        Ok(())
    }
}

fn slot(data: u64) -> u32 {
    u32::try_from(data).expect("the data of a control block is a slot")
}

/// The outcome of a block that the kernel did not take. A plain call does the requests that the kernel or the file
/// cannot do asynchronously.
fn refused(block: &ControlBlock, errno: i32) -> Done {
    let outcome = if errno == libc::EINVAL {
        let length = usize::try_from(block.bytes).expect("the length came from a usize");
        let transfer = match block.opcode {
            IOCB_CMD_PREAD => Transfer::Read { memory: block.memory as *mut u8, length },
            IOCB_CMD_PWRITE => Transfer::Write {
                memory: block.memory as *const u8,
                length,
                durable: block.rw_flags == RW_FLAGS_DURABLE,
            },
            _ => Transfer::Flush,
        };
        let offset = block.offset.cast_unsigned();
        // SAFETY: `Lane::push` demands that the memory stays valid until the slot is reported.
        unsafe { call::attempt(block.descriptor.cast_signed(), offset, transfer) }
    } else {
        -i64::from(errno)
    };
    Done { slot: slot(block.data), outcome }
}

impl Lane for AioLane {
    fn capacity(&self) -> usize {
        CAPACITY
    }

    unsafe fn push(&mut self, slot: u32, file: &FileInner, offset: u64, transfer: Transfer) {
        let (opcode, memory, length) = match transfer {
            Transfer::Read { memory, length } => (IOCB_CMD_PREAD, memory as u64, length),
            Transfer::Write { memory, length, .. } => (IOCB_CMD_PWRITE, memory as u64, length),
            Transfer::Flush => (IOCB_CMD_FDSYNC, 0, 0),
        };
        let Ok(offset) = i64::try_from(offset) else {
            self.called.push(Done { slot, outcome: -i64::from(libc::EINVAL) });
            return;
        };
        self.gathered.push(ControlBlock {
            data: u64::from(slot),
            rw_flags: if matches!(transfer, Transfer::Write { durable: true, .. }) { RW_FLAGS_DURABLE } else { 0 },
            opcode,
            descriptor: file.descriptor().cast_unsigned(),
            memory,
            bytes: length.min(ATTEMPT_BYTES_MAX) as u64,
            offset,
            ..ControlBlock::default()
        });
    }

    fn reap(&mut self, wait: usize, done: &mut Vec<Done>) -> io::Result<()> {
        let before = done.len();
        let mut busy = 0;
        loop {
            let submitted = self.submit();
            done.append(&mut self.called);
            let left = wait.saturating_sub(done.len() - before);
            match submitted {
                Ok(()) if left == 0 => return Ok(()),
                Ok(()) => self.take(left, done)?,
                Err(error) if busy == BUSY_MAX => return Err(error),
                // Too busy: completions make room.
                Err(_) => {
                    busy += 1;
                    self.take(self.in_flight.min(1), done)?;
                    std::thread::yield_now();
                }
            }
        }
    }
}

impl Drop for AioLane {
    fn drop(&mut self) {
        if let Some(context) = self.context.take()
            && self.in_flight == 0
        {
            // A thread that is ending keeps nothing.
            let _ = IDLE.try_with(|idle| idle.keep(context));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle;
    use super::*;

    #[test]
    fn only_a_durable_write_carries_the_flag() {
        let opened = std::fs::File::open("/dev/null").expect("open");
        let null =
            crate::file::File::new(std::path::Path::new("/dev/null"), None, None, crate::file::Handle::System(opened));
        let mut lane = AioLane { context: None, gathered: Vec::new(), called: Vec::new(), in_flight: 0 };
        let mut bytes = [1; 4];
        let write = |durable| Transfer::Write { memory: bytes.as_ptr(), length: 4, durable };
        let transfers = [write(false), write(true), Transfer::Flush];
        let read = Transfer::Read { memory: bytes.as_mut_ptr(), length: 4 };
        for transfer in transfers.into_iter().chain([read]) {
            // SAFETY: the attempt is gathered and never submitted.
            unsafe { lane.push(0, &null.0, 0, transfer) };
        }
        let flags: Vec<u32> = lane.gathered.iter().map(|block| block.rw_flags).collect();
        assert_eq!(flags, [0, RW_FLAGS_DURABLE, 0, 0]);
    }

    #[test]
    fn a_thread_keeps_its_context_when_nothing_is_in_it() {
        idle::keeps_its_queue(&Aio, || IDLE.with(|idle| idle.take().is_some()));
    }
}
