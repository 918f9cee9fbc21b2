//! The table: a row for each line, a column for each store, the device's own rate beside them, and the ratio of each
//! Braid column to the best peer.

use bench::reproduce::figure::{number, times};

use super::lines::{Line, Section};
use crate::sample::{Cell, DEVICE, Sample};
use crate::store::{CONTESTANTS, Contestant};
use crate::work::Metric;

/// Letters of a failure that fit into a cell.
const FAILURE_LETTERS: usize = 60;
/// A store that maps its file into memory and has no log. The goals of this project name the other peers, so both
/// ratios are shown where this one is the best.
const MAPPED: &str = "lmdb";

/// The rows of a section.
pub(super) fn section(section: &Section, samples: &[Sample]) -> String {
    let mut text = String::from("| | |");
    for store in CONTESTANTS {
        text += &format!(" {} |", store.name);
    }
    text += " device |";
    for store in ours() {
        text += &format!(" {} : best peer |", store.name);
    }
    text += " durability; data in memory |\n|---|---|";
    text += &"--:|".repeat(CONTESTANTS.len() + 1 + ours().count());
    text += "---|\n";
    for line in &section.lines {
        text += &row(line, samples);
    }
    text
}

fn ours() -> impl Iterator<Item = &'static Contestant> {
    CONTESTANTS.iter().filter(|store| store.is_ours)
}

fn row(line: &Line, samples: &[Sample]) -> String {
    let name = line.work.name();
    let cells: Vec<Cell> = CONTESTANTS.iter().map(|store| Cell::of(samples, &name, store.name, line.metric)).collect();
    let device = match line.metric {
        Metric::PerSecond => Cell::of(samples, &name, DEVICE, line.metric),
        _ => Cell::Empty,
    };
    let medians = || CONTESTANTS.iter().zip(cells.iter().map(Cell::median));
    let best = best(line, medians().filter_map(|(_, median)| median));
    let mut text = format!("| {} | {} |", line.what, line.unit.name());
    for cell in &cells {
        let is_best = cell.median().is_some() && cell.median() == best;
        text += &format!(" {} |", cell_text(cell, line, is_best));
    }
    text += &format!(" {} |", cell_text(&device, line, false));
    let peers: Vec<(&str, f64)> = medians()
        .filter(|(store, _)| !store.is_ours)
        .filter_map(|(store, median)| Some((store.name, median?)))
        .collect();
    for (store, median) in medians().filter(|(store, _)| store.is_ours) {
        debug_assert!(store.is_ours);
        text += &format!(" {} |", median.map_or_else(String::new, |own| ratios(line, own, &peers, device.median())));
    }
    let unlimited = samples.iter().any(|sample| sample.row == name && !sample.unlimited.is_empty());
    let setting = if unlimited { "**no group could be made: memory without a limit**" } else { &line.setting };
    text + &format!(" {setting} |\n")
}

fn best(line: &Line, medians: impl Iterator<Item = f64>) -> Option<f64> {
    if line.unit.more_is_better() { medians.reduce(f64::max) } else { medians.reduce(f64::min) }
}

/// The ratio to the best peer (above 1 is better, for lines of both directions), and the share of the device's rate.
fn ratios(line: &Line, own: f64, peers: &[(&str, f64)], device: Option<f64>) -> String {
    let to = |other: f64| if line.unit.more_is_better() { own / other } else { other / own };
    let best_of = |of: &dyn Fn(&str) -> bool| {
        let value = best(line, peers.iter().filter(|(name, _)| of(name)).map(|(_, value)| *value))?;
        peers.iter().find(|(name, other)| of(name) && *other == value)
    };
    let all = best_of(&|_| true);
    let others = best_of(&|name| name != MAPPED).filter(|_| all.is_some_and(|(name, _)| *name == MAPPED));
    let shown = |ratio: f64| if ratio.is_finite() { times(ratio) } else { "—".to_owned() };
    let mut parts: Vec<String> =
        all.into_iter().chain(others).map(|(name, value)| format!("{} {name}", shown(to(*value)))).collect();
    parts.extend(device.map(|device| format!("{} device", shown(own / device))));
    parts.join(", ")
}

