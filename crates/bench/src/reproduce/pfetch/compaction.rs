//! One manual compaction, and the readers under comparison.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use braid::{CompactOptions, CompactionTimes};
use psync::{BLOCK, BackendKind, File, probe::random_reads_per_second};

use super::scale::{BATCH, Scale, VALUE_BYTES};
use super::store::{Stock, open};
use crate::reproduce::figure::paired_ratio;
use crate::reproduce::lab::{Lab, Turn};
use crate::{Error, Result};

/// Bytes that the read of one document takes past the page cache, in whole blocks.
const READ_BYTES: usize = (VALUE_BYTES + DOCUMENT_HEADER_BYTES).next_multiple_of(BLOCK);
/// Bytes of a document before its value.
const DOCUMENT_HEADER_BYTES: usize = 24;

/// The reader of a compaction's documents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) name: &'static str,
    pub(super) backend: BackendKind,
    pub(super) batch: usize,
    /// Whether documents are read while others are written.
    pub(super) overlapped: bool,
}

pub(super) const SYNC: Reader = Reader { name: "sync", backend: BackendKind::Sync, batch: 1, overlapped: false };
pub(super) const LIBAIO: Reader =
    Reader { name: "p-fetch, libaio", backend: BackendKind::Libaio, batch: BATCH, overlapped: false };
pub(super) const IO_URING: Reader =
    Reader { name: "p-fetch, io_uring", backend: BackendKind::IoUring, batch: BATCH, overlapped: false };
pub(super) const OVERLAPPED: Reader =
    Reader { name: "io_uring, overlapped", backend: BackendKind::IoUring, batch: BATCH, overlapped: true };

/// The paper's three readers, and the product's own.
pub(super) const READERS: [Reader; 4] = [SYNC, LIBAIO, IO_URING, OVERLAPPED];

/// The mode in which files are opened, and the order in which documents are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    pub(super) direct: bool,
    pub(super) sorted: bool,
}

/// Measurements of one compaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    pub(super) documents: u64,
    pub(super) times: CompactionTimes,
}

impl Sample {
    pub(super) fn read_seconds(&self) -> f64 {
        self.times.read.as_secs_f64()
    }

    /// Documents per second of the read phase.
    pub(super) fn read_rate(&self) -> f64 {
        self.documents as f64 / self.read_seconds()
    }

    /// The time outside the phases, plus the time of the product's work besides moving documents.
    pub(super) fn other(&self) -> Duration {
        self.times.other + self.times.pack
    }
}

/// The compaction options of a reader and a mode.
pub(super) fn compact_options(reader: &Reader, mode: Mode) -> CompactOptions {
    CompactOptions::new()
        .submission_batch(reader.batch)
        .sorted(mode.sorted)
        .direct(mode.direct)
        .overlapped(reader.overlapped)
}

/// Compacts a copy.
///
/// # Errors
/// When the database fails, or lost some of its contents; [`Error::Interrupted`].
pub(super) fn compact(
    lab: &Lab<'_>, scale: &Scale, stock: &Stock, reader: &Reader, mode: Mode, turn: Turn,
) -> Result<Sample> {
    let copy = stock.copy(lab)?;
    let (database, table) = open(scale.options().backend(reader.backend), copy.path())?;
    let begun = Instant::now();
    let go_on = &mut |_| if lab.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let done = table.compact_with(&compact_options(reader, mode), go_on)?;
    let seconds = begun.elapsed().as_secs_f64();
    lab.go_on()?;
    if done.documents != stock.pairs() || done.damaged_documents > 0 {
        let what = format!("a compaction moved {} of {} documents", done.documents, stock.pairs());
        return Err(Error::Invalid(what));
    }
    stock.check_some(&table, turn.seed)?;
    drop(table);
    database.close()?;
    let path = copy.path().to_owned();
    copy.close().map_err(Error::io("removing", path))?;
    Ok(Sample { seconds, documents: done.documents, times: done.times })
}

/// The measurements of all readers with one data set, and those of the device among them.
pub(super) struct Cell {
    /// The runs, in the order of the readers.
    pub(super) runs: Vec<Vec<Sample>>,
    /// Random reads of a document's bytes per second, one after the other.
    pub(super) alone: Vec<f64>,
    /// Random reads of a document's bytes per second, with a submission batch in flight.
    pub(super) batched: Vec<f64>,
}

impl Cell {
    pub(super) fn samples(&self, reader: usize, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.runs[reader].iter().map(of).collect()
    }

    /// The time of one reader divided by the time of another: the median over pairs of runs.
    pub(super) fn ratio(&self, over: usize, under: usize, of: impl Fn(&Sample) -> f64 + Copy) -> f64 {
        paired_ratio(&self.samples(over, of), &self.samples(under, of))
    }

    /// The rate of a reader's documents as a share of the device's random reads: the median.
    pub(super) fn share(&self, reader: usize) -> f64 {
        paired_ratio(&self.samples(reader, Sample::read_rate), &self.batched)
    }

    /// The device's read rate with a batch in flight, divided by that with one read at a time.
    pub(super) fn depth_ratio(&self) -> f64 {
        paired_ratio(&self.batched, &self.alone)
    }
}

/// The measurement of one turn.
enum Taken {
    Run(Sample),
    Device(f64),
}

/// The file for measurements of the device, opened past the page cache.
pub(super) fn device_file(lab: &mut Lab<'_>) -> Result<File> {
    let path = lab.file()?;
    Ok(lab.psync().open(&path, &psync::OpenOptions { direct: true, ..psync::OpenOptions::default() })?)
}

/// Measures every reader in turns, and the device among them.
pub(super) fn contest(
    lab: &mut Lab<'_>, scale: &Scale, stock: &Stock, readers: &[Reader], mode: Mode, what: &str,
) -> Result<Cell> {
    let file = device_file(lab)?;
    let depths = [1, BATCH];
    let taken = lab.interleave(what, readers.len() + depths.len(), |lab, turn| {
        if let Some(reader) = readers.get(turn.contestant) {
            return compact(lab, scale, stock, reader, mode, turn).map(Taken::Run);
        }
        let depth = depths[turn.contestant - readers.len()];
        let psync = lab.psync().clone().with_pio_max(depth);
        Ok(Taken::Device(random_reads_per_second(&psync, &file, READ_BYTES, depth, lab.slice())?))
    })?;
    let mut cell = Cell { runs: Vec::new(), alone: Vec::new(), batched: Vec::new() };
    for (contestant, taken) in taken.into_iter().enumerate() {
        let (mut runs, mut rates) = (Vec::new(), Vec::new());
        for taken in taken {
            match taken {
                Taken::Run(sample) => runs.push(sample),
                Taken::Device(rate) => rates.push(rate),
            }
        }
        match contestant.checked_sub(readers.len()) {
            None => cell.runs.push(runs),
            Some(0) => cell.alone = rates,
            Some(_) => cell.batched = rates,
        }
    }
    Ok(cell)
}
