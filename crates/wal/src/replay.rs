//! Opening an existing log.
//!
//! 1. All segment files are opened and their headers read. Of two files with the same number the one of the later epoch
//!    counts.
//! 2. A first pass follows the chain of groups, and finds its end `p` (`check`). The pass begins with the group whose
//!    first record is at the checkpoint's position, or else with the first group of that segment.
//! 3. The log is known durable up to the largest position that the checkpoint, the chain and whole groups behind `p`
//!    state. If that position is beyond `p`, the bytes at `p` are damaged, and opening fails with file and offset.
//!    Otherwise they are the tail that a crash left.
//! 4. Before a tail is believed, the bytes at `p` are read from the device once more, because a wrong read would cost
//!    the commits behind `p`.
//! 5. A second pass shows the records to the caller, right behind the first as far as they are known durable (`show`).
//!
//! A log whose chain ends with the mark of a close ([`crate::Wal::close`]) in the last epoch has nothing behind that
//! mark, so no statements are looked for.
//!
//! A log that is known to have been closed ([`Options::clean_end`]) is not read, except for the place of its end. A
//! group there from the epoch of that mark, or from a later one, says that the superblock is older than the log, as
//! when its newer slot was lost. The log is then read as any other.
//!
//! An old tail is never believed later, because the opening that drops it writes its own group at `p`, in a larger
//! epoch, and makes that group durable before anything else. No chain passes from that group to a group of a smaller
//! epoch. Until then, the log is as before.
//!
//! Two faults in a row are not noticed: a power cut takes the mark of an opening that was never flushed, and the
//! superblock's slot of that opening rots. What may be behind the mark then was never flushed either.
//!
//! Invariants:
//!
//! - Nothing is written here.
//! - No statement about durability exceeds the position of a dropped group, because only groups beyond all statements
//!   can be dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use seeded::Bug;
use space::{FileDamage, FileStore};

use crate::check::Checker;
use crate::format::{Flaw, GROUP_HEADER, GroupHeader, SegmentHeader};
use crate::geometry::{Geometry, LSN_MAX};
use crate::scan::{Scanner, damage, read_range, window_bytes};
use crate::segment::{DIRECTORY, Found, Live, SegmentFile, discover};
use crate::show::{Replayer, Shower};
use crate::{Error, Lsn, Options, Replayed, Result};

/// The reason why a closed log ends.
pub(crate) const CLOSED: &str = "the log was closed";

/// No log gives out more seqs than its count of bytes.
const SEQ_MAX: u64 = LSN_MAX;

/// An opened log, before it is written.
pub(crate) struct Recovered {
    pub(crate) geometry: Geometry,
    pub(crate) replayed: Replayed,
    /// Whether nothing is behind the end of the log, because the log was closed there.
    pub(crate) is_closed: bool,
    /// The seq to give out next.
    pub(crate) next_seq: u64,
    /// The segments that hold the accepted log, and the earlier ones that are kept.
    pub(crate) live: Live,
    /// Files of the segments that replay read.
    pub(crate) replayed_files: BTreeMap<u64, Arc<SegmentFile>>,
    /// All files.
    pub(crate) found: Vec<Found>,
}

