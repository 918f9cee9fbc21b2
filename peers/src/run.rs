//! A run: rounds of rows of stores, in turns.
//!
//! 1. In each round and each row every store has its turn. Each round begins with another store, so that disturbances
//!    of the machine hit all stores. A row's device limit, if any, is measured before each store.
//! 2. A database is filled once a round, by its own `fill-random` or `1kib-fill`, and read by the later rows; those
//!    that change the database come last. Its pages are dropped from the operating system's cache before each row.
//! 3. Each sample is written down as soon as it exists ([`crate::sample`]); a failure takes the place of a figure.
//!
//! Left to others: the work of a row ([`crate::work`]), its process ([`crate::child`]), and the report
//! ([`crate::report`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bench::process::evict_page_cache;
use serde::{Deserialize, Serialize};

use crate::child::{self, Outcome};
use crate::data::KEY_BYTES;
use crate::drive::Pace;
use crate::error::{Error, Result};
use crate::job::Task;
use crate::sample::{DEVICE, Sample, Samples};
use crate::store::{CONTESTANTS, Contestant, contestant};
use crate::work::{self, Figure, Metric, Set, Work};

/// The longest time of a job.
const TIME_OUT: Duration = Duration::from_secs(900);
/// Divisor of a sample's time that gives the time of measuring a device limit.
const DEVICE_PART: u32 = 8;
/// Bytes of a reading process besides its cache and its write buffer.
const PROCESS_BYTES: u64 = 32 << 20;
/// Least time of measuring a device limit, or all of a sample's time where that is shorter.
const DEVICE_TIME: Duration = Duration::from_millis(250);
/// Least bytes of the file on which the device is measured.
const DEVICE_BYTES_MIN: u64 = 64 << 20;

/// Sizes of a run. Samples are comparable only with equal sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sizes {
    /// Records with small values.
    pub(crate) records: u64,
    pub(crate) rounds: usize,
    pub(crate) cache_bytes: u64,
    pub(crate) write_buffer_bytes: u64,
    /// Memory of the group of a reading process.
    pub(crate) limit_bytes: u64,
    pub(crate) pace: Pace,
}

impl Sizes {
    /// Records of the whole measurement.
    pub(crate) const RECORDS: u64 = 3_000_000;

    /// Sizes for so many records. Cache and write buffer are in proportion to the records; the other memory of a
    /// process is not.
    pub(crate) fn of(records: u64, rounds: usize, pace: Pace) -> Self {
        let part = |bytes: u64, least: u64| {
            let part = u128::from(bytes) * u128::from(records) / u128::from(Self::RECORDS);
            u64::try_from(part).unwrap_or(u64::MAX).max(least)
        };
        let (cache_bytes, write_buffer_bytes) = (part(32 << 20, 4 << 20), part(64 << 20, 8 << 20));
        let limit_bytes = cache_bytes + write_buffer_bytes + PROCESS_BYTES;
        Self { records, rounds, cache_bytes, write_buffer_bytes, limit_bytes, pace }
    }

    /// Bytes of keys and values of a set.
    pub(crate) const fn user_bytes(&self, set: Set) -> u64 {
        set.records(self.records) * (KEY_BYTES + set.value_bytes()) as u64
    }

    fn path(out: &Path) -> PathBuf {
        out.join("sizes.json")
    }

    /// The sizes of the run whose results are in a directory.
    pub(crate) fn read(out: &Path) -> Result<Self> {
        let path = Self::path(out);
        let text = fs::read(&path).map_err(Error::io("reading", &path))?;
        serde_json::from_slice(&text).map_err(|error| Error::io("reading", &path)(error.into()))
    }

    fn write(&self, out: &Path) -> Result<()> {
        let path = Self::path(out);
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::io("writing", &path)(error.into()))?;
        fs::write(&path, text).map_err(Error::io("writing", &path))
    }
}

/// The rows and stores to measure, and the directories.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) sizes: Sizes,
    /// Names of rows, or prefixes of names; all rows if empty.
    pub(crate) rows: Vec<String>,
    /// Names of stores; all if empty.
    pub(crate) stores: Vec<String>,
    pub(crate) out: PathBuf,
    pub(crate) data: PathBuf,
    /// Continues with existing samples.
    pub(crate) resume: bool,
    /// Takes the databases that an earlier run kept.
    pub(crate) reuse: bool,
    /// Leaves the databases in place.
    pub(crate) keep: bool,
    /// Begins nothing new after this time.
    pub(crate) stop_after: Option<Duration>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    /// The time was over before all was measured.
    Stopped,
}

