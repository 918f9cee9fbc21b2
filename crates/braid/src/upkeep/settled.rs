//! Range deletes that have nothing to hide any more.

use index::{Fragment, Horizon, RangeTombstones, Seq};

use crate::tables::catalog::TableState;

/// Removes the range tombstones from `low` to below `high` that have nothing to hide any more, after the structure was
/// rewritten under `horizon`.
pub(crate) fn clear(
    tombstones: &mut RangeTombstones, state: &TableState, horizon: &Horizon, low: &[u8], high: Option<&[u8]>,
) {
    if tombstones.is_empty() {
        return;
    }
    let settled = Settled::of(state, horizon);
    for fragment in tombstones.within(low, high).to_vec() {
        let from = low.max(&fragment.low);
        let to = [high, fragment.high.as_deref()].into_iter().flatten().min();
        tombstones.clear(from, to, settled.within(&fragment));
    }
}

/// For each key range, the seq up to which a range delete is settled: every older operation is in the structure, and
/// no snapshot is older.
pub(super) struct Settled<'a> {
    state: &'a TableState,
    /// For all keys.
    all: Seq,
    /// By section of the queues that take operations.
    sections: Vec<Seq>,
}

impl<'a> Settled<'a> {
    pub(super) fn of(state: &'a TableState, horizon: &Horizon) -> Self {
        let seq = |first: Option<Seq>| first.filter(|_| !seeded::on(seeded::Bug::TombstoneCleared)).unwrap_or(Seq::MAX);
        // Readers look into frozen queues for operations that are applied already, or never will be because they are
        // hidden.
        let frozen = state.frozen.as_ref().and_then(|frozen| frozen.sections().first_seq());
        let all = horizon.visible.min(horizon.oldest().unwrap_or(Seq::MAX)).min(seq(frozen));
        let sections = state.active.queues().iter().map(|queue| seq(queue.read().first_seq())).collect();
        Self { state, all, sections }
    }

    pub(super) fn within(&self, fragment: &Fragment) -> Seq {
        let first = self.state.active.of_key(&fragment.low);
        let begins_within = |section: &usize| fragment.ends_above(self.state.active.low(*section));
        let after = (first + 1..self.sections.len()).take_while(begins_within);
        let sections = std::iter::once(first).chain(after).map(|section| self.sections[section]);
        sections.fold(self.all, Seq::min)
    }
}
