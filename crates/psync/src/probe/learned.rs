//! A profile derived from the requests of a backend's users.
//!
//! 1. [`learned`] starts from a profile in use, and replaces each figure that was seen often enough
//!    ([`LearnedFigure::is_enough`]) by the median of its timings.
//! 2. An unseen figure keeps its proportion to the seen figures of the same row. Otherwise a device that is slower with
//!    all sizes would seem to have large requests for nothing. A row is the sizes of reads or writes, alone or in
//!    batches. A row without a seen figure stays unchanged.
//! 3. An unseen figure is at most the next larger seen figure, and at most the time of the smaller requests that could
//!    replace it. Above all, its time alone is at least its time in a batch.
//! 4. [`keep`] saves the request times in a directory, and [`recall`] brings them back in a later process. They take
//!    effect only on demand: a user saves the learned profile ([`super::save`]) or gives it to its consumer.
//!
//! Flushes, durable writes and the best depth are not learned. No user makes a page write with a flush of its own, and
//! batches are never deeper than the known best depth.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::SystemTime;

use super::{device_of, replace};
use crate::learn::format::{self, Origin};
use crate::learn::{RequestKind, RequestTimes, Shape, depth_class};
use crate::profile::{DEPTHS_MEASURED, DeviceProfile};
use crate::{BackendKind, Error, Psync, Result};

/// Name of saved request times in their directory.
pub const LEARNED_NAME: &str = "device.learned";

/// Name of request times that are being saved.
pub const LEARNED_SCRATCH_NAME: &str = "device.learned.new";

/// Least timings of a believed figure.
pub const TIMINGS_MIN: u32 = 32;

/// Least minutes of the timings of a believed figure.
pub const MINUTES_MIN: u32 = 5;

/// One figure of a profile, and its timings.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LearnedFigure {
    /// Reads or writes in place.
    pub kind: RequestKind,
    /// Pages of a request.
    pub pages: usize,
    /// Whether the figure is the time of each request in batches of the best depth; otherwise the time alone.
    pub batched: bool,
    /// The figure in the profile in use, in µs.
    pub in_use_us: f64,
    /// The figure in the learned profile, in µs.
    pub learned_us: f64,
    /// The median over all timings, in µs; none without timings.
    pub seen_us: Option<f64>,
    /// Requests that were timed.
    pub requests: u64,
    /// Timings, each of some requests that went together.
    pub timings: u32,
    /// Minutes that had timings, each process counting its own.
    pub minutes: u32,
    /// Timings that were left out because the consumer was slower than the device.
    pub left_out: u32,
    /// The distance of the quartiles of the timings, as a share of the median.
    pub spread: Option<f64>,
}

impl LearnedFigure {
    /// Whether the figure was seen often enough: timings ≥ `TIMINGS_MIN`, minutes ≥ `MINUTES_MIN`, and timings left out
    /// ≤ timings.
    #[must_use]
    pub const fn is_enough(&self) -> bool {
        self.timings >= TIMINGS_MIN && self.minutes >= MINUTES_MIN && self.timings >= self.left_out
    }

    fn believed_us(&self) -> Option<f64> {
        self.seen_us.filter(|_| self.is_enough())
    }
}

/// A profile with learned figures.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LearnedProfile {
    /// The profile: that in use where nothing was seen often enough.
    pub profile: DeviceProfile,
    /// The figures behind the profile: for reads and writes, alone and in batches, each size.
    pub figures: Vec<LearnedFigure>,
}

impl LearnedProfile {
    /// Whether any figure was seen often enough.
    #[must_use]
    pub fn is_any_enough(&self) -> bool {
        self.figures.iter().any(LearnedFigure::is_enough)
    }
}

/// Derives a profile from the requests of a backend's users on a device ([`device_of`]), while they use the profile
/// `in_use`.
#[must_use]
pub fn learned(psync: &Psync, device: u64, in_use: &DeviceProfile) -> LearnedProfile {
    let mut learned = derive(&psync.learner().times, in_use);
    if learned.is_any_enough() {
        (learned.profile.device, learned.profile.backend) = (device, psync.backend());
    }
    learned
}