/// Measures, and writes the samples down.
pub(crate) fn run(options: &Options) -> Result<Ending> {
    let begun = Instant::now();
    let (rows, stores) = (chosen_rows(&options.rows)?, chosen_stores(&options.stores)?);
    fs::create_dir_all(&options.out).map_err(Error::io("creating", &options.out))?;
    fs::create_dir_all(&options.data).map_err(Error::io("creating", &options.data))?;
    if options.resume && Sizes::path(&options.out).exists() && Sizes::read(&options.out)? != options.sizes {
        let what = format!("the samples in {} are of other sizes: go on with those", options.out.display());
        return Err(Error::Invalid(what));
    }
    options.sizes.write(&options.out)?;
    let samples = Samples::open(&options.out.join("samples.csv"), options.resume)?;
    let mut run = Run { options, samples, device_file: options.data.join("device") };
    let is_over = || options.stop_after.is_some_and(|time| begun.elapsed() >= time);
    for round in 0..options.sizes.rounds {
        for work in &rows {
            for turn in 0..stores.len() {
                if is_over() {
                    return Ok(Ending::Stopped);
                }
                run.turn(round, *work, stores[(turn + round) % stores.len()])?;
            }
        }
    }
    if !options.keep {
        work::clear(&options.data)?;
    }
    Ok(Ending::Complete)
}

fn chosen_rows(names: &[String]) -> Result<Vec<Work>> {
    let is_meant = |row: &str, name: &String| {
        row.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let all = Work::all();
    if let Some(name) = names.iter().find(|name| !all.iter().any(|work| is_meant(&work.name(), name))) {
        let known: Vec<String> = all.iter().map(|work| work.name()).collect();
        return Err(Error::Invalid(format!("no row is, or begins with, `{name}`: {}", known.join(", "))));
    }
    let chosen = |work: &Work| names.is_empty() || names.iter().any(|name| is_meant(&work.name(), name));
    Ok(all.into_iter().filter(chosen).collect())
}

fn chosen_stores(names: &[String]) -> Result<Vec<&'static Contestant>> {
    if names.is_empty() {
        return Ok(CONTESTANTS.iter().collect());
    }
    names.iter().map(|name| contestant(name)).collect()
}

struct Run<'a> {
    options: &'a Options,
    samples: Samples,
    device_file: PathBuf,
}

