//! A node as the tree sees it: the entries that result from its index units.

use super::page::{Format, Group, Node};
use crate::Result;
use crate::trees::pager::ReadGuard;
use crate::trees::pending::partition;

/// Entries of a node in key order.
pub(super) struct Logical {
    format: Format,
    entries: Vec<u8>,
    /// The entries before the last change, kept for its memory.
    spare: Vec<u8>,
}

/// Changes of nodes in key order.
pub(super) struct Changes {
    format: Format,
    units: Vec<u8>,
    deletes: Vec<bool>,
}

impl Logical {
    pub(super) const fn new(format: Format) -> Self {
        Self { format, entries: Vec::new(), spare: Vec::new() }
    }

    /// Loads the node whose units are in these pages, oldest first.
    pub(super) fn load(&mut self, format: Format, node: Node, pages: &[ReadGuard]) -> Result<()> {
        self.format = format;
        self.entries.clear();
        for page in pages {
            let group: Group<'_> = format.group(page, node)?;
            self.apply(group.units());
        }
        Ok(())
    }

    /// Applies changes, which are in key order; a change without payload deletes.
    pub(super) fn apply<'a>(&mut self, changes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) {
        let (old, unit_bytes) = (std::mem::take(&mut self.entries), self.format.unit_bytes());
        let mut new = std::mem::take(&mut self.spare);
        new.clear();
        let mut rest = old.as_slice();
        for (key, payload) in changes {
            let before = partition(rest.len() / unit_bytes, |entry| &rest[entry * unit_bytes..][..key.len()] < key);
            let (smaller, others) = rest.split_at(before * unit_bytes);
            new.extend_from_slice(smaller);
            rest = others.strip_prefix(key).map_or(others, |_| &others[unit_bytes..]);
            if let Some(payload) = payload {
                new.extend_from_slice(key);
                new.extend_from_slice(payload);
            }
        }
        new.extend_from_slice(rest);
        (self.entries, self.spare) = (new, old);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() / self.format.unit_bytes()
    }

    pub(super) fn key(&self, entry: usize) -> &[u8] {
        &self.entries[entry * self.format.unit_bytes()..][..self.format.key_bytes]
    }

    pub(super) fn payload(&self, entry: usize) -> &[u8] {
        &self.entries[entry * self.format.unit_bytes() + self.format.key_bytes..][..self.format.payload_bytes]
    }

    /// The child of an inner node's entry.
    pub(super) fn child(&self, entry: usize) -> Node {
        child(self.payload(entry))
    }

    /// The first entry that is not below a key.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        partition(self.len(), |entry| self.key(entry) < key)
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let entry = self.lower_bound(key);
        entry < self.len() && self.key(entry) == key
    }

    /// The entry of an inner node whose child has a key. Keys below the first key belong to the first child.
    pub(super) fn entry_of(&self, key: &[u8]) -> usize {
        partition(self.len(), |entry| self.key(entry) <= key).saturating_sub(1)
    }

    /// Sets the key of the first entry, if there is one; returns whether the key is another than before.
    pub(super) fn lower_first_key(&mut self, key: &[u8]) -> bool {
        match self.entries.get_mut(..key.len()) {
            Some(first) if first != key => {
                first.copy_from_slice(key);
                true
            }
            _ => false,
        }
    }

    /// The entries at a range of positions, as units that put them.
    pub(super) fn units(&self, entries: std::ops::Range<usize>) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        entries.map(|entry| (self.key(entry), Some(self.payload(entry))))
    }
}

/// The child that a payload of an inner node names.
pub(super) fn child(payload: &[u8]) -> Node {
    Node(u32::from_le_bytes([payload[0], payload[1], payload[2], payload[3]]))
}

impl Changes {
    pub(super) const fn new(format: Format) -> Self {
        Self { format, units: Vec::new(), deletes: Vec::new() }
    }

    /// Adds a change. Its key is above those before it.
    pub(super) fn push(&mut self, key: &[u8], payload: Option<&[u8]>) {
        self.units.extend_from_slice(key);
        match payload {
            Some(payload) => self.units.extend_from_slice(payload),
            None => self.units.resize(self.units.len() + self.format.payload_bytes, 0),
        }
        self.deletes.push(payload.is_none());
    }

    pub(super) const fn len(&self) -> usize {
        self.deletes.len()
    }

    pub(super) fn get(&self, change: usize) -> (&[u8], Option<&[u8]>) {
        let unit = &self.units[change * self.format.unit_bytes()..][..self.format.unit_bytes()];
        let (key, payload) = unit.split_at(self.format.key_bytes);
        (key, (!self.deletes[change]).then_some(payload))
    }
}
