//! The additional options and figures of YCSB workloads.

use bench::Workload;
use bench::ycsb::{Distribution, InsertOrder, Latency, LatencyFrom, Settings, Shape, YcsbReport};
use clap::Args;

use crate::exit::{Error, Result};
use crate::units::{bytes, count, microseconds, number, parse_count, parse_size, to_usize};

const HEADING: &str = "YCSB options";

/// The options. Each is none where it is not given.
#[derive(Args, Debug)]
pub(super) struct Ycsb {
    /// Operations of ycsb-a to ycsb-f, over all pairs and threads; --duration, if given, ends them earlier [default: as
    /// many as fit --duration]
    #[arg(long, help_heading = HEADING, value_name = "COUNT", value_parser = parse_count)]
    operations: Option<u64>,
    /// Operations per second of all threads together; latencies then count from when each was due [default: one after
    /// another, as fast as they come]
    #[arg(long, help_heading = HEADING, value_name = "COUNT", value_parser = parse_count)]
    target: Option<u64>,
    /// How records are asked for: `uniform`, `zipfian` (popular ones are scattered), `clustered` (the first are
    /// popular) or `latest` [default: zipfian; latest in ycsb-d]
    #[arg(long, help_heading = HEADING, value_name = "DISTRIBUTION")]
    request_distribution: Option<Distribution>,
    /// Fields of a record [default: 10]
    #[arg(long, help_heading = HEADING, value_name = "COUNT", value_parser = parse_count)]
    field_count: Option<u64>,
    /// Bytes of a field [default: 100]
    #[arg(long, help_heading = HEADING, value_name = "SIZE", value_parser = parse_size)]
    field_length: Option<u64>,
    /// An update writes all fields without reading the record, instead of reading it and writing one
    #[arg(long, help_heading = HEADING)]
    write_all_fields: bool,
    /// Whether a key's number is the hash of the record's index, or the index: `hashed` or `ordered` [default: hashed]
    #[arg(long, help_heading = HEADING, value_name = "ORDER")]
    insert_order: Option<InsertOrder>,
    /// Fewest digits of a key's number [default: 1]
    #[arg(long, help_heading = HEADING, value_name = "COUNT", value_parser = parse_count)]
    zero_padding: Option<u64>,
}

impl Ycsb {
    /// Refuses options that none of the workloads has.
    pub(super) fn check(&self, workloads: &[Workload]) -> Result<()> {
        let has_mix = workloads.iter().any(|workload| matches!(workload, Workload::Ycsb(_)));
        let is_ycsb = workloads.iter().any(|workload| workload.is_ycsb());
        let given = [
            ("--operations", self.operations.is_some(), has_mix),
            ("--target", self.target.is_some(), has_mix),
            ("--request-distribution", self.request_distribution.is_some(), has_mix),
            ("--write-all-fields", self.write_all_fields, has_mix),
            ("--field-count", self.field_count.is_some(), is_ycsb),
            ("--field-length", self.field_length.is_some(), is_ycsb),
            ("--insert-order", self.insert_order.is_some(), is_ycsb),
            ("--zero-padding", self.zero_padding.is_some(), is_ycsb),
        ];
        match given.into_iter().find(|(_, is_given, is_used)| *is_given && !is_used) {
            Some((option, ..)) => {
                Err(Error::Usage(format!("{option} is for workloads ycsb-a to ycsb-f: none of them is to run")))
            }
            None => Ok(()),
        }
    }

    pub(super) fn settings(&self) -> Settings {
        let default = Shape::default();
        let or = |value: Option<u64>, default: usize| value.map_or(default, to_usize);
        Settings {
            shape: Shape {
                field_count: or(self.field_count, default.field_count),
                field_length: or(self.field_length, default.field_length),
                insert_order: self.insert_order.unwrap_or(default.insert_order),
                zero_padding: or(self.zero_padding, default.zero_padding),
            },
            write_all_fields: self.write_all_fields,
            distribution: self.request_distribution,
            operations: self.operations,
            target: self.target.map(|target| target as f64),
        }
    }
}

/// What a person sees of it.
pub(super) fn rows(report: &YcsbReport) -> Vec<Vec<String>> {
    let plain = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = Vec::new();
    let from_due = report.latency_from == Some(LatencyFrom::DueTime);
    for kind in &report.operations {
        rows.push(plain(kind.operation.name(), count(kind.count)));
        let due = if from_due { ", from when due" } else { "" };
        rows.push(plain(&format!("  p50, p99, p99.9{due}"), percentiles(&kind.latency)));
        if let Some(service) = &kind.service {
            rows.push(plain("  the same, from when begun", percentiles(service)));
        }
    }
    if report.records_scanned > 0 {
        rows.push(plain("records scanned, and right", count(report.records_scanned)));
    }
    let fields = format!("{} of {}", count(report.field_count as u64), bytes(report.field_length as u64));
    rows.push(plain("fields", fields));
    if let Some(distribution) = &report.request_distribution {
        rows.push(plain("requests", distribution.clone()));
    }
    rows.push(plain("records at the end", count(report.records_at_end)));
    rows
}

/// What a person should know to read it.
pub(super) fn notes(report: &YcsbReport) -> Vec<String> {
    let mut notes = Vec::new();
    match report.latency_from {
        Some(LatencyFrom::ClosedLoop) => notes.push(
            "latencies are those of a closed loop: who waits asks for nothing meanwhile; --target counts what was due"
                .into(),
        ),
        Some(LatencyFrom::DueTime) => {
            notes.push("latencies from when due include what a timer of the system is late".into())
        }
        None => {}
    }
    if let Some(target) = report.target_ops_per_second.filter(|_| report.overdue > 0) {
        let overdue = count(report.overdue);
        notes.push(format!("{overdue} operations were due and not begun: {}/s is more than was done", number(target)));
    }
    notes
}

fn percentiles(latency: &Latency) -> String {
    [latency.p50_us, latency.p99_us, latency.p999_us].map(microseconds).join(", ")
}
