//! Plots of a section as SVG: a panel for each line, a bar for each store, whiskers from the lowest round to the
//! highest.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::lines::{Line, Section};
use crate::error::{Error, Result};
use crate::sample::{Cell, DEVICE, Sample};
use crate::store::CONTESTANTS;
use crate::work::Metric;

/// Pixels of a panel.
const PANEL: (u32, u32) = (380, 240);
/// Panels in one row.
const PANELS_IN_ROW: usize = 3;
/// Pixels above the panels.
const TITLE: u32 = 36;
/// Colours that people with any colour vision can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];
const GREY: RGBColor = RGBColor(110, 110, 110);
/// Half of the width of a bar, where bars are 1 apart.
const BAR: f64 = 0.36;
/// Space above the highest bar.
const HEADROOM: f64 = 1.12;

type Failure = Box<dyn std::error::Error>;

/// Draws a section into a file. Returns whether there was anything to draw.
pub(super) fn draw(section: &Section, samples: &[Sample], path: &Path) -> Result<bool> {
    let panels: Vec<Panel> = section.lines.iter().filter_map(|line| Panel::of(line, samples)).collect();
    if panels.is_empty() {
        return Ok(false);
    }
    let side = |count: usize, pixels: u32| u32::try_from(count).map_or(u32::MAX, |count| count.saturating_mul(pixels));
    let (rows, columns) = (panels.len().div_ceil(PANELS_IN_ROW), panels.len().min(PANELS_IN_ROW));
    let size = (side(columns, PANEL.0), side(rows, PANEL.1).saturating_add(TITLE));
    let root = SVGBackend::new(path, size).into_drawing_area();
    let drawn = || -> std::result::Result<(), Failure> {
        root.fill(&WHITE)?;
        let body = root.titled(section.title, ("sans-serif", 18))?;
        for (area, panel) in body.split_evenly((rows, columns)).iter().zip(&panels) {
            panel.draw(area)?;
        }
        Ok(root.present()?)
    };
    drawn().map_err(|problem| Error::Invalid(format!("drawing {}: {problem}", path.display())))?;
    Ok(true)
}

struct Panel {
    title: String,
    /// For each store: median, least and most, in the line's unit.
    bars: Vec<Option<[f64; 3]>>,
    device: Option<f64>,
}

impl Panel {
    /// None where no store has a figure.
    fn of(line: &Line, samples: &[Sample]) -> Option<Self> {
        let name = line.work.name();
        let scale = line.unit.scale();
        let bar = |cell: Cell| match cell {
            Cell::Figures { median, least, most, .. } => Some([median, least, most].map(|value| value / scale)),
            _ => None,
        };
        let of_store = |store: &str| bar(Cell::of(samples, &name, store, line.metric));
        let bars: Vec<_> = CONTESTANTS.iter().map(|store| of_store(store.name)).collect();
        bars.iter().any(Option::is_some).then_some(())?;
        let device = (line.metric == Metric::PerSecond).then(|| of_store(DEVICE)).flatten().map(|[median, ..]| median);
        // A line that continues the line before stands alone here.
        let what = match line.what.strip_prefix("… ") {
            Some(rest) => format!("{name}: {rest}"),
            None => line.what.clone(),
        };
        Some(Self { title: format!("{what}, {}", line.unit.name()), bars, device })
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> std::result::Result<(), Failure> {
        let tops = self.bars.iter().flatten().map(|[_, _, most]| *most).chain(self.device);
        let top = tops.fold(f64::MIN_POSITIVE, f64::max) * HEADROOM;
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .caption(&self.title, ("sans-serif", 13))
            .x_label_area_size(22)
            .y_label_area_size(48)
            .build_cartesian_2d(-0.5..self.bars.len() as f64 - 0.5, 0.0..top)?;
        let name = |place: &f64| store_at(*place);
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().x_labels(self.bars.len() * 2).label_style(("sans-serif", 11)).light_line_style(WHITE);
        mesh.x_label_formatter(&name).draw()?;
        for ((place, bar), colour) in self.bars.iter().enumerate().zip(COLOURS.iter().cycle()) {
            let (Some([median, least, most]), place) = (*bar, place as f64) else { continue };
            let rectangle = Rectangle::new([(place - BAR, 0.0), (place + BAR, median)], colour.filled());
            chart.draw_series(std::iter::once(rectangle))?;
            if least < most {
                let whisker = PathElement::new([(place, least), (place, most)], BLACK.stroke_width(1));
                chart.draw_series(std::iter::once(whisker))?;
            }
        }
        if let Some(device) = self.device {
            let ends = [(-0.5, device), (self.bars.len() as f64 - 0.5, device)];
            let line = DashedLineSeries::new(ends, 5, 4, GREY.stroke_width(1));
            chart.draw_series(line)?;
        }
        Ok(())
    }
}

/// The store whose bar is at this position.
fn store_at(place: f64) -> String {
    let nearest = place.round();
    let stores = CONTESTANTS.iter().zip(0_u32..);
    let mut there = stores.filter(|(_, index)| (place - nearest).abs() < 0.01 && f64::from(*index) == nearest);
    there.next().map_or_else(String::new, |(store, _)| store.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::lines::Unit;
    use super::*;
    use crate::work::Work;

    #[test]
    fn a_plot_is_a_whole_document_and_shows_what_was_measured() {
        let sample = |store: &str, value| Sample {
            round: 0,
            row: Work::MultiGet.name(),
            store: store.into(),
            metric: Metric::PerSecond.name().into(),
            value: Some(value),
            failure: String::new(),
            unlimited: String::new(),
        };
        let samples = [sample("btree", 5000.0), sample("btree", 9000.0), sample("redb", 700.0), sample(DEVICE, 1e4)];
        let line = |work| Line {
            work,
            metric: Metric::PerSecond,
            what: "multi-get & <more>".into(),
            unit: Unit::Thousands,
            setting: String::new(),
        };
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("reads.svg");
        let section = |lines| Section { stem: "reads", title: "Lookups", lines };
        let drawn = draw(&section(vec![line(Work::MultiGet), line(Work::Scan { records: 100 })]), &samples, &path);
        assert!(drawn.expect("drawn"));
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        for part in ["Lookups", "multi-get &amp;", "k/s", "rocksdb"] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("NaN"));
        assert!(!draw(&section(vec![line(Work::Scan { records: 100 })]), &samples, &path).expect("nothing"));
    }
}
