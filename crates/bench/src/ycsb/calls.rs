//! The latencies of operations of each kind, and their report.

use std::collections::BTreeMap;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Kind;
use crate::latency::{histogram, nanoseconds_since};

/// Latencies in nanoseconds of the operations of one kind.
pub(crate) struct Calls {
    /// From the due time of each operation; without due times, from its beginning.
    latency: Histogram<u32>,
    /// From the beginning of each operation, where operations have due times.
    service: Option<Histogram<u32>>,
}

/// The operations of a run.
#[derive(Default)]
pub(crate) struct Kinds {
    kinds: BTreeMap<Kind, Calls>,
    /// Operations that were due when their slice ended, and had not begun.
    pub(crate) overdue: u64,
    /// Records returned by scans.
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
    /// The kind of the operations.
    pub operation: Kind,
    /// Number of operations.
    pub count: u64,
    /// The latencies of the operations. With a target rate they count from the due time of each operation, so that an
    /// operation delayed by another is not left out; without a target rate, from the beginning of each operation.
    #[serde(flatten)]
    pub latency: Latency,
    /// The latencies from the beginning of each operation, where there is a target rate.
    pub service: Option<Latency>,
}

/// The moment at which the latency of an operation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencyFrom {
    /// The due time at the target rate: corrected for coordinated omission.
    DueTime,
    /// The moment at which the client began the operation, right after the one before: a slow operation hides those
    /// that would have come meanwhile.
    ClosedLoop,
}

/// Further contents of the report of a YCSB workload.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbReport {
    /// Fields of a record.
    pub field_count: usize,
    /// Bytes of a field.
    pub field_length: usize,
    /// Whether an update writes all fields without reading the record, or reads the record and writes one field.
    pub write_all_fields: bool,
    /// `hashed` or `ordered`.
    pub insert_order: String,
    /// Fewest digits of the number of a key.
    pub zero_padding: usize,
    /// The distribution of the requested records. Null for a load.
    pub request_distribution: Option<String>,
    /// The target rate in operations per second, of all threads together.
    pub target_ops_per_second: Option<f64>,
    /// The moment at which latencies begin. Null for a load.
    pub latency_from: Option<LatencyFrom>,
    /// Operations that were due when their slice ended, and had not begun: more than a few where the target is beyond
    /// the capacity of the store.
    pub overdue: u64,
    /// Records that scans returned, all of them checked.
    pub records_scanned: u64,
    /// Records in the table at the end.
    pub records_at_end: u64,
    /// The operations by kind. Empty for a load, where all operations are inserts.
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
