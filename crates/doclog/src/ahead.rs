//! Documents that are asked for, some of them more than once, and documents that are read while their reader does something else.

use psync::{BLOCK, Buffer, Psync, Stream};

use crate::Result;
use crate::read::{self, BYTES_IN_FLIGHT, Wanted, Window};

/// Documents of a call: each is read once, and goes to every place where it is asked for.
pub(crate) struct Asked {
    documents: Vec<Wanted>,
    /// Where each of them goes.
    places: Vec<Vec<usize>>,
    outcomes: Vec<Result<Vec<u8>>>,
}

impl Asked {
    /// A call for `count` documents.
    pub(crate) fn new(count: usize) -> Self {
        let mut outcomes = Vec::new();
        outcomes.resize_with(count, || Ok(Vec::new()));
        Self { documents: Vec::with_capacity(count), places: Vec::with_capacity(count), outcomes }
    }

    /// The next document, in the order of their places in the log, or why it can't be read.
    pub(crate) fn push(&mut self, wanted: Result<Wanted>, places: &[usize]) {
        match wanted {
            Ok(wanted) => {
                self.documents.push(wanted);
                self.places.push(places.to_vec());
            }
            Err(error) => places.iter().for_each(|&place| self.outcomes[place] = Err(error.clone())),
        }
    }

    pub(crate) fn documents(&mut self) -> &mut [Wanted] {
        &mut self.documents
    }

    /// What was read, checked, in the order of the call.
    pub(crate) fn finish(mut self) -> Vec<Result<Vec<u8>>> {
        for (document, places) in self.documents.into_iter().zip(&self.places) {
            let outcome = document.finish();
            for &place in &places[1..] {
                self.outcomes[place] = outcome.clone();
            }
            self.outcomes[places[0]] = outcome;
        }
        self.outcomes
    }
}

/// Documents on their way. To drop it waits for them.
pub struct ReadAhead {
    asked: Asked,
    reading: Reading,
}

impl ReadAhead {
    pub(crate) fn begin(psync: &Psync, mut asked: Asked, in_flight: usize) -> Self {
        let reading = Reading::begin(psync, read::plan(asked.documents(), BLOCK as u64), in_flight);
        Self { asked, reading }
    }

    /// What was read, in the order of the pointers, each checked by itself.
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

/// Windows being read, no more than [`BYTES_IN_FLIGHT`] of them in memory at a time.
pub(crate) struct Reading {
    windows: Vec<Window>,
    stream: Stream,
    /// Windows that are asked for, and the bytes of those that are not here.
    next: usize,
    bytes: u64,
}

impl Reading {
    pub(crate) fn begin(psync: &Psync, windows: Vec<Window>, in_flight: usize) -> Self {
        let mut reading = Self { windows, stream: psync.stream(in_flight), next: 0, bytes: 0 };
        reading.refill(None);
        reading.stream.submit();
        reading
    }

    fn refill(&mut self, mut spare: Option<Buffer>) {
        while let Some(window) = self.windows.get(self.next)
            && self.stream.in_flight() < self.stream.depth()
            && (self.bytes == 0 || self.bytes + window.length() <= BYTES_IN_FLIGHT)
        {
            self.stream.push(window.request(self.next as u64, spare.take()));
            self.bytes += window.length();
            self.next += 1;
        }
    }

    /// Delivers everything to its documents.
    pub(crate) fn finish(mut self, documents: &mut [Wanted]) {
        while let Some(completion) = self.stream.next() {
            self.bytes -= read::deliver(&self.windows, documents, &completion);
            self.refill(completion.buffer);
        }
    }
}
