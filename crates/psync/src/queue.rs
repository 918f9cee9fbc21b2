//! The requests of one batch or stream, from acceptance to completion.
//!
//! 1. An accepted request waits in the backlog until fewer than `depth` are in flight. Requests start in the order of
//!    acceptance.
//! 2. A started request sits in a slot. The slot owns its buffer and a clone of its file until the lane reports the
//!    slot's attempt.
//! 3. A new attempt in the same slot continues a short transfer or repeats an interrupted one. Each attempt of a
//!    durable write is durable.
//! 4. A flush at the head of the backlog starts when no write is in flight, so every write accepted before the flush
//!    comes first. Later requests wait behind the flush. Flushes of several files that follow one another are in flight
//!    together.
//!
//! Invariants:
//!
//! - Each request gets exactly one completion.
//! - Memory is never freed while an attempt on that memory may be in flight. If the kernel's queue fails, the memory is
//!   leaked.
//! - A dropped queue first completes every request.

#![expect(unsafe_code, reason = "hands memory owned by a slot to the kernel, which uses it after the call")]

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, CallLane, Done, Lane, Transfer};
use crate::learn::{Learner, RequestKind, STRETCH_REQUESTS_MAX, Shape, Stretch};
use crate::traffic::Traffic;
use crate::{Buffer, Completion, Error, File, Operation, Request, Result};

/// The largest number of times that one attempt is repeated because the system was interrupted or busy.
const RETRIES_MAX: u32 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write { durable: bool },
    Flush,
}

impl Kind {
    fn is_write(self) -> bool {
        matches!(self, Self::Write { .. })
    }
}

/// A started request.
struct Started {
    file: File,
    offset: u64,
    kind: Kind,
    buffer: Option<Buffer>,
    tag: u64,
    index: usize,
    /// Bytes transferred so far.
    progress: usize,
    retries: u32,
}

enum Step {
    Again,
    Finished(Result<()>),
}

impl Started {
    /// Takes a request, or completes it at once if it cannot be started.
    fn new(index: usize, request: Request) -> std::result::Result<Self, Completion> {
        let (kind, buffer) = match request.operation {
            Operation::Read(buffer) => (Kind::Read, Some(buffer)),
            Operation::Write(buffer) => (Kind::Write { durable: false }, Some(buffer)),
            Operation::WriteDurably(buffer) => (Kind::Write { durable: true }, Some(buffer)),
            Operation::Flush => (Kind::Flush, None),
        };
        let started = Self {
            file: request.file,
            offset: request.offset,
            kind,
            buffer,
            tag: request.tag,
            index,
            progress: 0,
            retries: 0,
        };
        let length = started.length();
        let unit = started.file.unit();
        if !(request.offset.is_multiple_of(unit as u64) && length.is_multiple_of(unit)) {
            let error = Error::Misaligned {
                path: started.file.path().to_owned(),
                offset: request.offset,
                length: length as u64,
                unit: unit as u64,
            };
            return Err(started.complete(Err(error)));
        }
        if kind != Kind::Flush && length == 0 {
            return Err(started.complete(Ok(())));
        }
        Ok(started)
    }

    fn length(&self) -> usize {
        self.buffer.as_ref().map_or(0, Buffer::len)
    }

    /// The shape that is learned from, if a profile has such requests; they bypass the page cache.
    fn shape(&self) -> Option<Shape> {
        let kind = match self.kind {
            Kind::Read => RequestKind::Read,
            Kind::Write { durable: false } => RequestKind::Write,
            Kind::Write { durable: true } | Kind::Flush => return None,
        };
        Shape::new(kind, self.length()).filter(|_| self.file.is_direct())
    }

    /// The transfer of the remaining bytes, at most `most` of them.
    fn transfer(&mut self, most: usize) -> Transfer {
        let progress = self.progress;
        let Some(buffer) = &mut self.buffer else {
            return Transfer::Flush;
        };
        let length = (buffer.len() - progress).min(most);
        // SAFETY: `progress` is at most `len`, so the address stays within the allocation.
        let memory = unsafe { buffer.pointer().add(progress) };
        match self.kind {
            Kind::Read => Transfer::Read { memory, length },
            Kind::Write { durable } => Transfer::Write { memory, length, durable },
            Kind::Flush => Transfer::Flush,
        }
    }

    fn position(&self) -> u64 {
        self.offset.saturating_add(self.progress as u64)
    }

