//! The place of measurement: a directory on the device, interleaved repeats, the device's limits, and a way to stop.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use psync::probe::{DeviceProfile, Limits, LimitsOptions, limits, profile, read_costs};
use psync::{Buffer, OpenOptions, Psync, Request};
use serde::Serialize;
use tempfile::TempDir;

use crate::Watch;
use crate::keys::{mix, stream};
use crate::limits::median;
use crate::{Error, Result};

/// Bytes of one write while a file is filled.
const CHUNK_BYTES: usize = 1 << 20;
/// Writes in flight while a file is filled.
const CHUNKS: usize = 8;
/// Depths at which the device's random reads are measured for every figure.
const DEPTHS: [usize; 4] = [1, 32, 64, 128];
/// Progress steps of one figure.
const STEPS: u64 = 1000;

/// One sample to be taken.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The contestant to sample.
    pub contestant: usize,
    /// The seed of the sample's random numbers: the same for all contestants of a repeat, another one in each repeat.
    pub seed: u64,
}

/// The limits of the device alone, measured beside a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Random reads of 4 KiB per second, by requests in flight: 1, 32, 64, 128.
    pub reads_per_second: Vec<(usize, f64)>,
    /// Bytes per second of sequential 1 MiB writes.
    pub sequential_write_bytes_per_second: Option<f64>,
    /// Writes of 4 KiB per second, each with its own fdatasync.
    pub flushed_writes_per_second: Option<f64>,
    /// Whether reads bypassed the page cache.
    pub direct: bool,
}

impl Device {
    /// Random reads of 4 KiB per second with so many in flight.
    #[must_use]
    pub fn reads_at(&self, depth: usize) -> f64 {
        self.reads_per_second.iter().find(|(known, _)| *known == depth).map_or(f64::NAN, |(_, rate)| *rate)
    }

    /// The device's bound on a comparison, as the text of a cell.
    #[must_use]
    pub fn text(&self) -> String {
        let at = |depth| format!("{:.1}K/s", self.reads_at(depth) / 1e3);
        format!("{} alone, {} at depth 32: {:.1}x", at(1), at(32), self.depth_ratio())
    }

    /// The device's read rate with 32 requests in flight, divided by that with one: the gain that batching alone can
    /// bring.
    #[must_use]
    pub fn depth_ratio(&self) -> f64 {
        self.reads_at(32) / self.reads_at(1)
    }
}

/// A place to measure in. Its files are removed when the lab is dropped.
pub struct Lab<'a> {
    watch: &'a Watch<'a>,
    psync: Psync,
    directory: TempDir,
    repeats: usize,
    slice: Duration,
    file_bytes: u64,
    file: Option<PathBuf>,
    rooms: u64,
    figures: u64,
    figure: u64,
    groups: u64,
    group: u64,
    seed: u64,
}

/// The method of measurement.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Samples of each cell.
    pub repeats: usize,
    /// Duration of a sample of the device.
    pub slice: Duration,
    /// Bytes of the file on which the device is measured.
    pub file_bytes: u64,
    /// Figures to be measured, for the progress.
    pub figures: u64,
}

impl<'a> Lab<'a> {
    /// Opens a lab in a new directory below `parent`, which needs `needed_bytes` free.
    ///
    /// # Errors
    /// When there is less space, or the directory cannot be made.
    pub fn open(psync: Psync, parent: &Path, needed_bytes: u64, method: Method, watch: &'a Watch<'a>) -> Result<Self> {
        fs::create_dir_all(parent).map_err(Error::io("creating", parent))?;
        let space = rustix::fs::statvfs(parent).map_err(|errno| Error::io("looking at", parent)(errno.into()))?;
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        if free_bytes < needed_bytes {
            let what = format!(
                "the data takes up to {} MiB and {} has {} MiB free: choose another --dir, or --quick",
                needed_bytes >> 20,
                parent.display(),
                free_bytes >> 20
            );
            return Err(Error::Invalid(what));
        }
        let directory =
            tempfile::Builder::new().prefix("reproduce-").tempdir_in(parent).map_err(Error::io("creating", parent))?;
        let Method { repeats, slice, file_bytes, figures } = method;
        Ok(Self {
            watch,
            psync,
            directory,
            repeats,
            slice,
            file_bytes,
            file: None,
            rooms: 0,
            figures,
            figure: 0,
            groups: 1,
            group: 0,
            seed: 0,
        })
    }

