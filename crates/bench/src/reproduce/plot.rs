//! Figures as SVG: panels side by side.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::reproduce::figure::{Axis, Drawing, Figure, Panel};
use crate::{Error, Result};

/// Pixels of a panel.
const PANEL: (u32, u32) = (460, 380);
/// Panels in one row.
const PANELS_IN_ROW: usize = 3;
/// Pixels above the panels.
const TITLE: u32 = 40;
/// Colours that people with any colour vision can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
/// Maximum number of ticks of an axis.
const TICKS: usize = 9;
/// Half of the width of a bar, where bars are 1 apart.
const BAR: f64 = 0.35;

/// Draws a figure into a file.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn draw(figure: &Figure, path: &Path) -> Result<()> {
    let failed = |problem: String| Error::Invalid(format!("drawing {}: {problem}", path.display()));
    let rows = figure.panels.len().div_ceil(PANELS_IN_ROW).max(1);
    let columns = figure.panels.len().clamp(1, PANELS_IN_ROW);
    let side = |count: usize, pixels: u32| u32::try_from(count).map_or(u32::MAX, |count| count.saturating_mul(pixels));
    let size = (side(columns, PANEL.0), side(rows, PANEL.1).saturating_add(TITLE));
    let root = SVGBackend::new(path, size).into_drawing_area();
    let drawn = || -> std::result::Result<(), Box<dyn std::error::Error>> {
        root.fill(&WHITE)?;
        let title = match figure.name.starts_with(|first: char| first.is_ascii_digit()) {
            true => format!("Figure {}: {}", figure.name, figure.title),
            false => figure.title.clone(),
        };
        let body = root.titled(&title, ("sans-serif", 18))?;
        for (area, panel) in body.split_evenly((rows, columns)).iter().zip(&figure.panels) {
            draw_panel(area, panel)?;
        }
        Ok(root.present()?)
    };
    drawn().map_err(|problem| failed(problem.to_string()))
}

type Failure = Box<dyn std::error::Error>;

fn draw_panel(area: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel) -> std::result::Result<(), Failure> {
    let bars = panel.drawing == Drawing::StackedBars;
    let (x, y) = (extent(panel, bars), height(panel, bars));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption(&panel.title, ("sans-serif", 14))
        .x_label_area_size(46)
        .y_label_area_size(62)
        .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
    let names: Vec<String> = panel
        .series
        .first()
        .map_or_else(Vec::new, |series| series.points.iter().map(crate::reproduce::figure::Point::x_text).collect());
    let x_text = |place: &f64| if bars { name_at(&names, *place) } else { tick(&panel.x, *place) };
    let y_text = |place: &f64| tick(&panel.y, *place);
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(&panel.x.label).y_desc(&panel.y.label).label_style(("sans-serif", 12));
    mesh.x_label_formatter(&x_text).y_label_formatter(&y_text).light_line_style(WHITE);
    if bars {
        mesh.disable_x_mesh().x_labels(names.len().max(1));
    } else if panel.x.logarithmic {
        mesh.x_labels(doublings(x.0, x.1));
    }
    mesh.draw()?;
    let mut below: Vec<f64> = vec![0.0; names.len()];
    for (series, colour) in panel.series.iter().zip(COLOURS.iter().cycle()) {
        let colour = *colour;
        let legend = move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled());
        let points = series.points.iter();
        if bars {
            let rectangles: Vec<_> = points
                .zip(&mut below)
                .enumerate()
                .map(|(place, (point, below))| {
                    let (place, from) = (place as f64, *below);
                    *below += point.median;
                    Rectangle::new([(place - BAR, from), (place + BAR, *below)], colour.filled())
                })
                .collect();
            chart.draw_series(rectangles)?.label(&series.name).legend(legend);
        } else {
            let line: Vec<(f64, f64)> =
                points.map(|point| (position(&panel.x, point.x), position(&panel.y, point.median))).collect();
            chart.draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?;
            let dots = line.into_iter().map(|place| Circle::new(place, 3, colour.filled()));
            chart.draw_series(dots)?.label(&series.name).legend(legend);
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 12))
        .draw()?;
    Ok(())
}

/// Ticks for a logarithmic axis between two values: at most one tick per doubling.
fn doublings(from: f64, to: f64) -> usize {
    (1..TICKS).find(|count| f64::from(u32::try_from(*count).unwrap_or(u32::MAX)) > to - from).unwrap_or(TICKS)
}

/// The position of a value on an axis.
fn position(axis: &Axis, value: f64) -> f64 {
    if axis.logarithmic { value.max(f64::MIN_POSITIVE).log2() } else { value }
}

/// The text of a tick at a position of an axis.
fn tick(axis: &Axis, place: f64) -> String {
    let value = if axis.logarithmic { place.exp2() } else { place };
    match value.abs() {
        0.0 => "0".into(),
        1e6.. => format!("{:.1}M", value / 1e6),
        1e4.. => format!("{:.0}K", value / 1e3),
        10.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn name_at(names: &[String], place: f64) -> String {
    let nearest = place.round();
    if (place - nearest).abs() > 0.01 || nearest < 0.0 {
        return String::new();
    }
    names
        .iter()
        .zip(0_u32..)
        .find(|(_, index)| f64::from(*index) == nearest)
        .map_or_else(String::new, |(name, _)| name.clone())
}

fn extent(panel: &Panel, bars: bool) -> (f64, f64) {
    if bars {
        let count = panel.series.iter().map(|series| series.points.len()).max().unwrap_or(0);
        return (-0.5, (count.max(1) as f64) - 0.5);
    }
    let places = panel.series.iter().flat_map(|series| &series.points).map(|point| position(&panel.x, point.x));
    let (least, most) = bounds(places);
    if least < most { (least, most) } else { (least - 1.0, least + 1.0) }
}

fn height(panel: &Panel, bars: bool) -> (f64, f64) {
    let points = panel.series.iter().flat_map(|series| &series.points);
    if bars {
        let count = panel.series.iter().map(|series| series.points.len()).max().unwrap_or(0);
        let sum = |place: usize| {
            panel.series.iter().filter_map(|series| series.points.get(place)).map(|point| point.median).sum()
        };
        let (_, most) = bounds((0..count).map(sum));
        return (0.0, most.max(f64::MIN_POSITIVE) * 1.35);
    }
    let (least, most) = bounds(points.map(|point| position(&panel.y, point.median)));
    if panel.y.logarithmic { (least - 0.5, most + 1.5) } else { (0.0, most.max(f64::MIN_POSITIVE) * 1.35) }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (least, most) =
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
    if least <= most { (least, most) } else { (0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figure::Point;

    #[test]
    fn every_drawing_is_a_whole_document() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut figure = Figure::new("0", "of nothing & <everything>");
        for drawing in [Drawing::Lines, Drawing::StackedBars] {
            let mut panel = Panel::new("a panel", drawing, Axis::logarithmic("across"), Axis::logarithmic("upwards"));
            for x in [1.0, 2.0, 4.0] {
                panel.add("first", Point::of(x, vec![x]).labelled("at"));
                panel.add("second", Point::of(x, vec![x * 2.0]).labelled("at"));
            }
            figure.panels.push(panel);
        }
        figure.panels.push(Panel::new("empty", Drawing::Lines, Axis::linear("x"), Axis::linear("y")));
        let path = directory.path().join("figure.svg");
        draw(&figure, &path).expect("drawn");
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{text}");
        for part in ["first", "second", "a panel", "across", "upwards", "&amp;"] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("NaN"));
    }
}
