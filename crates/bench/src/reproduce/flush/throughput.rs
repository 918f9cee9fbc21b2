//! Figures 5a, 5b and 6: transactions per second by client threads.

use braid::FlushScheme;

use super::contest::{Cell, contest};
use super::figures::Workload;
use super::judge;
use super::run::Sample;
use super::scale::Scale;
use crate::Result;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, Table, mean, number, times};
use crate::reproduce::lab::Lab;

/// Measures a workload and makes its figure.
///
/// # Errors
/// As [`contest`].
pub(super) fn measured(workload: &Workload, scale: &Scale, lab: &mut Lab<'_>) -> Result<Finding> {
    let cells = contest(lab, scale, workload)?;
    Ok(finding(workload, scale, &cells))
}

/// The figure of a workload.
pub(super) fn finding(workload: &Workload, scale: &Scale, cells: &[Cell]) -> Finding {
    let mut figure = Figure::new(workload.figure, workload.title);
    figure.notes.push(workload.note.into());
    let loaded = workload.work.loaded(scale.entries);
    if loaded > 0 {
        let own = workload.work.own();
        let more = if own > 0 { format!(", and {own} of each client") } else { String::new() };
        figure.notes.push(format!("{loaded} entries were loaded before{more}; all are in memory."));
    }
    figure.notes.extend(notes(cells, scale));
    figure.panels = vec![rates(cells), ratios(cells), flushes(cells)];
    figure.tables = vec![averages(cells), done(cells, scale)];
    let mut claims: Vec<Claim> = cells
        .iter()
        .filter(|cell| cell.is_papers())
        .zip(workload.paper)
        .map(|(cell, x)| row(workload, cell, x))
        .collect();
    claims.extend(judge::goals(workload, cells));
    Finding { figure, claims }
}

fn threads_axis() -> Axis {
    Axis::logarithmic("client threads")
}

/// One line per scheme.
pub(super) fn lines(title: &str, unit: &str, cells: &[Cell], of: impl Fn(&Sample) -> f64) -> Panel {
    let mut panel = Panel::new(title, Drawing::Lines, threads_axis(), Axis::linear(unit));
    for cell in cells {
        for scheme in FlushScheme::ALL {
            panel.add(&scheme.to_string(), Point::of(cell.threads as f64, cell.samples(scheme, &of)));
        }
    }
    panel
}

fn rates(cells: &[Cell]) -> Panel {
    let mut panel = lines("(a) Rate", "transactions per second", cells, Sample::per_second);
    for cell in cells {
        panel.add("device, flushed writes", Point::of(cell.threads as f64, cell.device.clone()));
    }
    panel
}

fn ratios(cells: &[Cell]) -> Panel {
    let mut panel = Panel::new("(b) Aggregated over", Drawing::Lines, threads_axis(), Axis::linear("ratio"));
    for cell in cells {
        let aggregated = cell.samples(FlushScheme::Aggregated, Sample::per_second);
        for under in [FlushScheme::Existing, FlushScheme::ExistingAll] {
            let pairs = aggregated.iter().zip(cell.samples(under, Sample::per_second));
            let ratios = pairs.map(|(over, under)| over / under).collect();
            panel.add(&under.to_string(), Point::of(cell.threads as f64, ratios));
        }
    }
    panel
}

fn flushes(cells: &[Cell]) -> Panel {
    lines("(c) Flushes", "flushes per transaction", cells, |sample| sample.each(sample.log.flushes))
}

/// A table with one row per number of threads and one column per scheme.
fn table(title: String, cells: &[Cell], text: impl Fn(&Cell, FlushScheme) -> String) -> Table {
    let mut table = Table::new(title, &["threads"]);
    table.columns.extend(FlushScheme::ALL.map(|scheme| scheme.to_string()));
    for cell in cells {
        let mut row = vec![cell.threads.to_string()];
        row.extend(FlushScheme::ALL.map(|scheme| text(cell, scheme)));
        table.rows.push(row);
    }
    table
}

/// Summary by averages, as in the paper.
fn averages(cells: &[Cell]) -> Table {
    let runs = cells.first().map_or(0, |cell| cell.device.len());
    table(format!("Transactions per second, average of {runs} runs, and least to most"), cells, |cell, scheme| {
        let rates = cell.samples(scheme, Sample::per_second);
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        format!("{} ({} to {})", number(mean(&rates)), number(least), number(most))
    })
}

/// Share of the transactions that the runs completed.
fn done(cells: &[Cell], scale: &Scale) -> Table {
    let title = "Share of its transactions that a run did before its time was over, average".to_owned();
    table(title, cells, |cell, scheme| {
        let all = scale.transactions * cell.threads as u64;
        let share = cell.mean(scheme, |sample| sample.transactions as f64 / all as f64);
        let is_whole = cell.samples(scheme, |sample| f64::from(sample.is_whole)).iter().all(|whole| *whole > 0.0);
        if is_whole { "all".into() } else { format!("{:.1} %", share * 100.0) }
    })
}

/// Notes on the runs that ended by time or outgrew their log.
fn notes(cells: &[Cell], scale: &Scale) -> Vec<String> {
    let runs = || cells.iter().flat_map(|cell| cell.runs.iter().flatten());
    let (all, short) = (runs().count(), runs().filter(|sample| !sample.is_whole).count());
    let grown = runs().filter(|sample| sample.grew).count();
    let mut notes = Vec::new();
    if short > 0 {
        notes.push(format!(
            "{short} of {all} runs were ended by time before each client had done its {} transactions; the table of shares says how far they came.",
            scale.transactions
        ));
    } else {
        notes.push(format!("All {all} runs did all of their {} transactions of each client.", scale.transactions));
    }
    if grown > 0 {
        notes.push(format!(
            "The log of {grown} runs outgrew the segments that were ready, and made more while it was measured."
        ));
    }
    notes
}

/// One of the paper's ratios, with this machine's ratio beside it.
fn row(workload: &Workload, cell: &Cell, paper: f64) -> Claim {
    let rate = |scheme| cell.mean(scheme, Sample::per_second);
    let (existing, aggregated) = (rate(FlushScheme::Existing), rate(FlushScheme::Aggregated));
    let median = cell.ratio(FlushScheme::Aggregated, FlushScheme::Existing, Sample::per_second);
    Claim::of_paper(
        workload.figure,
        &format!("{}, aggregated over existing, {} threads", workload.name, cell.threads),
        &times(paper),
        format!("{} of averages, {} median of pairs", times(aggregated / existing), times(median)),
        format!("{} flushed writes/s", number(cell.device())),
        &format!("existing {}/s, aggregated {}/s", number(existing), number(aggregated)),
    )
}
