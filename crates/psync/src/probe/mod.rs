//! What the device can do, measured.
//!
//! 1. [`profile`] writes a scratch file in a directory, measures reads, writes and flushes on it and removes it, all in
//!    a few seconds: the terms of PIO's cost model (Roh et al. 2011, table 1) as a [`DeviceProfile`].
//! 2. [`read_costs`] measures its reads again on a file of the caller's.
//! 3. [`save`] keeps a profile in a directory ([`PROFILE_NAME`]), where [`known`] finds it for the same device and backend.
//! 4. [`learned()`] says what the requests of a backend's users showed of it meanwhile, as a profile, without a request more.
//! 5. [`limits()`] measures the rates that a store on the device could reach at most, on a file of the store, for benchmarks.
//!
//! All figures are measured in turn, five times over, and each is the median of its rounds, so that a neighbour's burst does not end up in it; how far the
//! rounds lay apart stands beside them ([`DeviceProfile::spread`]).
//! Where direct I/O does not work ([`DeviceProfile::direct`]) the figures are those of the page cache.

mod learned;
mod limits;
mod measure;

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

pub use learned::{LEARNED_NAME, LearnedFigure, LearnedProfile, TIMINGS_MIN, keep, keep_times, learned, recall};
pub use limits::{Limits, LimitsOptions, RateAtDepth, flushed_writes_per_second, limits, random_reads_per_second};
use measure::{Cell, Scratch};

pub use crate::learn::{RequestKind, RequestTimes};
use crate::{BackendKind, Error, File, Psync, Result};

/// Name of a saved profile in its directory.
pub const PROFILE_NAME: &str = "device.json";

/// Version of a saved profile; another one is not taken.
const VERSION: u32 = 5;

/// Most bytes that a saved profile may have.
const PROFILE_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a page, the unit of all figures.
pub const PAGE_BYTES: usize = crate::BLOCK;

/// Sizes at which P_r(L) and P_w(L) are measured, in pages.
pub const PAGES_MEASURED: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Depths among which the best is sought.
pub const DEPTHS_MEASURED: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A depth this close to the best rate is as good, and lower depths have lower latencies.
const RATE_AS_GOOD: f64 = 0.95;

/// A durable write has to take at most this share of the time of a write and a flush to be preferred.
const CLEARLY_FASTER: f64 = 0.9;

/// The time to measure in, with the scratch file made.
const TIME: Duration = Duration::from_secs(2);

/// Reads of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadCost {
    /// Pages of one read: L.
    pub pages: usize,
    /// Latency of one random read alone: P_r(L), in µs.
    pub alone_us: f64,
    /// Time per read in batches of the best depth: P'_r(L), in µs per read of L pages.
    pub batched_us: f64,
}

/// Writes of one size, in place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WriteCost {
    /// Pages of one write.
    pub pages: usize,
    /// Latency of one random write alone, in µs. In the device's cache, not flushed.
    pub alone_us: f64,
    /// Time per write in batches of the best depth, in µs per write of these pages.
    pub batched_us: f64,
}

/// What a page write in place costs that is on stable storage when it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DurableWriteCost {
    /// With a flush of the file behind it, in µs.
    pub flushed_us: f64,
    /// As one request, [`crate::Operation::WriteDurably`], in µs.
    pub dsync_us: f64,
}

/// A way to make a write durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DurableWrite {
    /// A write and a flush of its file.
    Flush,
    /// One request, [`crate::Operation::WriteDurably`].
    Dsync,
}

impl DurableWriteCost {
    /// The faster way: one request where that is clearly faster, else a write and a flush.
    #[must_use]
    pub fn faster(&self) -> DurableWrite {
        if self.dsync_us <= self.flushed_us * CLEARLY_FASTER { DurableWrite::Dsync } else { DurableWrite::Flush }
    }
}

