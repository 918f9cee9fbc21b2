//! Requests for sweeps ([`crate::upkeep::sweep`]).

use std::{collections::BTreeSet, sync::Arc};

use doclog::SegmentId;

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
                && sweep.only.is_none()
                && sweep.low.as_slice() <= low
                && sweep.high.as_ref().is_none_or(ends_there)
        };
        if !asked.iter().any(has) {
            let (low, high) = (low.to_vec(), high.map(<[u8]>::to_vec));
            asked.push_back(Sweep { table: Arc::clone(table), low, high, only: None });
            drop(asked);
            self.signal.kick();
        }
    }

    /// Requests a sweep of files of a table's structure, in place of the files requested earlier.
    pub(crate) fn sweep_files(&self, table: &Arc<TableCore>, files: BTreeSet<SegmentId>) {
        if table.is_damaged() || files.is_empty() {
            return;
        }
        self.sweeps.forget_files(table);
        let (low, only) = (Vec::new(), Some(Arc::new(files)));
        self.sweeps.asked.lock().push_back(Sweep { table: Arc::clone(table), low, high: None, only });
        self.signal.kick();
    }
}
