//! Writing documents again, unchanged.
//!
//! After a failed flush the system may hold pages as clean that never reached the device: reads see them, and no later
//! flush writes them. Writing the same bytes to the same place makes the pages dirty again.
//!
//! 1. The documents are sorted by place and cut into windows, as for reading. Here a window holds only documents of the
//!    call and their padding, so concurrent appends are not touched.
//! 2. Windows go in batches of up to [`BATCH_BYTES`], in two passes.
//!    The first pass checks every document, so that a damaged document is an error and is not made durable in silence.
//!    In the second pass, one psync reads a batch through the page cache, and one writes the batch back, provided the
//!    bytes are those checked.
//!
//! Invariant: no byte of a file changes.

use psync::{Completion, Request};

use crate::files::SegmentFiles;
use crate::format::ALIGNMENT;
use crate::read::{self, Wanted, Window};
use crate::{Error, Result};

/// Maximum size of a batch, in bytes, all of which are in memory.
const BATCH_BYTES: u64 = 16 << 20;
/// Maximum number of windows of a batch.
const BATCH_WINDOWS: usize = 1024;

/// Writes documents again, which are sorted by place and distinct, in files that are not open for direct I/O.
pub(crate) fn rewrite(files: &SegmentFiles, mut documents: Vec<Wanted>) -> Result<()> {
    let windows = read::plan(&documents, ALIGNMENT as u64 - 1);
    let mut checksums = Vec::with_capacity(windows.len());
    in_batches(files, &windows, |_, completions| {
        for completion in completions {
            checksums.push(checksum_of(&completion));
            read::deliver(files, &windows, &mut documents, &completion);
        }
        Ok(())
    })?;
    documents.into_iter().try_for_each(|mut document| document.finish(files).map(drop))?;
    in_batches(files, &windows, |first, completions| {
        let mut writes = Vec::with_capacity(completions.len());
        for (index, completion) in (first..).zip(completions) {
            let (window, expected, found) = (&windows[index], checksums[index], checksum_of(&completion));
            completion.result?;
            if expected != found {
                let [expected, found] = [expected, found].map(|crc| format!("{crc:#010x}"));
                let (file, at) = (files.path(window.segment), window.bytes.start);
                return Err(Error::corrupt(&file, at, "checksum of what was read again", expected, found));
            }
            let file = files.open(window.segment, &window.source)?;
            writes.extend(completion.buffer.map(|buffer| Request::write(&file, window.bytes.start, buffer, 0)));
        }
        files.psync().run_all(writes)?;
        Ok(())
    })
}

/// Reads windows and hands them over, a batch at a time: the number of the first window of the batch, and the bytes of
/// each window.
fn in_batches(
    files: &SegmentFiles, windows: &[Window], mut take: impl FnMut(usize, Vec<Completion>) -> Result<()>,
) -> Result<()> {
    let mut first = 0;
    while first < windows.len() {
        let batch = &windows[first..first + batch(&windows[first..])];
        let read = |(window, number): (&Window, usize)| {
            Ok(window.request(&files.open(window.segment, &window.source)?, number, None))
        };
        let reads = batch.iter().zip(first..).map(read).collect::<Result<_>>()?;
        take(first, files.psync().run(reads))?;
        first += batch.len();
    }
    Ok(())
}

fn checksum_of(read: &Completion) -> u32 {
    checksum::crc32c(read.buffer.as_deref().unwrap_or_default())
}

/// Number of windows of the next batch: at least one.
fn batch(windows: &[Window]) -> usize {
    let mut bytes = 0;
    let fits = windows.iter().take(BATCH_WINDOWS).take_while(|window| {
        bytes += window.buffer_bytes();
        bytes <= BATCH_BYTES
    });
    fits.count().max(1)
}
