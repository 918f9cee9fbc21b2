//! Requests for sweeps ([`crate::upkeep::sweep`]).

use std::sync::Arc;

use index::Chosen;

use crate::{
    engine::{Engine, sweeps::Sweep},
    tables::catalog::TableCore,
};

impl Engine {
    /// Requests a sweep of the keys from `low` to below `high`. A pending request that covers these keys is enough.
    pub(crate) fn sweep(&self, table: &Arc<TableCore>, low: &[u8], high: Option<&[u8]>) {
        if table.is_damaged() {
            return;
        }
        let mut asked = self.sweeps.asked.lock();
        let has = |sweep: &Sweep| {
            let ends_there = |end: &Vec<u8>| high.is_some_and(|high| high <= end.as_slice());
            Arc::ptr_eq(&sweep.table, table)
                && sweep.chosen.is_none()
                && sweep.low.as_slice() <= low
                && sweep.high.as_ref().is_none_or(ends_there)
        };
        if !asked.iter().any(has) {
            let (low, high) = (low.to_vec(), high.map(<[u8]>::to_vec));
            asked.push_back(Sweep { table: Arc::clone(table), low, high, chosen: None });
            drop(asked);
            self.signal.kick();
        }
    }

    /// Requests a sweep of what a table's structure has chosen, in place of what it chose earlier.
    pub(crate) fn sweep_chosen(&self, table: &Arc<TableCore>, chosen: Chosen) {
        if table.is_damaged() {
            return;
        }
        self.sweeps.forget_chosen(table);
        let (low, chosen) = (Vec::new(), Some(chosen));
        self.sweeps.asked.lock().push_back(Sweep { table: Arc::clone(table), low, high: None, chosen });
        self.signal.kick();
    }
}