fn cell_text(cell: &Cell, line: &Line, is_best: bool) -> String {
    let shown = |value: f64| number(value / line.unit.scale());
    match cell {
        Cell::Empty => String::new(),
        Cell::Failed(why) => format!("failed: {}", short(why)),
        Cell::Figures { median, least, most, rounds, failure } => {
            let mut text = if is_best { format!("**{}**", shown(*median)) } else { shown(*median) };
            if *rounds > 1 {
                text += &format!(" ({}..{})", shown(*least), shown(*most));
            }
            if let Some(failure) = failure {
                text += &format!("; in another round failed: {}", short(failure));
            }
            text
        }
    }
}

/// A failure as one cell shows it; the full text follows the table.
fn short(failure: &str) -> String {
    let text = plain(failure);
    match text.char_indices().nth(FAILURE_LETTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Text that cannot break a table.
pub(super) fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::super::lines::Unit;
    use super::*;
    use crate::work::{Set, Work};

    const WORK: Work = Work::Get { set: Set::Small, threads: 8 };

    fn line(metric: Metric, unit: Unit) -> Line {
        Line { work: WORK, metric, what: "cold get".into(), unit, setting: "332 MiB in 128".into() }
    }

    fn sample(round: usize, store: &str, metric: Metric, value: f64) -> Sample {
        Sample {
            round,
            row: WORK.name(),
            store: store.into(),
            metric: metric.name().into(),
            value: Some(value),
            failure: String::new(),
            unlimited: String::new(),
        }
    }

    fn failed(round: usize, store: &str, failure: &str) -> Sample {
        let failed = sample(round, store, Metric::PerSecond, 0.0);
        Sample { metric: String::new(), value: None, failure: failure.into(), ..failed }
    }

    #[test]
    fn a_row_shows_medians_ranges_ratios_and_what_failed() {
        let rate = |round, store: &str, value| sample(round, store, Metric::PerSecond, value);
        let samples = [
            rate(0, "btree", 40_000.0),
            rate(1, "btree", 60_000.0),
            rate(2, "btree", 50_000.0),
            rate(0, "rocksdb", 40_000.0),
            rate(0, "lmdb", 80_000.0),
            rate(0, DEVICE, 100_000.0),
            failed(0, "redb", "killed: wanted more than 128 MiB"),
            rate(1, "fjall", 1000.0),
            failed(0, "fjall", &"x|y".repeat(30)),
        ];
        let text = row(&line(Metric::PerSecond, Unit::Thousands), &samples);
        let cells: Vec<&str> = text.trim().split(" | ").collect();
        assert_eq!(cells[2], "50.0 (40.0..60.0)");
        assert_eq!(cells[3], "", "append was not measured: {text}");
        assert_eq!(cells[4], "40.0");
        assert_eq!(cells[5], "**80.0**");
        assert_eq!(cells[6], "failed: killed: wanted more than 128 MiB");
        assert!(cells[7].starts_with("1.00; in another round failed: x\\|y") && cells[7].ends_with('…'), "{text}");
        assert_eq!(cells[8], "100");
        assert_eq!(cells[9], "0.62x lmdb, 1.25x rocksdb, 0.50x device");
        assert!(text.ends_with("| 332 MiB in 128 |\n"), "{text}");
    }

    #[test]
    fn of_bytes_fewer_are_better_and_a_group_that_is_missing_is_told() {
        let read = |store: &str, value| sample(0, store, Metric::ReadPerOperation, value);
        let mut samples = [read("btree", 2000.0), read("append", 8000.0), read("fjall", 4000.0)];
        samples[1].unlimited = "not permitted".into();
        let text = row(&line(Metric::ReadPerOperation, Unit::Bytes), &samples);
        assert!(text.contains("| **2000** |") && text.contains("| 2.00x fjall |"), "{text}");
        assert!(text.contains("| 0.50x fjall |") && text.contains("no group could be made"), "{text}");
    }
}
