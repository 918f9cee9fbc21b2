//! The results of an experiment: figures made of panels, series and points, with tables beside them, and claims to
//! compare with the paper's.

use serde::Serialize;

use crate::limits::median;

/// One figure of a paper, measured on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The figure's number in the paper, or the name of one of this project's own tables.
    pub name: String,
    /// The subject of the figure.
    pub title: String,
    /// The method of measurement: sizes, operations, and differences from the paper.
    pub notes: Vec<String>,
    /// The figure's parts, side by side.
    pub panels: Vec<Panel>,
    /// Rows and columns that a report shows besides the points of the panels.
    pub tables: Vec<Table>,
}

impl Figure {
    /// Starts a figure.
    #[must_use]
    pub fn new(name: &str, title: impl Into<String>) -> Self {
        Self { name: name.into(), title: title.into(), notes: Vec::new(), panels: Vec::new(), tables: Vec::new() }
    }

    /// The name of the figure's files without their ending: `figure9` for a number, the figure's own name otherwise.
    #[must_use]
    pub fn stem(&self) -> String {
        if self.name.starts_with(|first: char| first.is_ascii_digit()) {
            format!("figure{}", self.name)
        } else {
            self.name.clone()
        }
    }
}

/// Rows and columns of text.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The subject of the table.
    pub title: String,
    /// The heading of each column.
    pub columns: Vec<String>,
    /// The rows, each with one text per column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Starts a table.
    #[must_use]
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self { title: title.into(), columns: columns.iter().map(|column| (*column).into()).collect(), rows: Vec::new() }
    }
}

/// The drawing style of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Drawing {
    /// One line per series.
    Lines,
    /// One bar per point, with one piece per series.
    StackedBars,
}

/// One axis of a panel.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// The quantity on the axis, with its unit.
    pub label: String,
    /// Whether the axis is logarithmic: equal ratios have equal lengths.
    pub logarithmic: bool,
}

impl Axis {
    /// A linear axis: equal differences have equal lengths.
    #[must_use]
    pub fn linear(label: &str) -> Self {
        Self { label: label.into(), logarithmic: false }
    }

    /// A logarithmic axis: equal ratios have equal lengths.
    #[must_use]
    pub fn logarithmic(label: &str) -> Self {
        Self { label: label.into(), logarithmic: true }
    }
}

/// A part of a figure with axes of its own.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// The subject of the panel.
    pub title: String,
    /// The drawing style.
    pub drawing: Drawing,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series to compare.
    pub series: Vec<Series>,
}

impl Panel {
    /// Starts a panel.
    #[must_use]
    pub fn new(title: impl Into<String>, drawing: Drawing, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), drawing, x, y, series: Vec::new() }
    }

    /// Adds a point to the series of that name. A new name begins a new series.
    pub fn add(&mut self, series: &str, point: Point) {
        match self.series.iter_mut().find(|known| known.name == series) {
            Some(known) => known.points.push(point),
            None => self.series.push(Series { name: series.into(), points: vec![point] }),
        }
    }

    /// The median of a series at `x`.
    #[must_use]
    pub fn at(&self, series: &str, x: f64) -> Option<f64> {
        let points = &self.series.iter().find(|known| known.name == series)?.points;
        points.iter().find(|point| point.x.total_cmp(&x).is_eq()).map(|point| point.median)
    }
}

/// The points of one contestant.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The contestant's name in the legend.
    pub name: String,
    /// The points in the order of their x.
    pub points: Vec<Point>,
}

/// One cell: the median of its repeats.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The position on the x axis.
    pub x: f64,
    /// The text below the point, if that differs from the number.
    pub label: Option<String>,
    /// The median of the samples, in the unit of the y axis.
    pub median: f64,
    /// One sample per repeat, in the order taken.
    pub samples: Vec<f64>,
}

impl Point {
    /// A point at the median of samples. At least one sample is required.
    #[must_use]
    pub fn of(x: f64, samples: Vec<f64>) -> Self {
        let median = median(&samples).unwrap_or(f64::NAN);
        Self { x, label: None, median, samples }
    }

