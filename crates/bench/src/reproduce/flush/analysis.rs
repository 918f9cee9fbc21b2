//! Table 1: the division of an insert's time, and the number of the log's lock acquisitions and flushes.

use braid::FlushScheme;

use super::contest::Cell;
use super::run::{Quantity, Sample};
use super::throughput::lines;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, Table, number};

/// The table's name on the command line.
const NAME: &str = "table1";

/// Components of a transaction's latency, in µs on average.
const PIECES: [(&str, Quantity); 4] =
    [("sync lock", sync_lock_us), ("flush", flush_us), ("flush wait", flush_wait_us), ("rest", Sample::rest_us)];

fn sync_lock_us(sample: &Sample) -> f64 {
    sample.each_us(sample.log.sync_lock_wait_ns)
}

fn flush_us(sample: &Sample) -> f64 {
    sample.each_us(sample.log.flush_ns)
}

fn flush_wait_us(sample: &Sample) -> f64 {
    sample.each_us(sample.log.flush_wait_ns)
}

fn locks(sample: &Sample) -> f64 {
    sample.each(sample.log.sync_lock_acquisitions)
}

fn flushes(sample: &Sample) -> f64 {
    sample.each(sample.log.flushes)
}

/// A row of the paper's table: existing and proposed, with 8, 16, 32, 64 and 128 threads.
struct Row {
    what: &'static str,
    paper: [(f64, f64); 5],
    of: Quantity,
}

/// Counts are the paper's, over its 50,000 transactions a thread.
const ROWS: [Row; 8] = [
    Row {
        what: "latency of a transaction, µs",
        paper: [(643.0, 168.0), (934.0, 169.0), (518.0, 289.0), (977.0, 570.0), (2360.0, 1818.0)],
        of: |sample| sample.mean_us,
    },
    Row {
        what: "of it waiting for the sync lock, µs",
        paper: [(530.0, 119.0), (773.0, 90.0), (216.0, 101.0), (176.0, 107.0), (230.0, 173.0)],
        of: sync_lock_us,
    },
    Row {
        what: "of it flushing, µs",
        paper: [(70.0, 19.0), (48.0, 9.3), (12.0, 6.3), (8.3, 5.0), (7.8, 4.8)],
        of: flush_us,
    },
    Row {
        what: "of it waiting for another's flush, µs",
        paper: [(2.6, 2.8), (70.0, 37.0), (193.0, 135.0), (551.0, 375.0), (1641.0, 1342.0)],
        of: flush_wait_us,
    },
    Row {
        what: "sync-lock acquisitions per transaction",
        paper: [(3.92, 0.985), (5.43, 0.835), (1.47, 0.508), (0.408, 0.246), (0.175, 0.126)],
        of: locks,
    },
    Row {
        what: "flushes per transaction",
        paper: [(0.575, 0.148), (0.416, 0.08), (0.121, 0.06), (0.0659, 0.045), (0.0497, 0.0377)],
        of: flushes,
    },
    Row {
        what: "consolidated per slot",
        paper: [(0.0, 0.0), (1.2, 1.2), (4.5, 1.8), (6.2, 3.5), (9.4, 6.2)],
        of: Sample::consolidated,
    },
    Row {
        what: "aggregated per flush",
        paper: [(0.0, 7.7), (0.0, 11.4), (0.0, 9.4), (0.0, 6.4), (0.0, 4.4)],
        of: Sample::aggregated,
    },
];

