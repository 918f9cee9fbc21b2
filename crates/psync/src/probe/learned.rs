//! What the requests of a backend's users showed of the device, as a profile.
//!
//! 1. [`learned`] puts figures that were seen often enough ([`TIMINGS_MIN`]) in the place of those of a profile in use. Each is the median of its timings, and what
//!    it rests on stands beside it ([`LearnedFigure`]).
//! 2. Figures of sizes that were not seen keep their proportion to those that were, so that a device which is slower with all of them is not taken for one that has large requests for
//!    nothing. A row of figures of which none was seen stays as it is.
//! 3. No figure is above that of a larger request, or of the smaller ones that this could be cut into; and none in a batch above one that is alone.
//! 4. [`keep`] saves the request times in a directory, and [`recall`] adds them to those of a later process. Nobody goes by them until somebody asks: by saving the learned profile
//!    ([`super::save`]), or by giving it to whom it concerns.
//!
//! Flushes, durable writes and the best depth are not learned: nobody makes a page write with a flush of its own, and batches are never deeper than the best depth that is known.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{DEPTHS_MEASURED, DeviceProfile, device_of, replace, smooth};
use crate::learn::format::{self, Origin};
use crate::learn::{RequestKind, RequestTimes, Shape, depth_class};
use crate::{BackendKind, Error, Psync, Result};

/// Name of saved request times in their directory.
pub const LEARNED_NAME: &str = "device.learned";

/// A figure that rests on fewer timings stays as it is.
pub const TIMINGS_MIN: u32 = 32;

/// One figure of a profile, and what was learned of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnedFigure {
    /// Reads or writes in place.
    pub kind: RequestKind,
    /// Pages of a request.
    pub pages: usize,
    /// In batches of the best depth, each; else alone.
    pub batched: bool,
    /// In the profile in use, in µs.
    pub in_use_us: f64,
    /// In the learned profile, in µs.
    pub learned_us: f64,
    /// What was seen, the median over all timings, in µs; none where there is none.
    pub seen_us: Option<f64>,
    /// Requests that were timed.
    pub requests: u64,
    /// Timings, each of some requests that went together.
    pub timings: u32,
}

impl LearnedFigure {
    /// Whether it was seen often enough to be believed.
    #[must_use]
    pub const fn is_enough(&self) -> bool {
        self.timings >= TIMINGS_MIN
    }
}

/// A profile with what was learned in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnedProfile {
    /// The profile: that in use where nothing was seen often enough.
    pub profile: DeviceProfile,
    /// What it rests on: for reads and writes, alone and in batches, each size.
    pub figures: Vec<LearnedFigure>,
}

impl LearnedProfile {
    /// Whether any figure was seen often enough.
    #[must_use]
    pub fn is_any_enough(&self) -> bool {
        self.figures.iter().any(LearnedFigure::is_enough)
    }
}

/// The profile that follows from what the users of a backend saw of the device under `directory`, where they go by the profile `in_use`.
///
/// # Errors
/// When the directory cannot be looked at.
pub fn learned(psync: &Psync, directory: &Path, in_use: &DeviceProfile) -> Result<LearnedProfile> {
    let mut learned = derive(&psync.learner().times, in_use);
    if learned.is_any_enough() && !psync.is_simulated() {
        learned.profile.device = device_of(directory)?;
        learned.profile.backend = psync.backend();
    }
    Ok(learned)
}

