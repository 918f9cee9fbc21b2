//! The paper on parallel fetch (Lee, Oh and Lee, "Boosting Compaction in B-Tree Based Key-Value Store by Exploiting
//! Parallel Reads in Flash SSDs", IEEE Access 9, 2021), sections III and V: figures 2 and 4 to 10, with this project's
//! own goals.
//!
//! 1. `Scale` has the paper's data sets, scaled with their ratios kept. A `Stock` is one of these data sets, written
//!    once (`store`).
//! 2. A run (`compaction`) is one manual compaction of a freshly opened copy, with one of four readers: sync, libaio,
//!    io_uring, and io_uring as the product uses it. The readers take turns, with samples of the device's random reads
//!    among them.
//! 3. Figure 2 divides the time (`split`). Figures 4 to 7 compare sizes (`overall`), figure 9 submission batches
//!    (`batches`), and figure 10 readahead (`readahead`). Figure 8 is YCSB-A with a compaction inside (`ycsb`).
//!
//! Invariants: a run begins with nothing in memory; a run moves every live document, and some documents are looked up
//! and compared afterwards.
//!
//! Left to others: compaction itself.

mod batches;
mod compaction;
mod overall;
mod readahead;
mod scale;
mod split;
mod store;
mod ycsb;

use crate::Result;
use crate::reproduce::lab::{Device, Lab, Method};
use crate::reproduce::{Effort, Experiment, Finding};
use scale::Scale;

/// The figures, in the order of measurement.
const FIGURES: [&str; 6] = ["2", overall::DIRECT.name, overall::BUFFERED.name, "8", "9", "10"];

/// The experiment.
pub struct PfetchPaper {
    scale: Scale,
}

impl PfetchPaper {
    /// The experiment at the sizes that an effort affords.
    #[must_use]
    pub const fn new(effort: Effort) -> Self {
        Self { scale: Scale::new(effort) }
    }
}

impl Experiment for PfetchPaper {
    fn name(&self) -> &'static str {
        "pfetch"
    }

    fn title(&self) -> String {
        "Boosting Compaction in B-Tree Based Key-Value Store by Exploiting Parallel Reads in Flash SSDs \
         (Lee, Oh and Lee, IEEE Access 9, 2021), reproduced"
            .into()
    }

    fn figures(&self) -> &'static [&'static str] {
        &FIGURES
    }

    fn setting(&self) -> Vec<String> {
        self.scale.setting()
    }

    fn device_column(&self) -> &'static str {
        "The device's column has its random reads of as many blocks as a document lies in, measured in turns with the readers: how many times more it \
         gives with a submission batch in flight than one at a time."
    }

    fn method(&self) -> Method {
        let Scale { repeats, device_slice, file_bytes, .. } = self.scale;
        Method { repeats, slice: device_slice, file_bytes, figures: FIGURES.len() as u64 }
    }

    fn needed_bytes(&self) -> u64 {
        self.scale.needed_bytes()
    }

    fn measure(&mut self, lab: &mut Lab<'_>, figure: &str, _: &Device) -> Result<Finding> {
        let scale = &self.scale;
        match figure {
            "2" => split::measure(lab, scale),
            "8" => ycsb::measure(lab, scale),
            "9" => batches::measure(lab, scale),
            "10" => readahead::measure(lab, scale),
            name if name == overall::DIRECT.name => overall::measure(lab, scale, &overall::DIRECT),
            _ => overall::measure(lab, scale, &overall::BUFFERED),
        }
    }
}
