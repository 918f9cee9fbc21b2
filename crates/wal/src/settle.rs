//! Making a recovered log durable.
//!
//! Replay read the accepted part of the log beyond the known durable position from the page cache; that part may not be
//! on the device. A flush alone does not bring the pages there: after a failed flush in an earlier life, the system may
//! hold them as clean. Settling therefore takes these steps:
//!
//! 1. read the part;
//! 2. check that part once more;
//! 3. write the same bytes again;
//! 4. flush.
//!
//! Invariant: after a return without an error, everything below the end of the accepted log is on stable storage.

use psync::{Buffer, File, Psync, Request};

use crate::geometry::Geometry;
use crate::scan::Scanner;
use crate::{Lsn, Result};

const COPY_BYTES: usize = 1 << 20;
const COPIES_PER_RUN: usize = 4;

/// Writes the log from `durable` to `end` again, and flushes it together with the files of `companions`.
pub(crate) fn settle(
    psync: &Psync, geometry: Geometry, scanner: &mut Scanner<'_>, durable: Lsn, end: Lsn, companions: Vec<File>,
) -> Result<()> {
    let mut files = companions;
    for (number, file) in scanner.segments(geometry.number(durable)..=geometry.number(end)) {
        // In a segment without a known durable part, the header is not known to be durable either.
        let from = if durable <= geometry.first(number) { geometry.base(number) } else { durable };
        let to = end.min(geometry.base(number + 1));
        let length = usize::try_from(to.0.saturating_sub(from.0)).expect("at most a segment");
        let offset = geometry.offset(from);
        let there = usize::try_from(file.len()?).unwrap_or(usize::MAX);
        let range = offset..(offset + length).min(there).max(offset);
        scanner.checked(number, from, end, &mut |at, bytes| {
            let (from, to) = (range.start.max(at), range.end.min(at + bytes.len()));
            if from < to { write(psync, &file, from, &bytes[from - at..to - at]) } else { Ok(()) }
        })?;
        files.push(file);
    }
    psync.run_all(files.iter().map(|file| Request::flush(file, 0)).collect())?;
    Ok(())
}

fn write(psync: &Psync, file: &File, offset: usize, bytes: &[u8]) -> Result<()> {
    let (mut at, end) = (offset, offset + bytes.len());
    while at < end {
        let mut writes = Vec::new();
        while at < end && writes.len() < COPIES_PER_RUN {
            // Up to a multiple of the size, so that no block is in two of the writes.
            let length = (end - at).min(COPY_BYTES - at % COPY_BYTES);
            let part = &bytes[at - offset..at - offset + length];
            writes.push(Request::write(file, at as u64, Buffer::from_slice(part), 0));
            at += length;
        }
        psync.run_all(writes)?;
    }
    Ok(())
}
