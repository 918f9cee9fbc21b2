//! The time that requests take on a simulated disk that serves them as a device would, on a clock of its own.
//!
//! A request is complete when both of these times have passed:
//!
//! 1. the latency of its kind and size;
//! 2. the device's work on this request and all requests before, each of which occupies the device for the time of one
//!    in a batch.
//!
//! A flush takes no time.

use std::time::{Duration, Instant};

use crate::backend::Transfer;
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