fn derive(times: &RequestTimes, in_use: &DeviceProfile) -> LearnedProfile {
    let mut profile = in_use.clone();
    let (mut figures, mut spreads) = (Vec::new(), Vec::new());
    for kind in RequestKind::ALL {
        let [mut alone, mut batched] = [false, true].map(|batched| Row::seen(times, in_use, kind, batched));
        alone.derive();
        batched.derive();
        // The row of which anything was seen is believed; where that is both, the one of batches, for which more requests were timed.
        let (alone_seen, batched_seen) = (alone.is_any_enough(), batched.is_any_enough());
        for (alone, batched) in alone.figures.iter_mut().zip(&mut batched.figures) {
            if batched_seen {
                alone.learned_us = alone.learned_us.max(batched.learned_us);
            } else if alone_seen {
                batched.learned_us = batched.learned_us.min(alone.learned_us);
            }
        }
        set(&mut profile, kind, &alone.figures, &batched.figures);
        spreads.extend(alone.spreads.into_iter().chain(batched.spreads));
        figures.extend(alone.figures.into_iter().chain(batched.figures));
    }
    let mut learned = LearnedProfile { profile, figures };
    if !learned.is_any_enough() {
        learned.profile = in_use.clone();
        return learned;
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    learned.profile.measured_at = now.map_or(0, |since| since.as_secs());
    learned.profile.direct = true;
    learned.profile.spread = super::measure::median(&mut spreads);
    learned
}

/// The figures of one kind, alone or in batches, by size.
struct Row {
    figures: Vec<LearnedFigure>,
    /// How far the middle half of the timings of each believed figure lies apart, as a share of it.
    spreads: Vec<f64>,
}

impl Row {
    fn seen(times: &RequestTimes, in_use: &DeviceProfile, kind: RequestKind, batched: bool) -> Self {
        let deepest = DEPTHS_MEASURED.len();
        let depths = if batched { depth_class(in_use.best_depth as f64)..deepest } else { 0..1 };
        let mut row = Self { figures: Vec::new(), spreads: Vec::new() };
        for (size, (pages, in_use_us)) in costs(in_use, kind, batched).into_iter().enumerate() {
            let histogram = times.of(Shape { kind, size }, depths.clone());
            // In whole nanoseconds, which a decimal text keeps exactly.
            let us = |share: f64| histogram.quantile_ns(share).map(|ns| ns.round().max(1.0) / 1e3);
            let (seen_us, timings) = (us(0.5), histogram.timings());
            let figure = LearnedFigure {
                kind,
                pages,
                batched,
                in_use_us,
                learned_us: in_use_us,
                seen_us,
                requests: histogram.requests,
                timings,
            };
            if let (true, Some(quarter), Some(middle), Some(last)) = (figure.is_enough(), us(0.25), seen_us, us(0.75)) {
                row.spreads.push(((last - quarter) / middle * 1e3).round() / 1e3);
            }
            row.figures.push(figure);
        }
        row
    }

    fn is_any_enough(&self) -> bool {
        self.figures.iter().any(LearnedFigure::is_enough)
    }

    fn derive(&mut self) {
        let enough = |figure: &LearnedFigure| figure.seen_us.filter(|_| figure.is_enough());
        let seen: Vec<(usize, f64)> =
            self.figures.iter().enumerate().filter_map(|(size, figure)| Some((size, enough(figure)?))).collect();
        if seen.is_empty() {
            return;
        }
        // What disturbs requests makes them slower: as where a profile is measured.
        let mut smoothed: Vec<(usize, f64)> = seen.iter().map(|(size, us)| (self.figures[*size].pages, *us)).collect();
        smooth(&mut smoothed);
        let ratios: Vec<(usize, f64)> = seen
            .iter()
            .zip(&smoothed)
            .map(|((size, _), (_, us))| (*size, us / self.figures[*size].in_use_us))
            .collect();
        for size in 0..self.figures.len() {
            let after = ratios.partition_point(|(seen, _)| *seen < size);
            let ratio = match (after.checked_sub(1).map(|before| ratios[before]), ratios.get(after).copied()) {
                (_, Some((seen, ratio))) if seen == size => ratio,
                (Some((before, ratio)), Some((after, next))) => {
                    let part = (size - before) as f64 / (after - before) as f64;
                    ratio + part * (next - ratio)
                }
                (Some((_, ratio)), None) | (None, Some((_, ratio))) => ratio,
                (None, None) => 1.0,
            };
            let figure = &mut self.figures[size];
            figure.learned_us = figure.in_use_us * ratio;
        }
        self.bound();
    }

    /// What was seen bounds what was not.
    fn bound(&mut self) {
        let mut all: Vec<(usize, f64)> = self.figures.iter().map(|figure| (figure.pages, figure.learned_us)).collect();
        smooth(&mut all);
        for (figure, (_, us)) in self.figures.iter_mut().zip(all) {
            figure.learned_us = (us * 1e3).round().max(1.0) / 1e3;
        }
    }
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

/// Keeps what requests took in a directory, in place of what was there, if anything was noted since this was called last. On a simulated disk nothing is kept.
///
/// # Errors
/// When the directory cannot be written.
pub fn keep(psync: &Psync, directory: &Path) -> Result<()> {
    if psync.is_simulated() || psync.learner().take_unsaved() == 0 {
        return Ok(());
    }
    keep_times(directory, psync.backend(), &psync.learner().times)
}

/// As [`keep`], of times that were noted elsewhere.
///
/// # Errors
/// As [`keep`].
pub fn keep_times(directory: &Path, backend: BackendKind, times: &RequestTimes) -> Result<()> {
    let origin = Origin { device: device_of(directory)?, backend };
    replace(&directory.join(LEARNED_NAME), &format::encode(origin, times))
}

/// Adds what [`keep`] saved in a directory to what the users of a backend see. Whether there is anything.
///
/// # Errors
/// When it cannot be read, is damaged or of another version, or of another device or backend. Nothing was added then.
pub fn recall(psync: &Psync, directory: &Path) -> Result<bool> {
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
    for (index, histogram) in histograms {
        psync.learner().times.add(index, &histogram);
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