    /// Takes the outcome of an attempt.
    fn step(&mut self, outcome: i64) -> Step {
        let Ok(count) = usize::try_from(outcome) else {
            return self.step_failed(i32::try_from(-outcome).unwrap_or(libc::EIO));
        };
        if self.kind == Kind::Flush {
            return Step::Finished(Ok(()));
        }
        let left = self.length() - self.progress;
        assert!(count <= left, "the system transferred more than it was asked to");
        self.progress += count;
        if count == left {
            return Step::Finished(Ok(()));
        }
        match self.kind {
            // A direct read that stops within a unit has met the end of the file.
            Kind::Read if count == 0 || !self.progress.is_multiple_of(self.file.unit()) => {
                Step::Finished(Err(Error::ShortRead {
                    path: self.file.path().to_owned(),
                    offset: self.offset,
                    wanted: self.length() as u64,
                    got: self.progress as u64,
                }))
            }
            Kind::Write { .. } if count == 0 => self.retry(io::ErrorKind::WriteZero.into()),
            _ => Step::Again,
        }
    }

    fn step_failed(&mut self, errno: i32) -> Step {
        let error = io::Error::from_raw_os_error(errno);
        match errno {
            // The kernel cancels requests that it has not begun when their thread ends (ECANCELED). The stream may live
            // on.
            libc::EINTR | libc::EAGAIN | libc::ECANCELED => self.retry(error),
            _ => Step::Finished(Err(self.failure(error))),
        }
    }

    fn retry(&mut self, error: io::Error) -> Step {
        if self.retries == RETRIES_MAX {
            return Step::Finished(Err(self.failure(error)));
        }
        self.retries += 1;
        if self.retries > 4 {
            std::thread::sleep(Duration::from_micros(50) * self.retries);
        }
        Step::Again
    }

    fn failure(&self, source: io::Error) -> Error {
        Error::Io {
            operation: match self.kind {
                Kind::Read => "read",
                Kind::Write { .. } => "write",
                Kind::Flush => "flush",
            },
            path: self.file.path().to_owned(),
            offset: self.offset,
            length: self.length() as u64,
            source: Arc::new(source),
        }
    }

    fn complete(self, result: Result<()>) -> Completion {
        if result.is_ok() {
            let counters = self.file.counters();
            match self.kind {
                Kind::Read => counters.add_read(self.length()),
                Kind::Write { .. } => counters.add_write(self.length()),
                Kind::Flush => counters.add_flush(),
            }
        }
        Completion { tag: self.tag, buffer: self.buffer, result }
    }
}

/// Performs one request as plain calls.
pub(crate) fn perform(backend: &dyn Backend, learner: &Learner, request: Request) -> Completion {
    let started = match Started::new(0, request) {
        Ok(started) => started,
        Err(completion) => return completion,
    };
    let (shape, bytes) = (started.shape(), started.length());
    let stretch = shape.and_then(|_| learner.begin(0, false));
    learner.started(1);
    let completion = perform_started(backend, started);
    learner.completed(1);
    if let Some(mut stretch) = stretch {
        stretch.completed(shape, bytes);
        stretch.waited(1, 1, Duration::ZERO);
        if completion.result.is_err() {
            stretch.spoil();
        }
        learner.end(stretch, 0);
    }
    completion
}

fn perform_started(backend: &dyn Backend, mut started: Started) -> Completion {
    loop {
        let (position, transfer) = (started.position(), started.transfer(usize::MAX));
        // SAFETY: the memory belongs to `started`, which outlives the call.
        let outcome = unsafe { backend.call(&started.file.0, position, transfer) };
        if let Step::Finished(result) = started.step(outcome) {
            return started.complete(result);
        }
    }
}

/// The part of a queue that learns from its requests.
pub(crate) struct Learning {
    learner: Arc<Learner>,
    /// The requests under way, if they are timed.
    stretch: Option<Stretch>,
    /// Completions among those under way, timed or not.
    requests: u64,
    /// The consumer takes completions at its own pace.
    is_stream: bool,
}

impl Learning {
    pub(crate) const fn new(learner: Arc<Learner>, is_stream: bool) -> Self {
        Self { learner, stretch: None, requests: 0, is_stream }
    }

    /// Begins another stretch, with `in_flight` requests of the queue under way.
    fn begin(&mut self, in_flight: usize) {
        self.requests = 0;
        self.stretch = self.learner.begin(in_flight as u64, self.is_stream);
    }

    fn end(&mut self, in_flight: usize) {
        if let Some(stretch) = self.stretch.take() {
            self.learner.end(stretch, in_flight as u64);
        }
    }
}

