//! The report (first form).

use std::path::Path;

use crate::error::{Error, Result};
use crate::run::Sizes;
use crate::sample::{self, Cell, DEVICE};
use crate::store::CONTESTANTS;
use crate::work::{Metric, Work};

/// Writes the report of the samples in a directory.
pub(crate) fn write(out: &Path) -> Result<()> {
    let sizes = Sizes::read(out)?;
    let samples = sample::read(&out.join("samples.csv"))?;
    let mut text = format!("# Peers\n\n{sizes:?}\n\n| row | metric |");
    for store in CONTESTANTS {
        text += &format!(" {} |", store.name);
    }
    text += " device |\n|---|---|";
    text += &"--:|".repeat(CONTESTANTS.len() + 1);
    text += "\n";
    for work in Work::all() {
        for metric in [
            Metric::PerSecond,
            Metric::FlushedPerSecond,
            Metric::ReadPerOperation,
            Metric::WrittenPerByte,
            Metric::DeviceWrittenPerByte,
            Metric::SpacePerByte,
            Metric::PeakMemory,
        ] {
            let names = CONTESTANTS.iter().map(|store| store.name).chain([DEVICE]);
            let cells: Vec<Cell> = names.map(|store| Cell::of(&samples, &work.name(), store, metric)).collect();
            if cells.iter().all(|cell| *cell == Cell::Empty) {
                continue;
            }
            text += &format!("| {} | {} |", work.name(), metric.name());
            for cell in cells {
                text += &match cell {
                    Cell::Empty => " |".to_owned(),
                    Cell::Failed(why) => format!(" {why} |"),
                    Cell::Figures { median, least, most, .. } => format!(" {median:.2} ({least:.2}..{most:.2}) |"),
                };
            }
            text += "\n";
        }
    }
    let path = out.join("report.md");
    std::fs::write(&path, text).map_err(Error::io("writing", &path))
}
