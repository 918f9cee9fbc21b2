//! Priority of foreground reads over background work.
//!
//! 1. A thread of background work, for which nobody waits, enters [`Background`], much as a thread lowers its priority
//!    with `ioprio_set`. All other threads are foreground, and each of their calls that starts reads is counted.
//! 2. Background work looks at the count each time before it starts requests. If the count moved, background work keeps
//!    few requests in flight for a while, in small pieces. An arriving read then queues behind those few, not behind a
//!    whole batch.
//! 3. Where nobody reads, background work has the device to itself, at full depth.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The time for which background work makes way after a foreground read began: longer than the pause of a reader
/// between two reads.
const WAY: Duration = Duration::from_millis(1);

/// Most bytes that background work hands to the device in one piece while making way, because a read waits for pieces
/// that are under way.
const PIECE_BYTES: usize = 64 << 10;

/// Requests that background work keeps in flight beside readers by default. A read then waits for one of them at most;
/// with three, the 99th percentile of reads beside a batch update was four times as long.
const BACKGROUND_DEPTH_DEFAULT: usize = 1;

thread_local! {
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// While this value lives, the I/O of its thread makes way for reads of other threads. Beside them the thread keeps few
/// requests in flight ([`crate::Psync::set_background_depth`]); alone, it has the full depth.
#[derive(Debug)]
pub struct Background {
    before: bool,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Background {
    /// Makes this thread's I/O background from now on.
    #[must_use]
    pub fn enter() -> Self {
        Self { before: IS_BACKGROUND.replace(true), stays_on_its_thread: PhantomData }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        IS_BACKGROUND.set(self.before);
    }
}

/// State shared by the users of one backend.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Foreground calls that read, so far.
    reads: AtomicU64,
    /// Requests that background work keeps in flight beside readers.
    pub(crate) background_depth: AtomicUsize,
}

impl Default for Shared {
    fn default() -> Self {
        Self { reads: AtomicU64::new(0), background_depth: AtomicUsize::new(BACKGROUND_DEPTH_DEFAULT) }
    }
}

/// One queue's part in the traffic.
#[derive(Debug)]
pub(crate) enum Traffic {
    /// Others make way for this queue's reads.
    Foreground(Arc<Shared>),
    /// This queue makes way for the reads of others.
    Background {
        /// The count of reads, and the depth beside readers.
        shared: Arc<Shared>,
        /// The count at the last look.
        seen: u64,
        /// The time until which the queue makes way.
        until: Option<Instant>,
        /// Whether the queue made way at the last look.
        makes_way: bool,
    },
}

impl Traffic {
    /// The part of a queue on the calling thread.
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        if IS_BACKGROUND.get() {
            let seen = shared.reads.load(Ordering::Relaxed);
            Self::Background { shared, seen, until: None, makes_way: false }
        } else {
            Self::Foreground(shared)
        }
    }

    /// Counts a foreground call that is about to start reads.
    pub(crate) fn reading(&self) {
        if let Self::Foreground(shared) = self {
            shared.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests that may be in flight now, of at most `depth`.
    pub(crate) fn depth(&mut self, depth: usize) -> usize {
        let Self::Background { shared, seen, until, makes_way } = self else { return depth };
        let (reads, now) = (shared.reads.load(Ordering::Relaxed), Instant::now());
        if reads != *seen {
            *seen = reads;
            *until = Some(now + WAY);
        }
        *makes_way = until.is_some_and(|until| now < until);
        if *makes_way { depth.min(shared.background_depth.load(Ordering::Relaxed)) } else { depth }
    }

    /// Bytes of a request that may be handed to the device at once; the rest follows.
    pub(crate) const fn piece_bytes(&self) -> usize {
        if self.makes_way() { PIECE_BYTES } else { usize::MAX }
    }

    /// Whether the queue had less of the device than it could have had, at the last look.
    pub(crate) const fn makes_way(&self) -> bool {
        matches!(self, Self::Background { makes_way: true, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_work_makes_way_for_reads_of_others_and_only_for_them() {
        let shared = Arc::new(Shared::default());
        shared.background_depth.store(3, Ordering::Relaxed);
        let foreground = Traffic::new(&shared);
        let inner = Background::enter();
        let mut background = Traffic::new(&shared);
        drop(inner);
        assert!(matches!(Traffic::new(&shared), Traffic::Foreground(_)));
        assert_eq!(background.depth(128), 128);
        background.reading();
        assert_eq!(background.depth(128), 128, "its own reads do not count");
        foreground.reading();
        assert_eq!(background.piece_bytes(), usize::MAX);
        assert_eq!(background.depth(128), 3);
        assert_eq!(background.piece_bytes(), PIECE_BYTES);
        assert_eq!(background.depth(2), 2);
        let Traffic::Background { until, .. } = &mut background else { panic!("entered") };
        *until = Some(Instant::now());
        assert_eq!(background.depth(128), 128, "nobody read since");
    }
}
