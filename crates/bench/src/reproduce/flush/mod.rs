//! The flushing paper (Son, Yeom and Han, "Design and implementation of an efficient flushing scheme for cloud
//! key-value storage", Cluster Computing 20, 2017), section 4.1: figures 5a, 5b and 6, and table 1, with this project's
//! own goals.
//!
//! 1. `Scale` has the paper's thread counts, transactions and entries, and a time limit for runs that the machine
//!    cannot complete.
//! 2. A run (`run`) is one scheme with one number of client threads, in a new database whose log was filled and
//!    recycled before. The schemes take turns, and the device's own flushed writes are a contestant among them
//!    (`contest`).
//! 3. Figures 5a, 5b and 6 are transactions per second of the three workloads (`throughput`). Table 1 divides the time
//!    of the first workload (`analysis`), from the same runs. The goals, and whether each was met, are decided in
//!    `judge`.
//!
//! Invariants: all commits are `sync`; every value read and every commit's result is checked; after each run the table
//! holds exactly the entries that its clients' completed transactions leave; a run that ended before its transactions
//! were done is counted and reported.
//!
//! Left to others: the schemes themselves (the `wal` crate), and replication, the subject of section 4.2.

mod analysis;
mod contest;
mod figures;
mod judge;
mod run;
mod scale;
mod throughput;
mod workload;

use crate::Result;
use crate::reproduce::lab::{Device, Lab, Method};
use crate::reproduce::{Effort, Experiment, Finding};
use contest::Cell;
use scale::Scale;

/// The figures, in the order of measurement.
const FIGURES: [&str; 4] = ["5a", "5b", "6", "table1"];

/// The experiment.
pub struct FlushPaper {
    scale: Scale,
    /// The runs of figure 5a, which table 1 uses too.
    inserts: Option<Vec<Cell>>,
}

impl FlushPaper {
    /// The experiment at the sizes that an effort affords.
    #[must_use]
    pub fn new(effort: Effort) -> Self {
        Self { scale: Scale::new(effort), inserts: None }
    }

    /// The runs of the insert workload, measured once.
    fn inserts(&mut self, lab: &mut Lab<'_>) -> Result<&[Cell]> {
        let cells = match self.inserts.take() {
            Some(cells) => cells,
            None => contest::contest(lab, &self.scale, &figures::INSERT)?,
        };
        Ok(self.inserts.insert(cells))
    }
}

impl Experiment for FlushPaper {
    fn name(&self) -> &'static str {
        "flush"
    }

    fn title(&self) -> String {
        "Design and implementation of an efficient flushing scheme for cloud key-value storage \
         (Son, Yeom and Han, Cluster Computing 20, 2017), section 4.1, reproduced"
            .into()
    }

    fn figures(&self) -> &'static [&'static str] {
        &FIGURES
    }

    fn setting(&self) -> Vec<String> {
        self.scale.setting()
    }

    fn device_column(&self) -> &'static str {
        "The device's column has its writes of 4 KiB in place with fdatasync after each, per second, measured in turns with the schemes: what one client \
         that waits for each commit could have at most. Several figures are those of the goal's thread counts, least and most."
    }

    fn method(&self) -> Method {
        let Scale { repeats, device_slice, file_bytes, .. } = self.scale;
        Method { repeats, slice: device_slice, file_bytes, figures: FIGURES.len() as u64 }
    }

    fn needed_bytes(&self) -> u64 {
        self.scale.needed_bytes()
    }

    fn measure(&mut self, lab: &mut Lab<'_>, figure: &str, _: &Device) -> Result<Finding> {
        match figure {
            "5a" => {
                let scale = self.scale;
                Ok(throughput::finding(&figures::INSERT, &scale, self.inserts(lab)?))
            }
            "5b" => throughput::measured(&figures::UPDATE_SEARCH, &self.scale, lab),
            "6" => throughput::measured(&figures::OLTP, &self.scale, lab),
            _ => Ok(analysis::table(self.inserts(lab)?)),
        }
    }
}