fn derive(times: &RequestTimes, in_use: &DeviceProfile) -> LearnedProfile {
    let mut profile = in_use.clone();
    let mut figures = Vec::new();
    for kind in RequestKind::ALL {
        let [mut alone, mut batched] = [false, true].map(|batched| row(times, in_use, kind, batched));
        let (alone_seen, batched_seen) = (fill(&mut alone), fill(&mut batched));
        for (alone, batched) in alone.iter_mut().zip(&mut batched) {
            if batched_seen && !alone.is_enough() {
                alone.learned_us = alone.learned_us.max(batched.learned_us);
            } else if alone_seen && !batched.is_enough() {
                batched.learned_us = batched.learned_us.min(alone.learned_us);
            }
        }
        if alone_seen || batched_seen {
            set(&mut profile, kind, &alone, &batched);
        }
        figures.extend(alone.into_iter().chain(batched));
    }
    let mut spreads: Vec<f64> =
        figures.iter().filter(|figure| figure.is_enough()).filter_map(|figure| figure.spread).collect();
    if !spreads.is_empty() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        profile.measured_at = now.map_or(0, |since| since.as_secs());
        profile.direct = true;
        profile.spread = super::measure::median(&mut spreads);
    }
    LearnedProfile { profile, figures }
}

/// The timings of one kind, alone or in batches, by size, beside the profile in use.
fn row(times: &RequestTimes, in_use: &DeviceProfile, kind: RequestKind, batched: bool) -> Vec<LearnedFigure> {
    let deepest = DEPTHS_MEASURED.len();
    let depths = if batched { depth_class(in_use.best_depth as f64)..deepest } else { 0..1 };
    let figure = |(size, (pages, in_use_us))| {
        let histogram = times.of(Shape { kind, size }, depths.clone());
        let us = |share: f64| histogram.quantile_ns(share).map(|ns| rounded(ns / 1e3));
        let apart = |middle: f64| Some(((us(0.75)? - us(0.25)?) / middle * 1e3).round() / 1e3);
        LearnedFigure {
            kind,
            pages,
            batched,
            in_use_us,
            learned_us: in_use_us,
            seen_us: us(0.5),
            requests: histogram.requests,
            timings: histogram.timings(),
            minutes: histogram.minutes,
            left_out: histogram.left_out,
            spread: us(0.5).and_then(apart),
        }
    };
    costs(in_use, kind, batched).into_iter().enumerate().map(figure).collect()
}

/// In whole nanoseconds, which a decimal text keeps exactly.
fn rounded(us: f64) -> f64 {
    (us * 1e3).round().max(1.0) / 1e3
}

/// Completes a row from its believed figures. Whether there are any.
fn fill(row: &mut [LearnedFigure]) -> bool {
    let believed: Vec<(usize, f64)> =
        row.iter().enumerate().filter_map(|(size, figure)| Some((size, figure.believed_us()?))).collect();
    for size in 0..row.len() {
        let ratio = |(seen, us): (usize, f64)| us / row[seen].in_use_us;
        let after = believed.partition_point(|(seen, _)| *seen < size);
        let (before, next) = (after.checked_sub(1).map(|before| believed[before]), believed.get(after).copied());
        row[size].learned_us = match (before, next) {
            (None, None) => return false,
            (_, Some((seen, us))) if seen == size => us,
            (None, Some(next)) => rounded(row[size].in_use_us * ratio(next)).min(next.1),
            (Some(before), None) => bounded(row, size, ratio(before)),
            (Some(before), Some(next)) => {
                let part = (size - before.0) as f64 / (next.0 - before.0) as f64;
                bounded(row, size, ratio(before) + part * (ratio(next) - ratio(before))).min(next.1)
            }
        };
    }
    true
}

