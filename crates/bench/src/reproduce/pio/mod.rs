//! The PIO B-tree paper (Roh et al., PVLDB 5(4), 2011): figures 2, 3, 4, 9, 10, 11, 12 and 13, and this project's own
//! goals.
//!
//! 1. `Scale` keeps the paper's ratios (memory : data, buffer : memory, OPQ : memory, 4 MB : 1 GB for TPC-C) at the
//!    sizes that an [`Effort`](crate::reproduce::Effort) affords.
//! 2. Figures 2 to 4 are about the device and need no index (`io`, `parallel`). The other figures measure trees that
//!    are built and tuned for the figure's workload (`tuning`).
//! 3. Samples have a fixed time, not a fixed count, so that a slow tree does not stall the run. Times are per operation
//!    where the paper's times are for millions of operations.

mod headline;
mod io;
mod memory;
mod mixed;
mod paper;
mod parallel;
mod queue;
mod range;
mod scale;
mod search;
mod tpcc;
mod tuning;

use crate::Result;
use crate::reproduce::lab::{Device, Lab, Method};
use crate::reproduce::{Experiment, Finding};
pub use paper::PioPaper;
use scale::Scale;

/// The figures, in the order of measurement. Figures that share trees are adjacent.
const FIGURES: [&str; 9] = ["2", "3", "4", "9", "10", "11", "headline", "12", "13"];

impl Experiment for PioPaper {
    fn name(&self) -> &'static str {
        "pio"
    }

    fn title(&self) -> String {
        "B+-tree Index Optimization by Exploiting Internal Parallelism of Flash-based Solid State Drives \
         (Roh et al., PVLDB 5(4), 2011), reproduced"
            .into()
    }

    fn figures(&self) -> &'static [&'static str] {
        &FIGURES
    }

    fn setting(&self) -> Vec<String> {
        self.scale.setting()
    }

    fn device_column(&self) -> &'static str {
        "The device's column has its random reads of 4 KiB per second, alone and with 32 in flight, and their ratio."
    }

    fn method(&self) -> Method {
        let Scale { repeats, device_slice, file_bytes, .. } = self.scale;
        Method { repeats, slice: device_slice, file_bytes, figures: FIGURES.len() as u64 }
    }

    fn needed_bytes(&self) -> u64 {
        self.scale.needed_bytes()
    }

    fn measure(&mut self, lab: &mut Lab<'_>, figure: &str, device: &Device) -> Result<Finding> {
        let mut finding = match figure {
            "2" => io::latency(lab, device),
            "3" => io::bandwidth(lab, device),
            "4" => parallel::comparison(self, lab, device),
            "9" => search::buffer_sizes(self, lab, device),
            "10" => range::ranges(self, lab, device),
            "11" => queue::queue_sizes(self, lab, device),
            "12" => mixed::workloads(self, lab, device),
            "13" => tpcc::traces(self, lab, device),
            _ => headline::goals(self, lab, device),
        }?;
        finding.figure.notes.append(&mut self.over_budget);
        Ok(finding)
    }
}
