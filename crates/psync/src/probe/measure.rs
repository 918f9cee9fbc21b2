//! The scratch file and the measurements on it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{PAGE_BYTES, PAGES_MEASURED};
use crate::{Buffer, File, OpenOptions, Psync, Request, Result};

/// Bytes of a scratch file, if the device writes them in time: enough that a device cannot keep it in one die.
const SCRATCH_BYTES: u64 = 64 << 20;

/// The scratch file grows as long as this has not passed.
const SCRATCH_TIME: Duration = Duration::from_millis(150);

/// Bytes of one write of the scratch file.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes of the scratch file that go together.
const CHUNKS: usize = 4;

/// Batches or requests measured at the least, however slow the device.
const SAMPLES_MIN: usize = 3;

/// A file to measure on, written in full and without a name, so that it goes with the process at the latest.
pub(super) struct Scratch {
    file: File,
    bytes: u64,
}

impl Scratch {
    pub(super) fn create(psync: &Psync, directory: &Path, begin: Instant) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".scratch-{}-{number}", std::process::id()));
        let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
        let file = psync.open(&path, &options)?;
        psync.remove(&path)?;
        let mut bytes = 0;
        let mut chunks: Vec<Buffer> = (0..CHUNKS).map(|_| incompressible(CHUNK_BYTES)).collect();
        while bytes < SCRATCH_BYTES && (bytes == 0 || begin.elapsed() < SCRATCH_TIME) {
            let requests = chunks.drain(..).map(|chunk| {
                let offset = bytes;
                bytes += chunk.len() as u64;
                Request::write(&file, offset, chunk, 0)
            });
            let requests = requests.collect();
            chunks = psync.run_all(requests)?.into_iter().flatten().collect();
        }
        psync.run_all(vec![Request::flush(&file, 0)])?;
        Ok(Self { file, bytes })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

/// Bytes that no device makes smaller.
pub(super) fn incompressible(len: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(len);
    SmallRng::seed_from_u64(len as u64).fill(&mut buffer[..]);
    buffer
}

/// The largest requests fit often in the smallest scratch file.
const _: () = assert!(PAGES_MEASURED[PAGES_MEASURED.len() - 1] * PAGE_BYTES * 16 <= CHUNKS * CHUNK_BYTES);

/// One measurement after another on a scratch file, each for the same time.
pub(super) struct Cell<'a> {
    psync: &'a Psync,
    scratch: &'a Scratch,
    time: Duration,
    random: SmallRng,
}

#[derive(Clone, Copy)]
enum What {
    Read,
    Write,
    FlushedWrite,
}

impl<'a> Cell<'a> {
    pub(super) fn new(psync: &'a Psync, scratch: &'a Scratch, time: Duration) -> Self {
        Self { psync, scratch, time, random: SmallRng::seed_from_u64(scratch.bytes) }
    }

    /// Measures each of the `settings` in turn, and all again: the better figure of each.
    pub(super) fn best_of_two(
        &mut self, settings: &[usize], mut measure: impl FnMut(&mut Self, usize) -> Result<f64>,
    ) -> Result<Vec<(usize, f64)>> {
        let mut figures = Vec::new();
        for setting in settings {
            figures.push((*setting, measure(self, *setting)?));
        }
        for (setting, figure) in &mut figures {
            *figure = figure.min(measure(self, *setting)?);
        }
        Ok(figures)
    }

    /// µs per random read of `pages` pages in batches of `depth`.
    pub(super) fn reads_us(&mut self, pages: usize, depth: usize) -> Result<f64> {
        self.measure(What::Read, pages, depth)
    }

    /// µs per random write of `pages` pages in place, in batches of `depth`.
    pub(super) fn writes_us(&mut self, pages: usize, depth: usize) -> Result<f64> {
        self.measure(What::Write, pages, depth)
    }

    /// µs per page write in place with its flush.
    pub(super) fn flushed_writes_us(&mut self) -> Result<f64> {
        self.measure(What::FlushedWrite, 1, 1)
    }

    fn measure(&mut self, what: What, pages: usize, depth: usize) -> Result<f64> {
        let psync = self.psync.clone().with_pio_max(depth);
        let bytes = pages * PAGE_BYTES;
        let mut buffers: Vec<Buffer> = (0..depth).map(|_| incompressible(bytes)).collect();
        let mut samples = Vec::new();
        let begin = Instant::now();
        while samples.len() < SAMPLES_MIN || begin.elapsed() < self.time {
            let mut requests: Vec<Request> = buffers.drain(..).map(|buffer| self.request(what, buffer)).collect();
            if matches!(what, What::FlushedWrite) {
                requests.push(Request::flush(&self.scratch.file, 0));
            }
            let started = Instant::now();
            let done = psync.run_all(requests)?;
            samples.push(started.elapsed().as_nanos() as f64 / depth as f64);
            buffers.extend(done.into_iter().flatten());
        }
        // In whole nanoseconds, which a decimal text keeps exactly.
        Ok(median(&mut samples).round() / 1e3)
    }

    /// A request at a random place that is a multiple of its length.
    fn request(&mut self, what: What, buffer: Buffer) -> Request {
        let bytes = buffer.len() as u64;
        let offset = self.random.random_range(0..self.scratch.bytes / bytes) * bytes;
        match what {
            What::Read => Request::read(&self.scratch.file, offset, buffer, 0),
            What::Write | What::FlushedWrite => Request::write(&self.scratch.file, offset, buffer, 0),
        }
    }
}

/// The median of at least one sample.
fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_see_a_burst() {
        assert_eq!(median(&mut [3.0]), 3.0);
        assert_eq!(median(&mut [900.0, 2.0, 1.0]), 2.0);
    }
}
