//! Figure 11: inserts and point searches with operation queues of different sizes.

use super::paper::{B_PLUS, PIO, PioPaper, claim};
use super::scale::{PAPER_RATIO, SMALL};
use super::{memory, tuning};
use crate::Result;
use crate::reproduce::Finding;
use crate::reproduce::figure::{Axis, Drawing, Figure, Panel, Point, paired_ratio, times};
use crate::reproduce::lab::{Device, Lab};
use crate::reproduce::stock::{Contestant, pages as pages_text};
use crate::trees::pio::{CACHE_BYTES_MIN, QUEUE_BYTES_MIN, Tuning};

/// Bytes of a page, the paper's unit of the OPQ.
const PAGE_BYTES: u64 = 4096;
/// The ratio of one queue size to the one before.
const STEP: u64 = 4;

/// Figure 11: from the smallest queue to the largest that the pool can spare. The B+-tree stands beside, with all of
/// the memory as its pool.
pub(super) fn queue_sizes(paper: &mut PioPaper, lab: &mut Lab<'_>, device: &Device) -> Result<Finding> {
    let profile = paper.profile(lab)?;
    let scale = paper.scale;
    let bytes = scale.memory_bytes(PAPER_RATIO);
    let b_plus = tuning::b_plus(&profile, SMALL);
    // As in the paper (§4.1.3), leaves are the same as for figure 9.
    let Contestant::Pio(Tuning { leaf_pages, .. }) = tuning::pio(&profile, SMALL, scale.entries, bytes, 0.0) else {
        unreachable!("a tuning of the PIO B-tree is one")
    };
    let sizes = sizes((bytes - CACHE_BYTES_MIN) / PAGE_BYTES);
    let mut figure = Figure::new("11", "Insert and search time with OPQ sizes");
    figure.notes.push(format!(
        "{}; what the OPQ leaves is the pool: {} in all.",
        tuning::note(&[b_plus]),
        memory::text(bytes)
    ));
    figure.notes.push(format!(
        "PIO B-tree: leaves of {}. A waiting operation takes more than its entry: its place in a hash table and an arena, its seq and \
         its log position count too, so the smallest queue is {}.",
        pages_text(leaf_pages.into()),
        pages_text(QUEUE_BYTES_MIN / PAGE_BYTES)
    ));
    let axes = || (Axis::logarithmic("OPQ, pages of 4 KiB"), Axis::logarithmic("µs per operation"));
    let mut panels = ["(a) Insert", "(b) Point search"].map(|title| {
        let (across, upwards) = axes();
        Panel::new(title, Drawing::Lines, across, upwards)
    });
    lab.expect_groups(sizes.len());
    let mut ratios = Vec::new();
    for pages in sizes {
        let pio = Contestant::Pio(Tuning { leaf_pages, queue_bytes: pages * PAGE_BYTES });
        let plans = [b_plus, pio].map(|tree| scale.plan(tree, SMALL, bytes));
        let what = format!("figure 11, OPQ of {pages} pages");
        // The stock is cleared so that the B+-tree is as fresh as the PIO B-tree, which is another tree at each size.
        paper.stock.clear()?;
        let samples = paper.contest(lab, &what, &plans, |player| {
            let search = player.searches(scale.slice)?;
            Ok([player.inserts(scale.slice)?, search])
        })?;
        let of = |tree: usize, kind: usize| samples[tree].iter().map(|sample| sample[kind]).collect::<Vec<f64>>();
        ratios.push((pages, [0, 1].map(|kind| paired_ratio(&of(0, kind), &of(1, kind)))));
        for (kind, panel) in panels.iter_mut().enumerate() {
            for (tree, name) in [B_PLUS, PIO].into_iter().enumerate() {
                panel.add(name, Point::of(pages as f64, of(tree, kind)));
            }
        }
    }
    figure.panels.extend(panels);
    let setting = format!("8 B + 8 B, {}", memory::beside(bytes, scale.data_bytes()));
    let claims = claims(&ratios, bytes / PAGE_BYTES, device, &setting);
    Ok(Finding { figure, claims })
}

/// Sizes of the queue in pages: the smallest, four times as many, and so on, and `most`.
fn sizes(most: u64) -> Vec<u64> {
    let smallest = QUEUE_BYTES_MIN / PAGE_BYTES;
    let growing = std::iter::successors(Some(smallest), |pages| Some(pages * STEP));
    let mut sizes: Vec<u64> = growing.take_while(|pages| *pages < most).collect();
    sizes.push(most.max(smallest));
    sizes
}

type Ratios = [(u64, [f64; 2])];

fn claims(ratios: &Ratios, memory_pages: u64, device: &Device, setting: &str) -> Vec<crate::reproduce::Claim> {
    let Some((least, smallest)) = ratios.first() else { return Vec::new() };
    let at_least = format!("{} with {least} pages", times(smallest[0]));
    let best = ratios.iter().map(|(_, [insert, _])| *insert).fold(0.0, f64::max);
    // The paper's OPQ of 1024 pages, out of 4096.
    let quarter = ratios.iter().min_by_key(|(pages, _)| pages.abs_diff(memory_pages / 4));
    let (pages, [insert, search]) = quarter.copied().unwrap_or((0, [f64::NAN; 2]));
    let at_quarter = format!("{} and {} with an OPQ of {pages} of {memory_pages} pages", times(insert), times(search));
    vec![
        claim(
            "11",
            "inserts against the B+-tree, smallest OPQ",
            "7.2x, 8.2x, 4.3x with 1 page",
            at_least,
            device,
            setting,
        ),
        claim("11", "inserts against the B+-tree, best OPQ", "28x", times(best), device, setting),
        claim(
            "11",
            "inserts and searches, OPQ of a quarter of the memory",
            "16.3x and 1.2x",
            at_quarter,
            device,
            setting,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_go_from_the_smallest_to_the_most() {
        assert_eq!(sizes(496), [4, 16, 64, 256, 496]);
        assert_eq!(sizes(16), [4, 16]);
        assert_eq!(sizes(0), [4]);
    }
}
