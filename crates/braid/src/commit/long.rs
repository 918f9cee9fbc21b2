//! Memory for a commit whose record is longer than a segment of the log, or that has very many operations.
//!
//! 1. Such a commit is in memory twice: as its record, and in the queues. There are also lists of its operations. For
//!    all of that it takes the write buffer, and for the rest up to half of the buffer pool. Other commits wait, and
//!    what waits to be applied is applied first.
//! 2. Where the queues took more than the write buffer, they are applied before the pool gets its memory back.
//!
//! Invariant: one such commit at a time. Its bytes and those that wait are within the write buffer and the part of the
//! pool, but for the bytes of commits that were admitted before. The pool's memory goes back to the system little by
//! little, so the process may be larger meanwhile.

use parking_lot::MutexGuard;

use crate::{
    commit::claim,
    engine::Engine,
    error::{Error, Result},
    structures::pool::Taker,
};

/// The record, and its operations in the queues.
const COPIES: u64 = 2;
/// Memory of an operation in the lists that a commit makes of them, about.
const OPERATION_BYTES: u64 = 160;
/// The part of the buffer pool that a commit may take, as its divisor.
const POOL_PART: u64 = 2;

/// The memory of a long commit, taken until this is dropped.
pub(super) struct Room<'a> {
    engine: &'a Engine,
    /// Of the write buffer.
    buffer: u64,
    /// Of the buffer pool.
    pool: u64,
    _turn: MutexGuard<'a, ()>,
}

impl Engine {
    /// Most bytes of the record of a commit with so many operations.
    pub(crate) fn commit_bytes_max(&self, operations: usize) -> u64 {
        let memory = self.pressure.budget() + self.tuning.cache_bytes / POOL_PART;
        let left = memory.saturating_sub(OPERATION_BYTES * operations as u64);
        (left / COPIES).clamp(self.wal.record_bytes_max(), wal::SEQUENCED_BYTES_MAX)
    }

    /// Takes memory, and makes segments of the log, for a commit that takes as much as one of a whole segment, be it by
    /// its bytes or by its operations. None for an ordinary one.
    pub(super) fn take_room(&self, record_bytes: u64, operations: usize, reclaims: bool) -> Result<Option<Room<'_>>> {
        let bytes = COPIES * record_bytes + OPERATION_BYTES * operations as u64;
        if bytes <= COPIES * self.wal.record_bytes_max() {
            return Ok(None);
        }
        let turn = self.long_commit.lock();
        let buffer = bytes.min(self.pressure.budget());
        // A record of one segment is allowed, even if its operations take more than that.
        let pool = (bytes - buffer).min(self.tuning.cache_bytes / POOL_PART);
        let room = Room { engine: self, buffer, pool, _turn: turn };
        self.loans.call_in(self.pressure.reserve(buffer), &self.structures);
        self.take_from_pool(Taker::Commit, room.pool);
        match self.ask(false) {
            // On a full disk deletes are the way out.
            Err(error) if reclaims && error.is_no_space() => {}
            applied => applied?,
        }
        match self.wal.prepare_for(record_bytes, claim(reclaims)) {
            // The append finds out whether more room can be made.
            Err(wal::Error::Full { .. }) => {}
            made => made.map_err(|error| self.write_error(error.into()))?,
        }
        Ok(Some(room))
    }
}

impl Room<'_> {
    /// Gives the memory back, once the commit is visible.
    pub(super) fn end(self) {
        if self.pool > 0 {
            // Whether this works or not, the commit has happened.
            let _: std::result::Result<(), Error> = self.engine.ask(false);
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.engine.take_from_pool(Taker::Commit, 0);
        self.engine.pressure.forget(self.buffer);
        // Nothing is left where the record was appended. What cannot be removed now goes with a later trim.
        let _ = self.engine.wal.unprepare();
        self.engine.lend();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;

    use crate::options::Options;

    #[test]
    fn very_many_operations_take_memory_as_a_long_record_does() {
        let options = Options::new().memory_bytes(64 << 20).background(false);
        let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
        let engine = db.engine();
        assert!(engine.take_room(1 << 20, 1000, false).expect("is ordinary").is_none());
        let (buffer, cache) = (engine.pressure.budget(), engine.tuning.cache_bytes);
        let room = engine.take_room(1 << 20, 1_000_000, false).expect("has room").expect("takes a lot");
        assert_eq!((room.buffer, room.pool), (buffer, cache / super::POOL_PART));
        assert_eq!(engine.pressure.used(), buffer);
        drop(room);
        assert_eq!(engine.pressure.used(), 0);
    }
}