/// Reads the log and shows its groups to the replayer.
pub(crate) fn recover<E: From<Error>>(
    store: &FileStore, options: &Options, replayer: Replayer<'_, E>,
) -> std::result::Result<Recovered, E> {
    let geometry = Geometry::new(options.segment_bytes)?;
    check_options(options)?;
    let found = discover(store, geometry, options)?;
    // Not normalized, because a short record may begin where no group can.
    let start = options.start;
    let first = geometry.number(start);
    let mut files = candidates(&found, first)?;
    let (mut replayed, is_closed, next_seq) = if let Some(end) = clean_end(store, geometry, options, &files)? {
        if !options.read_only {
            Epochs::of_headers(&found).check(store, options)?;
        }
        (closed(store, geometry, end, &files)?, true, options.next_seq)
    } else {
        let mut scanner = Scanner::new(store.psync(), geometry, options.database, &files);
        // Readers of the kept log need the first group of the segment too, so damage there is not passed over.
        let has_first = files.get(&first).is_some_and(|segment| first_seq(&found, segment).is_some());
        let begin = if has_first { scanner.begin(start)? } else { geometry.first(first) };
        let floor = geometry.normal(options.durable_floor.max(start));
        let mut shower = Shower::new(geometry, begin, start, floor, replayer);
        let is_long = files.values().map(|segment| segment.room()).sum::<u64>() > window_bytes(geometry) as u64;
        let with_thread = is_long && !store.psync().is_simulated();
        let checker = Checker::new(scanner, begin, options.last_epoch());
        let (mut scanner, chain, statements) = checker.run(with_thread, &mut |checked| shower.take(checked))?;
        if !options.read_only {
            let mut epochs = Epochs::of_headers(&found);
            [chain.epoch, statements.epoch].into_iter().for_each(|epoch| epochs.see(epoch));
            epochs.check(store, options)?;
        }
        let durable = floor.max(chain.durable).max(statements.durable);
        if chain.lsn < durable {
            let flaw = chain.flaw.unwrap_or_else(|| Flaw::new("group", "a group", "none"));
            return Err(damage(store, &scanner, chain.lsn, flaw).into());
        }
        if let Some(flaw) = scanner.read_again(store, &chain)? {
            return Err(damage(store, &scanner, chain.lsn, flaw).into());
        }
        let (mut replayed, next_seq) = shower.finish(store, &mut scanner, &chain, durable)?;
        let is_closed = chain.is_closed_in(options.last_epoch()) && replayed.end == chain.lsn;
        if is_closed {
            replayed.tail = CLOSED.into();
        }
        (replayed, is_closed, next_seq)
    };
    files.retain(|number, _| *number <= geometry.number(replayed.end));
    let next_seq = next_seq.max(options.next_seq).max(1);
    if next_seq > SEQ_MAX {
        return Err(Error::InvalidOptions(format!("seq {next_seq} is beyond the last of any log")).into());
    }
    replayed.last_seq = next_seq - 1;
    let live = live(&found, &files, geometry, &replayed, options);
    Ok(Recovered { geometry, next_seq, replayed, is_closed, live, replayed_files: files, found })
}

/// Where the log ended when it was closed, unless a later opening has written behind that position.
fn clean_end(
    store: &FileStore, geometry: Geometry, options: &Options, files: &BTreeMap<u64, Arc<SegmentFile>>,
) -> Result<Option<Lsn>> {
    let Some(end) = options.clean_end else { return Ok(None) };
    let next = geometry.normal(end);
    let Some(segment) = files.get(&geometry.number(next)) else { return Ok(Some(end)) };
    let offset = geometry.offset(next);
    let there = usize::try_from(segment.file.len()?).unwrap_or(usize::MAX).saturating_sub(offset);
    let mut header = Vec::new();
    read_range(store.psync(), &segment.file, offset, there.min(GROUP_HEADER), &mut header)?;
    // A tail that was dropped before the log was closed is of an earlier epoch.
    let group = GroupHeader::peek(&options.database, next, &header).filter(|group| group.epoch >= options.last_epoch());
    Ok(Some(end).filter(|_| group.is_none() || seeded::on(Bug::CleanMarkKept)))
}

/// A closed log, of which nothing is replayed.
fn closed(
    store: &FileStore, geometry: Geometry, end: Lsn, files: &BTreeMap<u64, Arc<SegmentFile>>,
) -> Result<Replayed> {
    let (end, number) = (geometry.normal(end), geometry.number(end));
    if end > geometry.first(number) && !files.contains_key(&number) {
        let flaw = Flaw::new("segment", format!("segment {number}, in which the log ends"), "none");
        return Err(flaw.at(store.directory().join(DIRECTORY), 0));
    }
    let tail = CLOSED.into();
    Ok(Replayed { end, durable: end, groups: 0, records: 0, bytes: 0, last_seq: 0, tail, closed: true })
}

