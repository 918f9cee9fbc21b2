//! This project's own goals against the plain B+-tree with the same memory, and against the FD-tree.

use psync::probe::DeviceProfile;

use super::paper::{B_PLUS, FD, PIO, PioPaper};
use super::scale::{EASY_RATIO, LARGE, PAPER_RATIO, SMALL, Scale};
use super::{memory, tuning};
use crate::Result;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, paired_ratio, times};
use crate::reproduce::lab::{Device, Lab};
use crate::reproduce::play::Player;
use crate::reproduce::stock::{Contestant, Plan};
use crate::trees::Shape;

/// Keys of a batch.
const BATCH: usize = 64;
/// Keys of a range.
const RANGE: u64 = 1 << 16;
/// One kind of work for a comparison of trees.
struct Work {
    name: &'static str,
    unit: &'static str,
    goal: f64,
    paper: &'static str,
    /// The share of inserts that trees are tuned for.
    inserts: f64,
    /// The share of batched searches that trees are tuned for.
    batched: f64,
    sample: fn(&mut Player<'_>, std::time::Duration) -> Result<f64>,
}

/// The order reads a tree before the tree is changed.
const WORKS: [Work; 4] = [
    Work {
        name: "point search, one at a time",
        unit: "µs per search",
        goal: 1.0,
        paper: "1.36x to 1.5x",
        inserts: 0.0,
        batched: 0.0,
        sample: |player, time| player.searches(time),
    },
    Work {
        name: "point search, batches of 64",
        unit: "µs per key",
        goal: 4.0,
        paper: "not measured",
        inserts: 0.0,
        batched: 1.0,
        sample: |player, time| player.batches(BATCH, time),
    },
    Work {
        name: "range search of 64K keys",
        unit: "µs per range",
        goal: 4.0,
        paper: "5x on Iodrive",
        inserts: 0.0,
        batched: 1.0,
        sample: |player, time| player.ranges(RANGE.min(player.entries() / 2), time),
    },
    Work {
        name: "random insert",
        unit: "µs per insert",
        goal: 10.0,
        paper: "up to 16.3x with equal search",
        inserts: 1.0,
        batched: 0.0,
        sample: |player, time| player.inserts(time),
    },
];

/// All goals, for two shapes of entries and two sizes of memory.
pub(super) fn goals(paper: &mut PioPaper, lab: &mut Lab<'_>, device: &Device) -> Result<Finding> {
    let profile = paper.profile(lab)?;
    let scale = paper.scale;
    let mut figure = Figure::new("headline", "Goals: the PIO B-tree against the plain B+-tree with the same memory");
    figure.notes.push(tuning::terms(&profile));
    let names = ["8 B + 8 B", "16 B + 100 B"];
    let mut panels =
        WORKS.map(|work| Panel::new(work.name, Drawing::StackedBars, Axis::linear("index"), Axis::linear(work.unit)));
    figure.notes.push(
        "Each tree is tuned by its own paper's method for one kind of work: point searches one at a time; point searches in batches, of which a \
         range is one; inserts alone. The model of the PIO B-tree alone knows batches."
            .into(),
    );
    let mut claims = Vec::new();
    lab.expect_groups(4 * WORKS.len());
    for (shape, name) in [SMALL, LARGE].into_iter().zip(names) {
        for ratio in [PAPER_RATIO, EASY_RATIO] {
            let bytes = scale.memory_bytes(ratio);
            let memory = memory::beside(bytes, scale.data_bytes());
            let setting = format!("{name}, {memory}");
            for (work, panel) in WORKS.iter().zip(&mut panels) {
                let trees = trees(&profile, &scale, work, shape, bytes)?;
                figure.notes.push(format!("{}, {setting}: {}.", work.name, tuning::note(&trees)));
                let plans = trees.map(|tree| scale.plan(tree, shape, bytes));
                let samples = one(paper, lab, work, &plans, &setting)?;
                add(panel, &trees, &samples, &format!("{} 1/{ratio}", short(shape)));
                claims.extend(rows(work, shape, &samples, device, &setting));
            }
        }
    }
    figure.panels.extend(panels);
    Ok(Finding { figure, claims })
}

fn trees(profile: &DeviceProfile, scale: &Scale, work: &Work, shape: Shape, bytes: u64) -> Result<[Contestant; 3]> {
    let entries = scale.entries_of(shape);
    Ok([
        tuning::b_plus_for(profile, shape, entries, bytes, work.inserts),
        tuning::pio_for(profile, shape, entries, bytes, work.inserts, work.batched),
        tuning::fd(profile, shape, entries, bytes, work.inserts)?,
    ])
}

fn one(paper: &mut PioPaper, lab: &mut Lab<'_>, work: &Work, plans: &[Plan], setting: &str) -> Result<Vec<Vec<f64>>> {
    let slice = paper.scale.slice;
    let what = format!("headline, {}, {setting}", work.name);
    paper.contest(lab, &what, plans, |player| (work.sample)(player, slice))
}

const fn short(shape: Shape) -> &'static str {
    if shape.value_bytes > 8 { "116 B" } else { "16 B" }
}

