//! Latencies in nanoseconds.

use std::time::Instant;

use hdrhistogram::Histogram;

/// Longest latency that a histogram keeps apart: one hour in nanoseconds.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
/// Decimal digits of a latency that are kept: within a hundredth. With a third digit the histograms of 64 threads would
/// take more memory than many a database.
const DIGITS: u8 = 2;

/// A histogram of latencies.
pub(crate) fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS).expect("the bounds are constants that hdrhistogram takes")
}

pub(crate) fn nanoseconds_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(LATENCY_MAX_NS)
}