    /// The same point with a label below.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The text below the point.
    #[must_use]
    pub fn x_text(&self) -> String {
        self.label.clone().unwrap_or_else(|| self.x.to_string())
    }
}

/// One row of the comparison with a paper.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// The figure behind the comparison.
    pub figure: String,
    /// The compared quantity.
    pub what: String,
    /// The paper's statement.
    pub paper: String,
    /// The measurement on this machine.
    pub here: String,
    /// This project's goal, if one is set.
    pub goal: Option<String>,
    /// Whether the goal was met.
    pub met: Option<bool>,
    /// The most that the device gave in the same run, as far as that bounds the measurement.
    pub device: String,
    /// Sizes, memory and durability.
    pub setting: String,
}

impl Claim {
    /// A row without a goal of this project.
    #[must_use]
    pub fn of_paper(figure: &str, what: &str, paper: &str, here: String, device: String, setting: &str) -> Self {
        Self {
            figure: figure.into(),
            what: what.into(),
            paper: paper.into(),
            here,
            goal: None,
            met: None,
            device,
            setting: setting.into(),
        }
    }
}

/// A number with the digits that matter.
#[must_use]
pub fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.1.. => format!("{value:.3}"),
        0.0 => "0".into(),
        _ => format!("{value:.4}"),
    }
}

/// A ratio such as `12.3x`, with the digits that matter.
#[must_use]
pub fn times(ratio: f64) -> String {
    match ratio {
        100.0.. => format!("{ratio:.0}x"),
        10.0.. => format!("{ratio:.1}x"),
        _ => format!("{ratio:.2}x"),
    }
}

/// The range from the least to the greatest ratio, such as `3.10x to 12.4x`.
#[must_use]
pub fn times_range(ratios: &[f64]) -> String {
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if ratios.is_empty() {
        return "not measured".into();
    }
    if ratios.len() == 1 { times(least) } else { format!("{} to {}", times(least), times(most)) }
}

/// The average of samples; NaN if there are none.
#[must_use]
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// The median of the ratios of two contestants' samples, repeat by repeat, because both samples of a pair were measured
/// in the same seconds.
#[must_use]
pub fn paired_ratio(over: &[f64], under: &[f64]) -> f64 {
    let ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    median(&ratios).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_join_their_series() {
        let mut panel = Panel::new("a", Drawing::Lines, Axis::linear("x"), Axis::logarithmic("y"));
        panel.add("one", Point::of(1.0, vec![3.0, 9.0, 4.0]));
        panel.add("two", Point::of(1.0, vec![1.0]));
        panel.add("one", Point::of(2.0, vec![5.0]).labelled("second"));
        assert_eq!(panel.series.len(), 2);
        assert_eq!(panel.at("one", 1.0), Some(4.0));
        assert_eq!(panel.at("two", 2.0), None);
        assert_eq!(panel.series[0].points[1].x_text(), "second");
    }

    #[test]
    fn ratios_read_well() {
        assert_eq!([1.234, 12.34, 123.4].map(times), ["1.23x", "12.3x", "123x"]);
        assert_eq!(times_range(&[2.0, 16.25]), "2.00x to 16.2x");
        assert_eq!(times_range(&[]), "not measured");
        assert_eq!(paired_ratio(&[2.0, 9.0, 40.0], &[1.0, 3.0, 10.0]).to_string(), "3");
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!(
            [1234.5, 12.34, 1.234, 0.1234, 0.01234, 0.0].map(number),
            ["1234", "12.3", "1.23", "0.123", "0.0123", "0"]
        );
        assert_eq!(mean(&[1.0, 2.0, 6.0]).to_string(), "3");
    }

    #[test]
    fn files_are_named_after_figures() {
        assert_eq!(Figure::new("12", "x").stem(), "figure12");
        assert_eq!(Figure::new("headline", "x").stem(), "headline");
    }
}
