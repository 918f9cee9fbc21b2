//! Client threads at work for a while, and their observations.
//!
//! 1. [`drive`] starts the threads and, meanwhile, reports their progress to the watcher.
//! 2. Each thread records its calls in a [`Tally`] of its own. The tallies are merged when all threads have stopped.
//! 3. The time of a slice ends when the last thread stops, not when the watcher notices.
//!
//! Invariant: the first error of a thread stops the others, and `drive` returns that error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::latency::{histogram, nanoseconds_since};
use crate::ycsb::Kinds;
use crate::{Result, Watch};

/// Interval between two reports of progress to the watcher.
const TICK: Duration = Duration::from_millis(100);

/// The operations of one thread, or of several, in a slice.
pub(crate) struct Tally {
    /// Operations: keys read, records written or scanned, seeks, commits.
    pub(crate) operations: u64,
    /// Keys looked up that did not exist.
    pub(crate) not_found: u64,
    /// Bytes of keys and values put.
    pub(crate) put_bytes: u64,
    /// Latency of each call in nanoseconds.
    pub(crate) latency: Histogram<u32>,
    /// The operations of a mix by kind.
    pub(crate) kinds: Kinds,
    /// Operations of all threads in each second of the slice but the last, where operations are counted as they are
    /// done.
    pub(crate) by_second: Vec<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            operations: 0,
            not_found: 0,
            put_bytes: 0,
            latency: histogram(),
            kinds: Kinds::default(),
            by_second: Vec::new(),
        }
    }

    /// Records one call.
    pub(crate) fn call(&mut self, begun: Instant, operations: u64) {
        self.latency.saturating_record(nanoseconds_since(begun));
        self.operations += operations;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.not_found += other.not_found;
        self.put_bytes += other.put_bytes;
        self.kinds.merge(&other.kinds);
        self.by_second.extend(&other.by_second);
        self.latency.add(&other.latency).expect("histograms of one crate have the same bounds");
    }
}

/// The state that the threads of a slice share.
pub(crate) struct Shared<'a> {
    watch: &'a Watch<'a>,
    begin: Instant,
    deadline: Option<Instant>,
    /// Intended operations of all threads together, where known.
    total: Option<u64>,
    failed: AtomicBool,
    done: AtomicU64,
}

impl Shared<'_> {
    /// Whether to go on: no error elsewhere, no interrupt, time left.
    pub(crate) fn goes_on(&self) -> bool {
        let stopped = self.failed.load(Ordering::Relaxed) || self.watch.stop.load(Ordering::Relaxed);
        !stopped && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// The start of the slice.
    pub(crate) const fn begin(&self) -> Instant {
        self.begin
    }

    /// Intended operations of all threads together, where known.
    pub(crate) const fn total(&self) -> Option<u64> {
        self.total
    }

    /// The end of the slice's time, once reached.
    pub(crate) fn passed_deadline(&self) -> Option<Instant> {
        self.deadline.filter(|deadline| Instant::now() >= *deadline)
    }

    /// Waits until `due`; false when the slice has to end before then.
    pub(crate) fn sleep_until(&self, due: Instant) -> bool {
        while self.goes_on() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let end = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            thread::sleep(left.min(TICK).min(end.unwrap_or(TICK)));
        }
        false
    }

    /// Counts operations for the watcher.
    pub(crate) fn progress(&self, operations: u64) {
        self.done.fetch_add(operations, Ordering::Relaxed);
    }
}

/// Runs `work` on `threads` threads, until each returns, and merges their tallies. Returns the time from the start to
/// the end of the last thread.
pub(crate) fn drive(
    threads: usize, time: Option<Duration>, watch: &Watch<'_>, total: Option<u64>,
    work: &(dyn Fn(usize, &Shared<'_>, &mut Tally) -> Result<()> + Sync),
) -> Result<(Tally, Duration)> {
    let begin = Instant::now();
    let shared = Shared {
        watch,
        begin,
        total,
        deadline: time.map(|time| begin + time),
        failed: AtomicBool::new(false),
        done: AtomicU64::new(0),
    };
    let watcher = thread::current();
    // Operations done by the end of each second.
    let mut by_second: Vec<u64> = Vec::new();
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
            let done = shared.done.load(Ordering::Relaxed);
            if begin.elapsed().as_secs() > by_second.len() as u64 {
                by_second.push(done);
            }
            (watch.progress)(done, total);
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
    let before = std::iter::once(&0).chain(&by_second);
    all.by_second = before.zip(&by_second).map(|(before, now)| now - before).collect();
    Ok((all, longest))
}
