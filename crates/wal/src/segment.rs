//! The files of segments.
//!
//! 1. A file `wal/<index>.log` is made once: written with zeros to the size of a segment, flushed, and its directory entry made
//!    durable. From then on a flush of it changes no metadata of the file system.
//! 2. A file is *live* while it holds a segment of the log, and *spare* else. A spare still holds the header and groups of an
//!    older segment, or zeros; neither is believed, for number, positions or epoch do not fit.
//! 3. A spare becomes live when the log grows into the next segment: whoever writes its first group writes its header in the same
//!    batch, so one flush of one file covers both.
//! 4. Trimmed segments become spare again. As many spares stay as the trims of late recycled; more are unlinked.
//!
//! Invariants: no two live files have the same number; the last spare goes only to callers that may use the reserve, so that
//! a full disk can still log a delete.
//!
//! Left to others: contents, and when a segment is needed no more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use psync::{Buffer, File, Request};
use space::{FileStore, StreamKind};

use crate::format::{BadSegment, Flaw, SEGMENT_HEADER, SegmentHeader, hex};
use crate::geometry::Geometry;
use crate::stats::{Counters, add};
use crate::{Error, Options, Result};

pub(crate) const DIRECTORY: &str = "wal";

/// Spares to hold ready: one to grow into, one in reserve.
pub(crate) const SPARES: usize = 2;

/// Most spares that are kept, however much was trimmed at once.
const SPARES_MAX: u64 = 64;

const ZERO_WRITE_BYTES: usize = 1 << 20;
const ZERO_WRITES_PER_RUN: usize = 16;

/// A file that holds a segment, or can.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    index: u64,
    pub(crate) file: File,
}

impl SegmentFile {
    fn name(&self) -> String {
        file_name(self.index)
    }
}

fn file_name(index: u64) -> String {
    format!("{DIRECTORY}/{index}.log")
}

/// A file that was there when the log was opened.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) segment: Arc<SegmentFile>,
    pub(crate) header: std::result::Result<SegmentHeader, Flaw>,
    /// Its length in bytes; shorter than a segment when a crash stopped its making, or when it was cut.
    pub(crate) len: u64,
}

/// Opens all segment files and reads their headers. Changes nothing.
pub(crate) fn discover(store: &FileStore, geometry: Geometry, options: &Options) -> Result<Vec<Found>> {
    let mut files = Vec::new();
    for name in store.list(DIRECTORY)? {
        let Some(index) = name.strip_suffix(".log").and_then(|stem| stem.parse().ok()) else {
            continue;
        };
        if file_name(index) != format!("{DIRECTORY}/{name}") {
            continue;
        }
        let file = store.open_existing(StreamKind::Wal, &file_name(index), false)?;
        let len = file.len()?;
        files.push((Arc::new(SegmentFile { index, file }), len));
    }
    let reads = files.iter().zip(0..).map(|((segment, len), tag)| {
        let wanted = usize::try_from(*len).unwrap_or(usize::MAX).min(SEGMENT_HEADER);
        Request::read(&segment.file, 0, Buffer::zeroed(wanted), tag)
    });
    let headers = store.psync().run_all(reads.collect())?;
    let mut found = Vec::new();
    for ((segment, len), block) in files.into_iter().zip(headers) {
        let header = read_header(&segment, block.as_deref().unwrap_or_default(), geometry, options)?;
        found.push(Found { segment, header, len });
    }
    Ok(found)
}

