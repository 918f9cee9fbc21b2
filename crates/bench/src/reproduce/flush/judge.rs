//! This project's goals for the schemes, and whether they were met.
//!
//! A goal is a bound on the median ratio of two schemes, run by run, with each of its numbers of threads. A goal is met
//! when the bound holds with all numbers of threads, as measured: no deviation is excused as noise, and an unmeasured
//! number of threads is a miss.

use std::ops::RangeInclusive;

use braid::FlushScheme;

use super::contest::Cell;
use super::figures::Workload;
use super::run::{Quantity, Sample};
use crate::reproduce::figure::{Claim, number, times, times_range};

/// A goal of every workload.
struct Goal {
    what: &'static str,
    /// The scheme in the denominator of the ratio. The numerator is the aggregated scheme.
    under: FlushScheme,
    of: Quantity,
    bound: Bound,
    threads: &'static [usize],
    /// Whether the paper has a measurement of the same ratio.
    has_paper: bool,
}

/// A bound on a ratio.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    Below(f64),
}

impl Bound {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::Below(bound) => ratio < bound,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {}", times(bound)),
            Self::Below(bound) => format!("< {}", times(bound)),
        }
    }
}

const GOALS: [Goal; 4] = [
    Goal {
        what: "transactions per second, aggregated over existing: never slower",
        under: FlushScheme::Existing,
        of: Sample::per_second,
        bound: Bound::AtLeast(1.0),
        threads: &[8, 16, 32, 64, 128],
        has_paper: true,
    },
    Goal {
        what: "transactions per second, aggregated over existing",
        under: FlushScheme::Existing,
        of: Sample::per_second,
        bound: Bound::AtLeast(1.5),
        threads: &[8, 16, 32, 64],
        has_paper: true,
    },
    Goal {
        what: "transactions per second, aggregated over existing-all: not slower",
        under: FlushScheme::ExistingAll,
        of: Sample::per_second,
        bound: Bound::AtLeast(1.0),
        threads: &[8, 16, 32, 64, 128],
        has_paper: false,
    },
    // A lone client has no other client to share a flush with.
    Goal {
        what: "flushes per transaction, aggregated over existing: fewer",
        under: FlushScheme::Existing,
        of: |sample| sample.each(sample.log.flushes),
        bound: Bound::Below(1.0),
        threads: &[2, 4, 8, 16, 32, 64, 128],
        has_paper: false,
    },
];

/// The goals of a workload.
pub(super) fn goals(workload: &Workload, cells: &[Cell]) -> Vec<Claim> {
    GOALS.iter().map(|goal| judged(goal, workload, cells)).collect()
}

fn judged(goal: &Goal, workload: &Workload, cells: &[Cell]) -> Claim {
    let measured: Vec<(usize, Option<&Cell>)> =
        goal.threads.iter().map(|threads| (*threads, cells.iter().find(|cell| cell.threads == *threads))).collect();
    let ratio = |cell: &Cell| cell.ratio(FlushScheme::Aggregated, goal.under, goal.of);
    let is_met = measured.iter().all(|(_, cell)| cell.is_some_and(|cell| goal.bound.holds(ratio(cell))));
    let here: Vec<String> = measured
        .iter()
        .map(|(threads, cell)| match cell.map(&ratio) {
            Some(ratio) if goal.bound.holds(ratio) => format!("{threads}: {}", times(ratio)),
            Some(ratio) => format!("{threads}: {} (missed)", times(ratio)),
            None => format!("{threads}: not measured (missed)"),
        })
        .collect();
    let (first, last) = (goal.threads.first().copied().unwrap_or(0), goal.threads.last().copied().unwrap_or(0));
    let paper = workload.paper.get(..goal.threads.len()).filter(|_| goal.has_paper);
    Claim {
        figure: workload.figure.into(),
        what: format!("{}: {}", workload.name, goal.what),
        paper: paper.map_or_else(|| "not measured".into(), times_range),
        here: here.join(", "),
        goal: Some(format!("{} with {first} to {last} threads", goal.bound.text())),
        met: Some(is_met),
        device: device(cells, first..=last),
        setting: "20 B + 100 B, `sync`, medians of pairs".into(),
    }
}

