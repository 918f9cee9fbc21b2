//! `braid bench` with the core workloads of YCSB, on small tables.

use serde_json::Value;

use crate::common::{Answer, Place, braid};

const MIXES: [(&str, &str, f64, &str); 6] = [
    ("ycsb-a", "read", 0.5, "update"),
    ("ycsb-b", "read", 0.95, "update"),
    ("ycsb-c", "read", 1.0, "read"),
    ("ycsb-d", "read", 0.95, "insert"),
    ("ycsb-e", "scan", 0.95, "insert"),
    ("ycsb-f", "read", 0.5, "read_modify_write"),
];

const OPERATIONS: u64 = 2000;
const RECORDS: u64 = 3000;

fn bench(db: &str, arguments: &[&str]) -> Answer {
    let common = ["--db", db, "--warm-up", "20ms", "--pairs", "2", "--cache", "1m", "--write-buffer", "1m", "--json"];
    braid(&[&["bench"], arguments, &common[..]].concat())
}

fn counts(report: &Value) -> Vec<(String, u64)> {
    let operations = report["ycsb"]["operations"].as_array().expect("kinds");
    let one = |kind: &Value| {
        (kind["operation"].as_str().expect("a name").to_owned(), kind["count"].as_u64().expect("a count"))
    };
    operations.iter().map(one).collect()
}

fn count_of(report: &Value, kind: &str) -> u64 {
    counts(report).into_iter().find(|(name, _)| name == kind).map_or(0, |(_, count)| count)
}

#[test]
fn every_core_workload_does_its_operations() {
    core_workloads("btree");
}

#[test]
fn every_core_workload_does_its_operations_on_tries() {
    core_workloads("append");
}

fn core_workloads(structure: &str) {
    let place = Place::new();
    let db = place.database();
    let all = "ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-f,ycsb-d,ycsb-e";
    let arguments =
        [all, "--num", "3k", "--operations", "2k", "--threads", "3", "--seed", "7", "--structure", structure];
    let reports = bench(&db, &arguments).expect(0).json();
    let names: Vec<_> = reports.iter().map(|report| report["workload"].as_str().expect("a name")).collect();
    assert_eq!(names.join(","), all);
    let load = &reports[0];
    assert_eq!((&load["operations"], &load["ycsb"]["records_at_end"]), (&RECORDS.into(), &RECORDS.into()));
    assert_eq!(
        (&load["value_size"], &load["structure"], &load["durability"]),
        (&1000.into(), &structure.into(), &"os".into())
    );
    // Some file systems have no block device of their own.
    let is_counted = bench::block::written_bytes(db.as_ref()).is_some();
    assert_eq!(load["write_amplification"].as_f64().map(|times| times > 1.0), is_counted.then_some(true), "{load}");
    for (name, frequent, share, other) in MIXES {
        let report = reports.iter().find(|report| report["workload"] == name).expect("it ran");
        let ycsb = &report["ycsb"];
        assert_eq!(report["operations"], OPERATIONS, "{report}");
        let frequent = count_of(report, frequent);
        let others = if share < 1.0 { count_of(report, other) } else { 0 };
        assert_eq!(frequent + others, OPERATIONS, "{report}");
        // Five standard deviations; with the seed given, always the same number.
        let spread = 5.0 * (OPERATIONS as f64 * share * (1.0 - share)).sqrt();
        assert!((frequent as f64 - OPERATIONS as f64 * share).abs() <= spread, "{report}");
        let inserted = ycsb["records_at_end"].as_u64().expect("a count") - report["num"].as_u64().expect("a count");
        // Those of the warm-up are not counted, but are there.
        assert!(if other == "insert" { inserted >= others } else { inserted == 0 }, "{report}");
        let distribution = if name == "ycsb-d" { "latest" } else { "zipfian" };
        assert_eq!(
            (&ycsb["request_distribution"], &ycsb["latency_from"]),
            (&distribution.into(), &"closed_loop".into())
        );
        assert_eq!(ycsb["records_scanned"].as_u64() > Some(0), name == "ycsb-e", "{report}");
        assert_eq!(report["not_found"], 0, "{report}");
        for field in
            ["device_ops_per_second", "device_share", "cache_bytes", "database_bytes", "ops_per_second", "p999_us"]
        {
            assert!(report[field].as_f64().is_some_and(|value| value > 0.0), "{field} in {report}");
        }
    }
    // Exact by seed, however threads took turns.
    let again = &bench(&db, &[&["ycsb-e"], &arguments[3..]].concat()).expect(0).json()[0];
    assert_eq!(counts(again), counts(&reports[6]));
    let other =
        &bench(&db, &["ycsb-e", "--operations", "2k", "--seed", "8", "--structure", structure]).expect(0).json()[0];
    assert_ne!(counts(other), counts(&reports[6]));
    braid(&["verify", &db]).expect(0);
}