fn read_header(
    segment: &SegmentFile, block: &[u8], geometry: Geometry, options: &Options,
) -> Result<std::result::Result<SegmentHeader, Flaw>> {
    let path = || segment.file.path().to_owned();
    let header = match SegmentHeader::decode(block) {
        Ok(header) => header,
        Err(BadSegment::Flaw(flaw)) => return Ok(Err(flaw)),
        Err(BadSegment::Newer(found)) => {
            return Err(Error::NewerVersion { file: path(), found, supported: crate::format::VERSION });
        }
    };
    if header.database != options.database {
        return Err(Error::Foreign { file: path(), expected: hex(&options.database), found: hex(&header.database) });
    }
    if header.segment_bytes != geometry.segment_bytes() {
        return Err(Error::SegmentSize {
            file: path(),
            expected: geometry.segment_bytes(),
            found: header.segment_bytes,
        });
    }
    if header.number > geometry.number_max() {
        return Ok(Err(Flaw::new("segment number", format!("at most {}", geometry.number_max()), header.number)));
    }
    Ok(Ok(header))
}

#[derive(Debug, Default)]
struct State {
    live: BTreeMap<u64, Arc<SegmentFile>>,
    spares: VecDeque<Arc<SegmentFile>>,
    /// Indices of all files there are, or are being made.
    indices: BTreeSet<u64>,
    /// How many segments a trim recycles: the largest of late, forgotten by an eighth at each trim.
    demand: u64,
}

/// All segment files of a log that can be written.
#[derive(Debug)]
pub(crate) struct Pool {
    store: FileStore,
    geometry: Geometry,
    counters: Arc<Counters>,
    state: Mutex<State>,
    /// Held while files are made, so that many callers in need of one make one.
    making: Mutex<()>,
}

impl Pool {
    /// Takes over the files of a log: those of the segments that hold it, and all others as spares. Files that are too
    /// short to be used are removed.
    pub(crate) fn adopt(
        store: FileStore, geometry: Geometry, counters: Arc<Counters>, found: Vec<Found>,
        live: BTreeMap<u64, Arc<SegmentFile>>,
    ) -> Result<Self> {
        if !found.is_empty() {
            // An earlier life may have ended, or failed, before it made their entries durable.
            sync_directories(&store)?;
        }
        let mut state = State { live, ..State::default() };
        for Found { segment, len, .. } in found {
            let is_live = state.live.values().any(|live| Arc::ptr_eq(live, &segment));
            if is_live && len < geometry.segment_bytes() {
                write_zeros(&store, &segment.file, len, geometry.segment_bytes())?;
            } else if len < geometry.segment_bytes() {
                store.release(&segment.name())?;
                continue;
            }
            state.indices.insert(segment.index);
            if !is_live {
                state.spares.push_back(segment);
            }
        }
        Ok(Self { store, geometry, counters, state: Mutex::new(state), making: Mutex::new(()) })
    }

    /// The file of a live segment.
    pub(crate) fn live(&self, number: u64) -> Option<Arc<SegmentFile>> {
        self.state.lock().live.get(&number).cloned()
    }

    /// Number of the oldest live segment.
    pub(crate) fn first_live(&self) -> Option<u64> {
        self.state.lock().live.keys().next().copied()
    }

