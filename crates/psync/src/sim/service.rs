//! The time that requests take on a simulated disk that serves them as a device would, on a clock of its own.
//!
//! A request is complete when both of these times have passed:
//!
//! 1. the latency of its kind and size;
//! 2. the device's work on this request and all requests before, each of which occupies the device for the time of one
//!    in a batch.
//!
//! A flush takes no time.

use std::io;
use std::time::{Duration, Instant};

use super::system::Simulated;
use crate::PIO_MAX_LIMIT;
use crate::backend::{Done, Lane, Transfer};
use crate::file::FileInner;
use crate::profile::{DeviceProfile, PAGE_BYTES};

/// A device and its clock.
pub(super) struct Service {
    profile: DeviceProfile,
    begin: Instant,
    now: Duration,
    /// The time at which the device has finished its requests.
    busy_until: Duration,
}

impl Service {
    pub(super) fn new(profile: DeviceProfile) -> Self {
        Self { profile, begin: Instant::now(), now: Duration::ZERO, busy_until: Duration::ZERO }
    }

    pub(super) fn now(&self) -> Instant {
        self.begin + self.now
    }

    /// Takes a request, and returns the time of its completion.
    pub(super) fn take(&mut self, transfer: Transfer) -> Duration {
        let (alone_us, batched_us) = self.costs_us(transfer);
        let time = |us: f64| Duration::from_secs_f64(us / 1e6);
        self.busy_until = self.busy_until.max(self.now) + time(batched_us);
        self.busy_until.max(self.now + time(alone_us))
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub(super) fn wait_until(&mut self, time: Duration) {
        self.now = self.now.max(time);
    }

    fn costs_us(&self, transfer: Transfer) -> (f64, f64) {
        let at_least = |length: usize| move |pages: usize| pages * PAGE_BYTES >= length;
        match transfer {
            Transfer::Read { length, .. } => {
                let fits = at_least(length);
                let cost = self.profile.reads.iter().find(|cost| fits(cost.pages)).or(self.profile.reads.last());
                cost.map_or((0.0, 0.0), |cost| (cost.alone_us, cost.batched_us))
            }
            Transfer::Write { length, .. } => {
                let fits = at_least(length);
                let cost = self.profile.writes.iter().find(|cost| fits(cost.pages)).or(self.profile.writes.last());
                cost.map_or((0.0, 0.0), |cost| (cost.alone_us, cost.batched_us))
            }
            Transfer::Flush => (0.0, 0.0),
        }
    }
}

/// A lane that has the outcome of an attempt at once, and reports the outcome at the device's time.
pub(super) struct ServedLane {
    simulated: Simulated,
    in_flight: Vec<(Duration, Done)>,
}

impl ServedLane {
    pub(super) const fn new(simulated: Simulated) -> Self {
        Self { simulated, in_flight: Vec::new() }
    }
}

impl Lane for ServedLane {
    fn capacity(&self) -> usize {
        PIO_MAX_LIMIT
    }

    #[expect(unsafe_code, reason = "hands memory given by address on")]
    unsafe fn push(&mut self, slot: u32, file: &FileInner, offset: u64, transfer: Transfer) {
        let complete_at = self.simulated.serve(|service| service.take(transfer));
        // SAFETY: the caller keeps the memory valid for longer than this call.
        let outcome = unsafe { self.simulated.perform(file, offset, transfer) };
        self.in_flight.push((complete_at.unwrap_or_default(), Done { slot, outcome }));
    }

    fn reap(&mut self, wait: usize, done: &mut Vec<Done>) -> io::Result<()> {
        self.in_flight.sort_by_key(|(complete_at, _)| *complete_at);
        let Some((until, _)) = wait.checked_sub(1).and_then(|last| self.in_flight.get(last)).copied() else {
            return Ok(());
        };
        self.simulated.serve(|service| service.wait_until(until));
        let complete = self.in_flight.partition_point(|(complete_at, _)| *complete_at <= until);
        done.extend(self.in_flight.drain(..complete).map(|(_, done)| done));
        Ok(())
    }
}

impl Simulated {
    /// Waits for a plain call, which takes as long as the request.
    pub(super) fn wait_for(&self, transfer: Transfer) {
        self.serve(|service| {
            let complete_at = service.take(transfer);
            service.wait_until(complete_at);
        });
    }

    pub(super) fn lane_of_service(&self) -> Option<Box<dyn Lane>> {
        self.serve(|_| Box::new(ServedLane::new(self.clone())) as Box<dyn Lane>)
    }

    pub(super) fn time(&self) -> Option<Instant> {
        self.serve(|service| service.now())
    }
}
