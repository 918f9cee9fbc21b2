//! Threads that work for a time, and the part of their work that counts.
//!
//! 1. Each thread does one operation after another and counts them in its own counter, on a cache line of its own.
//! 2. The counters are read only twice: after the warm-up and at the end of the time. The operations in between count,
//!    so threads that start or end late change nothing.
//!
//! Where no operation has ended when the time is over, the measurement goes on until one has, for a bounded time,
//! because a slow store has a low rate, not none.
//!
//! Invariants: a thread that fails stops all of them; a time without any operation is an error, not a rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::process::read_bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Interval between two checks for a failed thread.
const TICK: Duration = Duration::from_millis(20);
/// The longest wait for a first operation after the time is over.
const PATIENCE: Duration = Duration::from_secs(30);

/// The durations of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// The time before anything counts.
    pub(crate) warm_up: Duration,
    /// The time that counts.
    pub(crate) time: Duration,
}

/// The work done in the time that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    /// Bytes that the process read from the device.
    pub(crate) read_bytes: Option<u64>,
}

impl Measured {
    pub(crate) fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// Aligned to two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

/// The state that a thread shares with the others.
pub(crate) struct Worker<'a> {
    counter: &'a Counter,
    stop: &'a AtomicBool,
}

impl Worker<'_> {
    /// Whether to do another operation.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Counts completed operations.
    #[inline]
    pub(crate) fn done(&self, operations: u64) {
        // Only this thread writes the counter.
        self.counter.0.store(self.counter.0.load(Ordering::Relaxed) + operations, Ordering::Relaxed);
    }
}

/// Runs `work` on so many threads.
pub(crate) fn drive(
    threads: usize, pace: Pace, work: &(dyn Fn(usize, &Worker<'_>) -> Result<()> + Sync),
) -> Result<Measured> {
    drive_for(threads, pace, PATIENCE, work)
}

fn drive_for(
    threads: usize, pace: Pace, patience: Duration, work: &(dyn Fn(usize, &Worker<'_>) -> Result<()> + Sync),
) -> Result<Measured> {
    let counters: Vec<Counter> = (0..threads).map(|_| Counter::default()).collect();
    let stop = AtomicBool::new(false);
    let sum = || counters.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum::<u64>();
    let wait = |time: Duration| {
        let end = Instant::now() + time;
        while !stop.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(TICK));
        }
    };
    let (measured, results) = thread::scope(|scope| {
        let one = |(thread, counter)| {
            let stop = &stop;
            scope.spawn(move || {
                let result = work(thread, &Worker { counter, stop });
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                result
            })
        };
        let workers: Vec<_> = counters.iter().enumerate().map(one).collect();
        wait(pace.warm_up);
        let (bytes, begun, before) = (read_bytes(), Instant::now(), sum());
        wait(pace.time);
        let last = Instant::now() + patience;
        while sum() == before && !stop.load(Ordering::Relaxed) && Instant::now() < last {
            wait(TICK);
        }
        let (operations, seconds) = (sum() - before, begun.elapsed().as_secs_f64());
        let read_bytes = read_bytes().zip(bytes).map(|(now, then)| now.saturating_sub(then));
        stop.store(true, Ordering::Relaxed);
        let join = |worker: thread::ScopedJoinHandle<'_, Result<()>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let results: Vec<Result<()>> = workers.into_iter().map(join).collect();
        (Measured { operations, seconds, read_bytes }, results)
    });
    results.into_iter().collect::<Result<Vec<()>>>()?;
    if measured.operations == 0 {
        return Err(Error::Invalid(format!("not one operation ended in {:.1} s", measured.seconds)));
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { warm_up: Duration::from_millis(5), time: Duration::from_millis(20) };

    #[test]
    fn what_all_threads_do_counts() {
        let begun = AtomicU64::new(0);
        let measured = drive(3, PACE, &|_, worker| {
            begun.fetch_add(1, Ordering::Relaxed);
            while worker.goes_on() {
                worker.done(2);
            }
            Ok(())
        })
        .expect("driven");
        assert_eq!(begun.into_inner(), 3);
        assert!(measured.operations > 0 && measured.operations.is_multiple_of(2) && measured.per_second() > 0.0);
    }

    #[test]
    fn a_thread_that_fails_stops_the_others() {
        let pace = Pace { warm_up: Duration::ZERO, time: Duration::from_secs(3600) };
        let failed = drive(2, pace, &|thread, worker| {
            while thread == 0 && worker.goes_on() {
                worker.done(1);
            }
            if thread == 0 { Ok(()) } else { Err(Error::Wrong("so".into())) }
        });
        assert!(matches!(failed, Err(Error::Wrong(_))));
    }

    #[test]
    fn one_slow_operation_is_waited_for() {
        let measured = drive(1, PACE, &|_, worker| {
            thread::sleep(PACE.warm_up + PACE.time * 3);
            worker.done(1);
            Ok(())
        });
        let measured = measured.expect("driven");
        assert!(measured.operations == 1 && measured.seconds > PACE.time.as_secs_f64());
    }

    #[test]
    fn nothing_done_is_no_rate() {
        let idle = drive_for(1, PACE, PACE.time, &|_, worker| {
            while worker.goes_on() {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        assert!(matches!(idle, Err(Error::Invalid(_))));
    }
}
