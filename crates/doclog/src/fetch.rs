//! Reading the documents of a call: few of them in one psync, many as a stream.

use std::sync::Arc;

use psync::BLOCK;

use crate::Result;
use crate::ahead::{Asked, Reading};
use crate::files::SegmentFiles;
use crate::read::{BYTES_IN_FLIGHT, Opener, Wanted, Window, deliver, plan};

/// Maximum number of segments whose files are opened for one call before the first of them is closed.
const OPEN_AT_ONCE: usize = 64;

/// So few documents are not worth a stream: one lookup needs no more.
const FEW: usize = 2;

/// Reads all documents, which are sorted by place and distinct.
pub(crate) fn fetch(files: &Arc<SegmentFiles>, documents: &mut [Wanted]) {
    let (windows, psync) = (plan(documents, BLOCK as u64), files.psync());
    let total: u64 = windows.iter().map(Window::buffer_bytes).sum();
    let segments = windows.chunk_by(|one, next| one.segment == next.segment).count();
    if total > BYTES_IN_FLIGHT || segments > OPEN_AT_ONCE {
        return Reading::begin(files, windows, documents, psync.pio_max()).finish(documents);
    }
    let mut opener = Opener::new(Arc::clone(files));
    let mut requests = Vec::with_capacity(windows.len());
    for (number, window) in windows.iter().enumerate() {
        match opener.open(window) {
            Ok(file) => requests.push(window.request(&file, number, None)),
            Err(error) => window.fail(documents, &error),
        }
    }
    for completion in psync.run(requests) {
        deliver(files, &windows, documents, &completion);
    }
}

/// Reads all documents, and hands over each document of a single window on arrival.
pub(crate) fn fetch_as_they_come(
    files: &Arc<SegmentFiles>, asked: &mut Asked, in_flight: usize, take: &mut dyn FnMut(usize, Result<Vec<u8>>),
) {
    if asked.documents().len() <= FEW {
        return fetch(files, asked.documents());
    }
    let windows = plan(asked.documents(), BLOCK as u64);
    let reading = Reading::begin(files, windows, asked.documents(), in_flight);
    reading.finish_with(asked, &mut |asked, documents| {
        for index in documents {
            if asked.documents()[index].is_ready() {
                asked.hand_over(index, take);
            }
        }
    });
}
