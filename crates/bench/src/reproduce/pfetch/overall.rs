//! Figures 4 to 7: time of a compaction, and of its reads, by size of the data, with direct and buffered I/O. This
//! project's own goals stand beside them.

use super::compaction::{Cell, Mode, OVERLAPPED, READERS, Sample, contest};
use super::scale::{BATCH, Scale, Set};
use super::store::Stock;
use crate::Result;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, number, times, times_range};
use crate::reproduce::lab::Lab;

/// Positions of the readers that the claims are about.
const SYNC: usize = 0;
const IO_URING: usize = 2;

/// A pair of the paper's figures, which differ by their device.
pub(super) struct Pair {
    pub(super) name: &'static str,
    title: &'static str,
    mode: Mode,
    paper_read: &'static str,
    paper_whole: &'static str,
}

pub(super) const DIRECT: Pair = Pair {
    name: "4-5",
    title: "Compaction with direct I/O, submission batches of 128",
    mode: Mode { direct: true, sorted: true },
    paper_read: "8x to 10x",
    paper_whole: "1.4x to 2x on NVMe, 2x to 3.5x on SATA",
};

pub(super) const BUFFERED: Pair = Pair {
    name: "6-7",
    title: "Compaction with buffered I/O, submission batches of 128, offsets not sorted",
    mode: Mode { direct: false, sorted: false },
    paper_read: "5.2x to 6.3x on NVMe, more than 6x on SATA",
    paper_whole: "1.3x to 1.7x on NVMe, 1.7x to 3.1x on SATA",
};

pub(super) fn measure(lab: &mut Lab<'_>, scale: &Scale, pair: &Pair) -> Result<Finding> {
    let sets = scale.sets();
    let mut figure = Figure::new(pair.name, pair.title);
    figure.notes.extend([
        "The paper's two figures differ by their device; there is one here.".into(),
        format!(
            "Submission batches of {BATCH}. Read is the time until a batch is there and checked; for `{}` only what is still to be waited for then.",
            OVERLAPPED.name
        ),
    ]);
    let seconds = |title: &str| Panel::new(title, Drawing::Lines, Axis::linear("pairs"), Axis::logarithmic("seconds"));
    let (mut whole, mut read) = (seconds("Compaction"), seconds("Its reads"));
    let mut rates =
        Panel::new("Documents read", Drawing::Lines, Axis::linear("pairs"), Axis::logarithmic("per second of reading"));
    lab.expect_groups(sets.len());
    let mut cells = Vec::new();
    for set in sets {
        let stock = Stock::make(lab, scale, &set)?;
        let what = format!("figure {}, {} of the paper", pair.name, set.name);
        let cell = contest(lab, scale, &stock, &READERS, pair.mode, &what)?;
        let point = |samples: Vec<f64>| Point::of(set.pairs as f64, samples).labelled(set.name);
        for (place, reader) in READERS.iter().enumerate() {
            whole.add(reader.name, point(cell.samples(place, |sample| sample.seconds)));
            read.add(reader.name, point(cell.samples(place, Sample::read_seconds)));
            rates.add(reader.name, point(cell.samples(place, Sample::read_rate)));
        }
        rates.add("device, one at a time", point(cell.alone.clone()));
        rates.add("device, 128 in flight", point(cell.batched.clone()));
        cells.push((set, cell));
    }
    figure.panels.extend([whole, read, rates]);
    Ok(Finding { claims: claims(pair, &cells), figure })
}

fn claims(pair: &Pair, cells: &[(Set, Cell)]) -> Vec<Claim> {
    let all = |of: &dyn Fn(&Cell) -> f64| cells.iter().map(|(_, cell)| of(cell)).collect::<Vec<f64>>();
    let reads = all(&|cell| cell.ratio(SYNC, IO_URING, Sample::read_seconds));
    let wholes = all(&|cell| cell.ratio(SYNC, IO_URING, |sample| sample.seconds));
    let product = all(&|cell| cell.ratio(SYNC, READERS.len() - 1, |sample| sample.seconds));
    let (depths, shares) = (all(&Cell::depth_ratio), all(&|cell| cell.share(IO_URING)));
    let device = format!("{} with {BATCH} in flight over one at a time", times_range(&depths));
    let how = if pair.mode.direct { "direct" } else { "buffered" };
    let setting = format!("4 KiB pairs, {how}, durability `os`, medians of pairs over three sizes");
    let claim = |what: &str, paper: &str, here: String, goal: Option<(String, bool)>| Claim {
        figure: pair.name.into(),
        what: what.into(),
        paper: paper.into(),
        here,
        met: goal.as_ref().map(|(_, met)| *met),
        goal: goal.map(|(goal, _)| goal),
        device: device.clone(),
        setting: setting.clone(),
    };
    // A ratio that is not a number does not meet a goal.
    let least = |ratios: &[f64], bound: f64| ratios.iter().all(|ratio| *ratio >= bound);
    let mut claims = Vec::new();
    if pair.mode.direct {
        let bounds: Vec<f64> = depths.iter().map(|depth| 0.9 * depth).collect();
        let met = reads.iter().zip(&bounds).all(|(read, bound)| read >= bound);
        let goal = format!(">= 0.9 x the device's ratio, {}", times_range(&bounds));
        claims.push(claim("read phase, sync over io_uring", pair.paper_read, times_range(&reads), Some((goal, met))));
        let here = shares.iter().map(|share| number(*share)).collect::<Vec<_>>().join(", ");
        let goal =
            (format!(">= 0.80 of the device's random reads of a document with {BATCH} in flight"), least(&shares, 0.8));
        claims.push(claim("documents read in a second of the read phase, io_uring", "not measured", here, Some(goal)));
    } else {
        let goal = (format!(">= {}", times(3.0)), least(&reads, 3.0));
        claims.push(claim("read phase, sync over io_uring", pair.paper_read, times_range(&reads), Some(goal)));
    }
    let goal = pair.mode.direct.then(|| (format!(">= {}", times(1.4)), least(&wholes, 1.4)));
    claims.push(claim("whole compaction, sync over io_uring", pair.paper_whole, times_range(&wholes), goal));
    claims.push(claim(
        "whole compaction, sync over what the product does",
        "not measured",
        times_range(&product),
        None,
    ));
    claims
}
