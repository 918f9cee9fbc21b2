//! Reading the rest of a damaged log.
//!
//! 1. Every segment file counts, also one that was trimmed and not used again. A file whose header does not check is
//!    known by the whole groups in it, because each states its position.
//! 2. A first pass looks at all whole groups, wherever they are. It finds up to where the log was durable, and where
//!    each epoch was seen last.
//! 3. [`Salvage::read`] follows the chain of groups as replay does. A chain that ends before the durable position has a
//!    hole there. The hole is reported, and the chain goes on with the next whole group that can come behind it.
//! 4. Bytes that a device cannot read are taken for zeros.
//!
//! A tail that an opening dropped is not believed behind a hole. The opening wrote over the tail's beginning in a
//! larger epoch, and then on without a gap. So a group behind a hole counts only if it is of the newest epoch, or if a
//! newer epoch goes on behind the group.
//!
//! Invariant: nothing is written.
//!
//! Left to others: the meaning of records, and of missing ones.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use psync::Psync;
use space::FileStore;

use crate::format::{ALIGNMENT, Flaw, GroupHeader, GroupType, SEGMENT_HEADER, SegmentHeader, WholeGroup};
use crate::geometry::Geometry;
use crate::parts::Parts;
use crate::scan::{ChainEnd, Scanner, read_patiently};
use crate::segment::{SegmentFile, open_all};
use crate::{Error, Group, Lsn, Result, Verdict};

/// Facts about a damaged log that are known from elsewhere. Without hints the log's segments supply them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints {
    /// Identity of the database and size of a segment.
    pub identity: Option<([u8; 16], u64)>,
    /// Records from here on matter. Without a start all records matter that exist.
    pub start: Option<Lsn>,
    /// The log is known to have been durable up to here.
    pub durable: Lsn,
    /// The newest epoch.
    pub epoch: u64,
}

/// A damaged log.
#[derive(Debug)]
pub struct Salvage {
    psync: Psync,
    geometry: Geometry,
    database: [u8; 16],
    files: BTreeMap<u64, Arc<SegmentFile>>,
    start: Lsn,
    durable: Lsn,
    /// Where a group of each epoch was seen last.
    epochs: BTreeMap<u64, Lsn>,
    newest_epoch: u64,
}

/// A part of a log that does not check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The file in which the hole begins; the directory where there is no such file.
    pub file: PathBuf,
    /// Byte offset in the file.
    pub offset: u64,
    /// The check that failed there.
    pub why: String,
    /// The seq behind the last one before the hole; 0 where nothing is before the hole.
    pub first_seq: u64,
    /// The first seq that can be behind the hole; none where the log ends with the hole.
    pub next_seq: Option<u64>,
}

/// A part of what is left of a log, in the log's order.
#[derive(Clone, Debug)]
pub enum Left<'a> {
    /// A whole group.
    Group(Group<'a>),
    /// Damaged or missing records.
    Hole(Hole),
    /// The end of the log, as after a crash: a group was begun that is not whole, and no statement says that the group
    /// ever was. A crash explains that.
    Torn(Hole),
}

impl Salvage {
    /// Examines the files of the log in `wal/` of a store. None where no file tells the identity of the log.
    ///
    /// # Errors
    /// When files cannot be listed or opened.
    pub fn open(store: &FileStore, hints: &Hints) -> Result<Option<Self>> {
        let psync = store.psync();
        let files: Vec<_> = open_all(store)?.into_iter().map(|(file, _)| file).collect();
        let header = |file: &SegmentFile| {
            let block = read_patiently(psync, &file.file, 0, SEGMENT_HEADER)?;
            Ok::<_, Error>(SegmentHeader::decode(&block).ok())
        };
        let headers = files.iter().map(|file| header(file)).collect::<Result<Vec<_>>>()?;
        let newest = headers.iter().flatten().max_by_key(|header| (header.epoch, header.number));
        let identity = hints.identity.or_else(|| newest.map(|header| (header.database, header.segment_bytes)));
        let Some((database, segment_bytes)) = identity else { return Ok(None) };
        let Ok(geometry) = Geometry::new(segment_bytes) else { return Ok(None) };
        let mut by_number: BTreeMap<u64, (u64, Arc<SegmentFile>)> = BTreeMap::new();
        for (file, header) in files.into_iter().zip(headers) {
            let of_log = |header: &SegmentHeader| {
                header.database == database
                    && header.segment_bytes == segment_bytes
                    && header.number <= geometry.number_max()
            };
            let place = match header {
                Some(header) => of_log(&header).then_some((header.number, header.epoch)),
                None => place_of(psync, geometry, &database, &file)?,
            };
            let Some((number, epoch)) = place else { continue };
            if by_number.get(&number).is_none_or(|(rival, _)| *rival < epoch) {
                by_number.insert(number, (epoch, file));
            }
        }
        let files: BTreeMap<_, _> = by_number.into_iter().map(|(number, (_, file))| (number, file)).collect();
        let first = files.keys().next().map_or(Lsn(0), |number| geometry.first(*number));
        let start = hints.start.unwrap_or(first);
        let mut salvage = Self {
            psync: psync.clone(),
            geometry,
            database,
            files,
            start,
            durable: geometry.normal(hints.durable.max(start)),
            epochs: BTreeMap::new(),
            newest_epoch: hints.epoch,
        };
        salvage.look()?;
        Ok(Some(salvage))
    }

