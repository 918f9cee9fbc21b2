//! Figure 10: size and time of a compaction's reads by the system's readahead, with buffered I/O.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::compaction::{IO_URING, LIBAIO, Mode, Reader, SYNC, compact};
use super::scale::{READAHEADS, Scale};
use super::store::Stock;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, number, times};
use crate::reproduce::lab::Lab;
use crate::{Error, Result};

const NAME: &str = "10";
const READERS: [Reader; 3] = [SYNC, LIBAIO, IO_URING];
const SECTOR_BYTES: f64 = 512.0;
const MODE: Mode = Mode { direct: false, sorted: true };

/// The report's note where the size of reads is missing.
const UNCOUNTED: &str = "The device's reads cannot be counted here, so their size is missing.";

/// A block device, as the system describes it.
struct Block {
    directory: PathBuf,
}

/// The readahead of a device. A changed readahead is restored on drop.
struct Readahead {
    path: PathBuf,
    before: String,
}

impl Block {
    /// The block device below the file system of `path`; none if there is none, or the system describes none.
    fn below(path: &Path) -> Option<Self> {
        let device = fs::metadata(path).ok()?.st_dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let directory = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        Some(Self { directory })
    }

    /// Completed reads, and the sectors that they read.
    fn reads(&self) -> Option<(f64, f64)> {
        let text = fs::read_to_string(self.directory.join("stat")).ok()?;
        let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().ok());
        let (reads, _, sectors) = (fields.next()??, fields.next()??, fields.next()??);
        Some((reads as f64, sectors as f64))
    }

    /// The device's readahead.
    fn readahead(&self) -> Option<Readahead> {
        // A partition has no readahead of its own; the whole device's applies.
        let own = self.directory.join("queue/read_ahead_kb");
        let path = if own.exists() { own } else { self.directory.parent()?.join("queue/read_ahead_kb") };
        let before = fs::read_to_string(&path).ok()?.trim().to_owned();
        Some(Readahead { path, before })
    }
}

impl Readahead {
    /// The readahead in KiB.
    fn kib(&self) -> Option<u64> {
        self.before.parse().ok()
    }

    fn set(&self, kib: &str) -> Result<()> {
        fs::write(&self.path, kib).map_err(Error::io("setting", &self.path))
    }

    /// Whether this user may set the readahead.
    fn can_be_set(&self) -> bool {
        self.set(&self.before).is_ok()
    }
}

impl Drop for Readahead {
    fn drop(&mut self) {
        // An error can be ignored, because a run without other errors has already restored the readahead.
        let _ = self.set(&self.before);
    }
}

pub(super) fn measure(lab: &mut Lab<'_>, scale: &Scale) -> Result<Finding> {
    let set = scale.middle();
    let mut figure = Figure::new(NAME, "Size and time of a compaction's reads by readahead, buffered I/O");
    figure.notes.extend([
        format!("{} pairs, for the paper's {}; offsets sorted, submission batches of 128.", set.pairs, set.name),
        "The size is that of all reads of the device during a run, by its own count.".into(),
    ]);
    let block = Block::below(lab.path());
    let readahead = block.as_ref().and_then(Block::readahead);
    let may_set = scale.sets_readahead && readahead.as_ref().is_some_and(Readahead::can_be_set);
    let steps: Vec<u64> = if may_set {
        READAHEADS.into_iter().step_by(scale.stride).collect()
    } else {
        figure.notes.push("The readahead is what it was, since it cannot be set: one point.".into());
        vec![readahead.as_ref().and_then(Readahead::kib).unwrap_or(0)]
    };
    let stock = Stock::make(lab, scale, &set)?;
    let across = || Axis::logarithmic("readahead, KiB");
    let mut sizes = Panel::new("Average read", Drawing::Lines, across(), Axis::logarithmic("KiB"));
    let mut reads = Panel::new("Reads", Drawing::Lines, across(), Axis::logarithmic("seconds"));
    lab.expect_groups(steps.len());
    for kib in &steps {
        if let Some(readahead) = readahead.as_ref().filter(|_| may_set) {
            readahead.set(&kib.to_string())?;
        }
        let runs = lab.interleave(&format!("figure 10, readahead of {kib} KiB"), READERS.len(), |lab, turn| {
            let count = || block.as_ref().and_then(Block::reads);
            let before = count();
            let sample = compact(lab, scale, &stock, &READERS[turn.contestant], MODE, turn)?;
            let size = before.zip(count()).map(|((reads, sectors), (reads_after, sectors_after))| {
                (sectors_after - sectors) * SECTOR_BYTES / (reads_after - reads).max(1.0) / 1024.0
            });
            Ok((sample, size))
        })?;
        for (reader, samples) in READERS.iter().zip(runs) {
            let seconds = samples.iter().map(|(sample, _)| sample.read_seconds()).collect();
            reads.add(reader.name, Point::of(*kib as f64, seconds));
            if let Some(known) = samples.iter().map(|(_, size)| *size).collect::<Option<Vec<f64>>>() {
                sizes.add(reader.name, Point::of(*kib as f64, known));
            }
        }
    }
    if let Some(readahead) = readahead.as_ref().filter(|_| may_set) {
        readahead.set(&readahead.before)?;
    }
    let (first, last) = (steps[0], steps[steps.len() - 1]);
    let at = |panel: &Panel, reader: &Reader, kib: u64| panel.at(reader.name, kib as f64).unwrap_or(f64::NAN);
    let here = format!(
        "libaio over sync at {last} KiB: reads of {} and {} KiB, sync takes {} as long; at {first} KiB {}",
        number(at(&sizes, &LIBAIO, last)),
        number(at(&sizes, &SYNC, last)),
        times(at(&reads, &SYNC, last) / at(&reads, &LIBAIO, last)),
        times(at(&reads, &SYNC, first) / at(&reads, &LIBAIO, first)),
    );
    if sizes.series.is_empty() {
        figure.notes.push(UNCOUNTED.into());
    } else {
        figure.panels.push(sizes);
    }
    figure.panels.push(reads);
    Ok(Finding { figure, claims: vec![claim(here)] })
}

fn claim(here: String) -> Claim {
    Claim::of_paper(
        NAME,
        "libaio against sync with readahead",
        "reads 3 times as large at 512 KiB, and 2.7x as fast; slower at 4 KiB",
        here,
        "see figures 4-5 and 6-7".into(),
        "4 KiB pairs, buffered, durability `os`, medians",
    )
}
