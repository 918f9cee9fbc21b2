//! Figure 12: four indexes in five mixed workloads, each tuned for the workload by its own method.

use super::paper::{B_PLUS, BFTL, FD, PIO, PioPaper, claim};
use super::scale::{PAPER_RATIO, SMALL};
use super::{memory, tuning};
use crate::Result;
use crate::reproduce::figure::{Axis, Claim, Drawing, Figure, Panel, Point, paired_ratio, times_range};
use crate::reproduce::lab::{Device, Lab};
use crate::reproduce::play::Mixed;
use crate::reproduce::{Finding, stock::Contestant};

/// Inserts out of a hundred operations; the others are point searches.
const INSERTS: [u32; 5] = [10, 30, 50, 70, 90];

/// The paper's statements about the other trees.
const PAPER: [(&str, &str); 3] = [
    (BFTL, "2.5x to 13.7x, 2x to 13x, 2.1x to 15x"),
    (B_PLUS, "1.6x to 11x, 1.4x to 10.9x, 1.6x to 10.5x"),
    (FD, "1.23x to 1.47x, 1.24x to 1.45x, 1.24x to 1.46x"),
];

/// Figure 12.
pub(super) fn workloads(paper: &mut PioPaper, lab: &mut Lab<'_>, device: &Device) -> Result<Finding> {
    let profile = paper.profile(lab)?;
    let scale = paper.scale;
    let bytes = scale.memory_bytes(PAPER_RATIO);
    let mut figure = Figure::new("12", "Overall time in mixed workloads");
    figure.notes.push(
        "Which operation comes next is random; time that a tree still needs at the end is counted with the inserts."
            .into(),
    );
    figure.notes.push(tuning::terms(&profile));
    lab.expect_groups(INSERTS.len());
    let mut ratios: Vec<(&str, Vec<f64>)> = Vec::new();
    for inserts in INSERTS {
        let ratio = f64::from(inserts) / 100.0;
        let trees = tuning::all(&profile, SMALL, scale.entries, bytes, ratio)?;
        let plans: Vec<_> = trees.iter().map(|tree| scale.plan(*tree, SMALL, bytes)).collect();
        figure.notes.push(format!("{inserts} % inserts: {}.", tuning::note(&trees)));
        let what = format!("figure 12, {inserts} % inserts");
        let samples = paper.contest(lab, &what, &plans, |player| player.mixed(ratio, scale.slice))?;
        figure.panels.push(panel(inserts, &trees, &samples));
        let Some(pio) = trees.iter().position(|tree| tree.name() == PIO) else { continue };
        let total = |tree: usize| samples[tree].iter().map(Mixed::total_us).collect::<Vec<f64>>();
        for (place, tree) in trees.iter().enumerate().filter(|(place, _)| *place != pio) {
            let ratio = paired_ratio(&total(place), &total(pio));
            match ratios.iter_mut().find(|(name, _)| *name == tree.name()) {
                Some((_, known)) => known.push(ratio),
                None => ratios.push((tree.name(), vec![ratio])),
            }
        }
    }
    let setting = format!("8 B + 8 B, {}", memory::beside(bytes, scale.data_bytes()));
    let claims = ratios.iter().flat_map(|(name, ratios)| claims(name, ratios, device, &setting)).collect();
    Ok(Finding { figure, claims })
}

fn panel(inserts: u32, trees: &[Contestant], samples: &[Vec<Mixed>]) -> Panel {
    let title = format!("{inserts} % inserts, {} % point searches", 100 - inserts);
    let mut panel = Panel::new(title, Drawing::StackedBars, Axis::linear("index"), Axis::linear("µs per operation"));
    for ((place, tree), samples) in trees.iter().enumerate().zip(samples) {
        for (part, of) in [("insert", Mixed::insert_us as fn(&Mixed) -> f64), ("point search", Mixed::search_us)] {
            panel.add(part, Point::of(place as f64, samples.iter().map(of).collect()).labelled(tree.name()));
        }
    }
    panel
}

/// The rows for one tree. Against the B+-tree this project has a goal too: every workload faster.
fn claims(name: &str, ratios: &[f64], device: &Device, setting: &str) -> Vec<Claim> {
    let says = PAPER.iter().find(|(known, _)| *known == name).map_or("", |(_, says)| says);
    let what = format!("mixed workloads against the {name}, 10 % to 90 % inserts");
    let row = claim("12", &what, says, times_range(ratios), device, setting);
    if name != B_PLUS {
        return vec![row];
    }
    let met = ratios.iter().all(|ratio| *ratio > 1.0);
    vec![Claim { goal: Some("every one faster".into()), met: Some(met), ..row.clone() }, row]
}
