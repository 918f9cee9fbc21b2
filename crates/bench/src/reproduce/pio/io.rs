//! Figures 2 and 3: the device's response to larger requests, and to more requests at a time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use psync::{Buffer, Psync, Request};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::fs::OFlags;

use super::paper::claim;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Drawing, Figure, Panel, Point, times, times_range};
use crate::reproduce::lab::{Device, Lab};
use crate::{Error, Result};

/// Sizes of a request in figure 2.
const SIZES: [usize; 6] = [2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Requests at a time in figures 3 and 4: the paper's OutStd level.
pub(super) const LEVELS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Bytes of a request in figures 3 and 4.
pub(super) const PAGE: usize = psync::BLOCK;

/// A file opened past the page cache, for one request at a time.
pub(super) struct DirectFile {
    file: File,
    bytes: u64,
}

impl DirectFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).expect("a flag of open");
        let open = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path);
        // A file system may refuse direct I/O. The measurement is then of the page cache, and the report says so.
        let file = open.or_else(|_| OpenOptions::new().read(true).write(true).open(path));
        let file = file.map_err(Error::io("opening", path))?;
        let bytes = file.metadata().map_err(Error::io("looking at", path))?.len();
        Ok(Self { file, bytes })
    }

    /// Reads or writes `bytes` of the buffer at a random place.
    pub(super) fn request(&self, random: &mut SmallRng, buffer: &mut Buffer, bytes: usize, write: bool) -> Result<()> {
        let offset = random.random_range(0..self.bytes / bytes as u64) * bytes as u64;
        let part = &mut buffer[..bytes];
        let done = if write { self.file.write_all_at(part, offset) } else { self.file.read_exact_at(part, offset) };
        done.map_err(Error::io(if write { "writing" } else { "reading" }, "the file that is measured on"))
    }
}

/// Figure 2: latency of one random request by its size.
pub(super) fn latency(lab: &mut Lab<'_>, device: &Device) -> Result<Finding> {
    let file = DirectFile::open(&lab.file()?)?;
    let mut figure = Figure::new("2", "Latencies with different I/O sizes");
    figure.notes.push("One request at a time, random, past the page cache.".into());
    let mut buffer = Buffer::zeroed(SIZES[SIZES.len() - 1]);
    let smallest =
        if file.request(&mut SmallRng::seed_from_u64(0), &mut buffer, SIZES[0], false).is_ok() { 0 } else { 1 };
    if smallest > 0 {
        figure.notes.push("The device takes no direct requests of 2 KiB: the sizes begin at 4 KiB.".into());
    }
    let sizes = &SIZES[smallest..];
    lab.expect_groups(2);
    for (title, write) in [("(a) Read", false), ("(b) Write", true)] {
        let mut panel =
            Panel::new(title, Drawing::Lines, Axis::logarithmic("request, KiB"), Axis::linear("latency, µs"));
        let samples = lab.interleave(&format!("figure 2 {title}"), sizes.len(), |lab, turn| {
            let mut random = SmallRng::seed_from_u64(turn.seed);
            let request = || file.request(&mut random, &mut buffer, sizes[turn.contestant], write).map(|()| 1);
            let (done, elapsed) = lab.repeat_for(lab.slice(), request)?;
            Ok(elapsed.as_secs_f64() * 1e6 / done as f64)
        })?;
        for (size, samples) in sizes.iter().zip(samples) {
            panel.add("this device", Point::of(*size as f64 / 1024.0, samples));
        }
        figure.panels.push(panel);
    }
    let claims = figure.panels.iter().map(|panel| {
        let at = |kibibytes| panel.at("this device", kibibytes).unwrap_or(f64::NAN);
        let here = format!(
            "16 KiB take {} the time of 4 KiB, 64 KiB {}",
            times(at(16.0) / at(4.0)),
            times(at(64.0) / at(4.0))
        );
        claim("2", &panel.title, "latency grows less than the size of the request", here, device, "one at a time")
    });
    let claims = claims.collect();
    Ok(Finding { figure, claims })
}

/// Sends requests of a page, `level` at a time, and returns MiB per second.
fn batches(lab: &Lab<'_>, time: Duration, level: usize, mut next: impl FnMut(Buffer) -> Request) -> Result<f64> {
    let psync = lab.psync().clone().with_pio_max(level);
    let mut buffers: Vec<Buffer> = (0..level).map(|_| Buffer::zeroed(PAGE)).collect();
    let (done, elapsed) = lab.repeat_for(time, || {
        let requests: Vec<Request> = buffers.drain(..).map(&mut next).collect();
        buffers = run(&psync, requests)?;
        Ok(level as u64)
    })?;
    Ok(done as f64 * PAGE as f64 / f64::from(1 << 20) / elapsed.as_secs_f64())
}

