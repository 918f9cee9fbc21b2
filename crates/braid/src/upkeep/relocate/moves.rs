//! Versions whose documents move, as a batch of their structure.

use std::ops::Range;

use doclog::DocPointer;
use index::{Batch, Expiry, Operation, Payload, Seq, Update};
use space::Class;

/// The fate of a version whose document is in a segment to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The document is to be moved.
    Moves,
    /// The document is at this place now.
    Moved(DocPointer),
    /// No reader sees the version: the structure drops it when it meets the version.
    Dies,
    /// The document cannot be read.
    Stays,
}

pub(super) struct Version {
    pub(super) key: Range<usize>,
    pub(super) seq: Seq,
    pub(super) expiry: Option<Expiry>,
    pub(super) document: DocPointer,
    pub(super) fate: Fate,
}

/// Versions that are written again: a batch of their structure.
pub(super) struct Moves {
    pub(super) keys: Vec<u8>,
    pub(super) versions: Vec<Version>,
    pub(super) through: Seq,
    pub(super) class: Class,
}

impl Moves {
    /// The new places, in their order.
    pub(super) fn moved(&self) -> Vec<DocPointer> {
        let moved = self.versions.iter().filter_map(|version| match version.fate {
            Fate::Moved(to) => Some(to),
            _ => None,
        });
        let mut moved: Vec<_> = moved.collect();
        moved.sort_unstable();
        moved
    }
}

impl Batch for Moves {
    fn len(&self) -> usize {
        self.versions.len()
    }

    fn get(&self, index: usize) -> Update<'_> {
        let version = &self.versions[index];
        let document = match version.fate {
            Fate::Moved(to) => to,
            Fate::Moves | Fate::Dies | Fate::Stays => version.document,
        };
        let operation = Operation::Put(Payload::Document(document), version.expiry);
        Update { key: &self.keys[version.key.clone()], seq: version.seq, operation }
    }

    fn through(&self) -> Seq {
        self.through
    }

    fn class(&self) -> Class {
        self.class
    }
}