pub(crate) struct Queue {
    backend: Arc<dyn Backend>,
    lane: Box<dyn Lane>,
    traffic: Traffic,
    learning: Learning,
    depth: usize,
    /// The part of the depth that may be used now.
    allowed: usize,
    slots: Vec<Option<Started>>,
    free: Vec<u32>,
    backlog: VecDeque<Started>,
    ready: VecDeque<(usize, Completion)>,
    in_flight: usize,
    writes_in_flight: usize,
    /// Attempts handed to the lane since the lane was last told to start them.
    unsubmitted: usize,
    done: Vec<Done>,
}

impl Queue {
    /// A queue on a lane of the backend. If the backend has no lane to give, `trouble` gets the error and plain calls
    /// replace the lane.
    pub(crate) fn new(
        backend: &Arc<dyn Backend>, lane: io::Result<Box<dyn Lane>>, traffic: Traffic, learning: Learning,
        depth: usize, trouble: &dyn Fn(io::Error),
    ) -> Self {
        let lane = lane.unwrap_or_else(|error| {
            trouble(error);
            Box::new(CallLane::new(Arc::clone(backend)))
        });
        let depth = depth.clamp(1, lane.capacity());
        Self {
            backend: Arc::clone(backend),
            traffic,
            learning,
            depth,
            allowed: depth,
            lane,
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            ready: VecDeque::new(),
            in_flight: 0,
            writes_in_flight: 0,
            unsubmitted: 0,
            done: Vec::new(),
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Accepted requests whose completion was not taken.
    pub(crate) fn outstanding(&self) -> usize {
        self.backlog.len() + self.in_flight + self.ready.len()
    }

    /// Accepts a request; `index` comes back with its completion.
    pub(crate) fn push(&mut self, index: usize, request: Request) {
        match Started::new(index, request) {
            Ok(started) => self.backlog.push_back(started),
            Err(completion) => self.ready.push_back((index, completion)),
        }
    }

    /// Starts every request that may start, and waits for completions while the backlog holds more than may be in
    /// flight. Once a good part of the depth has gathered, hands the gathered attempts to the system.
    pub(crate) fn advance(&mut self) {
        self.start();
        while !self.backlog.is_empty() {
            self.wait(1);
            self.start();
        }
        if self.unsubmitted >= (self.depth / 4).max(1) {
            self.submit_started();
        }
    }

    /// Hands every accepted request to the system.
    pub(crate) fn submit(&mut self) {
        self.advance();
        if self.unsubmitted > 0 {
            self.submit_started();
        }
    }

    /// Unless a completion is ready, waits until `completions` of them are, or all.
    pub(crate) fn gather(&mut self, completions: usize) {
        if self.ready.is_empty() && self.outstanding() > 0 {
            self.start();
            self.wait(completions.clamp(1, self.in_flight.max(1)));
        }
    }

    /// The next completion, in the order of arrival; `None` when nothing is outstanding.
    pub(crate) fn next(&mut self) -> Option<(usize, Completion)> {
        while self.ready.is_empty() && self.outstanding() > 0 {
            self.gather(1);
        }
        self.ready.pop_front()
    }

    /// Completes all pushed requests, and hands out each completion.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(usize, Completion)) {
        loop {
            for (index, completion) in self.ready.drain(..) {
                take(index, completion);
            }
            self.flush_alone();
            self.start();
            if self.in_flight == 0 {
                if self.ready.is_empty() {
                    break;
                }
                continue;
            }
            // With more to start, wait for a part of the window, so that the device never runs dry; otherwise wait for
            // all.
            let wait = if self.backlog.is_empty() || self.in_flight < self.allowed {
                self.in_flight
            } else {
                (self.in_flight / 4).max(1)
            };
            self.wait(wait);
        }
    }

    /// Makes the last flush of a batch a plain call if nothing else is left to wait for, because a queue would only add
    /// time.
    fn flush_alone(&mut self) {
        if self.in_flight > 0 || self.backlog.len() != 1 {
            return;
        }
        if let Some(started) = self.backlog.pop_front() {
            let index = started.index;
            self.learning.learner.started(1);
            let completion = perform_started(&*self.backend, started);
            self.learning.learner.completed(1);
            self.ready.push_back((index, completion));
        }
    }

    fn start(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        self.allowed = self.traffic.depth(self.depth);
        if self.in_flight == 0 {
            self.learning.begin(0);
        }
        if let Some(stretch) = self.learning.stretch.as_mut().filter(|_| self.traffic.makes_way()) {
            stretch.spoil();
        }
        let mut reads = false;
        while self.in_flight < self.allowed {
            let Some(head) = self.backlog.front() else {
                break;
            };
            if head.kind == Kind::Flush && self.writes_in_flight > 0 {
                break;
            }
            let Some(started) = self.backlog.pop_front() else {
                break;
            };
            self.in_flight += 1;
            self.learning.learner.started(1);
            self.writes_in_flight += usize::from(started.kind.is_write());
            reads |= started.kind == Kind::Read;
            let slot = self.place(started);
            self.attempt(slot);
        }
        if reads {
            self.traffic.reading();
        }
    }

    fn place(&mut self, started: Started) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(started);
            return slot;
        }
        self.slots.push(Some(started));
        u32::try_from(self.slots.len() - 1).expect("slots are no more than the lane's capacity")
    }

    fn attempt(&mut self, slot: u32) {
        let started = self.slots[slot as usize].as_mut().expect("an attempt is made only for an occupied slot");
        let (position, transfer) = (started.position(), started.transfer(self.traffic.piece_bytes()));
        // SAFETY: the slot owns the buffer and the file. The slot is emptied only when the lane reports it; if the lane
        // fails, its content is leaked. `drop` waits for all.
        unsafe { self.lane.push(slot, &started.file.0, position, transfer) };
        self.unsubmitted += 1;
    }

    fn submit_started(&mut self) {
        self.reap(0);
    }

    /// Waits for at least `wait` attempts in flight and takes all outcomes that are there.
    fn wait(&mut self, wait: usize) {
        if self.in_flight > 0 {
            self.reap(wait);
        }
    }

    fn reap(&mut self, wait: usize) {
        self.unsubmitted = 0;
        let mut done = std::mem::take(&mut self.done);
        let began = self.learning.stretch.as_ref().and_then(|_| self.learning.learner.now());
        let reaped = self.lane.reap(wait, &mut done);
        let waited = began.and_then(|began| Some(self.learning.learner.now()?.saturating_duration_since(began)));
        let in_flight = self.in_flight;
        for Done { slot, outcome } in done.drain(..) {
            self.take(slot, outcome);
        }
        self.done = done;
        if let Err(error) = reaped {
            self.abandon(&error);
        }
        self.learn(in_flight, waited);
    }

    /// Learns from a wait that began with `in_flight` requests in flight. `waited` is the caller's time in the wait, if
    /// that was timed.
    fn learn(&mut self, in_flight: usize, waited: Option<Duration>) {
        let completed = (in_flight - self.in_flight) as u64;
        self.learning.learner.completed(completed);
        if let Some((stretch, waited)) = self.learning.stretch.as_mut().zip(waited) {
            stretch.waited(completed, in_flight as u64, waited);
        }
        self.learning.requests += completed;
        if self.in_flight == 0 {
            self.learning.end(0);
        } else if self.learning.requests >= STRETCH_REQUESTS_MAX {
            self.learning.end(self.in_flight);
            self.learning.begin(self.in_flight);
        }
    }

    fn take(&mut self, slot: u32, outcome: i64) {
        let started = self.slots[slot as usize].as_mut().expect("the lane reports a slot once per attempt");
        match started.step(outcome) {
            Step::Again => self.attempt(slot),
            Step::Finished(result) => self.finish_slot(slot, |started| started.complete(result)),
        }
    }

    fn finish_slot(&mut self, slot: u32, complete: impl FnOnce(Started) -> Completion) {
        let started = self.slots[slot as usize].take().expect("a slot is finished once");
        self.free.push(slot);
        self.in_flight -= 1;
        self.writes_in_flight -= usize::from(started.kind.is_write());
        let (index, shape, bytes) = (started.index, started.shape(), started.length());
        let is_flushed = matches!(started.kind, Kind::Flush | Kind::Write { durable: true });
        let completion = complete(started);
        if let Some(stretch) = &mut self.learning.stretch {
            stretch.completed(shape, bytes);
            if is_flushed || completion.result.is_err() {
                stretch.spoil();
            }
        }
        self.ready.push_back((index, completion));
    }

    /// Gives the lane up after it failed: nobody knows which attempts the kernel still works on. Their buffers and the
    /// lane are leaked, their requests fail, and plain calls do the rest.
    fn abandon(&mut self, error: &io::Error) {
        let calls = Box::new(CallLane::new(Arc::clone(&self.backend)));
        std::mem::forget(std::mem::replace(&mut self.lane, calls));
        self.depth = 1;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_none() {
                continue;
            }
            let slot = u32::try_from(slot).expect("slots are no more than the lane's capacity");
            self.finish_slot(slot, |mut started| {
                let source = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                let failure = started.failure(source);
                std::mem::forget(started.buffer.take());
                std::mem::forget(started.file.clone());
                started.complete(Err(failure))
            });
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.finish(|_, _| {});
        let calls = Box::new(CallLane::new(Arc::clone(&self.backend)));
        let lane = std::mem::replace(&mut self.lane, calls);
        self.backend.give_back(lane);
    }
}
