//! The PIO B-tree paper (Roh et al., PVLDB 5(4), 2011): figures 2, 3, 4, 9, 10, 11, 12 and 13, and this project's own
//! goals.
//!
//! 1. `Scale` keeps the paper's ratios (memory : data, buffer : memory, OPQ : memory, 4 MB : 1 GB for TPC-C) at the
//!    sizes that an [`Effort`] affords.
//! 2. Figures 2 to 4 are about the device and need no index (`io`, `parallel`). The other figures measure trees that
//!    are built and tuned for the figure's workload (`tuning`).
//! 3. Samples have a fixed time, not a fixed count, so that a slow tree does not stall the run. Times are per operation
//!    where the paper's times are for millions of operations.

mod headline;
mod io;
mod memory;
mod mixed;
mod parallel;
mod queue;
mod range;
mod scale;
mod search;
mod tpcc;
mod tuning;

use psync::probe::DeviceProfile;

use crate::Result;
use crate::reproduce::figure::Claim;
use crate::reproduce::lab::{Device, Lab, Method};
use crate::reproduce::play::Player;
use crate::reproduce::stock::{Plan, Prepared, Stock};
use crate::reproduce::{Effort, Experiment, Finding};
use scale::Scale;

/// The figures, in the order of measurement. Figures that share trees are adjacent.
const FIGURES: [&str; 9] = ["2", "3", "4", "9", "10", "11", "headline", "12", "13"];

/// Names of the trees in figures.
const PIO: &str = "PIO B-tree";
const B_PLUS: &str = "B+-tree";
const B_LINK: &str = "B-link tree";
const FD: &str = "FD-tree";
const BFTL: &str = "BFTL";

/// The experiment.
pub struct PioPaper {
    scale: Scale,
    stock: Stock,
    profile: Option<DeviceProfile>,
    /// Notes on trees that held more memory than their budget, for the figure.
    over_budget: Vec<String>,
}

impl PioPaper {
    /// The experiment at the sizes that an effort affords.
    #[must_use]
    pub fn new(effort: Effort) -> Self {
        Self { scale: Scale::new(effort), stock: Stock::default(), profile: None, over_budget: Vec::new() }
    }

    /// The terms of the cost model, measured once.
    fn profile(&mut self, lab: &mut Lab<'_>) -> Result<DeviceProfile> {
        if self.profile.is_none() {
            self.profile = Some(lab.profile()?);
        }
        Ok(self.profile.clone().unwrap_or_default())
    }

    /// Samples of trees at one workload, in turns. Each tree is warmed up with searches before.
    fn contest<T>(
        &mut self, lab: &mut Lab<'_>, what: &str, plans: &[Plan], sample: impl Fn(&mut Player<'_>) -> Result<T>,
    ) -> Result<Vec<Vec<T>>> {
        let mut prepared = Vec::with_capacity(plans.len());
        for plan in plans {
            prepared.push(self.stock.take(lab, plan)?);
        }
        for prepared in &mut prepared {
            lab.phase(&format!("{what}: warming up the {}", prepared.tree.name()));
            Player::new(lab, prepared, 0).searches(self.scale.slice)?;
        }
        let samples = lab.interleave(what, plans.len(), |lab, turn| {
            sample(&mut Player::new(lab, &mut prepared[turn.contestant], turn.seed))
        })?;
        for prepared in prepared {
            self.note_memory(&prepared);
            self.stock.put_back(prepared)?;
        }
        Ok(samples)
    }

    fn note_memory(&mut self, prepared: &Prepared) {
        let (held, budget) = (prepared.tree.memory_bytes(), prepared.plan.memory_bytes);
        let name = prepared.tree.name();
        let note = format!("{name} held {} of memory, more than its {}.", memory::text(held), memory::text(budget));
        // The tolerance of 1/16 covers the headers of frames.
        if held > budget + budget / 16 && !self.over_budget.contains(&note) {
            self.over_budget.push(note);
        }
    }
}

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

/// A row of the comparison with the paper, without a goal of this project.
fn claim(figure: &str, what: &str, paper: &str, here: String, device: &Device, setting: &str) -> Claim {
    Claim::of_paper(figure, what, paper, here, device.text(), setting)
}