    /// The engine for the lab's I/O.
    #[must_use]
    pub fn psync(&self) -> &Psync {
        &self.psync
    }

    /// The lab's data directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Samples of each cell.
    #[must_use]
    pub const fn repeats(&self) -> usize {
        self.repeats
    }

    /// Duration of a sample of the device.
    #[must_use]
    pub const fn slice(&self) -> Duration {
        self.slice
    }

    /// A new, empty directory.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn room(&mut self) -> Result<PathBuf> {
        self.rooms += 1;
        let path = self.path().join(self.rooms.to_string());
        fs::create_dir(&path).map_err(Error::io("creating", &path))?;
        Ok(path)
    }

    /// Starts a figure in the progress.
    pub fn begin_figure(&mut self, number: u64) {
        (self.figure, self.groups, self.group) = (number, 1, 0);
        self.tell();
    }

    /// Announces the number of groups of contestants of the figure.
    pub fn expect_groups(&mut self, groups: usize) {
        self.groups = groups.max(1) as u64;
        self.tell();
    }

    fn tell(&self) {
        let done = self.figure * STEPS + STEPS * self.group.min(self.groups) / self.groups;
        (self.watch.progress)(done, Some(self.figures * STEPS));
    }

    /// Announces the current phase.
    pub fn phase(&self, what: &str) {
        (self.watch.phase)(what);
    }

    /// Whether a stop has been requested.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.watch.stop.load(Ordering::Relaxed)
    }

    /// A watch for the client threads of a sample. They stop with the lab and report no progress.
    #[must_use]
    pub fn watch(&self) -> Watch<'_> {
        Watch { stop: self.watch.stop, progress: &|_, _| {}, phase: &|_| {} }
    }

    /// Continues, unless a stop has been requested.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn go_on(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Takes one sample of each contestant, then the next of each, and so on. The order rotates from repeat to repeat,
    /// so that interference on the machine hits all contestants alike. Returns each contestant's samples.
    ///
    /// # Errors
    /// The errors of `sample`; [`Error::Interrupted`].
    pub fn interleave<T>(
        &mut self, what: &str, contestants: usize, mut sample: impl FnMut(&Self, Turn) -> Result<T>,
    ) -> Result<Vec<Vec<T>>> {
        let mut samples: Vec<Vec<T>> = (0..contestants).map(|_| Vec::with_capacity(self.repeats)).collect();
        for repeat in 0..self.repeats {
            self.phase(&format!("{what}, repeat {} of {}", repeat + 1, self.repeats));
            self.seed += 1;
            for turn in 0..contestants {
                self.go_on()?;
                let contestant = (turn + repeat) % contestants;
                let taken = sample(self, Turn { contestant, seed: self.seed })?;
                self.go_on()?;
                samples[contestant].push(taken);
            }
        }
        self.group += 1;
        self.tell();
        Ok(samples)
    }

    /// The terms of the cost model, measured now. Reads are measured on the lab's own file, which is as large as the
    /// data to be read, because a device, or a layer below it, may answer recently written data from memory.
    ///
    /// # Errors
    /// When the device fails.
    pub fn profile(&mut self) -> Result<DeviceProfile> {
        let path = self.file()?;
        self.phase("profiling the device");
        let mut known = profile(&self.psync, self.path())?;
        let file = self.psync.open(&path, &OpenOptions { direct: true, ..OpenOptions::default() })?;
        known.reads = read_costs(&self.psync, &file, known.best_depth, self.slice, || self.go_on())?;
        if let Some(page) = known.reads.first() {
            (known.read_us, known.batched_read_us) = (page.alone_us, page.batched_us);
        }
        Ok(known)
    }

    /// The device's limits, measured now: medians of as many samples as a cell has.
    ///
    /// # Errors
    /// When the device fails; [`Error::Interrupted`].
    pub fn device(&mut self) -> Result<Device> {
        let path = self.file()?;
        self.phase("the device's limits");
        let options = LimitsOptions { depths: DEPTHS.to_vec(), time: self.slice, ..LimitsOptions::default() };
        let psync = self.psync.clone().with_pio_max(DEPTHS[DEPTHS.len() - 1]);
        let mut samples = Vec::with_capacity(self.repeats);
        for _ in 0..self.repeats {
            self.go_on()?;
            samples.push(limits(&psync, &path, &options)?);
        }
        let middle = |of: &dyn Fn(&Limits) -> Option<f64>| median(&samples.iter().filter_map(of).collect::<Vec<f64>>());
        let reads = |place: usize| middle(&|limits| Some(limits.random_reads.get(place)?.per_second));
        Ok(Device {
            reads_per_second: (0..).zip(DEPTHS).filter_map(|(place, depth)| Some((depth, reads(place)?))).collect(),
            sequential_write_bytes_per_second: middle(&|limits| limits.sequential_write_bytes_per_second),
            flushed_writes_per_second: middle(&|limits| limits.flushed_writes_per_second),
            direct: samples.iter().all(|limits| limits.direct),
        })
    }

    /// A file of random bytes to measure the device on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn file(&mut self) -> Result<PathBuf> {
        if let Some(path) = &self.file {
            return Ok(path.clone());
        }
        let path = self.path().join("file");
        self.fill(&path, self.file_bytes)?;
        self.file = Some(path.clone());
        Ok(path)
    }

    /// Writes a file of random bytes in full, so that no block is measured before its first write.
    ///
    /// # Errors
    /// When the file cannot be written; [`Error::Interrupted`].
    pub fn fill(&self, path: &Path, bytes: u64) -> Result<()> {
        self.phase("writing a file to measure on");
        let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
        let file = self.psync.open(path, &options)?;
        let mut stream_of_writes = self.psync.stream(CHUNKS);
        let (mut begun, mut buffers) = (0, Vec::new());
        for seed in 0..CHUNKS as u64 {
            let mut buffer = Buffer::zeroed(CHUNK_BYTES);
            stream(mix(seed), &mut buffer);
            buffers.push(buffer);
        }
        while begun < bytes {
            self.go_on()?;
            let mut buffer = match buffers.pop() {
                Some(buffer) => buffer,
                None => {
                    let completion = stream_of_writes.next().expect("all buffers are in flight");
                    completion.result?;
                    completion.buffer.expect("a write hands its buffer back")
                }
            };
            if bytes - begun < buffer.len() as u64 {
                buffer.truncate(usize::try_from(bytes - begun).expect("less than a chunk"));
            }
            let length = buffer.len() as u64;
            stream_of_writes.push(Request::write(&file, begun, buffer, 0));
            begun += length;
        }
        for completion in stream_of_writes {
            completion.result?;
        }
        self.psync.run_all(vec![Request::flush(&file, 0)])?;
        Ok(())
    }

    /// Repeats `step` for `time`, or until a stop is requested. Returns the sum of the step results and the elapsed
    /// time.
    ///
    /// # Errors
    /// The errors of `step`.
    pub fn repeat_for(&self, time: Duration, mut step: impl FnMut() -> Result<u64>) -> Result<(u64, Duration)> {
        let begun = Instant::now();
        let mut done = 0;
        loop {
            done += step()?;
            let elapsed = begun.elapsed();
            if elapsed >= time || self.is_stopped() {
                return Ok((done, elapsed));
            }
        }
    }
}
