//! `threads`: a bounded pool of workers that make plain calls.
//!
//! 1. A lane gathers attempts and hands them to the pool's queue under one lock, in `reap`.
//! 2. Workers are started as attempts outnumber idle workers, up to [`WORKERS_MAX`], and end with the backend.
//! 3. A worker posts the outcome into the mailbox of the attempt's lane, and wakes the lane when as many outcomes have
//!    come as the lane waits for.

#![expect(unsafe_code, reason = "system calls on memory given by address")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::{Backend, BackendKind, Done, Lane, Transfer, call};
use crate::file::FileInner;

/// Most worker threads of a backend. More do not help, because a thread per request in flight costs a context switch
/// each.
const WORKERS_MAX: usize = 32;

/// Most attempts in flight of one lane.
const CAPACITY: usize = 1024;

struct Job {
    slot: u32,
    descriptor: RawFd,
    offset: u64,
    transfer: Transfer,
    mailbox: Arc<Mailbox>,
}

#[derive(Default)]
struct Mailbox {
    posted: Mutex<Posted>,
    enough: Condvar,
}

#[derive(Default)]
struct Posted {
    done: Vec<Done>,
    wanted: usize,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    workers: usize,
    idle: usize,
    closed: bool,
}

/// The backend. At its close the workers finish the queued attempts and end.
pub(super) struct Threads {
    pool: Arc<Pool>,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self { pool: Arc::default() }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.pool.state.lock().closed = true;
        self.pool.work.notify_all();
    }
}

impl Backend for Threads {
    fn kind(&self) -> BackendKind {
        BackendKind::Threads
    }

    unsafe fn call(&self, file: &FileInner, offset: u64, transfer: Transfer) -> i64 {
        // SAFETY: handed on to the caller.
        unsafe { call::attempt(file.descriptor(), offset, transfer) }
    }

    fn lane(&self) -> io::Result<Box<dyn Lane>> {
        self.pool.grow(1)?;
        Ok(Box::new(ThreadsLane { pool: Arc::clone(&self.pool), mailbox: Arc::default(), gathered: Vec::new() }))
    }
}

impl Pool {
    /// Starts workers for `jobs` more attempts. Fails only if the pool would have no worker at all.
    fn grow(self: &Arc<Self>, jobs: usize) -> io::Result<()> {
        let mut state = self.state.lock();
        let missing = (state.jobs.len() + jobs).saturating_sub(state.idle);
        for _ in 0..missing.min(WORKERS_MAX - state.workers) {
            let pool = Arc::clone(self);
            let started = std::thread::Builder::new()
                .name("psync-worker".to_owned())
                .stack_size(128 << 10)
                .spawn(move || pool.serve());
            match started {
                Ok(_) => state.workers += 1,
                Err(error) if state.workers == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // SAFETY: `Lane::push` demands that memory and file stay valid until the outcome is posted.
                let outcome = unsafe { call::attempt(job.descriptor, job.offset, job.transfer) };
                job.mailbox.post(Done { slot: job.slot, outcome });
                state = self.state.lock();
            } else if state.closed {
                state.workers -= 1;
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

impl Mailbox {
    fn post(&self, done: Done) {
        let mut posted = self.posted.lock();
        posted.done.push(done);
        if posted.done.len() >= posted.wanted {
            self.enough.notify_one();
        }
    }
}

struct ThreadsLane {
    pool: Arc<Pool>,
    mailbox: Arc<Mailbox>,
    gathered: Vec<Job>,
}

impl ThreadsLane {
    fn start(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.pool.grow(self.gathered.len())?;
        let mut state = self.pool.state.lock();
        let wake = self.gathered.len().min(state.idle);
        state.jobs.extend(self.gathered.drain(..));
        drop(state);
        for _ in 0..wake {
            self.pool.work.notify_one();
        }
        Ok(())
    }
}

impl Lane for ThreadsLane {
    fn capacity(&self) -> usize {
        CAPACITY
    }

    unsafe fn push(&mut self, slot: u32, file: &FileInner, offset: u64, transfer: Transfer) {
        self.gathered.push(Job {
            slot,
            descriptor: file.descriptor(),
            offset,
            transfer,
            mailbox: Arc::clone(&self.mailbox),
        });
    }

    fn reap(&mut self, wait: usize, done: &mut Vec<Done>) -> io::Result<()> {
        self.start()?;
        let mut posted = self.mailbox.posted.lock();
        while posted.done.len() < wait {
            posted.wanted = wait;
            self.mailbox.enough.wait(&mut posted);
        }
        done.append(&mut posted.done);
        Ok(())
    }
}
