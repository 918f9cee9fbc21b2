//! `braid reproduce` at its smallest: every figure is measured, and its files hold what they should.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Place, braid, text};

/// Figures, the series that each has, and how many panels.
const FIGURES: [(&str, &[&str], usize); 9] = [
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

fn stem(figure: &str) -> String {
    if figure == "headline" { figure.into() } else { format!("figure{figure}") }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every number of a figure is a time, a rate or a count of something that was done.
fn check_figure(figure: &Value, series: &[&str], panels: usize) {
    let name = &figure["name"];
    let found = figure["panels"].as_array().expect("panels");
    assert_eq!(found.len(), panels, "{name}");
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

#[test]
fn every_figure_of_pio_is_measured_and_written() {
    let place = Place::new();
    let out = place.path("results");
    let answer = braid(&["reproduce", "pio", "--tiny", "--out", &text(&out), "--json"]).expect(0);
    let printed = answer.json();
    let results: Value = serde_json::from_str(&read(&out.join("results.json"))).expect("JSON");
    assert_eq!(printed, std::slice::from_ref(&results), "what is printed is what is written");
    assert_eq!((&results["interrupted"], &results["effort"]), (&false.into(), &"tiny".into()));
    let figures = results["figures"].as_array().expect("figures");
    assert_eq!(figures.len(), FIGURES.len());
    let report = read(&out.join("report.md"));
    for (figure, (name, series, panels)) in figures.iter().zip(FIGURES) {
        assert_eq!(figure["name"], name);
        check_figure(figure, series, panels);
        check_csv(&out.join(format!("{}.csv", stem(name))), figure);
        let svg = read(&out.join(format!("{}.svg", stem(name))));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
        assert!(report.contains(&format!("{}.svg", stem(name))), "{name} is in the report");
        let claims = results["claims"].as_array().expect("claims");
        assert!(claims.iter().any(|claim| claim["figure"] == name), "figure {name} claims something");
    }
    for part in ["## Goals", "## The paper's claims", "32 : 1", "durability `os`", "random insert against the B+-tree"]
    {
        assert!(report.contains(part), "{part} is in the report");
    }
    assert!(!out.join("data").exists(), "data is removed");
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