/// What a device can do with pages of 4 KiB, through one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// Version of this layout.
    pub version: u32,
    /// The device (`st_dev`) of the directory that was measured.
    pub device: u64,
    /// The backend that measured.
    pub backend: BackendKind,
    /// When it was measured, in seconds since 1970; 0 when it was not.
    pub measured_at: u64,
    /// Whether direct I/O works there.
    pub direct: bool,
    /// Latency of one random page read: P_r, in µs.
    pub read_us: f64,
    /// Latency of one random page write in place: P_w, in µs. In the device's cache, not flushed.
    pub write_us: f64,
    /// Time per random page read in batches of `best_depth`: P'_r, in µs.
    pub batched_read_us: f64,
    /// Time per random page write in batches of `best_depth`: P'_w, in µs.
    pub batched_write_us: f64,
    /// Reads of 1, 2, 4, … 64 pages ([`PAGES_MEASURED`]).
    pub reads: Vec<ReadCost>,
    /// Writes of 1, 2, 4, … 64 pages ([`PAGES_MEASURED`]).
    pub writes: Vec<WriteCost>,
    /// Latency of a page write in place and its `fdatasync`, in µs.
    pub flushed_write_us: f64,
    /// Durable page writes in place past the page cache.
    pub durable_direct: DurableWriteCost,
    /// Durable page writes in place through the page cache.
    pub durable_buffered: DurableWriteCost,
    /// The smallest batch whose read rate is within 5 % of the best of those tried.
    pub best_depth: usize,
    /// How far the rounds of a figure lay apart, as a share of it: the median over all figures; 0 when nothing was measured.
    pub spread: f64,
}

impl Default for DeviceProfile {
    /// An ordinary NVMe drive: what is taken where no profile was saved.
    fn default() -> Self {
        let (read_us, batched_read_us) = (80.0, 8.0);
        let (write_us, batched_write_us) = (30.0, 8.0);
        Self {
            version: VERSION,
            device: 0,
            backend: BackendKind::Sync,
            measured_at: 0,
            direct: true,
            read_us,
            write_us,
            batched_read_us,
            batched_write_us,
            reads: PAGES_MEASURED
                .map(|pages| {
                    // Larger reads are striped: the first page costs the latency, the others little.
                    let others = (pages - 1) as f64;
                    ReadCost { pages, alone_us: read_us + 3.0 * others, batched_us: batched_read_us + 3.0 * others }
                })
                .to_vec(),
            writes: PAGES_MEASURED
                .map(|pages| {
                    // Pages behind the first are programmed beside one another, but each takes the bus.
                    let others = (pages - 1) as f64;
                    WriteCost { pages, alone_us: write_us + 4.0 * others, batched_us: batched_write_us + 4.0 * others }
                })
                .to_vec(),
            flushed_write_us: 500.0,
            durable_direct: DurableWriteCost { flushed_us: 500.0, dsync_us: 500.0 },
            durable_buffered: DurableWriteCost { flushed_us: 500.0, dsync_us: 500.0 },
            best_depth: 64,
            spread: 0.0,
        }
    }
}

/// Measures the device under a directory, with a scratch file in it. Takes a few seconds.
///
/// On a simulated disk there is nothing to measure: the profile is [`DeviceProfile::default`].
///
/// # Errors
/// When the directory cannot be written, is full, or a request fails.
pub fn profile(psync: &Psync, directory: &Path) -> Result<DeviceProfile> {
    if psync.is_simulated() {
        return Ok(DeviceProfile::default());
    }
    let device = device_of(directory)?;
    let begin = Instant::now();
    let scratch = Scratch::create(psync, directory, begin)?;
    // Each depth, each size read and written alone and batched, flushes; two ways of durable writes on two handles.
    let cells = measure::ROUNDS * (DEPTHS_MEASURED.len() + 4 * PAGES_MEASURED.len() + 1 + 4);
    let left = TIME.saturating_sub(begin.elapsed());
    let cells = u32::try_from(cells).expect("a few dozen");
    let mut cell = Cell::new(psync, scratch.file(), left / cells)?;

    let by_depth = cell.medians(&DEPTHS_MEASURED, |cell, depth| cell.reads_us(1, depth))?;
    let best_depth = best_depth(&by_depth);
    let reads = reads_by_size(&mut cell, best_depth, || Ok::<(), Error>(()))?;
    let alone = cell.medians(&PAGES_MEASURED, |cell, pages| cell.writes_us(pages, 1))?;
    let batched = cell.medians(&PAGES_MEASURED, |cell, pages| cell.writes_us(pages, best_depth))?;
    let writes: Vec<WriteCost> =
        by_size(alone, batched, |pages, alone_us, batched_us| WriteCost { pages, alone_us, batched_us });
    let flushed = cell.medians(&[1], |cell, _| cell.flushed_writes_us())?;
    let [durable_direct, durable_buffered] = cell.durable_writes_us([scratch.file(), scratch.buffered()])?;
    let spread = cell.spread();
    Ok(DeviceProfile {
        version: VERSION,
        device,
        backend: psync.backend(),
        measured_at: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        direct: scratch.file().is_direct(),
        read_us: reads[0].alone_us,
        batched_read_us: reads[0].batched_us,
        reads,
        write_us: writes[0].alone_us,
        batched_write_us: writes[0].batched_us,
        writes,
        flushed_write_us: flushed[0].1,
        durable_direct,
        durable_buffered,
        best_depth,
        spread,
    })
}

