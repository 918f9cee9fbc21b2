//! Documents of a call, some of them named more than once, and documents that are read while their reader does other
//! work.

use std::ops::Range;
use std::sync::Arc;

use psync::{BLOCK, Buffer, Stream};

use crate::files::SegmentFiles;
use crate::read::{self, BYTES_IN_FLIGHT, Opener, Wanted, Window};
use crate::{Error, Result};

/// A wait covers one in this many of the windows in flight: the device keeps working on the others, and the reader is
/// woken less often.
const GATHERED: usize = 4;

/// Documents of a call: each is read once, and goes to every place where the call names it.
pub(crate) struct Asked {
    documents: Vec<Wanted>,
    /// Places of each document in the call.
    places: Vec<Vec<usize>>,
    /// Places of refused documents, and the reasons.
    refused: Vec<(usize, Error)>,
    files: Arc<SegmentFiles>,
}

impl Asked {
    /// A call for `count` documents.
    pub(crate) fn new(count: usize, files: Arc<SegmentFiles>) -> Self {
        Self { documents: Vec::with_capacity(count), places: Vec::with_capacity(count), refused: Vec::new(), files }
    }

    /// Adds the next document, in the order of their places in the log, or the reason why it cannot be read.
    pub(crate) fn push(&mut self, wanted: Result<Wanted>, places: &[usize]) {
        match wanted {
            Ok(wanted) => {
                self.documents.push(wanted);
                self.places.push(places.to_vec());
            }
            Err(error) => self.refused.extend(places.iter().map(|&place| (place, error.clone()))),
        }
    }

    pub(crate) fn documents(&mut self) -> &mut [Wanted] {
        &mut self.documents
    }

    /// The documents read, checked, in the order of the call.
    pub(crate) fn finish(self) -> Vec<Result<Vec<u8>>> {
        let count = self.places.iter().map(Vec::len).sum::<usize>() + self.refused.len();
        let mut outcomes = Vec::new();
        outcomes.resize_with(count, || Ok(Vec::new()));
        self.hand_over_rest(&mut |place, outcome| outcomes[place] = outcome);
        outcomes
    }

    /// Hands over a document that has arrived, to every place.
    pub(crate) fn hand_over(&mut self, index: usize, take: &mut dyn FnMut(usize, Result<Vec<u8>>)) {
        let outcome = self.documents[index].finish(&self.files);
        let places = &self.places[index];
        places[1..].iter().for_each(|&place| take(place, outcome.clone()));
        take(places[0], outcome);
    }

    /// Hands over the remaining documents when all have arrived, and the errors of the refused ones.
    pub(crate) fn hand_over_rest(mut self, take: &mut dyn FnMut(usize, Result<Vec<u8>>)) {
        for index in 0..self.documents.len() {
            if !self.documents[index].is_handed_over() {
                self.hand_over(index, take);
            }
        }
        self.refused.into_iter().for_each(|(place, error)| take(place, Err(error)));
    }
}

/// Documents on their way. Dropping this waits for them.
pub struct ReadAhead {
    asked: Asked,
    reading: Reading,
}

impl ReadAhead {
    pub(crate) fn begin(mut asked: Asked, in_flight: usize) -> Self {
        let windows = read::plan(&asked.documents, BLOCK as u64);
        let reading = Reading::begin(&asked.files, windows, &mut asked.documents, in_flight);
        Self { asked, reading }
    }

    /// The documents read, in the order of the pointers, each checked by itself.
    #[must_use]
    pub fn finish(mut self) -> Vec<Result<Vec<u8>>> {
        self.reading.finish(self.asked.documents());
        self.asked.finish()
    }
}

impl std::fmt::Debug for ReadAhead {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReadAhead").field("windows", &self.reading.windows.len()).finish_non_exhaustive()
    }
}

/// Windows being read. No more than [`BYTES_IN_FLIGHT`] of them are in memory at a time, and only files being read are
/// open.
pub(crate) struct Reading {
    windows: Vec<Window>,
    opener: Opener,
    stream: Stream,
    /// Number of the next window to request; `bytes` are those of the windows in flight.
    next: usize,
    bytes: u64,
}

impl Reading {
    pub(crate) fn begin(
        files: &Arc<SegmentFiles>, windows: Vec<Window>, documents: &mut [Wanted], in_flight: usize,
    ) -> Self {
        let (opener, stream) = (Opener::new(Arc::clone(files)), files.psync().stream(in_flight));
        let mut reading = Self { windows, opener, stream, next: 0, bytes: 0 };
        reading.refill(documents, None);
        reading.stream.submit();
        reading
    }

    fn refill(&mut self, documents: &mut [Wanted], mut spare: Option<Buffer>) {
        while let Some(window) = self.windows.get(self.next)
            && self.stream.in_flight() < self.stream.depth()
            && (self.bytes == 0 || self.bytes + window.buffer_bytes() <= BYTES_IN_FLIGHT)
        {
            match self.opener.open(window) {
                Ok(file) => {
                    self.stream.push(window.request(&file, self.next, spare.take()));
                    self.bytes += window.buffer_bytes();
                }
                // The files being read are closed in time; then the window is tried again.
                Err(error) if error.is_too_many_open_files() && self.stream.in_flight() > 0 => return,
                Err(error) => window.fail(documents, &error),
            }
            self.next += 1;
        }
    }

    /// Delivers everything to its documents.
    pub(crate) fn finish(mut self, documents: &mut [Wanted]) {
        while self.next(documents).is_some() {}
    }

    /// As `finish`, and names the documents of each completed window once the next reads are on their way.
    pub(crate) fn finish_with(mut self, asked: &mut Asked, came: &mut dyn FnMut(&mut Asked, Range<usize>)) {
        while let Some(documents) = self.next(asked.documents()) {
            came(asked, documents);
        }
    }

    /// Delivers a window to its documents, and returns their indexes.
    fn next(&mut self, documents: &mut [Wanted]) -> Option<Range<usize>> {
        self.stream.gather(self.stream.in_flight() / GATHERED);
        let completion = self.stream.next()?;
        let window = read::deliver(self.opener.files(), &self.windows, documents, &completion);
        let came = window.documents.clone();
        self.bytes -= window.buffer_bytes();
        self.refill(documents, completion.buffer);
        Some(came)
    }
}
