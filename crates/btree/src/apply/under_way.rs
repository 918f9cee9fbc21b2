//! Reads and writes that run while a window of leaves is computed.
//!
//! Every write goes to new pages, or behind the published bytes of a leaf, so no byte that is read meanwhile changes.
//! The reads of one window at a time are under way, and the writes of one, which bounds their memory. A batch is done
//! when all of its writes are ([`Writes::finish`]).

use std::iter;

use index::Result;
use psync::{Completion, Psync, Request, Stream};

/// Reads that are under way.
pub(super) struct Reads {
    stream: Stream,
}

impl Reads {
    pub(super) fn new(psync: &Psync) -> Self {
        Self { stream: psync.stream(psync.pio_max()) }
    }

    /// Starts reads; no read may be under way.
    pub(super) fn start(&mut self, reads: Vec<Request>) {
        reads.into_iter().for_each(|read| self.stream.push(read));
        self.stream.submit();
    }

    /// Waits for all reads.
    pub(super) fn finish(&mut self) -> Vec<Completion> {
        complete(&mut self.stream).collect()
    }
}

/// Writes that are under way. Dropping the value waits for them.
pub(super) struct Writes {
    stream: Stream,
}

impl Writes {
    pub(super) fn new(psync: &Psync) -> Self {
        Self { stream: psync.stream(psync.pio_max()) }
    }

    /// Starts writes, after the earlier writes are complete.
    ///
    /// # Errors
    /// Where an earlier write failed.
    pub(super) fn start(&mut self, writes: Vec<Request>) -> Result<()> {
        self.finish()?;
        writes.into_iter().for_each(|write| self.stream.push(write));
        self.stream.submit();
        Ok(())
    }

    /// Waits for all writes.
    ///
    /// # Errors
    /// Where a write failed; all writes are complete nevertheless.
    pub(super) fn finish(&mut self) -> Result<()> {
        let results = complete(&mut self.stream).map(|completion| completion.result.err());
        results.fold(None, psync::Error::of_both).map_or(Ok(()), |error| Err(error.into()))
    }
}

/// All operations under way, as they complete.
fn complete(stream: &mut Stream) -> impl Iterator<Item = Completion> {
    iter::from_fn(|| {
        stream.gather(stream.in_flight());
        stream.next()
    })
}
