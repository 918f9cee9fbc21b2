//! Samples: a file with every sample, and the summary of each cell.
//!
//! A line is appended as soon as its job has ended, so that a stopped run can continue at that point.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::work::Metric;

/// One figure of one store in one round, or the failure that stands in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) round: usize,
    pub(crate) row: String,
    /// The name of a store, or [`DEVICE`].
    pub(crate) store: String,
    /// Name of the metric; empty where the job failed.
    pub(crate) metric: String,
    pub(crate) value: Option<f64>,
    /// The reason why there is no figure.
    pub(crate) failure: String,
    /// The reason why a wanted limit of memory is missing.
    pub(crate) unlimited: String,
}

/// Stands for the device itself, in place of a store's name.
pub(crate) const DEVICE: &str = "device";

/// The file of samples.
pub(crate) struct Samples {
    path: PathBuf,
    all: Vec<Sample>,
}

impl Samples {
    /// The samples of an earlier part of the run, or none.
    pub(crate) fn open(path: &Path, goes_on: bool) -> Result<Self> {
        let mut samples = Self { path: path.to_owned(), all: Vec::new() };
        if goes_on && path.exists() {
            samples.all = read(path)?;
        } else {
            File::create(path).map_err(Error::io("creating", path))?;
        }
        Ok(samples)
    }

    /// Whether a job has already ended.
    pub(crate) fn has(&self, round: usize, row: &str, store: &str) -> bool {
        self.all.iter().any(|sample| sample.round == round && sample.row == row && sample.store == store)
    }

    /// Adds the samples of a job.
    pub(crate) fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        let file = OpenOptions::new().append(true).open(&self.path).map_err(Error::io("opening", &self.path))?;
        let mut writer = csv::WriterBuilder::new().has_headers(self.all.is_empty()).from_writer(file);
        for sample in &samples {
            writer.serialize(sample).map_err(|error| Error::io("writing", &self.path)(error.into()))?;
        }
        writer.flush().map_err(Error::io("writing", &self.path))?;
        self.all.extend(samples);
        Ok(())
    }
}

/// The samples of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<Sample>> {
    let failed = |error: csv::Error| Error::io("reading", path)(error.into());
    let mut reader = csv::Reader::from_path(path).map_err(failed)?;
    reader.deserialize().collect::<std::result::Result<_, _>>().map_err(failed)
}

/// The summary of a cell's samples.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// Nothing was measured.
    Empty,
    /// At least one round has a figure; the failures of other rounds are listed too.
    Figures { median: f64, least: f64, most: f64, rounds: usize, failure: Option<String> },
    /// Every round failed.
    Failed(String),
}

impl Cell {
    /// The samples of one store and metric in a row.
    pub(crate) fn of(samples: &[Sample], row: &str, store: &str, metric: Metric) -> Self {
        let own = || samples.iter().filter(|sample| sample.row == row && sample.store == store);
        let values: Vec<f64> =
            own().filter(|sample| sample.metric == metric.name()).filter_map(|sample| sample.value).collect();
        let failure = own().find(|sample| !sample.failure.is_empty()).map(|sample| sample.failure.clone());
        let Some(median) = bench::limits::median(&values) else {
            return failure.map_or(Self::Empty, Self::Failed);
        };
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self::Figures { median, least, most, rounds: values.len(), failure }
    }

    /// The median, where there is one.
    pub(crate) const fn median(&self) -> Option<f64> {
        match self {
            Self::Figures { median, .. } => Some(*median),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(round: usize, metric: &str, value: Option<f64>, failure: &str) -> Sample {
        Sample {
            round,
            row: "scan-100".into(),
            store: "redb".into(),
            metric: metric.into(),
            value,
            failure: failure.into(),
            unlimited: String::new(),
        }
    }

    #[test]
    fn a_cell_is_the_median_with_the_range_of_its_rounds() {
        let mut samples: Vec<Sample> = [9.0, 1.0, 2.0].map(|value| sample(0, "per_second", Some(value), "")).to_vec();
        samples.push(sample(0, "peak_memory_bytes", Some(7.0), ""));
        let cell = |samples: &[Sample]| Cell::of(samples, "scan-100", "redb", Metric::PerSecond);
        let expected = |failure| Cell::Figures { median: 2.0, least: 1.0, most: 9.0, rounds: 3, failure };
        assert_eq!(cell(&samples), expected(None));
        samples.push(sample(3, "", None, "killed"));
        assert_eq!(cell(&samples), expected(Some("killed".into())));
        assert_eq!(cell(&samples[4..]), Cell::Failed("killed".into()));
        assert_eq!(cell(&[]), Cell::Empty);
    }

    #[test]
    fn samples_are_kept_as_they_come() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("samples.csv");
        let (first, second) = (sample(0, "per_second", Some(0.5), ""), sample(1, "", None, "a, \"b\"\nc"));
        let mut samples = Samples::open(&path, true).expect("none yet");
        samples.add(vec![first.clone()]).expect("added");
        samples.add(vec![second.clone()]).expect("added");
        let mut samples = Samples::open(&path, true).expect("read");
        assert_eq!(samples.all, [first, second.clone()]);
        assert!(samples.has(1, "scan-100", "redb") && !samples.has(2, "scan-100", "redb"));
        samples.add(vec![second]).expect("added");
        assert_eq!(read(&path).expect("read").len(), 3);
        assert!(Samples::open(&path, false).expect("anew").all.is_empty());
    }
}