/// Table 1, from the runs of the insert workload.
pub(super) fn table(cells: &[Cell]) -> Finding {
    let mut figure = Figure::new(NAME, "Experimental analysis of inserts: latency of a transaction, and operations");
    figure.notes.extend([
        "The runs are those of figure 5a.".into(),
        "Flush is the time of those who flush, flush wait that of those who wait for another's flush without the sync lock; both, and waiting for the sync lock, are \
         over all transactions. Rest is what is left of the latency: copying into the log, writing it, becoming visible."
            .into(),
        "Consolidated per slot counts the records that went through a slot of the consolidation array, 0 where none did; aggregated per flush, the \
         calls that asked for a flush over the flushes made. The paper prints 0 for the latter with its existing scheme."
            .into(),
    ]);
    figure.tables.push(as_in_paper(cells));
    figure.panels.extend(FlushScheme::ALL.map(|scheme| breakdown(scheme, cells)));
    figure.panels.extend([
        lines("Latency, average", "µs", cells, |sample| sample.mean_us),
        lines("Latency, p50", "µs", cells, |sample| sample.p50_us),
        lines("Latency, p99", "µs", cells, |sample| sample.p99_us),
        lines("Sync-lock acquisitions", "per transaction", cells, locks),
        lines("Flushes", "per transaction", cells, flushes),
        lines("Consolidated per slot", "records", cells, Sample::consolidated),
        lines("Aggregated per flush", "requests", cells, Sample::aggregated),
    ]);
    let claims = ROWS.iter().map(|row| claim(row, cells)).collect();
    Finding { figure, claims }
}

fn breakdown(scheme: FlushScheme, cells: &[Cell]) -> Panel {
    let title = format!("Latency, {scheme}");
    let (across, upwards) = (Axis::linear("client threads"), Axis::linear("µs per transaction"));
    let mut panel = Panel::new(title, Drawing::StackedBars, across, upwards);
    for cell in cells {
        for (name, of) in PIECES {
            panel.add(name, Point::of(cell.threads as f64, cell.samples(scheme, of)));
        }
    }
    panel
}

/// The paper's columns and rows, with p50 and p99, and with the other two schemes below. As in the paper, values are
/// averages over the runs.
fn as_in_paper(cells: &[Cell]) -> Table {
    let mut table = Table::new(
        "Table 1 with the paper's columns, averages of the runs: latency of a transaction in µs, then operations of a run",
        &[
            "scheme",
            "threads",
            "transaction",
            "sync lock",
            "flush",
            "flush wait",
            "p50",
            "p99",
            "transactions",
            "sync locks",
            "flushes",
            "consol. (avg.)",
            "aggre. (avg.)",
        ],
    );
    let columns: [Quantity; 11] = [
        |sample| sample.mean_us,
        sync_lock_us,
        flush_us,
        flush_wait_us,
        |sample| sample.p50_us,
        |sample| sample.p99_us,
        |sample| sample.transactions as f64,
        |sample| sample.log.sync_lock_acquisitions as f64,
        |sample| sample.log.flushes as f64,
        Sample::consolidated,
        Sample::aggregated,
    ];
    let schemes = [FlushScheme::Existing, FlushScheme::Aggregated, FlushScheme::ExistingAll, FlushScheme::PerCommit];
    for scheme in schemes {
        for cell in cells {
            let mut row = vec![scheme.to_string(), cell.threads.to_string()];
            row.extend(columns.map(|of| number(cell.mean(scheme, of))));
            table.rows.push(row);
        }
    }
    table
}

fn claim(row: &Row, cells: &[Cell]) -> Claim {
    let cells = || cells.iter().filter(|cell| cell.is_papers());
    let pair = |threads: usize, (existing, proposed): (f64, f64)| {
        format!("{threads}: {} to {}", number(existing), number(proposed))
    };
    let paper: Vec<String> = cells().zip(row.paper).map(|(cell, both)| pair(cell.threads, both)).collect();
    let here = cells().map(|cell| {
        let of = |scheme| cell.mean(scheme, row.of);
        pair(cell.threads, (of(FlushScheme::Existing), of(FlushScheme::Aggregated)))
    });
    let device = cells().map(|cell| format!("{}: {}/s", cell.threads, number(cell.device())));
    Claim::of_paper(
        NAME,
        &format!("insert, existing to aggregated, {}", row.what),
        &paper.join(", "),
        here.collect::<Vec<_>>().join(", "),
        format!("flushed writes {}", device.collect::<Vec<_>>().join(", ")),
        "by client threads; averages of the runs",
    )
}
