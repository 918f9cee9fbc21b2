//! The scratch file and the measurements on it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use random::Random;

use super::{DurableWriteCost, PAGE_BYTES, PAGES_MEASURED};
use crate::{Buffer, Error, File, OpenOptions, Psync, Request, Result};

/// Bytes of a scratch file, if the device writes them in time. Enough that a device cannot keep the file in one die.
const SCRATCH_BYTES: u64 = 64 << 20;

/// The time for which the scratch file may grow.
const SCRATCH_TIME: Duration = Duration::from_millis(150);

/// Bytes of one write of the scratch file.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes of the scratch file that go together.
const CHUNKS: usize = 4;

/// Batches or requests measured at the least, however slow the device.
const SAMPLES_MIN: usize = 3;

/// Rounds of all settings of a figure, of which the median counts.
pub(super) const ROUNDS: usize = 5;

/// Least and most durable writes of each kind measured. The upper bound is for storage without a device, where a
/// durable write takes no time.
const DURABLE_SAMPLES: std::ops::RangeInclusive<usize> = 5..=999;

/// A file to measure on, written in full. The file has no name, so that it is gone at the latest with the process.
pub(super) struct Scratch {
    file: File,
    /// The same file through the page cache.
    buffered: File,
    bytes: u64,
}

impl Scratch {
    pub(super) fn create(psync: &Psync, directory: &Path, begin: Instant) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".scratch-{}-{number}", std::process::id()));
        let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
        let file = psync.open(&path, &options)?;
        let buffered = psync.open(&path, &OpenOptions { write: true, ..OpenOptions::default() });
        psync.remove(&path)?;
        let buffered = buffered?;
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
        Ok(Self { file, buffered, bytes })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn buffered(&self) -> &File {
        &self.buffered
    }
}

/// Bytes that no device makes smaller.
pub(super) fn incompressible(len: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(len);
    Random::from_seed(len as u64).fill(&mut buffer[..]);
    buffer
}

/// The largest requests fit often in the smallest scratch file.
const _: () = assert!(PAGES_MEASURED[PAGES_MEASURED.len() - 1] * PAGE_BYTES * 16 <= CHUNKS * CHUNK_BYTES);

/// One measurement after another on a file, each for the same time.
pub(super) struct Cell<'a> {
    psync: &'a Psync,
    file: &'a File,
    bytes: u64,
    time: Duration,
    random: Random,
    spreads: Vec<f64>,
}

#[derive(Clone, Copy)]
enum What {
    Read,
    Write,
    FlushedWrite,
}

impl<'a> Cell<'a> {
    /// Fails when the file has no room for the largest request.
    pub(super) fn new(psync: &'a Psync, file: &'a File, time: Duration) -> Result<Self> {
        let bytes = file.len()?;
        let wanted = (PAGES_MEASURED[PAGES_MEASURED.len() - 1] * PAGE_BYTES) as u64;
        if bytes < wanted {
            return Err(Error::ShortRead { path: file.path().to_owned(), offset: 0, wanted, got: bytes });
        }
        Ok(Self { psync, file, bytes, time, random: Random::from_seed(bytes), spreads: Vec::new() })
    }

    /// Measures each of the `settings` in turn, [`ROUNDS`] times over: the median of each.
    pub(super) fn medians<E>(
        &mut self, settings: &[usize], mut measure: impl FnMut(&mut Self, usize) -> std::result::Result<f64, E>,
    ) -> std::result::Result<Vec<(usize, f64)>, E> {
        let mut figures = vec![Vec::with_capacity(ROUNDS); settings.len()];
        for _ in 0..ROUNDS {
            for (setting, figures) in settings.iter().zip(&mut figures) {
                figures.push(measure(self, *setting)?);
            }
        }
        Ok(settings.iter().zip(figures).map(|(setting, mut figures)| (*setting, self.middle(&mut figures))).collect())
    }

    /// The median of the rounds of one figure; their spread is noted.
    fn middle(&mut self, figures: &mut [f64]) -> f64 {
        let middle = median(figures);
        self.spreads.push((figures[figures.len() - 1] - figures[0]) / middle);
        middle
    }

    /// The spread of the rounds of a figure, as a share of the figure: the median over all figures.
    pub(super) fn spread(&mut self) -> f64 {
        // In thousandths, which a decimal text keeps exactly.
        (median(&mut self.spreads) * 1e3).round() / 1e3
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
                requests.push(Request::flush(self.file, 0));
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
        let offset = self.place(buffer.len());
        match what {
            What::Read => Request::read(self.file, offset, buffer, 0),
            What::Write | What::FlushedWrite => Request::write(self.file, offset, buffer, 0),
        }
    }

    fn place(&mut self, bytes: usize) -> u64 {
        self.random.below(self.bytes / bytes as u64) * bytes as u64
    }

    /// µs per durable page write in place, both ways on each of some handles of the file: medians of [`ROUNDS`]. The
    /// ways take turns, so that a momentary disturbance affects all alike.
    pub(super) fn durable_writes_us<const N: usize>(&mut self, handles: [&File; N]) -> Result<[DurableWriteCost; N]> {
        let rounds = (0..ROUNDS).map(|_| self.durable_writes_once_us(handles)).collect::<Result<Vec<_>>>()?;
        let mut of = |handle: usize, way: fn(&DurableWriteCost) -> f64| {
            let mut figures: Vec<f64> = rounds.iter().map(|round| way(&round[handle])).collect();
            self.middle(&mut figures)
        };
        Ok(std::array::from_fn(|handle| DurableWriteCost {
            flushed_us: of(handle, |cost| cost.flushed_us),
            dsync_us: of(handle, |cost| cost.dsync_us),
        }))
    }

    fn durable_writes_once_us<const N: usize>(&mut self, handles: [&File; N]) -> Result<[DurableWriteCost; N]> {
        let mut flushed = [const { Vec::new() }; N];
        let mut dsync = [const { Vec::new() }; N];
        let mut page = incompressible(PAGE_BYTES);
        let begin = Instant::now();
        let ways = 2 * N;
        let time = self.time * u32::try_from(ways).expect("a few");
        for round in 0..*DURABLE_SAMPLES.end() {
            if round >= *DURABLE_SAMPLES.start() && begin.elapsed() >= time {
                break;
            }
            for turn in 0..ways {
                let way = (turn + round) % ways;
                let (handle, offset) = (handles[way / 2], self.place(PAGE_BYTES));
                let (requests, samples) = if way.is_multiple_of(2) {
                    let write = Request::write(handle, offset, page, 0);
                    (vec![write, Request::flush(handle, 0)], &mut flushed[way / 2])
                } else {
                    (vec![Request::write_durably(handle, offset, page, 0)], &mut dsync[way / 2])
                };
                let started = Instant::now();
                let done = self.psync.run_all(requests)?;
                samples.push(started.elapsed().as_nanos() as f64);
                page = done.into_iter().flatten().next().expect("a write hands its buffer back");
            }
        }
        let us = |samples: &mut Vec<f64>| median(samples).round() / 1e3;
        Ok(std::array::from_fn(|handle| DurableWriteCost {
            flushed_us: us(&mut flushed[handle]),
            dsync_us: us(&mut dsync[handle]),
        }))
    }
}

/// The median of some samples; 0 of none.
pub(super) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
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
