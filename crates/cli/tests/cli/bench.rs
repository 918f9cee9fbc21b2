//! `braid bench` with tiny inputs: every workload runs and reports every field.

use crate::common::{Place, braid};
use serde_json::Value;

const FIELDS: [&str; 20] = [
    "workload",
    "structure",
    "compression",
    "backend",
    "durability",
    "threads",
    "batch",
    "num",
    "key_size",
    "value_size",
    "cache_bytes",
    "ops_per_second",
    "p50_us",
    "p99_us",
    "p999_us",
    "read_bytes",
    "written_bytes",
    "device_ops_per_second",
    "device_share",
    "device_random_read",
];

fn field(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name} is no number in {report}"))
}

#[test]
fn every_workload_reports_every_field() {
    let place = Place::new();
    let db = place.database();
    let all = "fillseq,fillrandom,overwrite,readrandom,multireadrandom,readseq,seekrandom,readwhilewriting,\
         seekrandomwhilewriting,commit";
    let run = |workloads: &str, num: &str| {
        let times = ["--num", num, "--duration", "100ms", "--pairs", "2", "--threads", "2"];
        let memory = ["--cache", "1m", "--write-buffer", "1m", "--cold"];
        braid(&[&["bench", workloads, "--db", &db, "--json"], &times[..], &memory[..]].concat()).expect(0).json()
    };
    let mut reports = run(all, "20k");
    // Each job is three durable commits.
    reports.extend(run("queue", "500"));
    let names: Vec<_> = reports.iter().map(|report| report["workload"].as_str().expect("a name")).collect();
    assert_eq!(names.join(","), format!("{all},queue"));
    for report in &reports {
        for name in FIELDS {
            assert!(report.get(name).is_some_and(|value| !value.is_null()), "{name} in {report}");
        }
        assert!(field(report, "ops_per_second") > 0.0, "{report}");
        assert!(field(report, "device_share") > 0.0, "{report}");
        assert!(field(report, "p50_us") <= field(report, "p999_us"), "{report}");
        assert_eq!(report["not_found"], 0, "{report}");
        assert_eq!(report["interrupted"], false, "{report}");
        assert_eq!(report["device_random_read"].as_array().expect("depths").len(), 3);
    }
    for fill in &reports[..3] {
        assert_eq!(fill["operations"], 20_000);
        assert!(field(fill, "write_amplification") > 1.0, "what was put is in the log and in the table: {fill}");
    }
    // Data in the cache needs no read; a scan reads many records in one.
    for read in &reports[3..7] {
        let reads = field(read, "reads_per_operation");
        assert!(reads > 0.0 && reads < 20.0, "{read}");
    }
}

#[test]
fn a_kept_database_is_read_as_large_as_it_is() {
    let place = Place::new();
    let db = place.database();
    braid(&["bench", "fillrandom", "--db", &db, "--num", "3000", "--batch", "100", "--threads", "3"]).expect(0);
    assert_eq!(braid(&["scan", &db, "--table", "bench", "--keys-only"]).expect(0).text().lines().count(), 3000);
    let quick = ["--db", &db, "--duration", "50ms", "--pairs", "1", "--json"];
    let report = &braid(&[&["bench", "readrandom"], &quick[..]].concat()).expect(0).json()[0];
    assert_eq!((&report["num"], &report["not_found"]), (&3000.into(), &0.into()));
    let report = &braid(&[&["bench", "readrandom", "--num", "6000"], &quick[..]].concat()).expect(0).json()[0];
    assert!(field(report, "not_found") > 0.0, "{report}");
    braid(&["verify", &db]).expect(0);
}

#[test]
fn people_get_a_table() {
    let answer = braid(&["bench", "fillrandom,multireadrandom", "--num", "2000", "--duration", "50ms", "--pairs", "1"])
        .expect(0);
    for part in ["device alone", "share", "random read of", "fdatasync", "latency p99.9", "write amplification"] {
        assert!(answer.text().contains(part), "{part} in {}", answer.text());
    }
}

#[test]
fn a_table_of_somebody_else_is_left_alone() {
    let place = Place::new();
    let db = place.database();
    braid(&["put", &db, "mine", "value", "--table", "bench"]).expect(0);
    braid(&["bench", "fillseq", "--db", &db, "--num", "10"]).expect(2).says("bench");
    assert_eq!(braid(&["get", &db, "mine", "--table", "bench"]).expect(0).text(), "value");
    let other = crate::common::text(&place.path("other"));
    braid(&["bench", "readrandom", "--db", &other]).expect(2).says("fillrandom");
}
