//! The segment files that exist when a log is opened.

use std::sync::Arc;

use psync::{Buffer, Request};
use space::{FileStore, StreamKind};

use super::file::{DIRECTORY, FIRST_ROOM, SegmentFile, file_name};
use crate::format::{BadSegment, Flaw, GROUP_HEADER, GroupHeader, SEGMENT_HEADER, SegmentHeader, hex};
use crate::geometry::Geometry;
use crate::scan::read_range;
use crate::{Error, Options, Result};

/// A file that existed when the log was opened.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) segment: Arc<SegmentFile>,
    pub(crate) header: std::result::Result<SegmentHeader, Flaw>,
    /// The first seq that begins in the segment, if the first group has a header.
    pub(crate) first_seq: Option<u64>,
    /// The file's length in bytes. It is shorter than a segment in the very first file of a short log, in one whose
    /// making a crash stopped, and in one that was cut.
    pub(crate) len: u64,
}

/// A file in `wal/` of a store that cannot belong to a log in which nothing was ever appended, because its name is
/// another or its length is larger. None if there is no such file.
///
/// # Errors
/// When files cannot be listed or opened.
pub fn beyond_new(store: &FileStore) -> Result<Option<String>> {
    for name in store.list(DIRECTORY)? {
        let name = format!("{DIRECTORY}/{name}");
        if name != file_name(0) || store.open_existing(StreamKind::Wal, &name, false)?.len()? > FIRST_ROOM {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Opens all segment files, and returns each with its length. Changes nothing.
pub(crate) fn open_all(store: &FileStore) -> Result<Vec<(Arc<SegmentFile>, u64)>> {
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
        files.push((SegmentFile::new(index, file, len, false), len));
    }
    Ok(files)
}

/// Opens all segment files and reads their headers. Changes nothing.
pub(crate) fn discover(store: &FileStore, geometry: Geometry, options: &Options) -> Result<Vec<Found>> {
    let files = open_all(store)?;
    let reads = files.iter().zip(0..).map(|((segment, len), tag)| {
        let wanted = usize::try_from(*len).unwrap_or(usize::MAX).min(SEGMENT_HEADER + GROUP_HEADER);
        Request::read(&segment.file, 0, Buffer::zeroed(wanted), tag)
    });
    let headers = store.psync().run_all(reads.collect())?;
    let mut found = Vec::new();
    for ((segment, len), block) in files.into_iter().zip(headers) {
        let block = block.as_deref().unwrap_or_default();
        let (block, group) = block.split_at(block.len().min(SEGMENT_HEADER));
        let header = read_header(&segment, block, geometry, options)?;
        let is_whole = |block: &[u8]| SegmentHeader::decode(block).is_ok();
        if header.is_err() && block.len() == SEGMENT_HEADER && is_whole(&read_again(store, &segment)?) {
            let flaw =
                Flaw::new("segment header", "the same when it is read again", "a whole one, where there was none");
            return Err(flaw.at(segment.file.path().to_owned(), 0));
        }
        let first = header.as_ref().ok().map(|header| geometry.first(header.number));
        let first = first.and_then(|lsn| GroupHeader::peek(&options.database, lsn, group));
        found.push(Found { segment, header, first_seq: first.map(|group| group.first_whole_seq()), len });
    }
    Ok(found)
}

/// Reads the first bytes of a segment past the page cache, because a wrong read would cost the commits in the segment.
fn read_again(store: &FileStore, segment: &SegmentFile) -> Result<Vec<u8>> {
    let file = store.open_existing(StreamKind::Wal, &segment.name(), true)?;
    let mut again = Vec::new();
    read_range(store.psync(), &file, 0, SEGMENT_HEADER, &mut again)?;
    Ok(again)
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
