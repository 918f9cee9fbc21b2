//! Client threads at work for a while, and what they saw.
//!
//! 1. [`drive`] starts the threads and, meanwhile, tells the watcher how far they are.
//! 2. Each thread records its calls in a [`Tally`] of its own; they are merged when all have stopped.
//! 3. The time of a slice ends when the last thread stops, not when somebody notices.
//!
//! Invariant: the first error of a thread stops the others and is what `drive` returns.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Result;
use crate::run::Watch;

/// How often the watcher hears of progress.
const TICK: Duration = Duration::from_millis(100);
/// Longest latency that a histogram keeps apart: one hour in nanoseconds.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// What a thread, or several, did in a slice.
pub(crate) struct Tally {
    /// Operations: keys read, records written or scanned, seeks, commits.
    pub(crate) operations: u64,
    /// Keys looked up and not there.
    pub(crate) not_found: u64,
    /// Latency of each call in nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let latency =
            Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are constants that hdrhistogram takes");
        Self { operations: 0, not_found: 0, latency }
    }

    /// Records one call.
    pub(crate) fn call(&mut self, begun: Instant, operations: u64) {
        let nanoseconds = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(LATENCY_MAX_NS);
        self.latency.saturating_record(nanoseconds);
        self.operations += operations;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.not_found += other.not_found;
        self.latency.add(&other.latency).expect("histograms of one crate have the same bounds");
    }
}

/// What the threads of a slice share.
pub(crate) struct Shared<'a> {
    watch: &'a Watch<'a>,
    deadline: Option<Instant>,
    failed: AtomicBool,
    done: AtomicU64,
}

impl Shared<'_> {
    /// Whether to go on: no error elsewhere, no interrupt, time left.
    pub(crate) fn goes_on(&self) -> bool {
        let stopped = self.failed.load(Ordering::Relaxed) || self.watch.stop.load(Ordering::Relaxed);
        !stopped && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Counts operations for the watcher.
    pub(crate) fn progress(&self, operations: u64) {
        self.done.fetch_add(operations, Ordering::Relaxed);
    }
}

/// Runs `work` on `threads` threads, until each returns, and merges what they saw. Returns the time from start to the last one's end.
pub(crate) fn drive(
    threads: usize, time: Option<Duration>, watch: &Watch<'_>, total: Option<u64>,
    work: &(dyn Fn(usize, &Shared<'_>, &mut Tally) -> Result<()> + Sync),
) -> Result<(Tally, Duration)> {
    let begin = Instant::now();
    let shared = Shared {
        watch,
        deadline: time.map(|time| begin + time),
        failed: AtomicBool::new(false),
        done: AtomicU64::new(0),
    };
    let watcher = thread::current();
    let one = |thread: usize| {
        let mut tally = Tally::new();
        let result = work(thread, &shared, &mut tally);
        if result.is_err() {
            shared.failed.store(true, Ordering::Relaxed);
        }
        let elapsed = begin.elapsed();
        watcher.unpark();
        result.map(|()| (tally, elapsed))
    };
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::park_timeout(TICK);
            (watch.progress)(shared.done.load(Ordering::Relaxed), total);
        }
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let (mut all, mut longest) = (Tally::new(), Duration::ZERO);
    for result in results {
        let (tally, elapsed) = result?;
        all.merge(&tally);
        longest = longest.max(elapsed);
    }
    Ok((all, longest))
}
