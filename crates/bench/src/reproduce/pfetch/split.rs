//! Figure 2: the division of a compaction's time, with offsets sorted and not.

use super::compaction::{IO_URING, Mode, Reader, SYNC, Sample, contest};
use super::scale::Scale;
use super::store::Stock;
use crate::Result;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, number};
use crate::reproduce::lab::Lab;

const NAME: &str = "2";
const READERS: [Reader; 2] = [SYNC, IO_URING];
/// The paper has one column per device; this run has one device.
const DEVICE: &str = "this device";

type Part = (&'static str, fn(&Sample) -> f64);

const PARTS: [Part; 6] = [
    ("tree search", |sample| sample.times.search.as_secs_f64()),
    ("sort", |sample| sample.times.sort.as_secs_f64()),
    ("read", Sample::read_seconds),
    ("write", |sample| sample.times.write.as_secs_f64()),
    ("WAL flush & commit", |sample| sample.times.flush.as_secs_f64()),
    ("other", |sample| sample.other().as_secs_f64()),
];

pub(super) fn measure(lab: &mut Lab<'_>, scale: &Scale) -> Result<Finding> {
    let set = scale.split();
    let stock = Stock::make(lab, scale, &set)?;
    let mut figure = Figure::new(NAME, "Parts of a compaction's time, in percent");
    figure.notes.extend([
        format!("{} pairs; the paper has 1.5 million, on a hard disk, a SATA SSD and an NVMe SSD.", set.pairs),
        "HDD: not available on this machine, so the paper's first column is missing.".into(),
        "Other is what applies the operations that wait, packs the tree in key order, and makes checkpoints.".into(),
    ]);
    lab.expect_groups(2);
    let mut claims = Vec::new();
    for (sorted, title, paper) in [
        (true, "Offsets sorted", "45 % of the time is reading, with either SSD; tree search below 1 %"),
        (false, "Offsets not sorted", "the same: sorting changes little on an SSD"),
    ] {
        let mode = Mode { direct: true, sorted };
        let cell = contest(lab, scale, &stock, &READERS, mode, &format!("figure 2, {}", title.to_lowercase()))?;
        let (across, upwards) = (Axis::linear("reader"), Axis::linear("% of the time"));
        let mut panel = Panel::new(title, Drawing::StackedBars, across, upwards);
        for (place, reader) in READERS.iter().enumerate() {
            for (part, of) in PARTS {
                let share = cell.samples(place, |sample| 100.0 * of(sample) / sample.seconds);
                panel.add(part, Point::of(place as f64, share).labelled(format!("{DEVICE}, {}", reader.name)));
            }
        }
        let at = |part: &str, place: usize| panel.at(part, place as f64).map_or_else(String::new, number);
        claims.push(Claim::of_paper(
            NAME,
            &format!("{}: share of reading and of tree search with sync", title.to_lowercase()),
            paper,
            format!(
                "reading {} %, tree search {} %; with io_uring reading {} %",
                at("read", 0),
                at("tree search", 0),
                at("read", 1)
            ),
            format!(
                "{} of a document with 128 in flight over one",
                crate::reproduce::figure::times(cell.depth_ratio())
            ),
            "4 KiB pairs, direct I/O, durability `os`, medians",
        ));
        figure.panels.push(panel);
    }
    Ok(Finding { figure, claims })
}