/// Random reads of a file, in all sizes, alone and in batches of `depth`: as [`profile`] measures them on its scratch file, with `time`
/// for each figure and round. Before each, `go_on` may end it all.
///
/// # Errors
/// [`Error::ShortRead`] when the file is shorter than the largest read; what a read fails with; what `go_on` says.
pub fn read_costs<E: From<Error>>(
    psync: &Psync, file: &File, depth: usize, time: Duration, go_on: impl Fn() -> std::result::Result<(), E>,
) -> std::result::Result<Vec<ReadCost>, E> {
    reads_by_size(&mut Cell::new(psync, file, time)?, depth, go_on)
}

fn reads_by_size<E: From<Error>>(
    cell: &mut Cell<'_>, depth: usize, go_on: impl Fn() -> std::result::Result<(), E>,
) -> std::result::Result<Vec<ReadCost>, E> {
    let reads_us = |cell: &mut Cell<'_>, pages: usize, depth: usize| {
        go_on()?;
        Ok::<f64, E>(cell.reads_us(pages, depth)?)
    };
    let alone = cell.medians(&PAGES_MEASURED, |cell, pages| reads_us(cell, pages, 1))?;
    let batched = cell.medians(&PAGES_MEASURED, |cell, pages| reads_us(cell, pages, depth))?;
    Ok(by_size(alone, batched, |pages, alone_us, batched_us| ReadCost { pages, alone_us, batched_us }))
}

/// Costs by size.
fn by_size<T>(
    mut alone: Vec<(usize, f64)>, mut batched: Vec<(usize, f64)>, cost: impl Fn(usize, f64, f64) -> T,
) -> Vec<T> {
    smooth(&mut alone);
    smooth(&mut batched);
    alone.iter().zip(batched).map(|((pages, alone), (_, batched))| cost(*pages, *alone, batched)).collect()
}

/// What disturbs a measurement makes it slower. No request is slower than a larger one, so a larger one that was faster is the better
/// figure for a smaller one too; and none is slower than the smaller ones that it could be cut into.
fn smooth(by_size: &mut [(usize, f64)]) {
    for smaller in (0..by_size.len().saturating_sub(1)).rev() {
        by_size[smaller].1 = by_size[smaller].1.min(by_size[smaller + 1].1);
    }
    for larger in 1..by_size.len() {
        let ((pages, us), (more, _)) = (by_size[larger - 1], by_size[larger]);
        by_size[larger].1 = by_size[larger].1.min(us * more.div_ceil(pages) as f64);
    }
}

/// The smallest depth whose time per read is as good as the best.
fn best_depth(by_depth: &[(usize, f64)]) -> usize {
    let best_us = by_depth.iter().map(|(_, each_us)| *each_us).fold(f64::INFINITY, f64::min);
    by_depth.iter().find(|(_, each_us)| *each_us * RATE_AS_GOOD <= best_us).map_or(1, |(depth, _)| *depth)
}

/// The profile that a directory keeps, if it is for the device and backend. Nothing is measured.
pub fn known(psync: &Psync, directory: &Path) -> Option<DeviceProfile> {
    if psync.is_simulated() {
        return None;
    }
    let device = device_of(directory).ok()?;
    load(&directory.join(PROFILE_NAME)).ok().filter(|profile| profile.is_for(device, psync.backend()))
}

/// Keeps a profile in a directory, in place of the one that was there.
///
/// # Errors
/// When the directory cannot be written.
pub fn save(directory: &Path, profile: &DeviceProfile) -> Result<()> {
    store(&directory.join(PROFILE_NAME), profile)
}

impl DeviceProfile {
    /// The faster way to make a write durable, on a file that is open past the page cache (`direct`) or through it.
    #[must_use]
    pub fn durable_write(&self, direct: bool) -> DurableWrite {
        if direct { self.durable_direct } else { self.durable_buffered }.faster()
    }

