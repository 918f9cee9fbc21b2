//! `braid reproduce` at its smallest: every figure is measured, and its files hold what they should.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Place, braid, text};

/// A figure, the series that it has, and how many panels.
type Expected = (&'static str, &'static [&'static str], usize);

/// Figures of the PIO paper.
const PIO: [Expected; 9] = [
    ("2", &["this device"], 2),
    ("3", &["this device", "not interleaved", "interleaved"], 3),
    ("4", &["psync", "threads"], 3),
    ("9", &["B+-tree", "PIO B-tree"], 1),
    ("10", &["B+-tree", "PIO B-tree"], 1),
    ("11", &["B+-tree", "PIO B-tree"], 2),
    ("headline", &["median"], 4),
    ("12", &["insert", "point search"], 5),
    ("13", &["point search", "insert", "range search", "delete", "B-link tree", "PIO B-tree"], 2),
];

const RATES: &[&str] = &["per-commit", "existing", "existing-all", "aggregated", "device, flushed writes"];

/// Figures of the flushing paper.
const FLUSH: [Expected; 4] = [
    ("5a", RATES, 3),
    ("5b", RATES, 3),
    ("6", RATES, 3),
    ("table1", &["sync lock", "flush", "flush wait", "rest", "aggregated"], 11),
];

const READERS: &[&str] = &["sync", "p-fetch, libaio", "p-fetch, io_uring", "io_uring, overlapped"];

/// Figures of the paper on parallel fetch.
const PFETCH: [Expected; 6] = [
    ("2", &["tree search", "sort", "read", "write", "WAL flush & commit", "other"], 2),
    ("4-5", READERS, 3),
    ("6-7", READERS, 3),
    ("8", READERS, 2),
    ("9", READERS.first_chunk::<3>().expect("there are four"), 1),
    ("10", READERS.first_chunk::<3>().expect("there are four"), 2),
];

/// Client threads in the flushing paper.
const THREADS: [usize; 5] = [8, 16, 32, 64, 128];

fn stem(figure: &str) -> String {
    if figure.starts_with(|first: char| first.is_ascii_digit()) { format!("figure{figure}") } else { figure.into() }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every number of a figure is a time, a rate or a count of something that was done.
fn check_figure(figure: &Value, series: &[&str], panels: usize) {
    let name = &figure["name"];
    let found = figure["panels"].as_array().expect("panels");
    // Where the data is on no block device, nobody counts its reads.
    let uncounted =
        figure["notes"].as_array().expect("notes").iter().any(|note| note.to_string().contains("cannot be counted"));
    assert_eq!(found.len(), panels - usize::from(uncounted), "{name}");
    for wanted in series {
        let is_there =
            |panel: &Value| panel["series"].as_array().expect("series").iter().any(|series| series["name"] == *wanted);
        assert!(found.iter().any(is_there), "{wanted} is not in figure {name}");
    }
    for panel in found {
        for series in panel["series"].as_array().expect("series") {
            let points = series["points"].as_array().expect("points");
            assert!(!points.is_empty(), "{name} {panel}");
            for point in points {
                let samples = point["samples"].as_array().expect("samples");
                assert_eq!(samples.len(), 2, "two repeats: {name} {point}");
                assert!(point["median"].as_f64().is_some_and(|median| median >= 0.0), "{name} {point}");
            }
        }
    }
}

fn check_csv(path: &Path, figure: &Value) {
    let csv = read(path);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("figure,panel,series,x,x_label,unit,median,samples"), "{}", path.display());
    let count = |value: &Value, name: &str| value[name].as_array().expect("an array").clone();
    let points: usize = count(figure, "panels")
        .iter()
        .flat_map(|panel| count(panel, "series"))
        .map(|series| count(&series, "points").len())
        .sum();
    assert_eq!(lines.count(), points, "{}", path.display());
}

/// Makes a paper's figures and checks their files; the results, and the report.
fn reproduce(paper: &str, expected: &[Expected]) -> (Value, String) {
    let place = Place::new();
    let out = place.path("results");
    let answer = braid(&["reproduce", paper, "--tiny", "--out", &text(&out), "--json"]).expect(0);
    let printed = answer.json();
    let results: Value = serde_json::from_str(&read(&out.join("results.json"))).expect("JSON");
    assert_eq!(printed, std::slice::from_ref(&results), "what is printed is what is written");
    assert_eq!((&results["interrupted"], &results["effort"]), (&false.into(), &"tiny".into()));
    let figures = results["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), expected.len());
    let report = read(&out.join("report.md"));
    for (figure, (name, series, panels)) in figures.iter().zip(expected) {
        assert_eq!(figure["name"], *name);
        check_figure(figure, series, *panels);
        check_csv(&out.join(format!("{}.csv", stem(name))), figure);
        let svg = read(&out.join(format!("{}.svg", stem(name))));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
        assert!(report.contains(&format!("{}.svg", stem(name))), "{name} is in the report");
        let claims = results["claims"].as_array().expect("claims");
        assert!(claims.iter().any(|claim| claim["figure"] == *name), "figure {name} claims something");
    }
    assert!(!out.join("data").exists(), "data is removed");
    (results, report)
}

#[test]
fn every_figure_of_pio_is_measured_and_written() {
    let (_, report) = reproduce("pio", &PIO);
    for part in ["## Goals", "## The paper's claims", "32 : 1", "durability `os`", "random insert against the B+-tree"]
    {
        assert!(report.contains(part), "{part} is in the report");
    }
}

#[test]
fn every_figure_of_pfetch_is_measured_and_every_goal_judged() {
    let (results, report) = reproduce("pfetch", &PFETCH);
    for (figure, goals) in [("4-5", 3), ("6-7", 1), ("8", 2)] {
        let judged = rows(&results, figure, "").into_iter().filter(|row| row["met"].is_boolean());
        assert_eq!(judged.count(), goals, "goals of figure {figure}");
    }
    for part in ["## Goals", "HDD: not available", "a third of the documents is garbage"] {
        assert!(report.contains(part), "{part} is in the report");
    }
}

/// The rows about one figure whose description has `part`.
fn rows<'a>(results: &'a Value, figure: &str, part: &str) -> Vec<&'a Value> {
    let has =
        |claim: &&Value| claim["figure"] == figure && claim["what"].as_str().is_some_and(|what| what.contains(part));
    results["claims"].as_array().expect("claims").iter().filter(has).collect()
}

#[test]
fn every_figure_of_flush_is_measured_and_every_claim_has_a_row() {
    let (results, report) = reproduce("flush", &FLUSH);
    let papers: [(&str, [&str; 5]); 3] = [
        ("5a", ["3.90x", "5.50x", "1.83x", "1.72x", "1.30x"]),
        ("5b", ["1.60x", "2.80x", "4.10x", "1.70x", "1.60x"]),
        ("6", ["6.40x", "3.30x", "2.30x", "1.70x", "1.40x"]),
    ];
    for (figure, ratios) in papers {
        for (threads, ratio) in THREADS.iter().zip(ratios) {
            let found = rows(&results, figure, &format!(", {threads} threads"));
            let [row] = found[..] else { panic!("one row for {threads} threads of {figure}: {found:?}") };
            assert_eq!((&row["paper"], &row["met"]), (&ratio.into(), &Value::Null));
            assert!(row["device"].as_str().is_some_and(|device| device.contains("flushed writes/s")), "{row}");
        }
        for goal in ["never slower", "aggregated over existing", "not slower", "fewer"] {
            let found = rows(&results, figure, goal);
            assert!(found.iter().any(|row| row["met"].is_boolean() && row["goal"].is_string()), "{goal}: {found:?}");
        }
    }
    let goals = results["claims"].as_array().expect("claims").iter().filter(|claim| claim["met"].is_boolean());
    assert_eq!(goals.count(), 3 * 4, "four goals of each workload");
    for row in ["latency", "sync lock", "flushing", "another's flush", "acquisitions", "flushes", "slot", "per flush"] {
        let found = rows(&results, "table1", row);
        assert!(!found.is_empty(), "{row}");
        for part in ["paper", "here"].iter().flat_map(|column| THREADS.map(|threads| (column, threads))) {
            let text = found[0][part.0].as_str().expect("text");
            assert!(text.contains(&format!("{}: ", part.1)), "{part:?}: {text}");
        }
    }
    check_table(&results);
    for part in ["## Goals", "## Table 1: ", "| existing | 8 |", "in place with fdatasync", "All 64 runs did all"] {
        assert!(report.contains(part), "{part} is in the report");
    }
}

/// Every cell of table 1 has a row, with what holds of any run: every client did its two transactions, each in a log
/// that flushed for it.
fn check_table(results: &Value) {
    let tables = results["figures"][3]["tables"].as_array().expect("tables");
    let rows = tables[0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4 * 8, "schemes and numbers of threads");
    for row in rows {
        let cell = |column: usize| row[column].as_str().expect("text").parse::<f64>().expect("a number");
        let (threads, transactions, flushes) = (cell(1), cell(8), cell(10));
        assert!(cell(2) > 0.0 && cell(6) <= cell(7), "latencies of {row}");
        assert!((transactions - 2.0 * threads).abs() < 0.5, "{row}");
        assert!(flushes >= 1.0, "{row}");
        if row[0] == "per-commit" {
            assert!(flushes >= transactions - 0.5, "each commit for itself: {row}");
        }
    }
}

#[test]
fn one_figure_can_be_chosen() {
    let place = Place::new();
    let (out, dir) = (place.path("results"), place.path("scratch"));
    fs::create_dir(&dir).expect("made");
    let arguments = ["reproduce", "pio", "--tiny", "--figure", "2", "--out", &text(&out), "--dir", &text(&dir)];
    let answer = braid(&arguments).expect(0);
    assert!(answer.text().contains("report.md"), "{}", answer.text());
    assert!(out.join("figure2.svg").is_file() && !out.join("figure3.svg").exists());
    assert_eq!(fs::read_dir(&dir).expect("kept, as it was there before").count(), 0);
    braid(&["reproduce", "pio", "--figure", "99", "--out", &text(&out)]).expect(2).says("no figure `99`");
}