/// The segments of the log: those that replay read, and those right before them that are to be kept.
///
/// A kept segment was never a spare, so its file is as the log left it. A kept segment with a bad beginning is damaged;
/// then only the segments behind that one are kept, because opening needs none of them.
fn live(
    found: &[Found], files: &BTreeMap<u64, Arc<SegmentFile>>, geometry: Geometry, replayed: &Replayed,
    options: &Options,
) -> Live {
    let mut live = Live::default();
    for (number, segment) in files {
        // Where the log ends before the first group of a segment, the bytes there are a tail that was dropped.
        let is_empty = geometry.first(*number) >= geometry.normal(replayed.end);
        let first_seq = first_seq(found, segment).filter(|_| !is_empty).unwrap_or(replayed.last_seq + 1);
        live.insert(*number, Arc::clone(segment), first_seq);
    }
    let first = geometry.number(options.start);
    let oldest = geometry.number(options.keep.unwrap_or(options.start));
    for number in (oldest..first).rev() {
        let of_number = found.iter().filter(|file| file.header.as_ref().is_ok_and(|header| header.number == number));
        // Of two files with a number the one of the later epoch is the log's.
        let epoch = |file: &&Found| file.header.as_ref().map_or(0, |header| header.epoch);
        let kept = of_number.max_by_key(epoch).and_then(|file| Some((Arc::clone(&file.segment), file.first_seq?)));
        let Some((segment, first_seq)) = kept else { break };
        live.insert(number, segment, first_seq);
    }
    live
}

/// The first seq that begins in a segment, if the segment's first group has a header.
fn first_seq(found: &[Found], segment: &Arc<SegmentFile>) -> Option<u64> {
    found.iter().find(|file| Arc::ptr_eq(&file.segment, segment)).and_then(|file| file.first_seq)
}

fn check_options(options: &Options) -> Result<()> {
    let invalid = |what: &str| Err(Error::InvalidOptions(what.to_owned()));
    let clean_end = options.clean_end.unwrap_or(options.start);
    if options.start.0 > LSN_MAX || options.durable_floor.0 > LSN_MAX || clean_end.0 > LSN_MAX {
        return invalid("the checkpoint's position is beyond the end of any log");
    }
    if clean_end < options.start {
        return invalid("the log ends before the checkpoint's position");
    }
    if !options.read_only && options.epoch == 0 {
        return invalid("epoch 0 is before the first; count from 1");
    }
    Ok(())
}

/// The file of each segment from `first` on.
fn candidates(found: &[Found], first: u64) -> Result<BTreeMap<u64, Arc<SegmentFile>>> {
    let mut best: BTreeMap<u64, (SegmentHeader, &Found)> = BTreeMap::new();
    for file in found {
        let Ok(header) = file.header else { continue };
        if header.number < first {
            continue;
        }
        match best.get(&header.number) {
            Some((other, rival)) if other.epoch == header.epoch => {
                let expected = format!("one file for segment {} of epoch {}", header.number, header.epoch);
                let found = format!("another one in {}", rival.segment.file.path().display());
                let damage = FileDamage::new(file.segment.file.path(), 0, "segment header", expected, found);
                return Err(Error::Corrupt(damage));
            }
            Some((other, _)) if other.epoch > header.epoch => {}
            _ => {
                best.insert(header.number, (header, file));
            }
        }
    }
    Ok(best.into_iter().map(|(number, (_, file))| (number, Arc::clone(&file.segment))).collect())
}

/// The largest epoch seen.
struct Epochs {
    largest: u64,
}

impl Epochs {
    fn of_headers(found: &[Found]) -> Self {
        let headers = found.iter().filter_map(|file| file.header.as_ref().ok());
        Self { largest: headers.map(|header| header.epoch).max().unwrap_or(0) }
    }

    fn see(&mut self, epoch: u64) {
        self.largest = self.largest.max(epoch);
    }

    /// Fails unless the epoch of this opening is larger than all that were seen, because its groups must be told from
    /// theirs.
    fn check(&self, store: &FileStore, options: &Options) -> Result<()> {
        if self.largest < options.epoch {
            return Ok(());
        }
        Err(Error::EpochUsed { file: store.directory().join(DIRECTORY), epoch: options.epoch, found: self.largest })
    }
}