#[test]
fn keys_are_those_of_ycsb() {
    let place = Place::new();
    let db = place.database();
    bench(&db, &["ycsb-load", "--num", "2", "--batch", "2"]).expect(0);
    let keys = || braid(&["scan", &db, "--table", "usertable", "--keys-only"]).expect(0).text();
    assert_eq!(keys(), "user6284781860667377211\nuser8517097267634966620\n");
    // It is of another shape, so it is not this run's to replace.
    let ordered = ["--insert-order", "ordered", "--zero-padding", "6"];
    let other = [&["ycsb-load", "--num", "2"], &ordered[..]].concat();
    bench(&db, &other).expect(2).says("--insert-order ordered --zero-padding 6");
    let place = Place::new();
    let db = place.database();
    bench(&db, &other).expect(0);
    let keys = braid(&["scan", &db, "--table", "usertable", "--keys-only"]).expect(0).text();
    assert_eq!(keys, "user000000\nuser000001\n");
    let fields = ["--field-count", "3", "--field-length", "4k", "--write-all-fields"];
    let place = Place::new();
    let db = place.database();
    let all = "ycsb-load,ycsb-a,ycsb-e,ycsb-f";
    let reports = bench(&db, &[&[all, "--num", "100", "--operations", "100"], &fields[..], &ordered[..]].concat());
    for report in reports.expect(0).json() {
        assert_eq!((&report["value_size"], &report["ycsb"]["field_count"]), (&12288.into(), &3.into()), "{report}");
    }
}

#[test]
fn a_target_rate_gives_operations_due_times() {
    let place = Place::new();
    let db = place.database();
    bench(&db, &["ycsb-load", "--num", "500"]).expect(0);
    let paced = |target: &str| {
        let arguments = ["ycsb-f", "--target", target, "--operations", "40", "--threads", "2"];
        bench(&db, &arguments).expect(0).json().remove(0)
    };
    let report = paced("400");
    let ycsb = &report["ycsb"];
    assert_eq!((&report["operations"], &ycsb["latency_from"]), (&40.into(), &"due_time".into()));
    assert_eq!((&ycsb["target_ops_per_second"], &ycsb["overdue"]), (&400.0.into(), &0.into()));
    // Of each of two slices of twenty operations the last is due 47.5 ms after the first.
    assert!(report["seconds"].as_f64().expect("measured") >= 0.09, "{report}");
    for kind in ycsb["operations"].as_array().expect("kinds") {
        let worst = |of: &Value| of["max_us"].as_f64().expect("measured");
        assert!(worst(kind) >= worst(&kind["service"]), "{kind}");
    }
    // What nothing can do is done as fast as it goes, and what was due shows in the latency.
    let report = paced("1g");
    let read = &report["ycsb"]["operations"][0];
    assert!(read["p50_us"].as_f64() > read["service"]["p50_us"].as_f64(), "{report}");
    let arguments = ["ycsb-c", "--target", "1g", "--duration", "50ms"];
    let report = bench(&db, &arguments).expect(0).json().remove(0);
    assert!(report["ycsb"]["overdue"].as_u64() > Some(0), "{report}");
}

