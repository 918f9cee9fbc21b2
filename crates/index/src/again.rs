//! What has to be looked at again, by another pass of the same batch or by a later batch.
//!
//! 1. A leaf or node that is nearly empty and has no neighbour under its parent waits for its parent to be joined: the next
//!    pass rewrites it, and finds neighbours.
//! 2. A leaf that is little more than tombstones which may not go yet, because their commits may be applied again
//!    ([`crate::merge`]), waits for the batch that ends this ([`crate::Batch::through`]).
//!
//! This is in memory only and nothing rests on it but space. What waits in the second way is not lost in a crash: the
//! commits are applied again then.

use std::collections::BTreeMap;

use crate::{Batch, Operation, Seq, Update};

/// Beyond so many, leaves wait until they are touched.
const KEYS_MAX: usize = 1 << 16;

/// Lower bounds of what has to be looked at again, and everything through which seq has to be in the tree by then.
#[derive(Clone, Debug, Default)]
pub struct Again {
    keys: BTreeMap<Vec<u8>, Seq>,
}

impl Again {
    /// `low` has to be looked at when everything through `from` is in the tree.
    pub fn add(&mut self, low: &[u8], from: Seq) {
        if let Some(known) = self.keys.get_mut(low) {
            *known = from.max(*known);
        } else if self.keys.len() < KEYS_MAX {
            self.keys.insert(low.to_vec(), from);
        }
    }

    /// Takes out those whose time has come, in order.
    #[must_use]
    pub fn take_due(&mut self, through: Seq) -> Vec<Vec<u8>> {
        let (due, keys) = std::mem::take(&mut self.keys).into_iter().partition(|(_, from)| *from <= through);
        self.keys = keys;
        BTreeMap::into_keys(due).collect()
    }
}

/// Keys whose leaves are rewritten: a batch that only says where, and never what.
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