/// The device's flushed writes beside these numbers of threads.
fn device(cells: &[Cell], threads: RangeInclusive<usize>) -> String {
    let rates = || cells.iter().filter(|cell| threads.contains(&cell.threads)).map(Cell::device);
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(f64::NEG_INFINITY, f64::max));
    if least > most { "not measured".into() } else { format!("{} to {} flushed writes/s", number(least), number(most)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::flush::figures::INSERT;
    use crate::reproduce::flush::run::Counts;
    use crate::reproduce::flush::scale::THREADS;

    fn sample(transactions: u64, flushes: u64) -> Sample {
        Sample {
            transactions,
            seconds: 1.0,
            mean_us: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
            log: Counts { flushes, ..Counts::default() },
            is_whole: true,
            grew: false,
        }
    }

    /// Three runs of each scheme with each number of threads: aggregated is twice as fast, with a third of the flushes
    /// per transaction, except for the effect of `change`.
    fn cells(change: impl Fn(usize, FlushScheme, &mut Sample)) -> Vec<Cell> {
        let run = |threads: usize, scheme: FlushScheme| {
            let mut sample = if scheme == FlushScheme::Aggregated { sample(2000, 600) } else { sample(1000, 900) };
            change(threads, scheme, &mut sample);
            sample
        };
        let cell = |threads: usize| {
            let runs = FlushScheme::ALL.iter().map(|scheme| vec![run(threads, *scheme); 3]).collect();
            Cell { threads, runs, device: vec![500.0; 3] }
        };
        THREADS.map(cell).into()
    }

    fn met(cells: &[Cell]) -> Vec<Option<bool>> {
        goals(&INSERT, cells).iter().map(|claim| claim.met).collect()
    }

    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);

    #[test]
    fn what_holds_everywhere_is_met() {
        let cells = cells(|_, _, _| {});
        assert_eq!(met(&cells), [YES; 4]);
        let claims = goals(&INSERT, &cells);
        assert_eq!(claims[0].here, "8: 2.00x, 16: 2.00x, 32: 2.00x, 64: 2.00x, 128: 2.00x");
        assert_eq!(claims[0].paper, "1.30x to 5.50x");
        assert_eq!(claims[1].paper, "1.72x to 5.50x");
        assert_eq!(claims[0].device, "500 to 500 flushed writes/s");
    }

    #[test]
    fn one_number_of_threads_is_enough_to_miss() {
        let slower = |at: usize, transactions: u64| {
            cells(move |threads, scheme, sample| {
                if threads == at && scheme == FlushScheme::Aggregated {
                    // As many flushes per transaction as in the unchanged runs of the aggregated scheme.
                    *sample = self::sample(transactions, transactions * 3 / 10);
                }
            })
        };
        assert_eq!(met(&slower(16, 1400)), [YES, NO, YES, YES], "1.4x is not 1.5x");
        assert_eq!(met(&slower(128, 1400)), [YES; 4], "1.5x is asked for up to 64 threads");
        let cells = slower(128, 990);
        assert_eq!(met(&cells), [NO, YES, NO, YES]);
        assert!(goals(&INSERT, &cells)[0].here.ends_with("128: 0.99x (missed)"));
        assert_eq!(met(&slower(2, 10)), [YES; 4], "fewer threads stand beside");
    }

    #[test]
    fn as_many_flushes_are_not_fewer() {
        let flushes = |at: usize| {
            cells(move |threads, scheme, sample| {
                if threads == at && scheme == FlushScheme::Aggregated {
                    sample.log.flushes = 1800;
                }
            })
        };
        assert_eq!(met(&flushes(4)), [YES, YES, YES, NO]);
        assert_eq!(met(&flushes(1)), [YES; 4], "a lone client shares nothing");
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let mut cells = cells(|_, _, _| {});
        cells.retain(|cell| cell.threads != 32);
        assert_eq!(met(&cells), [NO; 4]);
        assert!(goals(&INSERT, &cells)[2].here.contains("32: not measured (missed)"));
        assert_eq!(met(&[]), [NO; 4]);
    }
}
