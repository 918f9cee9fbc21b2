//! Further parameters of a YCSB workload.

use super::mix::{Core, Distribution};
use super::record::Shape;
use crate::{Error, Result};

/// Further parameters of a YCSB workload.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The shape of the records.
    pub shape: Shape,
    /// Whether an update writes all fields of its record without reading the record before. Otherwise an update reads
    /// the record and writes one field.
    pub write_all_fields: bool,
    /// The distribution of requests, if not the workload's own.
    pub distribution: Option<Distribution>,
    /// Operations of a mix over all slices. Without this number the mix runs for a time.
    pub operations: Option<u64>,
    /// Operations of a mix per second, of all threads together. Without a target each thread does one operation after
    /// another.
    pub target: Option<f64>,
}

impl Settings {
    /// The distribution of requests in a run of `core`.
    #[must_use]
    pub fn distribution(&self, core: Core) -> Distribution {
        self.distribution.unwrap_or(core.distribution())
    }

    /// Refuses a configuration that cannot be run in so many slices.
    pub(crate) fn check(&self, pairs: usize) -> Result<()> {
        self.shape.check()?;
        if let Some(operations) = self.operations.filter(|operations| *operations < pairs as u64) {
            let what = format!("operations are {operations}: each of {pairs} pairs needs one; give fewer pairs");
            return Err(Error::Invalid(what));
        }
        match self.target {
            Some(target) if !(target.is_finite() && target > 0.0) => {
                Err(Error::Invalid(format!("target is {target} operations per second: must be above 0")))
            }
            _ => Ok(()),
        }
    }
}
