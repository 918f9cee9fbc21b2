//! Adding a range delete, which joins older ones that no snapshot tells apart.

use super::{Fragment, RangeTombstones, is_below};
use crate::{Horizon, Seq};

impl RangeTombstones {
    /// Adds the delete of the keys from `low` to below `high` by the commit `seq`. `seq` is newer than all other
    /// deletes and than all versions of the structure. Older deletes that `horizon` finds visible and that no
    /// snapshot tells apart become one.
    pub fn add(&mut self, low: &[u8], high: Option<&[u8]>, seq: Seq, horizon: &Horizon) {
        let within = self.take(low, high);
        let mut next = low.to_vec();
        for fragment in within {
            if next < fragment.low {
                self.push(Fragment {
                    low: next,
                    high: Some(fragment.low.clone()),
                    seqs: vec![seq],
                    is_overgrown: false,
                });
            }
            let end = fragment.high.clone();
            let seqs = if fragment.newest() == seq {
                fragment.seqs.clone()
            } else {
                let older = fragment.seqs.iter().enumerate().filter(|&(index, older)| {
                    let newer = index.checked_sub(1).map(|newer| fragment.seqs[newer]);
                    newer.is_none_or(|newer| newer > horizon.visible || horizon.sees(*older, newer))
                });
                std::iter::once(seq).chain(older.map(|(_, older)| *older)).collect()
            };
            self.push(Fragment { low: fragment.low.clone(), high: end.clone(), seqs, is_overgrown: false });
            let Some(end) = end else { return self.sort() };
            next = end;
        }
        if is_below(&next, high) {
            self.push(Fragment { low: next, high: high.map(<[u8]>::to_vec), seqs: vec![seq], is_overgrown: false });
        }
        self.sort();
    }
}