fn add(panel: &mut Panel, trees: &[Contestant], samples: &[Vec<f64>], group: &str) {
    for (tree, samples) in trees.iter().zip(samples) {
        let place = panel.series.first().map_or(0, |series| series.points.len());
        let label = format!("{} {group}", initials(tree.name()));
        panel.add("median", Point::of(place as f64, samples.clone()).labelled(label));
    }
}

/// A name short enough to fit below a bar.
fn initials(name: &str) -> &str {
    match name {
        PIO => "PIO",
        B_PLUS => "B+",
        FD => "FD",
        other => other,
    }
}

/// The device's limits. A missed goal for batches is marked as beyond the reach of batching alone, if the device's own
/// ratio is below the goal.
fn bound(goal: f64, is_batched: bool, is_missed: bool, device: &Device) -> String {
    let text = device.text();
    if is_missed && is_batched && device.depth_ratio() < goal {
        format!("{text}, below the goal: batching alone cannot reach it on this device")
    } else {
        text
    }
}

fn rows(work: &Work, shape: Shape, samples: &[Vec<f64>], device: &Device, setting: &str) -> Vec<Claim> {
    let is_batched = work.name == WORKS[1].name || work.name == WORKS[2].name;
    let row = |what: String, goal: f64, ratio: f64, paper: &str, is_goal: bool| Claim {
        figure: "headline".into(),
        what,
        paper: paper.into(),
        here: times(ratio),
        goal: Some(if is_goal { format!(">= {}", times(goal)) } else { "stands beside".into() }),
        met: is_goal.then_some(ratio >= goal),
        device: bound(goal, is_batched, is_goal && ratio < goal, device),
        setting: setting.into(),
    };
    let [b_plus, pio, fd] = samples else { return Vec::new() };
    // The goal of ten times the inserts is set for the paper's entries only. The larger entries stand beside.
    let is_goal = work.goal < 10.0 || shape == SMALL;
    let what = format!("{} against the {B_PLUS}", work.name);
    let mut rows = vec![row(what, work.goal, paired_ratio(b_plus, pio), work.paper, is_goal)];
    if work.name == WORKS[0].name {
        rows.push(row(format!("{} against the {FD}", work.name), 1.0, paired_ratio(fd, pio), "faster", true));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_blamed_only_for_goals_that_were_missed() {
        let device = Device {
            reads_per_second: vec![(1, 10e3), (32, 35e3)],
            sequential_write_bytes_per_second: None,
            flushed_writes_per_second: None,
            direct: true,
        };
        let batches = &WORKS[1];
        let cell = |pio: f64| rows(batches, SMALL, &[vec![12.0], vec![pio], vec![9.0]], &device, "x").remove(0);
        let (missed, met) = (cell(4.0), cell(2.0));
        assert_eq!((missed.met, met.met), (Some(false), Some(true)));
        assert!(missed.device.contains("below the goal"), "{}", missed.device);
        assert!(!met.device.contains("below the goal"), "{}", met.device);
        let single = rows(&WORKS[0], SMALL, &[vec![1.0], vec![2.0], vec![1.0]], &device, "x").remove(0);
        assert!(single.met == Some(false) && !single.device.contains("below the goal"), "{}", single.device);
    }
}
