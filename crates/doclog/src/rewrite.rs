//! Writing documents again as they are.
//!
//! After a failed flush the system may hold pages as clean that never reached the device: reads see them, and no later flush
//! writes them. Writing the same bytes to the same place makes them dirty again.
//!
//! 1. The documents are sorted by place and cut into windows, as for reading, but a window holds nothing besides documents of the
//!    call and their padding: what others append at the same time is not touched.
//! 2. Windows go in batches of up to [`BATCH_BYTES`]: one psync reads a batch through the page cache, one writes it back.
//! 3. On the way every document is checked, so that one that is not whole is an error and not made durable in silence.
//!
//! Invariant: no byte of a file changes.

use psync::{Completion, Psync, Request};

use crate::Result;
use crate::format::ALIGNMENT;
use crate::read::{self, Wanted, Window};

/// Most bytes of a batch, all of which are in memory.
const BATCH_BYTES: u64 = 16 << 20;
/// Most windows of a batch.
const BATCH_WINDOWS: usize = 1024;

/// Writes documents again, which are sorted by place and no two of which are the same, in files that are not open for direct I/O.
pub(crate) fn rewrite(psync: &Psync, mut documents: Vec<Wanted>) -> Result<()> {
    let windows = read::plan(&documents, ALIGNMENT as u64 - 1);
    let mut rest = windows.as_slice();
    let mut tag = 0;
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(batch(rest));
        let reads = batch.iter().zip(tag..).map(|(window, tag)| window.request(tag, None)).collect();
        let completions = psync.run(reads);
        for completion in &completions {
            read::deliver(&windows, &mut documents, completion);
        }
        psync.run_all(batch.iter().zip(completions).filter_map(write).collect())?;
        tag += batch.len() as u64;
        rest = later;
    }
    documents.into_iter().try_for_each(|document| document.finish().map(drop))
}

/// Windows of the next batch: at least one.
fn batch(windows: &[Window]) -> usize {
    let mut bytes = 0;
    let fits = windows.iter().take(BATCH_WINDOWS).take_while(|window| {
        bytes += window.length();
        bytes <= BATCH_BYTES
    });
    fits.count().max(1)
}

/// Writes what was read back to its place. What could not be read is told by its documents.
fn write((window, completion): (&Window, Completion)) -> Option<Request> {
    completion.result.ok()?;
    Some(Request::write(&window.file, window.bytes.start, completion.buffer?, 0))
}
