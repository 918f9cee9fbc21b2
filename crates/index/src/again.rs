//! Leaves and nodes that need another look, by another pass of the same batch or by a later batch.
//!
//! 1. A leaf or node that is nearly empty and has no neighbour under its parent waits until its parent is joined. The
//!    next pass rewrites the leaf or node, and finds neighbours.
//! 2. A leaf of little more than tombstones that have to stay, because their commits may be applied again
//!    ([`crate::merge`]), waits for the batch that ends this condition ([`crate::Batch::through`]).
//!
//! This state is in memory only, and only the use of space depends on it. A crash loses no leaf of the second kind,
//! because the commits are applied again then.

use std::collections::BTreeMap;

use crate::{Batch, Operation, Seq, Update};

/// Most waiting leaves. Further leaves wait until they are touched.
const KEYS_MAX: usize = 1 << 16;

/// Lower bounds of the leaves and nodes to look at again, each with the seq through which every commit has to be in the
/// tree by then.
#[derive(Clone, Debug, Default)]
pub struct Again {
    keys: BTreeMap<Vec<u8>, Seq>,
}

impl Again {
    /// Notes that `low` has to be looked at when everything through `from` is in the tree.
    pub fn add(&mut self, low: &[u8], from: Seq) {
        if let Some(known) = self.keys.get_mut(low) {
            *known = from.max(*known);
        } else if self.keys.len() < KEYS_MAX {
            self.keys.insert(low.to_vec(), from);
        }
    }

    /// Takes out the keys that are due, in order.
    #[must_use]
    pub fn take_due(&mut self, through: Seq) -> Vec<Vec<u8>> {
        let (due, keys) = std::mem::take(&mut self.keys).into_iter().partition(|(_, from)| *from <= through);
        self.keys = keys;
        BTreeMap::into_keys(due).collect()
    }
}

/// Keys whose leaves are to be rewritten: a batch of positions without changes.
#[derive(Clone, Debug)]
pub struct Touches {
    /// The keys, in order.
    pub keys: Vec<Vec<u8>>,
    /// As [`Batch::through`].
    pub through: Seq,
}

impl Batch for Touches {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn get(&self, index: usize) -> Update<'_> {
        Update { key: &self.keys[index], seq: Seq(0), operation: Operation::Delete }
    }

    fn through(&self) -> Seq {
        self.through
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_due_once_and_not_before_its_time() {
        let mut again = Again::default();
        again.add(b"b", Seq(5));
        again.add(b"a", Seq(9));
        again.add(b"b", Seq(7));
        again.add(b"b", Seq(6));
        assert_eq!(again.take_due(Seq(6)), Vec::<Vec<u8>>::new());
        assert_eq!(again.take_due(Seq(8)), [b"b".to_vec()]);
        assert_eq!(again.take_due(Seq(9)), [b"a".to_vec()]);
        assert_eq!(again.take_due(Seq::MAX), Vec::<Vec<u8>>::new());
    }
}
