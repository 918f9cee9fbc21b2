//! Papers' experiments, reproduced on this machine.
//!
//! 1. An [`Experiment`] knows the figures of one paper and the measurement of each. [`run()`] provides a [`Lab`]: a
//!    directory on the device that is removed at the end, interleaved repeats, and the device's own limits, measured
//!    again beside every figure.
//! 2. A figure consists of panels of points. A point is the median of its repeats, and keeps all of them. A [`Claim`]
//!    places side by side the paper's statement, the measurement on this machine and the device's limit. Goals are
//!    printed with their measurements, met or not.
//! 3. The results become `results.json`, `report.md`, and a CSV and an SVG file for each figure. A run that is stopped,
//!    or fails, writes the figures that it finished before. A run without a finished figure leaves earlier results
//!    unchanged.
//!
//! Invariants: contestants are measured in turns, so that no contestant takes all of its repeats before the next one
//! begins; every value read is checked; a run leaves nothing in the data directory.
//!
//! Left to others: the trees ([`crate::trees`]), and arguments and the terminal (the command line).

pub mod figure;
pub mod flush;
pub mod lab;
pub mod machine;
pub mod pfetch;
pub mod pio;
mod play;
mod plot;
mod stock;
mod write;

use std::path::{Path, PathBuf};
use std::time::Instant;

use psync::Psync;

pub use figure::{Claim, Figure, Table};
pub use lab::{Device, Lab, Method};
pub(crate) use plot::draw;
pub use write::{Results, section_name};

use crate::Watch;
use crate::{Error, Result};
use machine::Machine;

/// The amount of time that a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Seconds, to check that everything works. The figures mean nothing.
    Tiny,
    /// A few minutes.
    Quick,
    /// The paper's ratios of sizes.
    Full,
}

impl Effort {
    /// The effort's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// The outcome of one figure.
pub struct Finding {
    /// The figure.
    pub figure: Figure,
    /// The comparisons with the paper's claims and this project's goals.
    pub claims: Vec<Claim>,
}

/// The figures of one paper.
pub trait Experiment {
    /// The experiment's name on the command line.
    fn name(&self) -> &'static str;

    /// The title of the reproduced work.
    fn title(&self) -> String;

    /// The experiment's figures, in the order of measurement.
    fn figures(&self) -> &'static [&'static str];

    /// Sizes and methods that hold for all figures.
    fn setting(&self) -> Vec<String>;

    /// The meaning of the device's column of goals, as sentences.
    fn device_column(&self) -> &'static str;

    /// The lab's method of measurement.
    fn method(&self) -> Method;

    /// Peak bytes on storage.
    fn needed_bytes(&self) -> u64;

    /// Measures one figure. `device` was measured right before.
    ///
    /// # Errors
    /// When a tree or the device fails, or a tree answers wrongly; [`Error::Interrupted`].
    fn measure(&mut self, lab: &mut Lab<'_>, figure: &str, device: &Device) -> Result<Finding>;
}

/// The directories of a run.
#[derive(Clone, Debug)]
pub struct Places {
    /// The directory of the results.
    pub out: PathBuf,
    /// The directory of the data during the measurement. The run removes its data at the end.
    pub data: PathBuf,
}

/// Measures figures (all, if none is named) and writes the results. A stopped run returns its finished figures and is
/// marked as interrupted.
///
/// # Errors
/// When a figure is not one of the experiment's, there is too little space, or the device or a tree fails;
/// [`Error::Interrupted`] when no figure was finished.
pub fn run(
    experiment: Box<dyn Experiment>, effort: Effort, figures: &[String], places: &Places, watch: &Watch<'_>,
) -> Result<Results> {
    let begun = Instant::now();
    let chosen = choose(experiment.figures(), figures)?;
    // A missing output directory must fail now, not after an hour.
    std::fs::create_dir_all(&places.out).map_err(Error::io("creating", &places.out))?;
    let method = Method { figures: chosen.len() as u64, ..experiment.method() };
    let mut lab = Lab::open(Psync::new(None)?, &places.data, experiment.needed_bytes(), method, watch)?;
    // The experiment's own trees close before the lab, declared a line above, removes their files.
    let mut experiment = experiment;
    let mut results = Results {
        experiment: experiment.name().to_owned(),
        title: experiment.title(),
        effort: effort.name().to_owned(),
        setting: experiment.setting(),
        device_column: experiment.device_column().to_owned(),
        machine: Machine::here(lab.path()),
        device: Vec::new(),
        figures: Vec::new(),
        claims: Vec::new(),
        seconds: 0.0,
        interrupted: false,
    };
    let measured = (0..).zip(chosen).try_for_each(|(number, name)| {
        lab.begin_figure(number);
        measure(&mut *experiment, &mut lab, name, &mut results)
    });
    results.seconds = begun.elapsed().as_secs_f64();
    results.interrupted = measured.is_err();
    // Data that fills the disk is removed before the results are written.
    drop(experiment);
    drop(lab);
    if !results.figures.is_empty() {
        results.write(&places.out)?;
    }
    match measured {
        Err(Error::Interrupted) if !results.figures.is_empty() => Ok(results),
        other => other.map(|()| results),
    }
}

fn measure(experiment: &mut dyn Experiment, lab: &mut Lab<'_>, name: &str, results: &mut Results) -> Result<()> {
    let device = lab.device()?;
    lab.go_on()?;
    let finding = experiment.measure(lab, name, &device)?;
    results.device.push((name.to_owned(), device));
    results.figures.push(finding.figure);
    results.claims.extend(finding.claims);
    Ok(())
}

fn choose(known: &'static [&'static str], wanted: &[String]) -> Result<Vec<&'static str>> {
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::Invalid(format!("there is no figure `{unknown}`: choose from {}", known.join(", "))));
    }
    Ok(known.iter().copied().filter(|name| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)).collect())
}

/// The data directory for results in `out`.
#[must_use]
pub fn data_directory(out: &Path) -> PathBuf {
    out.join("data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_chosen_by_name_and_kept_in_order() {
        let known: &[&str] = &["2", "9", "headline"];
        assert_eq!(choose(known, &[]).expect("all"), known);
        assert_eq!(choose(known, &["headline".into(), "2".into()]).expect("two"), ["2", "headline"]);
        let error = choose(known, &["7".into()]).expect_err("no such figure").to_string();
        assert!(error.contains("`7`") && error.contains("2, 9, headline"), "{error}");
    }
}
