//! The lane of a simulated disk that serves requests as a device does, and waits on the clock of the disk.

use std::io;
use std::time::{Duration, Instant};

use super::life::Simulated;
use crate::PIO_MAX_LIMIT;
use crate::backend::{Done, Lane, Transfer};
use crate::file::FileInner;

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
