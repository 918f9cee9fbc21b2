//! What operations of each kind took, and the report of it.

use std::collections::BTreeMap;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Kind;
use crate::slice::{histogram, nanoseconds_since};

/// Latencies in nanoseconds of the operations of one kind.
pub(crate) struct Calls {
    /// From when each was due; where nothing says when, from when it began.
    latency: Histogram<u32>,
    /// From when each began, where that is another time.
    service: Option<Histogram<u32>>,
}

/// The operations of a run.
#[derive(Default)]
pub(crate) struct Kinds {
    kinds: BTreeMap<Kind, Calls>,
    /// Operations that were due when their slice ended, and had not begun.
    pub(crate) overdue: u64,
    /// Records that scans showed.
    pub(crate) scanned: u64,
}

impl Kinds {
    /// Records an operation that ends now.
    pub(crate) fn call(&mut self, kind: Kind, due: Option<Instant>, begun: Instant) {
        let calls = self.kinds.entry(kind).or_insert_with(|| Calls { latency: histogram(), service: None });
        calls.latency.saturating_record(nanoseconds_since(due.unwrap_or(begun)));
        if due.is_some() {
            calls.service.get_or_insert_with(histogram).saturating_record(nanoseconds_since(begun));
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        const SAME: &str = "histograms of one crate have the same bounds";
        for (kind, calls) in &other.kinds {
            let all = self.kinds.entry(*kind).or_insert_with(|| Calls { latency: histogram(), service: None });
            all.latency.add(&calls.latency).expect(SAME);
            if let Some(service) = &calls.service {
                all.service.get_or_insert_with(histogram).add(service).expect(SAME);
            }
        }
        self.overdue += other.overdue;
        self.scanned += other.scanned;
    }

    pub(crate) fn report(&self) -> Vec<KindReport> {
        let report = |(kind, calls): (&Kind, &Calls)| KindReport {
            operation: *kind,
            count: calls.latency.len(),
            latency: Latency::of(&calls.latency),
            service: calls.service.as_ref().map(Latency::of),
        };
        self.kinds.iter().map(report).collect()
    }
}

/// Latencies, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Worst.
    pub max_us: f64,
}

impl Latency {
    fn of(histogram: &Histogram<u32>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self { p50_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999), max_us: histogram.max() as f64 / 1000.0 }
    }
}

/// The operations of one kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KindReport {
    /// What they did.
    pub operation: Kind,
    /// How many.
    pub count: u64,
    /// What they took: with a target rate from when each was due, so that one that is late because of another is not left out; without one,
    /// from when it began.
    #[serde(flatten)]
    pub latency: Latency,
    /// What they took from when they began, where there is a target rate.
    pub service: Option<Latency>,
}

/// When the time of an operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencyFrom {
    /// When it was due, at the target rate: corrected for coordinated omission.
    DueTime,
    /// When its client began it, right after the one before: a slow operation hides those that would have come meanwhile.
    ClosedLoop,
}

/// What the report of a YCSB workload has besides.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbReport {
    /// Fields of a record.
    pub field_count: usize,
    /// Bytes of a field.
    pub field_length: usize,
    /// Whether an update writes all fields, and reads nothing, or one field.
    pub write_all_fields: bool,
    /// `hashed` or `ordered`.
    pub insert_order: String,
    /// Fewest digits of the number of a key.
    pub zero_padding: usize,
    /// How the records that are asked for are distributed. Null for a load.
    pub request_distribution: Option<String>,
    /// Operations per second that were asked for, of all threads together.
    pub target_ops_per_second: Option<f64>,
    /// Where latencies begin. Null for a load.
    pub latency_from: Option<LatencyFrom>,
    /// Operations that were due when their slice ended, and had not begun: more than a few where the target is beyond what can be done.
    pub overdue: u64,
    /// Records that scans showed, and that were checked.
    pub records_scanned: u64,
    /// Records in the table at the end.
    pub records_at_end: u64,
    /// What was done, by kind. Empty for a load, where all operations are inserts.
    pub operations: Vec<KindReport>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_late_operation_counts_from_when_it_was_due() {
        let now = Instant::now();
        let due = now.checked_sub(Duration::from_secs(5)).expect("the clock runs for longer");
        let mut kinds = Kinds::default();
        kinds.call(Kind::Read, Some(due), now);
        kinds.call(Kind::Insert, None, due);
        let mut all = Kinds::default();
        all.merge(&kinds);
        all.merge(&kinds);
        let [read, insert] = all.report()[..] else { panic!("two kinds") };
        assert_eq!((read.operation, read.count, insert.operation, insert.count), (Kind::Read, 2, Kind::Insert, 2));
        assert!(read.latency.p50_us >= 4.99e6 && insert.latency.p50_us >= 4.99e6, "{read:?}, {insert:?}");
        let service = read.service.expect("begun later");
        assert!(service.max_us < read.latency.p50_us, "{read:?}");
        assert!(insert.service.is_none());
    }
}