/// `ratio` times the figure in use. The result is at least the next smaller figure, and at most the time of the smaller
/// requests that could replace the request.
fn bounded(row: &[LearnedFigure], size: usize, ratio: f64) -> f64 {
    let (smaller, figure) = (&row[size - 1], &row[size]);
    let cut = smaller.learned_us * figure.pages.div_ceil(smaller.pages) as f64;
    rounded((figure.in_use_us * ratio).clamp(smaller.learned_us, cut))
}

fn costs(profile: &DeviceProfile, kind: RequestKind, batched: bool) -> Vec<(usize, f64)> {
    let of = |alone_us, batched_us| if batched { batched_us } else { alone_us };
    match kind {
        RequestKind::Read => {
            profile.reads.iter().map(|read| (read.pages, of(read.alone_us, read.batched_us))).collect()
        }
        RequestKind::Write => {
            profile.writes.iter().map(|write| (write.pages, of(write.alone_us, write.batched_us))).collect()
        }
    }
}

fn set(profile: &mut DeviceProfile, kind: RequestKind, alone: &[LearnedFigure], batched: &[LearnedFigure]) {
    let costs = alone.iter().zip(batched).map(|(alone, batched)| (alone.learned_us, batched.learned_us));
    let first = costs.clone().next();
    match kind {
        RequestKind::Read => {
            profile.reads.iter_mut().zip(costs).for_each(|(read, us)| (read.alone_us, read.batched_us) = us);
            (profile.read_us, profile.batched_read_us) = first.unwrap_or((profile.read_us, profile.batched_read_us));
        }
        RequestKind::Write => {
            profile.writes.iter_mut().zip(costs).for_each(|(write, us)| (write.alone_us, write.batched_us) = us);
            (profile.write_us, profile.batched_write_us) =
                first.unwrap_or((profile.write_us, profile.batched_write_us));
        }
    }
}

/// Saves the request times in a directory, in place of earlier ones, if anything was noted since the last save. On a
/// simulated disk nothing is saved. Only one caller at a time may save in a directory.
///
/// # Errors
/// When the directory cannot be written.
pub fn keep(psync: &Psync, directory: &Path) -> Result<()> {
    let unsaved = psync.learner().unsaved();
    if psync.is_simulated() || unsaved == 0 {
        return Ok(());
    }
    keep_times(directory, psync.backend(), &psync.learner().times)?;
    psync.learner().saved(unsaved);
    Ok(())
}

/// As [`keep`], for times that were noted elsewhere.
///
/// # Errors
/// As [`keep`].
pub fn keep_times(directory: &Path, backend: BackendKind, times: &RequestTimes) -> Result<()> {
    let origin = Origin { device: device_of(directory)?, backend };
    replace(directory, LEARNED_NAME, LEARNED_SCRATCH_NAME, &format::encode(origin, times))
}

/// Replaces the request times of a backend's users by those that [`keep`] saved in a directory. Whether there are any.
///
/// # Errors
/// When the file cannot be read, is damaged, or is of another version, device or backend. Then, too, the earlier
/// request times are forgotten.
pub fn recall(psync: &Psync, directory: &Path) -> Result<bool> {
    psync.learner().times.replace(Vec::new());
    if psync.is_simulated() {
        return Ok(false);
    }
    let path = directory.join(LEARNED_NAME);
    let failed = |error| Error::path("read", &path, error);
    let mut bytes = Vec::new();
    match fs::File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        file => file.map_err(failed)?.take(format::BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?,
    };
    let unusable = |reason: String| Error::Learned { path: path.clone(), reason };
    let (origin, histograms) = format::decode(&bytes).map_err(unusable)?;
    let here = Origin { device: device_of(directory)?, backend: psync.backend() };
    if origin != here {
        let of = |origin: Origin| format!("device {} through {}", origin.device, origin.backend);
        return Err(unusable(format!("it is of {}, and this is {}", of(origin), of(here))));
    }
    psync.learner().times.replace(histograms);
    Ok(true)
}

#[cfg(test)]
mod tests;
