//! The limits of the device itself, with which the numbers of a store are compared.
//!
//! 1. Reads are measured on the largest file of the database's tables, with a constant number in flight
//!    ([`psync::probe::random_reads_per_second`]), at the I/O size of the workload. No database code is on this path.
//! 2. Writes and flushes are measured on a scratch file in the database's directory ([`psync::probe::limits`]). The
//!    file is first written once in full, because blocks that were never written are slower to write and to flush. The
//!    scratch file has no name and disappears by itself.
//! 3. The backend is the best one of this machine, independent of the workload's backend, because a limit belongs to
//!    the device.
//!
//! Invariants: the file is opened past the page cache where the file system allows that ([`Probe::is_direct`] tells); a
//! measurement has a time, not a count, so a slow device cannot stall a run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use psync::probe::{LimitsOptions, limits, random_reads_per_second};
use psync::{BLOCK, BackendKind, Buffer, File, OpenOptions, Psync, Request};

use crate::{Error, Result};

/// Bytes of one sequential read.
const SEQUENTIAL_BYTES: usize = 1 << 20;
/// Most bytes of random reads in flight: enough for any device, and little beside the memory of a database.
const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;
/// Sequential reads in flight.
const SEQUENTIAL_DEPTH: usize = 8;

/// Measures one device through the files of one database.
pub struct Probe {
    psync: Psync,
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// The write limits of the device.
#[derive(Clone, Copy, Debug)]
pub struct Writes {
    /// Bytes per second of 1 MiB writes, one after another, flushed at the end.
    pub sequential_bytes_per_second: f64,
    /// Writes of 4 KiB in place, each followed by fdatasync, per second: the upper bound for one thread that waits for
    /// each commit.
    pub flushed_per_second: f64,
}

impl Probe {
    /// Opens the largest file of the tables of the database in `database`.
    ///
    /// # Errors
    /// When there is no such file, or the file cannot be opened.
    pub fn open(database: &Path) -> Result<Self> {
        let files = data_files(database)?;
        let (path, _) = files.into_iter().max_by_key(|(_, bytes)| *bytes).ok_or_else(|| {
            let what = format!("there is no data file in {} to measure the device on", database.display());
            Error::Invalid(what)
        })?;
        let psync = Psync::new(None)?;
        let file = psync.open(&path, &OpenOptions { direct: true, ..OpenOptions::default() })?;
        let bytes = file.len()?;
        Ok(Self { psync, path, file, bytes })
    }

    /// The backend of the measurements.
    #[must_use]
    pub fn backend(&self) -> BackendKind {
        self.psync.backend()
    }

    /// Whether reads bypass the page cache. Otherwise the limits are those of memory.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// Random reads of `bytes`, in whole pages, per second, with `depth` in flight, measured for `time`. None when the
    /// file is shorter than one read.
    ///
    /// # Errors
    /// When a read fails.
    pub fn random_reads_per_second(&self, bytes: u64, depth: usize, time: Duration) -> Result<Option<f64>> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
        if bytes.checked_next_multiple_of(BLOCK).is_none_or(|bytes| bytes as u64 > self.bytes) {
            return Ok(None);
        }
        let depth = depth.min(IN_FLIGHT_BYTES_MAX / bytes).max(1);
        let psync = self.psync.clone().with_pio_max(depth);
        Ok(Some(random_reads_per_second(&psync, &self.file, bytes, depth, time)?))
    }

    /// Bytes per second of 1 MiB reads, one after another. None when the file is shorter than one read.
    ///
    /// # Errors
    /// When a read fails.
    pub fn sequential_read_bytes_per_second(&self, time: Duration) -> Result<Option<f64>> {
        let chunks = self.bytes / SEQUENTIAL_BYTES as u64;
        if chunks == 0 {
            return Ok(None);
        }
        let mut stream = self.psync.stream(SEQUENTIAL_DEPTH);
        let mut chunk = (0..chunks).cycle();
        let mut read =
            |buffer| Request::read(&self.file, chunk.next().unwrap_or(0) * SEQUENTIAL_BYTES as u64, buffer, 0);
        let begin = Instant::now();
        for _ in 0..SEQUENTIAL_DEPTH {
            stream.push(read(Buffer::zeroed(SEQUENTIAL_BYTES)));
        }
        let mut done = 0u64;
        while let Some(completion) = stream.next() {
            completion.result?;
            done += SEQUENTIAL_BYTES as u64;
            if begin.elapsed() < time
                && let Some(buffer) = completion.buffer
            {
                stream.push(read(buffer));
            }
        }
        Ok(Some(done as f64 / begin.elapsed().as_secs_f64()))
    }

    /// Sequential writes and flushed writes, each measured for `time`.
    ///
    /// # Errors
    /// When a write or a flush fails, for example because the disk is full.
    pub fn writes(&self, time: Duration) -> Result<Writes> {
        let options = LimitsOptions { depths: Vec::new(), time, writes: true, ..LimitsOptions::default() };
        let limits = limits(&self.psync, &self.path, &options)?;
        let missing = || Error::Invalid("the device's writes were not measured".into());
        Ok(Writes {
            sequential_bytes_per_second: limits.sequential_write_bytes_per_second.ok_or_else(missing)?,
            flushed_per_second: limits.flushed_writes_per_second.ok_or_else(missing)?,
        })
    }
}

/// The files of a database's tables (pages and documents, not the log) with their lengths.
fn data_files(database: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut paths = vec![database.join("data")];
    let documents = database.join("doc");
    match fs::read_dir(&documents) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("listing", documents)(error)),
        Ok(entries) => {
            for entry in entries {
                paths.push(entry.map_err(Error::io("listing", &documents))?.path());
            }
        }
    }
    let with_length = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some((path, metadata.len()))
    };
    Ok(paths.into_iter().filter_map(with_length).collect())
}

/// The median of the measurements, or none without any.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn every_limit_is_measured_and_nothing_is_left_behind() {
        let directory = tempfile::tempdir().expect("temporary directory");
        assert!(matches!(Probe::open(directory.path()), Err(Error::Invalid(_))));
        fs::write(directory.path().join("data"), vec![1; 2 << 20]).expect("data");
        let time = Duration::from_millis(5);
        let probe = Probe::open(directory.path()).expect("opened");
        for depth in [1, 32] {
            assert!(probe.random_reads_per_second(4096, depth, time).expect("read").expect("long enough") > 0.0);
        }
        assert_eq!(probe.random_reads_per_second(4 << 20, 1, time).expect("nothing to read"), None);
        assert_eq!(probe.random_reads_per_second(u64::MAX, 1, time).expect("nothing to read"), None);
        assert!(probe.sequential_read_bytes_per_second(time).expect("read").expect("long enough") > 0.0);
        let writes = probe.writes(time).expect("written");
        assert!(writes.sequential_bytes_per_second > 0.0 && writes.flushed_per_second > 0.0);
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1);
    }

    #[test]
    fn the_largest_file_is_read() {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(directory.path().join("doc")).expect("made");
        fs::write(directory.path().join("data"), vec![1; 4096]).expect("data");
        fs::write(directory.path().join("doc/1.doc"), vec![1; 9000]).expect("document");
        let probe = Probe::open(directory.path()).expect("opened");
        assert_eq!(probe.bytes, 9000);
    }
}