#[test]
fn every_distribution_asks_for_records_that_are_there() {
    let place = Place::new();
    let db = place.database();
    bench(&db, &["ycsb-load", "--num", "400"]).expect(0);
    for distribution in ["uniform", "zipfian", "clustered", "latest"] {
        let arguments = ["ycsb-d", "--request-distribution", distribution, "--operations", "1k", "--threads", "4"];
        let report = bench(&db, &arguments).expect(0).json().remove(0);
        assert_eq!(report["ycsb"]["request_distribution"], distribution);
        assert_eq!(report["operations"], 1000, "{report}");
    }
}

#[test]
fn a_wrong_record_is_an_error() {
    let place = Place::new();
    let db = place.database();
    bench(&db, &["ycsb-load", "--num", "10", "--insert-order", "ordered"]).expect(0);
    let run = |workload: &str| bench(&db, &[workload, "--operations", "500", "--insert-order", "ordered"]);
    run("ycsb-c").expect(0);
    braid(&["put", &db, "user7", "mine", "--table", "usertable"]).expect(0);
    for workload in ["ycsb-a", "ycsb-c", "ycsb-e", "ycsb-f"] {
        run(workload).expect(5).says("record `user7` of table `usertable` has a value that no workload wrote");
    }
    braid(&["del", &db, "user7", "--table", "usertable"]).expect(0);
    run("ycsb-c").expect(5).says("record `user7` of table `usertable` is not there");
    run("ycsb-e").expect(5).says("record `user7` of table `usertable` is not there");
    // Runs of ycsb-e may have inserted some.
    let more = ["ycsb-c", "--num", "1m", "--insert-order", "ordered"];
    bench(&db, &more).expect(2).says("num is 1000000: table `usertable` has ").says(" records; load more");
}

#[test]
fn what_cannot_be_run_is_said_at_once() {
    let place = Place::new();
    let db = place.database();
    bench(&db, &["ycsb-a"]).expect(2).says("run ycsb-load");
    bench(&db, &["fillseq", "--target", "5"]).expect(2).says("--target is for workloads ycsb-a");
    bench(&db, &["ycsb-load", "--operations", "5"]).expect(2).says("--operations is for workloads ycsb-a");
    bench(&db, &["commit", "--field-count", "5"]).expect(2).says("--field-count is for workloads ycsb");
    bench(&db, &["ycsb-a", "--target", "0"]).expect(2).says("target is 0");
    bench(&db, &["ycsb-a", "--operations", "1"]).expect(2).says("give fewer pairs");
    bench(&db, &["ycsb-a", "--field-count", "0"]).expect(2).says("field count is 0");
    bench(&db, &["ycsb-a", "--field-length", "1g"]).expect(2).says("field length");
    bench(&db, &["ycsb-a", "--zero-padding", "2k"]).expect(2).says("zero padding is 2000");
    bench(&db, &["ycsb-a", "--request-distribution", "zipf"]).expect(2).says("none of uniform, zipfian");
    bench(&db, &["ycsb-a", "--insert-order", "random"]).expect(2).says("neither hashed nor ordered");
    bench(&db, &["ycsb-a", "--structure", "heap"]).expect(2).says("heap");
    bench(&db, &["ycsb-g"]).expect(2).says("ycsb-load");
    braid(&["put", &db, "mine", "value", "--table", "usertable"]).expect(0);
    bench(&db, &["ycsb-load", "--num", "10"]).expect(2).says("usertable");
    assert_eq!(braid(&["get", &db, "mine", "--table", "usertable"]).expect(0).text(), "value");
}

#[test]
fn people_get_the_kinds_of_operations() {
    let arguments =
        ["bench", "ycsb-load,ycsb-a", "--num", "1k", "--operations", "500", "--warm-up", "10ms", "--pairs", "1"];
    let answer = braid(&arguments).expect(0);
    for part in ["ycsb-a: 500 operations", "read", "update", "fields", "10 of 100 B", "closed loop", "device alone"] {
        assert!(answer.text().contains(part), "{part} in {}", answer.text());
    }
}
