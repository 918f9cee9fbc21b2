//! The rates that a store on a device could reach at most, measured beside the store's own.

use std::path::Path;
use std::time::{Duration, Instant};

use random::Random;

use super::PAGE_BYTES;
use super::measure::{Scratch, incompressible};
use crate::{BackendKind, Buffer, File, OpenOptions, Psync, Request, Result};

/// Bytes of one sequential write.
const SEQUENTIAL_BYTES: usize = 1 << 20;

/// Sequential writes in flight.
const SEQUENTIAL_DEPTH: usize = 8;

/// Reads between two looks at the clock.
const READS_PER_LOOK: u64 = 32;

/// The measurements of [`limits`].
#[derive(Clone, Debug)]
pub struct LimitsOptions {
    /// Bytes of one random read, rounded up to whole pages.
    pub read_bytes: usize,
    /// Random reads in flight.
    pub depths: Vec<usize>,
    /// Time for each figure.
    pub time: Duration,
    /// Also measure writes and flushes, on a scratch file beside the file given.
    pub writes: bool,
}

impl Default for LimitsOptions {
    fn default() -> Self {
        Self { read_bytes: PAGE_BYTES, depths: vec![1, 32, 128], time: Duration::from_millis(250), writes: true }
    }
}

/// A rate with a number of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RateAtDepth {
    /// Requests in flight.
    pub depth: usize,
    /// Requests per second.
    pub per_second: f64,
}

/// The device's own limits.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// The backend that measured.
    pub backend: BackendKind,
    /// Whether the reads bypassed the page cache.
    pub direct: bool,
    /// Bytes of one random read.
    pub read_bytes: usize,
    /// Random reads.
    pub random_reads: Vec<RateAtDepth>,
    /// Bytes per second of 1 MiB writes in place one after another, with their last flush. `None`: not asked for.
    pub sequential_write_bytes_per_second: Option<f64>,
    /// Page writes in place, each with its `fdatasync`, per second. `None`: not asked for.
    pub flushed_writes_per_second: Option<f64>,
}

/// Measures the best rates of the device under an existing file. Reads use the file itself, which is not changed.
/// Writes and flushes use a scratch file in the same directory, which leaves nothing behind. Takes `options.time` per
/// figure.
///
/// # Errors
/// When the file cannot be opened, is shorter than one read, or a request fails.
pub fn limits(psync: &Psync, path: &Path, options: &LimitsOptions) -> Result<Limits> {
    let open = OpenOptions { direct: true, ..OpenOptions::default() };
    let file = psync.open(path, &open)?;
    let mut random_reads = Vec::new();
    for depth in options.depths.iter().copied() {
        random_reads.push(RateAtDepth {
            depth,
            per_second: random_reads_per_second(psync, &file, options.read_bytes, depth, options.time)?,
        });
    }
    let (mut sequential, mut flushed) = (None, None);
    if options.writes {
        let directory = path.parent().unwrap_or(Path::new(""));
        let scratch = Scratch::create(psync, directory, Instant::now())?;
        sequential = Some(sequential_write_bytes_per_second(psync, &scratch, options.time)?);
        flushed = Some(flushed_writes_per_second(psync, scratch.file(), options.time)?);
    }
    Ok(Limits {
        backend: psync.backend(),
        direct: file.is_direct(),
        read_bytes: read_bytes(options.read_bytes),
        random_reads,
        sequential_write_bytes_per_second: sequential,
        flushed_writes_per_second: flushed,
    })
}

fn read_bytes(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(PAGE_BYTES)
}

/// Reads of `bytes` (rounded up to whole pages) at random places of a file, per second, with `depth` always in flight.
///
/// # Errors
/// [`crate::Error::ShortRead`] when the file is shorter than one read; the error of a failed read.
pub fn random_reads_per_second(psync: &Psync, file: &File, bytes: usize, depth: usize, time: Duration) -> Result<f64> {
    let bytes = read_bytes(bytes);
    let places = (file.len()? / bytes as u64).max(1);
    let mut random = Random::from_seed(places);
    let mut read = |buffer| {
        let offset = random.below(places) * bytes as u64;
        Request::read(file, offset, buffer, 0)
    };
    let mut stream = psync.stream(depth);
    let begin = Instant::now();
    for _ in 0..stream.depth() {
        stream.push(read(Buffer::zeroed(bytes)));
    }
    let mut done = 0_u64;
    let mut elapsed = Duration::ZERO;
    while let Some(completion) = stream.next() {
        completion.result?;
        done += 1;
        if done.is_multiple_of(READS_PER_LOOK) || depth == 1 {
            elapsed = begin.elapsed();
            if elapsed >= time {
                break;
            }
        }
        stream.push(read(completion.buffer.unwrap_or_else(|| Buffer::zeroed(bytes))));
    }
    Ok(done as f64 / elapsed.as_secs_f64())
}

fn sequential_write_bytes_per_second(psync: &Psync, scratch: &Scratch, time: Duration) -> Result<f64> {
    let chunks = scratch.bytes() / SEQUENTIAL_BYTES as u64;
    let mut stream = psync.stream(SEQUENTIAL_DEPTH);
    let mut pushed = 0;
    let mut write = |buffer| {
        let offset = pushed % chunks * SEQUENTIAL_BYTES as u64;
        pushed += 1;
        Request::write(scratch.file(), offset, buffer, 0)
    };
    let begin = Instant::now();
    // Chunks in flight together are different ones, as the scratch file has at least four.
    for _ in 0..stream.depth().min(usize::try_from(chunks).unwrap_or(1)) {
        stream.push(write(incompressible(SEQUENTIAL_BYTES)));
    }
    let mut done = 0_u64;
    while let Some(completion) = stream.next() {
        completion.result?;
        done += SEQUENTIAL_BYTES as u64;
        if begin.elapsed() < time
            && let Some(buffer) = completion.buffer
        {
            stream.push(write(buffer));
        }
    }
    psync.run_all(vec![Request::flush(scratch.file(), 0)])?;
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// Writes of a page in place, one page of a file after another, each with its `fdatasync`, per second. The file must
/// have been written in full before, and is changed.
///
/// # Errors
/// The error of a failed write or flush.
pub fn flushed_writes_per_second(psync: &Psync, file: &File, time: Duration) -> Result<f64> {
    let pages = (file.len()? / PAGE_BYTES as u64).max(1);
    let mut page = incompressible(PAGE_BYTES);
    let begin = Instant::now();
    let mut done = 0_u64;
    loop {
        let offset = done % pages * PAGE_BYTES as u64;
        let requests = vec![Request::write(file, offset, page, 0), Request::flush(file, 0)];
        let buffers = psync.run_all(requests)?;
        done += 1;
        let elapsed = begin.elapsed();
        if elapsed >= time {
            return Ok(done as f64 / elapsed.as_secs_f64());
        }
        page = buffers.into_iter().flatten().next().expect("a write hands its buffer back");
    }
}
