//! The schemes and the device, in turns, with every number of threads.

use braid::FlushScheme;
use psync::OpenOptions;
use psync::probe::flushed_writes_per_second;

use super::figures::Workload;
use super::run::{Plan, Sample, run};
use super::scale::{PAPER_THREADS, Scale, THREADS};
use crate::Result;
use crate::limits::median;
use crate::reproduce::figure::{mean, paired_ratio};
use crate::reproduce::lab::Lab;

/// The measurements with one number of threads.
pub(super) struct Cell {
    pub(super) threads: usize,
    /// The runs of each scheme, in the order of [`FlushScheme::ALL`].
    pub(super) runs: Vec<Vec<Sample>>,
    /// Flushed writes of 4 KiB per second, measured among the runs.
    pub(super) device: Vec<f64>,
}

impl Cell {
    /// One measurement of each run of a scheme.
    pub(super) fn samples(&self, scheme: FlushScheme, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let runs = FlushScheme::ALL.iter().position(|known| *known == scheme).and_then(|place| self.runs.get(place));
        runs.into_iter().flatten().map(of).collect()
    }

    /// The average over the runs of a scheme.
    pub(super) fn mean(&self, scheme: FlushScheme, of: impl Fn(&Sample) -> f64) -> f64 {
        mean(&self.samples(scheme, of))
    }

    /// The ratio of one scheme over another: the median over the pairs of runs.
    pub(super) fn ratio(&self, over: FlushScheme, under: FlushScheme, of: impl Fn(&Sample) -> f64) -> f64 {
        paired_ratio(&self.samples(over, &of), &self.samples(under, &of))
    }

    /// The device's flushed writes per second.
    pub(super) fn device(&self) -> f64 {
        median(&self.device).unwrap_or(f64::NAN)
    }

    /// Whether the paper has this number of threads.
    pub(super) fn is_papers(&self) -> bool {
        PAPER_THREADS.contains(&self.threads)
    }
}

/// The measurement of one turn.
enum Taken {
    Run(Sample),
    Device(f64),
}

/// Measures a workload.
///
/// # Errors
/// When a run or the device fails; [`Error::Interrupted`].
pub(super) fn contest(lab: &mut Lab<'_>, scale: &Scale, workload: &Workload) -> Result<Vec<Cell>> {
    let path = lab.file()?;
    // The file bypasses the page cache, as it does for the device's other limits.
    let file = lab.psync().open(&path, &OpenOptions { write: true, direct: true, ..OpenOptions::default() })?;
    lab.expect_groups(THREADS.len());
    let mut cells = Vec::with_capacity(THREADS.len());
    for threads in THREADS {
        let what = format!("{}, {threads} thread{}", workload.name, if threads == 1 { "" } else { "s" });
        let taken = lab.interleave(&what, FlushScheme::ALL.len() + 1, |lab, turn| {
            let Some(scheme) = FlushScheme::ALL.get(turn.contestant) else {
                return Ok(Taken::Device(flushed_writes_per_second(lab.psync(), &file, lab.slice())?));
            };
            let plan = Plan { work: workload.work, scheme: *scheme, threads, seed: turn.seed };
            Ok(Taken::Run(run(lab, scale, &plan)?))
        })?;
        let mut cell = Cell { threads, runs: Vec::with_capacity(FlushScheme::ALL.len()), device: Vec::new() };
        for contestant in taken {
            let mut runs = Vec::with_capacity(contestant.len());
            for taken in contestant {
                match taken {
                    Taken::Run(sample) => runs.push(sample),
                    Taken::Device(rate) => cell.device.push(rate),
                }
            }
            if !runs.is_empty() {
                cell.runs.push(runs);
            }
        }
        cells.push(cell);
    }
    Ok(cells)
}
