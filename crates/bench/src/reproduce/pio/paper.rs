//! What the figures share: the experiment with its trees, and the names in figures.

use psync::probe::DeviceProfile;

use super::memory;
use super::scale::Scale;
use crate::Result;
use crate::reproduce::Effort;
use crate::reproduce::figure::Claim;
use crate::reproduce::lab::{Device, Lab};
use crate::reproduce::play::Player;
use crate::reproduce::stock::{Plan, Prepared, Stock};

/// Names of the trees in figures.
pub(super) const PIO: &str = "PIO B-tree";
pub(super) const B_PLUS: &str = "B+-tree";
pub(super) const B_LINK: &str = "B-link tree";
pub(super) const FD: &str = "FD-tree";
pub(super) const BFTL: &str = "BFTL";

/// The experiment.
pub struct PioPaper {
    pub(super) scale: Scale,
    pub(super) stock: Stock,
    profile: Option<DeviceProfile>,
    /// Notes on trees that held more memory than their budget, for the figure.
    pub(super) over_budget: Vec<String>,
}

impl PioPaper {
    /// The experiment at the sizes that an effort affords.
    #[must_use]
    pub fn new(effort: Effort) -> Self {
        Self { scale: Scale::new(effort), stock: Stock::default(), profile: None, over_budget: Vec::new() }
    }

    /// The terms of the cost model, measured once.
    pub(super) fn profile(&mut self, lab: &mut Lab<'_>) -> Result<DeviceProfile> {
        if self.profile.is_none() {
            self.profile = Some(lab.profile()?);
        }
        Ok(self.profile.clone().unwrap_or_default())
    }

    /// Samples of trees at one workload, in turns. Each tree is warmed up with searches before.
    pub(super) fn contest<T>(
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

    pub(super) fn note_memory(&mut self, prepared: &Prepared) {
        let (held, budget) = (prepared.tree.memory_bytes(), prepared.plan.memory_bytes);
        let name = prepared.tree.name();
        let note = format!("{name} held {} of memory, more than its {}.", memory::text(held), memory::text(budget));
        // The tolerance of 1/16 covers the headers of frames.
        if held > budget + budget / 16 && !self.over_budget.contains(&note) {
            self.over_budget.push(note);
        }
    }
}

/// A row of the comparison with the paper, without a goal of this project.
pub(super) fn claim(figure: &str, what: &str, paper: &str, here: String, device: &Device, setting: &str) -> Claim {
    Claim::of_paper(figure, what, paper, here, device.text(), setting)
}