    /// Measures the device under a directory, through the backend that is chosen where nobody says one: [`profile`].
    ///
    /// # Errors
    /// As [`profile`]; when there is no backend.
    pub fn measure(directory: &Path) -> Result<Self> {
        profile(&Psync::new(None)?, directory)
    }

    /// Requests in flight that keep the device as busy as it gets without queueing, by Little's law: P_r over P'_r.
    #[must_use]
    pub fn parallelism(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "clamped, and rounded down: more would queue")]
        let ratio = (self.read_us / self.batched_read_us).clamp(1.0, 1024.0) as usize;
        ratio
    }

    fn is_for(&self, device: u64, backend: BackendKind) -> bool {
        self.version == VERSION && self.device == device && self.backend == backend
    }

    /// Whether the figures can be calculated with, for a file, or a caller, may say anything.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> std::result::Result<(), String> {
        let sizes: Vec<usize> = self.reads.iter().map(|read| read.pages).collect();
        if sizes != PAGES_MEASURED {
            return Err(format!("it has reads of {sizes:?} pages instead of {PAGES_MEASURED:?}"));
        }
        let sizes: Vec<usize> = self.writes.iter().map(|write| write.pages).collect();
        if sizes != PAGES_MEASURED {
            return Err(format!("it has writes of {sizes:?} pages instead of {PAGES_MEASURED:?}"));
        }
        let figures = [self.read_us, self.write_us, self.batched_read_us, self.batched_write_us, self.flushed_write_us];
        let of_reads = self.reads.iter().flat_map(|read| [read.alone_us, read.batched_us]);
        let of_writes = self.writes.iter().flat_map(|write| [write.alone_us, write.batched_us]);
        let of_durable_writes =
            [self.durable_direct, self.durable_buffered].into_iter().flat_map(|cost| [cost.flushed_us, cost.dsync_us]);
        if !self.spread.is_finite() || self.spread < 0.0 {
            return Err("its spread is no share".to_owned());
        }
        let sound = |figure: f64| figure.is_finite() && figure > 0.0;
        if !figures.into_iter().chain(of_reads).chain(of_writes).chain(of_durable_writes).all(sound) {
            return Err("a time in it is not positive".to_owned());
        }
        if !DEPTHS_MEASURED.contains(&self.best_depth) {
            return Err(format!("its best depth {} was never tried", self.best_depth));
        }
        Ok(())
    }
}

/// Reads a saved profile, for whatever device it is.
///
/// # Errors
/// When it is not there, cannot be read or makes no sense; measuring again mends that.
pub fn load(path: &Path) -> Result<DeviceProfile> {
    let failed = |error| Error::path("read", path, error);
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(failed)?.take(PROFILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    parse(path, &bytes)
}

/// The profile that these bytes of a file say.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<DeviceProfile> {
    let unusable = |reason: String| Error::Profile { path: path.to_owned(), reason };
    let profile: DeviceProfile = serde_json::from_slice(bytes).map_err(|error| unusable(error.to_string()))?;
    if profile.version != VERSION {
        return Err(unusable(format!("it has version {}, this library writes {VERSION}", profile.version)));
    }
    profile.check().map_err(unusable)?;
    Ok(profile)
}

/// Puts a profile in its place as a whole. It is not flushed: a torn one is not taken.
fn store(path: &Path, profile: &DeviceProfile) -> Result<()> {
    let text = serde_json::to_vec_pretty(profile)
        .map_err(|error| Error::Profile { path: path.to_owned(), reason: error.to_string() })?;
    replace(path, &text)
}

/// Puts a file in the place of what was there, as a whole.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut scratch = path.as_os_str().to_owned();
    scratch.push(format!(".{}", std::process::id()));
    let scratch = Path::new(&scratch);
    let stored = fs::write(scratch, bytes).and_then(|()| fs::rename(scratch, path));
    stored.map_err(|error| {
        // What is left over harms nothing but to the eye.
        let _ = fs::remove_file(scratch);
        Error::path("write", path, error)
    })
}

fn device_of(directory: &Path) -> Result<u64> {
    fs::metadata(directory).map(|metadata| metadata.dev()).map_err(|error| Error::path("look at", directory, error))
}

#[cfg(test)]
mod tests;
