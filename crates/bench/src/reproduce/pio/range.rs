//! Figure 10: range searches of different lengths.

use super::paper::{B_PLUS, PIO, PioPaper, claim};
use super::scale::{PAPER_RATIO, SMALL};
use super::{memory, tuning};
use crate::Result;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Drawing, Figure, Panel, Point, paired_ratio, times_range};
use crate::reproduce::lab::{Device, Lab};

/// Keys of a range in the paper: 1K to 32M by factors of 8.
const LENGTHS: [u64; 6] = [1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 25];
/// The shortest range for which the paper has its 5x.
const LONG: u64 = 1 << 16;

/// Figure 10, as far as the data reaches.
pub(super) fn ranges(paper: &mut PioPaper, lab: &mut Lab<'_>, device: &Device) -> Result<Finding> {
    let profile = paper.profile(lab)?;
    let scale = paper.scale;
    let bytes = scale.memory_bytes(PAPER_RATIO);
    let trees = [tuning::b_plus(&profile, SMALL), tuning::pio(&profile, SMALL, scale.entries, bytes, 0.0)];
    let plans = trees.map(|tree| scale.plan(tree, SMALL, bytes));
    let mut figure = Figure::new("10", "Range search time with different ranges");
    figure.notes.push(format!("{}; {}.", tuning::note(&trees), memory::beside(bytes, scale.data_bytes())));
    figure.notes.push("The range is given by its keys; every entry in it is handed out in order and counted.".into());
    let (across, upwards) = (Axis::logarithmic("keys in the range"), Axis::logarithmic("ms per range search"));
    let mut panel = Panel::new("Range search", Drawing::Lines, across, upwards);
    let lengths: Vec<u64> = LENGTHS.into_iter().filter(|length| *length <= scale.entries / 2).collect();
    if lengths.len() < LENGTHS.len() {
        figure.notes.push(format!("The paper goes on to 32M keys; this data has {} in all.", scale.entries));
    }
    lab.expect_groups(lengths.len());
    let (mut all, mut long) = (Vec::new(), Vec::new());
    for length in lengths {
        let what = format!("figure 10, ranges of {length} keys");
        let samples = paper.contest(lab, &what, &plans, |player| player.ranges(length, scale.slice))?;
        let ratio = paired_ratio(&samples[0], &samples[1]);
        all.push(ratio);
        if length >= LONG {
            long.push(ratio);
        }
        for (name, samples) in [B_PLUS, PIO].into_iter().zip(samples) {
            let milliseconds = samples.into_iter().map(|us| us / 1e3).collect();
            panel.add(name, Point::of(length as f64, milliseconds));
        }
    }
    figure.panels.push(panel);
    let setting = format!("8 B + 8 B, {}", memory::beside(bytes, scale.data_bytes()));
    let claims = vec![
        claim(
            "10",
            "range search against the B+-tree, all lengths",
            "faster at every length",
            times_range(&all),
            device,
            &setting,
        ),
        claim(
            "10",
            "ranges of 64K keys and more",
            "5x on Iodrive; 4.5x and 3.5x from 512K keys",
            times_range(&long),
            device,
            &setting,
        ),
    ];
    Ok(Finding { figure, claims })
}
