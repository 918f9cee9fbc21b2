//! Results as files: JSON with everything, CSV and SVG for each figure, and a report in Markdown.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::reproduce::figure::{Claim, Figure, Panel, Table, number};
use crate::reproduce::lab::Device;
use crate::reproduce::machine::Machine;
use crate::reproduce::plot;
use crate::{Error, Result};

/// All results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// The experiment's name.
    pub experiment: String,
    /// The title of the reproduced work.
    pub title: String,
    /// `quick`, `full` or `tiny`.
    pub effort: String,
    /// Sizes and methods, as sentences.
    pub setting: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// The meaning of the device's column of goals.
    pub device_column: String,
    /// The device's limits, measured beside each figure, with the figure's name.
    pub device: Vec<(String, Device)>,
    /// The measured figures.
    pub figures: Vec<Figure>,
    /// The comparisons with the paper and the goals.
    pub claims: Vec<Claim>,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// Whether the run was stopped before its end.
    pub interrupted: bool,
}

impl Results {
    /// Writes `results.json`, `report.md`, and a CSV and an SVG file for each figure.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<()> {
        fs::create_dir_all(out).map_err(Error::io("creating", out))?;
        for figure in &self.figures {
            write_csv(figure, &out.join(format!("{}.csv", figure.stem())))?;
            plot::draw(figure, &out.join(format!("{}.svg", figure.stem())))?;
        }
        let path = out.join("results.json");
        let json = serde_json::to_vec_pretty(self).map_err(|error| Error::io("writing", &path)(error.into()))?;
        fs::write(&path, json).map_err(Error::io("writing", &path))?;
        let path = out.join("report.md");
        fs::write(&path, self.markdown()).map_err(Error::io("writing", path))
    }

    fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.title);
        let machine = &self.machine;
        if self.interrupted {
            line(&mut text, "**Stopped before its end: figures that are not here were not measured.**\n");
        }
        let memory = machine.memory_bytes.map_or("unknown".into(), |bytes| format!("{} MiB", bytes >> 20));
        let figures: Vec<&str> = self.figures.iter().map(|figure| figure.name.as_str()).collect();
        let rows = [
            ("made by", format!("`braid reproduce {} --{}`, Braid {}", self.experiment, self.effort, machine.version)),
            ("figures", figures.join(", ")),
            ("date", format!("{}, in {:.0} s", machine.date, self.seconds)),
            ("processor", format!("{} x {}", machine.processors, machine.processor)),
            ("memory", memory),
            ("kernel", machine.kernel.clone()),
            ("file system", machine.file_system.clone()),
        ];
        line(&mut text, "| | |\n|---|---|");
        for (name, value) in rows {
            line(&mut text, &format!("| {name} | {} |", cell(&value)));
        }
        line(&mut text, "");
        for sentence in &self.setting {
            line(&mut text, &format!("- {sentence}"));
        }
        self.device_table(&mut text);
        self.claim_table(&mut text);
        for figure in &self.figures {
            figure_section(&mut text, figure);
        }
        text
    }

    fn device_table(&self, text: &mut String) {
        line(text, "\n## What the device gave by itself\n");
        if self.device.iter().any(|(_, device)| !device.direct) {
            line(
                text,
                "**This file system has no direct I/O: the rates here are those of the page cache, not of a device.**\n",
            );
        }
        line(
            text,
            "Measured right before each figure, with no index on the path, medians of as many samples as a point has: random reads of 4 KiB per second by requests in flight, their ratio \
                    (what batching alone can bring), writes in order, and writes of 4 KiB with fdatasync after each.\n",
        );
        line(
            text,
            "| beside | 1 | 32 | 64 | 128 | 32 : 1 | writes in order | flushed writes |\n|---|--:|--:|--:|--:|--:|--:|--:|",
        );
        for (figure, device) in &self.device {
            let reads: Vec<String> = device.reads_per_second.iter().map(|(_, rate)| format!("{rate:.0}/s")).collect();
            let writes = device.sequential_write_bytes_per_second;
            let row = format!(
                "| {} | {} | {:.1}x | {} | {} |",
                section_name(figure),
                reads.join(" | "),
                device.depth_ratio(),
                writes.map_or(String::new(), |rate| format!("{:.0} MiB/s", rate / f64::from(1 << 20))),
                device.flushed_writes_per_second.map_or(String::new(), |rate| format!("{rate:.0}/s")),
            );
            line(text, &row);
        }
    }

    fn claim_table(&self, text: &mut String) {
        let (goals, others): (Vec<&Claim>, Vec<&Claim>) = self.claims.iter().partition(|claim| claim.goal.is_some());
        if !goals.is_empty() {
            line(text, "\n## Goals\n");
            line(text, &format!("{}\n", self.device_column));
            line(
                text,
                "| what | goal | measured here | met | paper | device in the same run | setting |\n|---|--:|--:|---|---|---|---|",
            );
        }
        for claim in goals {
            let met = match claim.met {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "",
            };
            let goal = claim.goal.as_deref().unwrap_or("");
            line(text, &row(&[&claim.what, goal, &claim.here, met, &claim.paper, &claim.device, &claim.setting]));
        }
        if !others.is_empty() {
            line(text, "\n## The paper's claims\n");
            line(
                text,
                "| figure | what | paper | measured here | device in the same run | setting |\n|---|---|---|---|---|---|",
            );
        }
        for claim in others {
            let Claim { figure, what, paper, here, device, setting, .. } = claim;
            line(text, &row(&[figure, what, paper, here, device, setting]));
        }
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Text that fits a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    format!("| {} |", cells.join(" | "))
}

