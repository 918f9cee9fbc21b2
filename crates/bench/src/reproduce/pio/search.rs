//! Figure 9: point searches with buffers of different sizes.

use super::paper::{B_PLUS, PIO, PioPaper, claim};
use super::scale::{PAPER_RATIO, SMALL};
use super::{memory, tuning};
use crate::Result;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Drawing, Figure, Panel, Point, paired_ratio, times_range};
use crate::reproduce::lab::{Device, Lab};

/// Divisors of the memory that give the paper's buffers of 1 to 16 MB.
const PARTS: [u64; 5] = [16, 8, 4, 2, 1];
/// The smallest buffer that every tree can work with.
const BUFFER_BYTES_MIN: u64 = 96 << 10;

/// Figure 9. The whole of each size is buffer, because a workload of searches needs no more OPQ than the smallest.
pub(super) fn buffer_sizes(paper: &mut PioPaper, lab: &mut Lab<'_>, device: &Device) -> Result<Finding> {
    let profile = paper.profile(lab)?;
    let scale = paper.scale;
    let whole = scale.memory_bytes(PAPER_RATIO);
    let mut figure = Figure::new("9", "Search time with different buffer sizes");
    let (across, upwards) = (Axis::logarithmic("buffer, KiB"), Axis::linear("µs per point search"));
    let mut panel = Panel::new("Point search, one at a time", Drawing::Lines, across, upwards);
    let sizes: Vec<u64> = PARTS.iter().map(|part| whole / part).filter(|bytes| *bytes >= BUFFER_BYTES_MIN).collect();
    if sizes.len() < PARTS.len() {
        figure
            .notes
            .push(format!("Buffers below {} are left out: they hold too few pages.", memory::text(BUFFER_BYTES_MIN)));
    }
    lab.expect_groups(sizes.len());
    let mut ratios = Vec::new();
    for bytes in sizes {
        let trees = [tuning::b_plus(&profile, SMALL), tuning::pio(&profile, SMALL, scale.entries, bytes, 0.0)];
        let plans = trees.map(|tree| scale.plan(tree, SMALL, bytes));
        figure.notes.push(format!("Buffer {}: {}.", memory::text(bytes), tuning::note(&trees)));
        let what = format!("figure 9, buffer {}", memory::text(bytes));
        let samples = paper.contest(lab, &what, &plans, |player| player.searches(scale.slice))?;
        ratios.push(paired_ratio(&samples[0], &samples[1]));
        for (name, samples) in [B_PLUS, PIO].into_iter().zip(samples) {
            panel.add(name, Point::of(bytes as f64 / 1024.0, samples));
        }
    }
    figure.panels.push(panel);
    let here = format!("{} as fast", times_range(&ratios));
    let setting = format!("8 B + 8 B, up to {}", memory::beside(whole, scale.data_bytes()));
    let what = "point search against the B+-tree, all buffer sizes";
    let claims = vec![claim("9", what, "faster at all sizes, up to 1.5x, 1.36x, 1.36x", here, device, &setting)];
    Ok(Finding { figure, claims })
}
