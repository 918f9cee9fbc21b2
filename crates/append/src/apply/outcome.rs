//! What an update leaves of a B+-tree in a leaf.

use index::{Expiry, Operation, Seq, Stored, Update};

use crate::format::Link;

/// A version of a key that goes back into the leaf above its B+-tree.
pub(super) struct Owned {
    /// The bytes behind the chunk that leads to the tree.
    pub(super) rest: Vec<u8>,
    pub(super) seq: Seq,
    pub(super) value: Option<Stored>,
    pub(super) expiry: Option<Expiry>,
}

impl Owned {
    pub(super) fn update(&self) -> Update<'_> {
        let operation = match &self.value {
            None => Operation::Delete,
            Some(value) => Operation::Put(value.as_payload(), self.expiry),
        };
        Update { key: &self.rest, seq: self.seq, operation }
    }
}

/// The outcome of an update for a B+-tree.
pub(super) enum Outcome {
    /// No key is left.
    Gone,
    /// The tree stays, with this link to its root.
    Tree(Link),
    /// These keys are left.
    Small(Vec<Owned>),
}