    /// Live and spare files.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.live.len() as u64, state.spares.len() as u64)
    }

    /// Makes a spare live as segment `number`. None when one has to be made first ([`Pool::prepare`]).
    pub(crate) fn take(&self, number: u64, reserve: bool) -> Option<Arc<SegmentFile>> {
        let mut state = self.state.lock();
        if state.spares.len() < spares_needed(reserve) {
            return None;
        }
        let segment = state.spares.pop_front()?;
        let before = state.live.insert(number, Arc::clone(&segment));
        assert!(before.is_none(), "segment {number} is live already");
        Some(segment)
    }

    /// Makes files until there are so many spares.
    ///
    /// # Errors
    /// [`Error::Full`] when the disk is full; nothing is left of the file that did not fit.
    pub(crate) fn prepare(&self, spares: usize) -> Result<()> {
        let _turn = self.making.lock();
        while self.state.lock().spares.len() < spares {
            let segment = self.make()?;
            self.state.lock().spares.push_back(segment);
            add(&self.counters.segments_created, 1);
        }
        Ok(())
    }

    fn make(&self) -> Result<Arc<SegmentFile>> {
        let index = {
            let mut state = self.state.lock();
            let index = (0..).zip(&state.indices).find(|(free, used)| free != *used).map(|(free, _)| free);
            let index = index.unwrap_or(state.indices.len() as u64);
            state.indices.insert(index);
            index
        };
        let made = self.make_at(index);
        if made.is_err() {
            // What remains is found to be too short, or spare, when the log is opened next.
            if let Err(error) = self.store.release(&file_name(index)) {
                tracing::warn!(%error, index, "a segment file that could not be completed stays behind");
            }
            self.state.lock().indices.remove(&index);
        }
        made.map(|file| Arc::new(SegmentFile { index, file })).map_err(|error| self.full(error))
    }

    fn make_at(&self, index: u64) -> Result<File> {
        let name = file_name(index);
        let file = match self.store.create(StreamKind::Wal, &name, false) {
            Err(space::Error::Io(error)) if error.is_already_exists() => {
                // Left behind by a removal that failed.
                self.store.release(&name)?;
                self.store.create(StreamKind::Wal, &name, false)?
            }
            created => created?,
        };
        write_zeros(&self.store, &file, 0, self.geometry.segment_bytes())?;
        sync_directories(&self.store)?;
        Ok(file)
    }

    fn full(&self, error: Error) -> Error {
        let is_full = match &error {
            Error::Io(cause) => cause.is_disk_full(),
            Error::Space(cause) => cause.is_disk_full(),
            _ => false,
        };
        if !is_full {
            return error;
        }
        Error::Full { segment_bytes: self.geometry.segment_bytes(), cause: error.to_string() }
    }

    /// Recycles the segments below `number`.
    pub(crate) fn trim(&self, number: u64) -> Result<()> {
        let excess: Vec<_> = {
            let mut state = self.state.lock();
            let rest = state.live.split_off(&number);
            let trimmed = std::mem::replace(&mut state.live, rest);
            if trimmed.is_empty() {
                return Ok(());
            }
            let count = trimmed.len() as u64;
            add(&self.counters.segments_recycled, count);
            state.demand = count.max(state.demand - state.demand.div_ceil(8));
            state.spares.extend(trimmed.into_values());
            // One more than are grown into before the next trim: the reserve.
            let keep = usize::try_from(state.demand.min(SPARES_MAX)).map_or(SPARES, |demand| SPARES.max(demand + 1));
            let excess = state.spares.len().saturating_sub(keep);
            state.spares.drain(..excess).collect()
        };
        for segment in excess {
            self.store.release(&segment.name())?;
            self.state.lock().indices.remove(&segment.index);
        }
        Ok(())
    }
}

/// Spares that must be there for the next segment to be taken.
pub(crate) fn spares_needed(reserve: bool) -> usize {
    if reserve { 1 } else { SPARES }
}

/// Makes the entries of all files of the log durable. The store's notes alone are not enough: they miss what an earlier life
/// created, and what another caller's sync, still under way, took.
fn sync_directories(store: &FileStore) -> Result<()> {
    store.sync_directories()?;
    store.psync().sync_directory(&store.path_of(DIRECTORY)?)?;
    store.psync().sync_directory(store.directory())?;
    Ok(())
}

/// Writes zeros from one offset to another, and flushes.
fn write_zeros(store: &FileStore, file: &File, from: u64, to: u64) -> Result<()> {
    let mut at = from;
    while at < to {
        let mut writes = Vec::new();
        while at < to && writes.len() < ZERO_WRITES_PER_RUN {
            let length = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZERO_WRITE_BYTES);
            writes.push(Request::write(file, at, Buffer::zeroed(length), 0));
            at += length as u64;
        }
        store.psync().run_all(writes)?;
    }
    store.psync().run_all(vec![Request::flush(file, 0)])?;
    Ok(())
}