/// The name of a figure or table in running text.
#[must_use]
pub fn section_name(figure: &str) -> String {
    let is_number = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
    match figure.strip_prefix("table") {
        _ if is_number(figure) => format!("figure {figure}"),
        Some(number) if is_number(number) => format!("table {number}"),
        _ => figure.to_owned(),
    }
}

fn figure_section(text: &mut String, figure: &Figure) {
    let stem = figure.stem();
    let name = section_name(&figure.name);
    line(text, &format!("\n## {}: {}\n", capital(&name), figure.title));
    line(text, &format!("![{name}]({stem}.svg)\n"));
    for note in &figure.notes {
        line(text, &format!("- {note}"));
    }
    line(text, &format!("- Every sample is in [{stem}.csv]({stem}.csv)."));
    for table in &figure.tables {
        own_table(text, table);
    }
    for panel in &figure.panels {
        panel_table(text, panel);
    }
}

fn own_table(text: &mut String, table: &Table) {
    line(text, &format!("\n{}:\n", table.title));
    let cells = |texts: &[String]| row(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    line(text, &cells(&table.columns));
    line(text, &format!("|---|{}", "--:|".repeat(table.columns.len().saturating_sub(1))));
    for row in &table.rows {
        line(text, &cells(row));
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn panel_table(text: &mut String, panel: &Panel) {
    line(text, &format!("\n{} ({}; medians):\n", panel.title, panel.y.label));
    let names: Vec<&str> = panel.series.iter().map(|series| series.name.as_str()).collect();
    line(text, &row(&[&[panel.x.label.as_str()], names.as_slice()].concat()));
    line(text, &format!("|---|{}", "--:|".repeat(names.len())));
    let mut seen: Vec<(f64, String)> = Vec::new();
    for point in panel.series.iter().flat_map(|series| &series.points) {
        if !seen.iter().any(|(x, _)| x.total_cmp(&point.x).is_eq()) {
            seen.push((point.x, point.x_text()));
        }
    }
    for (x, name) in seen {
        let mut row = format!("| {}", cell(&name));
        for series in &panel.series {
            let value = panel.at(&series.name, x).map_or(String::new(), number);
            let _ = write!(row, " | {value}");
        }
        line(text, &format!("{row} |"));
    }
}

/// One row of a figure's CSV file.
#[derive(Serialize)]
struct Row<'a> {
    figure: &'a str,
    panel: &'a str,
    series: &'a str,
    x: f64,
    x_label: String,
    unit: &'a str,
    median: f64,
    /// The samples, separated by spaces, in the order taken.
    samples: String,
}

fn write_csv(figure: &Figure, path: &Path) -> Result<()> {
    let failed = |error: csv::Error| Error::io("writing", path)(error.into());
    let mut writer = csv::Writer::from_path(path).map_err(failed)?;
    for panel in &figure.panels {
        for series in &panel.series {
            for point in &series.points {
                let samples: Vec<String> = point.samples.iter().map(f64::to_string).collect();
                let row = Row {
                    figure: &figure.name,
                    panel: &panel.title,
                    series: &series.name,
                    x: point.x,
                    x_label: point.x_text(),
                    unit: &panel.y.label,
                    median: point.median,
                    samples: samples.join(" "),
                };
                writer.serialize(row).map_err(failed)?;
            }
        }
    }
    writer.flush().map_err(Error::io("writing", path))
}