/// One psync call, which returns the buffers of its requests.
pub(super) fn run(psync: &Psync, requests: Vec<Request>) -> Result<Vec<Buffer>> {
    Ok(psync.run_all(requests)?.into_iter().flatten().collect())
}

/// A workload of figure 3: whether the request with this number writes.
type Pattern = fn(number: usize, level: usize) -> bool;

const READS: Pattern = |_, _| false;
const WRITES: Pattern = |_, _| true;
/// A read directly followed by a write.
pub(super) const INTERLEAVED: Pattern = |number, _| number % 2 == 1;
/// As many reads as fit one call, then as many writes.
const SEPARATE: Pattern = |number, level| number / level % 2 == 1;

/// Figure 3: bandwidth of random requests of 4 KiB by the number sent at a time.
pub(super) fn bandwidth(lab: &mut Lab<'_>, device: &Device) -> Result<Finding> {
    let path = lab.file()?;
    let options = psync::OpenOptions { write: true, direct: true, ..psync::OpenOptions::default() };
    let file = lab.psync().open(&path, &options)?;
    let places = file.len()? / PAGE as u64;
    let mut figure = Figure::new("3", "Bandwidth with different outstanding I/O levels");
    figure.notes.push("Random requests of 4 KiB, each call of psync with as many as the level says.".into());
    let panels: [(&str, &[(&str, Pattern)]); 3] = [
        ("(a) Read", &[("this device", READS)]),
        ("(b) Write", &[("this device", WRITES)]),
        ("(c) Read/write mixed", &[("not interleaved", SEPARATE), ("interleaved", INTERLEAVED)]),
    ];
    lab.expect_groups(panels.len());
    for (title, workloads) in panels {
        let (across, upwards) = (Axis::logarithmic("OutStd level"), Axis::linear("MiB/s"));
        let mut panel = Panel::new(title, Drawing::Lines, across, upwards);
        let cells: Vec<(&str, Pattern, usize)> =
            workloads.iter().flat_map(|(name, pattern)| LEVELS.map(|level| (*name, *pattern, level))).collect();
        let samples = lab.interleave(&format!("figure 3 {title}"), cells.len(), |lab, turn| {
            let (_, pattern, level) = cells[turn.contestant];
            let mut random = SmallRng::seed_from_u64(turn.seed);
            let mut number = 0;
            batches(lab, lab.slice(), level, |buffer| {
                let offset = random.random_range(0..places) * PAGE as u64;
                let write = pattern(number, level);
                number += 1;
                if write { Request::write(&file, offset, buffer, 0) } else { Request::read(&file, offset, buffer, 0) }
            })
        })?;
        for ((name, _, level), samples) in cells.iter().zip(samples) {
            panel.add(name, Point::of(*level as f64, samples));
        }
        figure.panels.push(panel);
    }
    let claims = bandwidth_claims(&figure, device);
    Ok(Finding { figure, claims })
}

fn bandwidth_claims(figure: &Figure, device: &Device) -> Vec<crate::reproduce::Claim> {
    let gain = |panel: &Panel| {
        let at = |level: usize| panel.at("this device", level as f64).unwrap_or(f64::NAN);
        let rates = LEVELS.map(|level| at(level) / at(1));
        times(rates.into_iter().fold(0.0, f64::max))
    };
    let [reads, writes, mixed] = &figure.panels[..] else { return Vec::new() };
    let both = ["not interleaved", "interleaved"].map(|name| mixed.at(name, 64.0).unwrap_or(f64::NAN));
    let paper = "more than ten-fold over level 1";
    vec![
        claim("3", "read bandwidth, best level over level 1", paper, gain(reads), device, "4 KiB, random"),
        claim("3", "write bandwidth, best level over level 1", paper, gain(writes), device, "4 KiB, random"),
        claim(
            "3",
            "mixed, not interleaved over interleaved at level 64",
            "1.25x, 1.37x, 1.30x",
            times_range(&[both[0] / both[1]]),
            device,
            "4 KiB, random",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_as_many_reads_as_writes() {
        let text = |pattern: Pattern, level| {
            (0..12).map(|number| if pattern(number, level) { 'w' } else { 'r' }).collect::<String>()
        };
        assert_eq!(text(INTERLEAVED, 3), "rwrwrwrwrwrw");
        assert_eq!(text(SEPARATE, 3), "rrrwwwrrrwww");
        assert_eq!(text(SEPARATE, 1), "rwrwrwrwrwrw");
    }
}