impl Run<'_> {
    /// One store's turn in a row.
    fn turn(&mut self, round: usize, work: Work, store: &Contestant) -> Result<()> {
        if self.samples.has(round, &work.name(), store.name) {
            return Ok(());
        }
        if work.makes() {
            return self.fill_or_make(round, work, store);
        }
        if let Some(set) = work.database()
            && !self.is_there(round, store, set)
        {
            let fill = Work::Fill { set, sorted: false };
            self.fill_or_make(round, fill, store)?;
            if !self.is_there(round, store, set) {
                let failure = format!("there is no database: {} failed", fill.name());
                return self.note(round, &work.name(), store.name, Outcome::Failed(failure), None);
            }
        }
        self.device(round, work)?;
        let directory = self.directory(store, work);
        evict_page_cache(&directory)?;
        let limit = work.is_limited().then_some(self.options.sizes.limit_bytes);
        let (outcome, without) = child::run(self.task(round, work, store, directory), limit, TIME_OUT);
        self.note(round, &work.name(), store.name, outcome, without)
    }

    /// Work in an empty directory; the database of a fill in random order stays.
    fn fill_or_make(&mut self, round: usize, work: Work, store: &Contestant) -> Result<()> {
        self.device(round, work)?;
        let directory = self.directory(store, work);
        let stays = work.database();
        if let Some(set) = stays {
            self.forget(store, set)?;
        }
        let (outcome, without) = child::run(self.task(round, work, store, directory.clone()), None, TIME_OUT);
        match (stays, &outcome) {
            (Some(set), Outcome::Figures(_)) => self.mark(round, store, set)?,
            _ => work::clear(&directory)?,
        }
        if self.samples.has(round, &work.name(), store.name) {
            // The row was measured in an earlier part of this run, whose database is gone.
            return Ok(());
        }
        self.note(round, &work.name(), store.name, outcome, without)
    }

    fn task(&self, round: usize, work: Work, store: &Contestant, directory: PathBuf) -> Task {
        let sizes = &self.options.sizes;
        Task::Row {
            row: work.name(),
            store: store.name.into(),
            directory,
            cache_bytes: sizes.cache_bytes,
            write_buffer_bytes: sizes.write_buffer_bytes,
            records: sizes.records,
            pace: sizes.pace,
            seed: round as u64,
        }
    }

    /// The device's limit beside a row.
    fn device(&mut self, round: usize, work: Work) -> Result<()> {
        let Some(limit) = work.device() else { return Ok(()) };
        let sizes = &self.options.sizes;
        work::prepare_device(&self.device_file, sizes.user_bytes(Set::Small).max(DEVICE_BYTES_MIN))?;
        let time = (sizes.pace.time / DEVICE_PART).max(sizes.pace.time.min(DEVICE_TIME));
        let task = Task::Device { file: self.device_file.clone(), limit, time };
        let (outcome, without) = child::run(task, None, TIME_OUT);
        self.note(round, &work.name(), DEVICE, outcome, without)
    }

    fn note(&mut self, round: usize, row: &str, store: &str, outcome: Outcome, without: Option<String>) -> Result<()> {
        let sample = |metric: &str, value: Option<f64>, failure: String| Sample {
            round,
            row: row.into(),
            store: store.into(),
            metric: metric.into(),
            value,
            failure,
            unlimited: without.clone().unwrap_or_default(),
        };
        let of_figure = |figure: &Figure| sample(figure.metric.name(), Some(figure.value), String::new());
        let (samples, text) = match outcome {
            Outcome::Figures(figures) => {
                let rate = figures.iter().find(|figure| figure.metric == Metric::PerSecond);
                let text = rate.map_or_else(String::new, |rate| format!("{:.0}/s", rate.value));
                (figures.iter().map(of_figure).collect(), text)
            }
            Outcome::Failed(failure) => (vec![sample("", None, failure.clone())], format!("FAILED: {failure}")),
        };
        if store != DEVICE {
            eprintln!("round {} of {}  {row:<18} {store:<8} {text}", round + 1, self.options.sizes.rounds);
        }
        self.samples.add(samples)
    }

    /// Directory of a database. Rows that leave no database share one directory.
    fn directory(&self, store: &Contestant, work: Work) -> PathBuf {
        let name = work.database().map_or("other", Set::directory);
        self.options.data.join(store.name).join(name)
    }

    /// The file that marks a database as whole, and names its round.
    fn mark_path(&self, store: &Contestant, set: Set) -> PathBuf {
        self.options.data.join(store.name).join(format!("{}.ready", set.directory()))
    }

    fn mark_text(&self, round: usize) -> String {
        let sizes = &self.options.sizes;
        format!("{} records with {} bytes of cache, round {round}", sizes.records, sizes.cache_bytes)
    }

    fn mark(&self, round: usize, store: &Contestant, set: Set) -> Result<()> {
        let path = self.mark_path(store, set);
        fs::write(&path, self.mark_text(round)).map_err(Error::io("writing", &path))
    }

    fn forget(&self, store: &Contestant, set: Set) -> Result<()> {
        let path = self.mark_path(store, set);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("removing", &path)(error)),
            _ => Ok(()),
        }
    }

    fn is_there(&self, round: usize, store: &Contestant, set: Set) -> bool {
        let Ok(text) = fs::read_to_string(self.mark_path(store, set)) else { return false };
        let of_any_round = |text: &str| text.rsplit_once(' ').map(|(all, _)| all.to_owned());
        let wanted = self.mark_text(round);
        text == wanted || self.options.reuse && of_any_round(&text) == of_any_round(&wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_or_its_beginning() {
        let names = |of: &[&str]| {
            let of: Vec<String> = of.iter().map(|name| (*name).to_owned()).collect();
            chosen_rows(&of).map(|rows| rows.iter().map(|row| row.name()).collect::<Vec<_>>())
        };
        assert_eq!(
            names(&["scan", "cold-get-1"]).expect("known"),
            ["cold-get-1", "scan-100", "scan-10000", "scan-1000000"]
        );
        assert_eq!(names(&[]).expect("all").len(), Work::all().len());
        assert!(names(&["cold-ge"]).is_err());
        assert!(chosen_stores(&["oracle".into()]).is_err());
    }

    #[test]
    fn memory_is_in_proportion_to_the_records() {
        let pace = Pace { warm_up: Duration::ZERO, time: Duration::from_secs(1) };
        let whole = Sizes::of(Sizes::RECORDS, 3, pace);
        assert_eq!((whole.cache_bytes, whole.write_buffer_bytes, whole.limit_bytes), (32 << 20, 64 << 20, 128 << 20));
        assert_eq!(Sizes::of(Sizes::RECORDS * 2, 3, pace).cache_bytes, 64 << 20);
        assert!(whole.user_bytes(Set::Small) > 10 * whole.cache_bytes);
        assert!(Sizes::of(1000, 1, pace).cache_bytes >= 4 << 20);
    }
}
