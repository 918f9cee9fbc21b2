//! Figure 9: time of a compaction's reads by submission batch, with direct I/O.

use super::compaction::{IO_URING, LIBAIO, Mode, Reader, SYNC, Sample, contest};
use super::scale::{BATCHES, Scale};
use super::store::Stock;
use crate::Result;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, times};
use crate::reproduce::lab::Lab;

const NAME: &str = "9";

pub(super) fn measure(lab: &mut Lab<'_>, scale: &Scale) -> Result<Finding> {
    let set = scale.middle();
    let stock = Stock::make(lab, scale, &set)?;
    let mut figure = Figure::new(NAME, "Time of a compaction's reads by submission batch, direct I/O");
    figure
        .notes
        .push(format!("{} pairs, for the paper's {}; offsets sorted. sync has no batches.", set.pairs, set.name));
    let (across, upwards) = (Axis::logarithmic("documents in flight"), Axis::logarithmic("seconds"));
    let mut panel = Panel::new("Reads", Drawing::Lines, across, upwards);
    let batches: Vec<usize> = BATCHES.into_iter().step_by(scale.stride).collect();
    lab.expect_groups(batches.len());
    let mut depth = Vec::new();
    for batch in &batches {
        let readers = [SYNC, Reader { batch: *batch, ..LIBAIO }, Reader { batch: *batch, ..IO_URING }];
        let mode = Mode { direct: true, sorted: true };
        let cell = contest(lab, scale, &stock, &readers, mode, &format!("figure 9, batches of {batch}"))?;
        for (place, reader) in readers.iter().enumerate() {
            panel.add(reader.name, Point::of(*batch as f64, cell.samples(place, Sample::read_seconds)));
        }
        depth.push(cell.depth_ratio());
    }
    let (first, last) = (batches[0], batches[batches.len() - 1]);
    let faster = |reader: &Reader| {
        let at = |batch: usize| panel.at(reader.name, batch as f64).unwrap_or(f64::NAN);
        times(at(first) / at(last))
    };
    let claims = vec![Claim::of_paper(
        NAME,
        &format!("reads with a batch of {first} over those with {last}"),
        "up to 10x, batches of 1 over 256",
        format!("libaio {}, io_uring {}", faster(&LIBAIO), faster(&IO_URING)),
        format!("{} with 128 in flight over one at a time", crate::reproduce::figure::times_range(&depth)),
        "4 KiB pairs, direct, durability `os`, medians",
    )];
    figure.panels.push(panel);
    Ok(Finding { figure, claims })
}
