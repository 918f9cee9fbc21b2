//! One write at a time.
//!
//! 1. A caller whose bytes are not written yet becomes the writer if nobody writes, and waits else.
//! 2. The writer takes everything that was appended by then, writes it and wakes all. What is appended meanwhile gathers
//!    for the next writer.
//!
//! Invariants: what is written is a prefix of the log; two writes are never in flight together, so neither are two
//! writes of one block; after a failure everyone gets it and nobody writes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::failure::Sticky;
use crate::{Lsn, Result};

/// Who writes, and how far it got.
#[derive(Debug)]
pub(crate) struct Writer {
    failure: Arc<Sticky>,
    busy: Mutex<bool>,
    changed: Condvar,
    written: AtomicU64,
}

impl Writer {
    pub(crate) fn new(failure: Arc<Sticky>, written: Lsn) -> Self {
        Self { failure, busy: Mutex::new(false), changed: Condvar::new(), written: AtomicU64::new(written.0) }
    }

    /// Everything below is written.
    pub(crate) fn written(&self) -> Lsn {
        Lsn(self.written.load(Ordering::Acquire))
    }

    /// Returns when everything below `end`, which is taken, is written: up to where, the end of a group. `write` writes all that
    /// was appended, keeps its failure, and returns the end of the last group.
    pub(crate) fn write_through(&self, end: Lsn, write: impl Fn() -> Result<Lsn>) -> Result<Lsn> {
        self.failure.check()?;
        let mut busy = self.busy.lock();
        // Each turn waits for a write of another, or does one, which covers `end`.
        loop {
            let written = self.written();
            if written >= end {
                return Ok(written);
            }
            self.failure.check()?;
            if *busy {
                self.changed.wait(&mut busy);
                continue;
            }
            *busy = true;
            let result = MutexGuard::unlocked(&mut busy, &write);
            *busy = false;
            if let Ok(written) = &result {
                assert!(*written >= end, "a write covers what was taken before it");
                self.written.store(written.0, Ordering::Release);
            }
            self.changed.notify_all();
            result?;
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
