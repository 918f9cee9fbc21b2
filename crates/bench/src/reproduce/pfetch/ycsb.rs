//! Figure 8: throughput of YCSB's update-heavy workload (A: half reads, half updates, zipfian) with one compaction
//! inside.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use braid::Table;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::compaction::{Mode, READERS, Reader, compact_options};
use super::scale::{CLIENTS, KEY_BYTES, Scale, Set};
use super::store::{Stock, check, open, pair};
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, paired_ratio, times_range};
use crate::reproduce::lab::{Lab, Turn};
use crate::ycsb::{Core, Distribution, Requests};
use crate::{Error, Result, keys};

const NAME: &str = "8";
/// The position of io_uring among the readers.
const IO_URING: usize = 2;

pub(super) fn measure(lab: &mut Lab<'_>, scale: &Scale) -> Result<Finding> {
    let sets = scale.sets();
    let mut figure = Figure::new(NAME, "Throughput of YCSB-A with one compaction inside");
    figure.notes.extend([
        format!(
            "{} operations of {CLIENTS} client threads over the three data sets. The compaction begins with the first operation.",
            sets.map(|set| set.operations.to_string()).join(", ")
        ),
        "Everything of a run uses its reader's backend, the clients' own reads too; the paper changes the compaction alone.".into(),
    ]);
    lab.expect_groups(2 * sets.len());
    let mut claims = Vec::new();
    for (direct, title) in [(true, "Direct I/O"), (false, "Buffered I/O")] {
        let (across, upwards) = (Axis::linear("pairs"), Axis::linear("operations/s"));
        let mut panel = Panel::new(title, Drawing::Lines, across, upwards);
        let mut ratios = Vec::new();
        for set in sets {
            let stock = Stock::make(lab, scale, &set)?;
            let what = format!("figure 8, {} of the paper, {}", set.name, title.to_lowercase());
            let runs = lab.interleave(&what, READERS.len(), |lab, turn| {
                let mode = Mode { direct, sorted: true };
                run(lab, scale, &stock, &set, &READERS[turn.contestant], mode, turn)
            })?;
            ratios.push(paired_ratio(&runs[IO_URING], &runs[0]));
            for (reader, samples) in READERS.iter().zip(runs) {
                panel.add(reader.name, Point::of(set.pairs as f64, samples).labelled(set.name));
            }
        }
        let is_met = ratios.iter().all(|ratio| *ratio > 1.0);
        claims.push(Claim {
            figure: NAME.into(),
            what: format!("{}, io_uring over sync", title.to_lowercase()),
            paper: "higher, most with io_uring".into(),
            here: times_range(&ratios),
            goal: Some("higher".into()),
            met: Some(is_met),
            device: "see figures 4-5 and 6-7".into(),
            setting: "4 KiB pairs, zipfian, durability `os`, medians of pairs over three sizes".into(),
        });
        figure.panels.push(panel);
    }
    Ok(Finding { figure, claims })
}

/// Operations per second.
fn run(lab: &Lab<'_>, scale: &Scale, stock: &Stock, set: &Set, reader: &Reader, mode: Mode, turn: Turn) -> Result<f64> {
    let copy = stock.copy(lab)?;
    let (database, table) = open(scale.options().backend(reader.backend), copy.path())?;
    let (taken, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let goes_on = || !failed.load(Ordering::Relaxed) && !lab.is_stopped();
    let begun = Instant::now();
    let seconds = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS as u64)
            .map(|client| {
                let (table, taken, failed) = (table.clone(), &taken, &failed);
                let random = SmallRng::seed_from_u64(turn.seed ^ keys::mix(client + 1));
                scope.spawn(move || {
                    let done = work(&table, set, taken, random, goes_on);
                    if done.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    done.map(|()| begun.elapsed())
                })
            })
            .collect();
        let go_on = &mut |_| if goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let compacted = table.compact_with(&compact_options(reader, mode), go_on).map_err(Error::from);
        let whole = begun.elapsed();
        let mut longest = whole;
        for client in clients {
            let elapsed = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            longest = longest.max(elapsed);
        }
        compacted.map(|_| longest.as_secs_f64())
    })?;
    lab.go_on()?;
    stock.check_some(&table, turn.seed)?;
    drop(table);
    database.close()?;
    let path = copy.path().to_owned();
    copy.close().map_err(Error::io("removing", path))?;
    Ok(set.operations as f64 / seconds)
}

/// The work of one client.
fn work(table: &Table, set: &Set, taken: &AtomicU64, mut random: SmallRng, goes_on: impl Fn() -> bool) -> Result<()> {
    let mut requests = Requests::new(Distribution::Zipfian, Core::A, set.pairs, set.operations);
    while taken.fetch_add(1, Ordering::Relaxed) < set.operations && goes_on() {
        let index = requests.next(set.pairs, &mut random);
        if random.random() {
            check(index, table.get(keys::key(index, KEY_BYTES))?.as_deref())?;
        } else {
            let (key, value) = pair(index, random.random());
            table.put(key, value)?;
        }
    }
    Ok(())
}
