//! One write at a time.
//!
//! 1. A caller whose bytes are not written yet becomes the writer if there is none, and waits otherwise. The wait
//!    begins awake, because a write into the page cache takes less time than sleeping and waking; then the caller
//!    sleeps.
//! 2. The writer takes all groups appended by then, up to the first one whose bytes are still being copied, writes them
//!    and wakes all callers. Records appended meanwhile gather for the next writer.
//! 3. If such a group keeps the writer from its end position, the writer waits until the last thread out of the slot
//!    reports the group complete ([`Writer::filled`]), and goes on.
//!
//! Invariants:
//!
//! - The written bytes are a prefix of the log.
//! - Two writes are never in flight together, so neither are two writes of one block.
//! - A failure reaches every caller, and no thread writes after a failure.

use std::sync::Arc;

use crate::failure::Sticky;
use crate::{Lsn, Result};
use sync::{AtomicU64, Condvar, Mutex, Ordering, spin_loop};

/// Looks at the written position before a caller goes to sleep. A few more looks follow that let other threads run
/// between them, because one of these may be the writer. With 2 to 64 threads on 2 cores that do not wait for the
/// device, the looks gave half as many commits again as sleeping at once. In a model each look is a turn.
const LOOKS: u32 = if cfg!(feature = "shuttle") { 1 } else { 64 };
const LOOKS_BETWEEN_OTHERS: u32 = if cfg!(feature = "shuttle") { 1 } else { 4 };

#[derive(Debug, Default)]
struct Turn {
    /// A thread is writing.
    taken: bool,
    /// Groups of slots that were filled; wraps.
    filled: u64,
}

/// The turn to write, and the written position.
#[derive(Debug)]
pub(crate) struct Writer {
    failure: Arc<Sticky>,
    turn: Mutex<Turn>,
    /// More was written, or the turn is free.
    changed: Condvar,
    /// A group was filled. Only the writer waits for it.
    filled: Condvar,
    written: AtomicU64,
}

impl Writer {
    pub(crate) fn new(failure: Arc<Sticky>, written: Lsn) -> Self {
        let (changed, filled) = (Condvar::default(), Condvar::default());
        Self { failure, turn: Mutex::new(Turn::default()), changed, filled, written: AtomicU64::new(written.0) }
    }

    /// All records below this position are written.
    pub(crate) fn written(&self) -> Lsn {
        Lsn(self.written.load(Ordering::Acquire))
    }

    /// Reports that a group is complete. The writer may be waiting for that group.
    pub(crate) fn filled(&self) {
        let mut turn = self.turn.lock();
        turn.filled = turn.filled.wrapping_add(1);
        if turn.taken {
            self.filled.notify_one();
        }
    }

    /// Returns when all records below `end`, a position up to which space was taken, are written. Returns the written
    /// position, the end of a group. `write` writes all complete groups appended so far, keeps its failure, and returns
    /// the end of the last group.
    pub(crate) fn write_through(&self, end: Lsn, write: impl Fn() -> Result<Lsn>) -> Result<Lsn> {
        self.failure.check()?;
        let mut turn = self.turn.lock();
        // In each turn the caller waits for another's write, or has the turn, which ends with `end` written or a
        // failure.
        loop {
            let written = self.written();
            if written >= end {
                return Ok(written);
            }
            self.failure.check()?;
            if turn.taken {
                drop(turn);
                self.look_beyond(written);
                let written_now = self.written();
                if written_now >= end {
                    return Ok(written_now);
                }
                turn = self.turn.lock();
                if turn.taken && self.written() == written {
                    turn = self.changed.wait(turn);
                }
                continue;
            }
            turn.taken = true;
            drop(turn);
            let result = self.write_until(end, &write);
            turn = self.turn.lock();
            turn.taken = false;
            self.changed.notify_all();
            result?;
        }
    }

    /// Waits awake for a moment, until more than `written` is written.
    fn look_beyond(&self, written: Lsn) {
        for look in 0..LOOKS + LOOKS_BETWEEN_OTHERS {
            if self.written() != written {
                return;
            }
            if look < LOOKS { spin_loop() } else { sync::yield_now() }
        }
    }

    /// Writes, with the turn, until `end` is reached.
    fn write_until(&self, end: Lsn, write: impl Fn() -> Result<Lsn>) -> Result<()> {
        loop {
            let filled = self.turn.lock().filled;
            let written = write()?;
            let mut turn = self.turn.lock();
            self.written.store(written.0, Ordering::Release);
            if written >= end {
                return Ok(());
            }
            self.changed.notify_all();
            // Only a group that is being copied is in the way, and its copying thread waits for no other.
            while turn.filled == filled {
                turn = self.filled.wait(turn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[test]
    fn writes_never_overlap_and_cover_every_caller() {
        let writer = Writer::new(Arc::default(), Lsn(0));
        let (taken, inside) = (AtomicU64::new(0), AtomicUsize::new(0));
        let write = || {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
            let end = Lsn(taken.load(Ordering::SeqCst));
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok(end)
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let end = Lsn(taken.fetch_add(8, Ordering::SeqCst) + 8);
                        let written = writer.write_through(end, write).expect("it writes");
                        assert!(written >= end);
                    }
                });
            }
        });
        assert_eq!(writer.written(), Lsn(4 * 500 * 8));
    }

    #[test]
    fn a_writer_waits_for_a_group_that_is_being_copied() {
        let writer = Writer::new(Arc::default(), Lsn(0));
        let (there, writes) = (AtomicU64::new(8), AtomicUsize::new(0));
        let write = || {
            writes.fetch_add(1, Ordering::SeqCst);
            Ok(Lsn(there.load(Ordering::SeqCst)))
        };
        thread::scope(|scope| {
            let waits = scope.spawn(|| writer.write_through(Lsn(16), write));
            // Groups in front of the hole are written, and callers that wait only for those go on.
            assert_eq!(writer.write_through(Lsn(8), write).expect("it writes"), Lsn(8));
            while writes.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            there.store(24, Ordering::SeqCst);
            writer.filled();
            assert_eq!(waits.join().expect("no panic").expect("it writes"), Lsn(24));
        });
        assert!(writes.into_inner() <= 3);
    }

    #[test]
    fn a_failure_reaches_everyone() {
        let failure = Arc::new(Sticky::default());
        let writer = Writer::new(Arc::clone(&failure), Lsn(0));
        let calls = AtomicUsize::new(0);
        let write = || {
            calls.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            let cause = psync::Error::ShortRead { path: "wal/0.log".into(), offset: 0, wanted: 1, got: 0 };
            Err(failure.set("write", cause))
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(writer.write_through(Lsn(8), write).is_err()));
            }
        });
        assert_eq!(calls.into_inner(), 1, "nobody writes after a failure");
    }
}