    fn scanner(&self) -> Scanner<'_> {
        Scanner::new(&self.psync, self.geometry, self.database, &self.files).patient()
    }

    /// The first pass.
    fn look(&mut self) -> Result<()> {
        let (mut epochs, mut durable) = (BTreeMap::new(), self.durable);
        self.scanner().whole_groups(self.geometry.first(self.geometry.number(self.start)), &mut |group| {
            epochs.insert(group.header.epoch, group.header.lsn);
            durable = durable.max(group.header.durable);
            true
        })?;
        self.newest_epoch = epochs.keys().last().map_or(self.newest_epoch, |last| self.newest_epoch.max(*last));
        (self.epochs, self.durable) = (epochs, durable);
        Ok(())
    }

    /// Whether a group behind a hole counts.
    fn believes(&self, group: &GroupHeader) -> bool {
        let newer = self.epochs.range(group.epoch.saturating_add(1)..);
        group.epoch == self.newest_epoch || newer.into_iter().any(|(_, last)| *last > group.lsn)
    }

    /// Shows the rest of the log, in its order. To a group that is not known durable `visit` may answer
    /// [`Verdict::Tail`]: then the log ends before that group.
    ///
    /// # Errors
    /// Errors of `visit`.
    pub fn read<E: From<Error>>(
        &self, visit: &mut dyn FnMut(Left<'_>) -> std::result::Result<Verdict, E>,
    ) -> std::result::Result<(), E> {
        let (mut scanner, mut parts) = (self.scanner(), Parts::default());
        let mut end = ChainEnd::before(self.geometry.first(self.geometry.number(self.start)));
        loop {
            let mut verdict = Verdict::Accept;
            end = scanner.follow(end, &mut |whole| {
                let group = self.group(whole, &mut parts);
                if group.records().next().is_some() {
                    verdict = visit(Left::Group(group))?;
                }
                Ok::<_, E>(verdict == Verdict::Accept)
            })?;
            if verdict == Verdict::Tail {
                return Ok(());
            }
            let begun = !end.is_closed() && scanner.is_begun(end.lsn)?;
            let mut next = None;
            scanner.whole_groups(end.lsn, &mut |group| {
                let header = &group.header;
                if header.kind != GroupType::Closing
                    && header.follows(end.epoch, end.next_seq).is_ok()
                    && self.believes(header)
                {
                    next = Some((header.lsn, header.first_whole_seq()));
                }
                next.is_none()
            })?;
            let is_hole = end.lsn < self.durable;
            if !is_hole && !begun && next.is_none() {
                return Ok(());
            }
            let next = next.filter(|_| is_hole);
            let hole = self.hole(&scanner, &end, next.map(|(_, seq)| seq));
            visit(if is_hole { Left::Hole(hole) } else { Left::Torn(hole) })?;
            let Some((lsn, _)) = next else { return Ok(()) };
            (end.lsn, parts) = (lsn, Parts::default());
        }
    }

    fn hole(&self, scanner: &Scanner<'_>, end: &ChainEnd, next_seq: Option<u64>) -> Hole {
        let (file, offset) = scanner.place(end.lsn);
        let nothing = || Flaw::new("group", "a group", "none");
        let why = end.flaw.clone().unwrap_or_else(nothing).to_string();
        let directory = || self.files.values().next().and_then(|file| Some(file.file.path().parent()?.to_owned()));
        Hole { file: file.or_else(directory).unwrap_or_default(), offset, why, first_seq: end.next_seq, next_seq }
    }

    fn group<'a>(&self, whole: &WholeGroup<'a>, parts: &'a mut Parts) -> Group<'a> {
        let lsn = whole.header.lsn;
        let mut records = parts.take(whole);
        records.skip_before(self.start);
        let end = Lsn(lsn.0 + u64::from(whole.header.length));
        Group { lsn, end, epoch: whole.header.epoch, durable: Some(lsn < self.durable), records }
    }
}

/// The segment that a file without a header holds, and an epoch that wrote to that segment: those of the newest group
/// in the file, because groups of an earlier use are older.
fn place_of(
    psync: &Psync, geometry: Geometry, database: &[u8; 16], segment: &SegmentFile,
) -> Result<Option<(u64, u64)>> {
    let bytes = read_patiently(psync, &segment.file, 0, geometry.segment_len())?;
    let places = (SEGMENT_HEADER..bytes.len()).step_by(ALIGNMENT).filter_map(|at| {
        let lsn = GroupHeader::claimed_lsn(&bytes[at..]).filter(|lsn| geometry.offset(*lsn) == at)?;
        let group = GroupHeader::open(database, lsn, &bytes[at..]).ok()?;
        Some((geometry.number(lsn), group.header.epoch))
    });
    Ok(places.max())
}
