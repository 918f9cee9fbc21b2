//! Making a recovered log durable.
//!
//! What replay accepted beyond the known durable position was read from the page cache, and may not be on the device. A flush alone
//! does not bring it there: after a flush that failed in an earlier life, the system may hold the pages as clean. So they
//! are read, written again as they are, and then flushed.
//!
//! Invariant: when this returns without an error, everything below the end of the accepted log is on stable storage.

use std::collections::BTreeMap;
use std::sync::Arc;

use psync::{Buffer, File, Psync, Request};

use crate::geometry::Geometry;
use crate::segment::SegmentFile;
use crate::{Lsn, Result};

const COPY_BYTES: u64 = 1 << 20;
const COPIES_PER_RUN: usize = 16;

/// Writes the log from `durable` to `end` again, and flushes it together with the files of `companions`.
pub(crate) fn settle(
    psync: &Psync, geometry: Geometry, live: &BTreeMap<u64, Arc<SegmentFile>>, durable: Lsn, end: Lsn,
    companions: Vec<File>,
) -> Result<()> {
    let mut files = companions;
    for (number, segment) in live.range(geometry.number(durable)..=geometry.number(end)) {
        // A segment of which nothing is known durable has a header of which nothing is known either.
        let from = if durable <= geometry.first(*number) { geometry.base(*number) } else { durable };
        let to = end.min(geometry.base(number + 1));
        let length = to.0.saturating_sub(from.0);
        let there = segment.file.len()?.saturating_sub(geometry.offset(from) as u64);
        copy(psync, &segment.file, geometry.offset(from) as u64, length.min(there))?;
        files.push(segment.file.clone());
    }
    psync.run_all(files.iter().map(|file| Request::flush(file, 0)).collect())?;
    Ok(())
}

/// Writes what a file holds to where it is.
fn copy(psync: &Psync, file: &File, offset: u64, length: u64) -> Result<()> {
    let mut at = offset;
    let end = offset + length;
    while at < end {
        let mut reads = Vec::new();
        while at < end && reads.len() < COPIES_PER_RUN {
            // Up to a multiple of the size, so that no block is in two of the writes.
            let bytes = (end - at).min(COPY_BYTES - at % COPY_BYTES);
            let buffer = Buffer::zeroed(usize::try_from(bytes).expect("at most 1 MiB"));
            reads.push(Request::read(file, at, buffer, 0));
            at += bytes;
        }
        let offsets: Vec<u64> = reads.iter().map(|read| read.offset).collect();
        let buffers = psync.run_all(reads)?;
        let writes = offsets.into_iter().zip(buffers.into_iter().flatten());
        psync.run_all(writes.map(|(offset, buffer)| Request::write(file, offset, buffer, 0)).collect())?;
    }
    Ok(())
}
