//! Measurements of the device.
//!
//! 1. [`profile`] writes a scratch file in a directory, measures reads, writes and flushes on that file and removes the
//!    file, all in a few seconds. The result is a [`DeviceProfile`]: the terms of PIO's cost model (Roh et al. 2011,
//!    table 1).
//! 2. [`read_costs`] measures the reads of a profile again on a file of the caller's.
//! 3. [`save`] keeps a profile in a directory ([`PROFILE_NAME`]), where [`known`] finds it for the same device and
//!    backend.
//! 4. [`learned()`] derives a profile from the requests of a backend's users meanwhile, without a request more.
//! 5. [`limits()`] measures the rates that a store on the device could reach at most, on a file of the store, for
//!    benchmarks.
//!
//! All figures are measured in turn, five times over. Each is the median of its rounds, so that a neighbour's burst
//! does not end up in the figure. The profile also states the spread of the rounds ([`DeviceProfile::spread`]).
//!
//! Where direct I/O does not work ([`DeviceProfile::direct`]) the figures are those of the page cache.

mod learned;
mod limits;
mod measure;

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

pub use learned::{
    LEARNED_NAME, LEARNED_SCRATCH_NAME, LearnedFigure, LearnedProfile, MINUTES_MIN, TIMINGS_MIN, keep, keep_times,
    learned, recall,
};
pub use limits::{Limits, LimitsOptions, RateAtDepth, flushed_writes_per_second, limits, random_reads_per_second};
use measure::{Cell, Scratch};

pub use crate::learn::{RequestKind, RequestTimes};
use crate::profile::VERSION;
pub use crate::profile::{
    DEPTHS_MEASURED, DeviceProfile, DurableWrite, DurableWriteCost, PAGE_BYTES, PAGES_MEASURED, ReadCost, WriteCost,
};
use crate::{Error, File, Psync, Result};

/// Name of a saved profile in its directory.
pub const PROFILE_NAME: &str = "device.json";

/// Name of a profile that is being saved.
pub const PROFILE_SCRATCH_NAME: &str = "device.json.new";

/// Most bytes that a saved profile may have.
const PROFILE_BYTES_MAX: u64 = 64 << 10;

/// A depth this close to the best rate is as good, and lower depths have lower latencies.
const RATE_AS_GOOD: f64 = 0.95;

/// The time for all measurements, including the scratch file.
const TIME: Duration = Duration::from_secs(2);

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

/// Measures random reads of a file, in all sizes, alone and in batches of `depth`: as [`profile`] measures them on its
/// scratch file, with `time` for each figure and round. `go_on` is called before each of those, and an error of `go_on`
/// ends the measurement.
///
/// # Errors
/// [`Error::ShortRead`] when the file is shorter than the largest read; the error of a failed read; the error of
/// `go_on`.
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

/// Makes the figures of all sizes consistent, because a disturbance only makes a measurement slower. No request is
/// slower than a larger one, so a faster larger one gives the better figure for a smaller one too. No request is slower
/// than the smaller ones together that could replace it.
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
    replace(directory, PROFILE_NAME, PROFILE_SCRATCH_NAME, profile.to_text().as_bytes())
}

impl DeviceProfile {
    /// Measures the device under a directory, through the backend that is chosen by default: [`profile`].
    ///
    /// # Errors
    /// As [`profile`]; when there is no backend.
    pub fn measure(directory: &Path) -> Result<Self> {
        profile(&Psync::new(None)?, directory)
    }
}

/// Reads a saved profile, for whichever device.
///
/// # Errors
/// When the file is not there, cannot be read or makes no sense; measuring again mends that.
pub fn load(path: &Path) -> Result<DeviceProfile> {
    let failed = |error| Error::path("read", path, error);
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(failed)?.take(PROFILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    parse(path, &bytes)
}

/// The profile in these bytes of a file.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<DeviceProfile> {
    let unusable = |reason: String| Error::Profile { path: path.to_owned(), reason };
    let profile = DeviceProfile::from_text(bytes).map_err(unusable)?;
    if profile.version != VERSION {
        return Err(unusable(format!("it has version {}, this library writes {VERSION}", profile.version)));
    }
    profile.check().map_err(unusable)?;
    Ok(profile)
}

/// Replaces a file as a whole, by way of a file with a scratch name. The file is not flushed, because a torn one is
/// rejected.
fn replace(directory: &Path, name: &str, scratch_name: &str, bytes: &[u8]) -> Result<()> {
    let (path, scratch) = (directory.join(name), directory.join(scratch_name));
    fs::write(&scratch, bytes).and_then(|()| fs::rename(&scratch, &path)).map_err(|error| {
        // A left-over file is harmless, and only looks untidy.
        let _ = fs::remove_file(&scratch);
        Error::path("write", &path, error)
    })
}

/// The device (`st_dev`) of a directory.
///
/// # Errors
/// When the directory's metadata cannot be read.
pub fn device_of(directory: &Path) -> Result<u64> {
    fs::metadata(directory).map(|metadata| metadata.dev()).map_err(|error| Error::path("look at", directory, error))
}

#[cfg(test)]
mod tests;
