//! A page of index units: changes of some nodes, node by node.
//!
//! | bytes | content |
//! |---|---|
//! | 4, 4 | magic, zeros |
//! | for each group: 4, 2, 2 | node, count of units, bytes of the group |
//! | one bit per unit | set for each unit that deletes its key |
//! | counts × (key, payload) | the units in key order; a payload is a value, or a child (4) in an inner node |
//!
//! The paper's index unit names its node itself. Here the units of one node that are packed together share the name,
//! because that leaves more room for entries.

use psync::BLOCK;

use crate::trees::Shape;
use crate::trees::pending::partition;
use crate::{Error, Result};

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = BLOCK;

/// Bytes of a page before its groups.
pub(super) const HEADER_BYTES: usize = 8;

const MAGIC: u32 = 0xBF71_0001;
const GROUP_HEADER_BYTES: usize = 8;
const CHILD_BYTES: usize = 4;

/// A node of the tree: a place in the node translation table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node(pub(super) u32);

/// The layout of the units of leaves, or of inner nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) key_bytes: usize,
    pub(super) payload_bytes: usize,
}

/// The units of one node in a page.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    format: Format,
    pub(super) count: usize,
    deletes: &'a [u8],
    units: &'a [u8],
}

impl Format {
    pub(super) const fn leaf(shape: Shape) -> Self {
        Self { key_bytes: shape.key_bytes, payload_bytes: shape.value_bytes }
    }

    pub(super) const fn inner(shape: Shape) -> Self {
        Self { key_bytes: shape.key_bytes, payload_bytes: CHILD_BYTES }
    }

    pub(super) const fn unit_bytes(self) -> usize {
        self.key_bytes + self.payload_bytes
    }

    /// Bytes of a group of so many units.
    pub(super) const fn group_bytes(self, units: usize) -> usize {
        GROUP_HEADER_BYTES + units.div_ceil(8) + units * self.unit_bytes()
    }

    /// Most entries of a node: those that fit into one page.
    pub(super) const fn capacity(self) -> usize {
        (PAGE_BYTES - HEADER_BYTES - GROUP_HEADER_BYTES) * 8 / (8 * self.unit_bytes() + 1)
    }

    /// A group of units in key order; a unit without payload deletes.
    pub(super) fn encode<'a>(self, node: Node, units: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Vec<u8> {
        let (mut deletes, mut body, mut count) = (Vec::new(), Vec::new(), 0_u16);
        for (key, payload) in units {
            if count.is_multiple_of(8) {
                deletes.push(0);
            }
            body.extend_from_slice(key);
            if let Some(payload) = payload {
                body.extend_from_slice(payload);
            } else {
                body.resize(body.len() + self.payload_bytes, 0);
                deletes[usize::from(count / 8)] |= 1 << (count % 8);
            }
            count += 1;
        }
        let bytes = self.group_bytes(count.into());
        let mut group = Vec::with_capacity(bytes);
        group.extend_from_slice(&node.0.to_le_bytes());
        group.extend_from_slice(&count.to_le_bytes());
        group.extend_from_slice(&u16::try_from(bytes).expect("a group fits into a page").to_le_bytes());
        group.extend_from_slice(&deletes);
        group.extend_from_slice(&body);
        group
    }

    /// The units of a node in a page. According to the table the page has some.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the page has none of this node, or is no page of index units.
    pub(super) fn group(self, page: &[u8], node: Node) -> Result<Group<'_>> {
        let damaged = || Error::Invalid(format!("a page of BFTL has no units of node {}, as its table says", node.0));
        let (header, mut rest) = page.split_at_checked(HEADER_BYTES).ok_or_else(damaged)?;
        if header[..4] != MAGIC.to_le_bytes() {
            return Err(damaged());
        }
        while let Some((header, body)) = rest.split_at_checked(GROUP_HEADER_BYTES) {
            let bytes = usize::from(u16::from_le_bytes([header[6], header[7]]));
            if header[..4] == node.0.to_le_bytes() && bytes > 0 {
                let count = usize::from(u16::from_le_bytes([header[4], header[5]]));
                let (deletes, units) = body.split_at_checked(count.div_ceil(8)).ok_or_else(damaged)?;
                let units = units.get(..count * self.unit_bytes()).ok_or_else(damaged)?;
                return Ok(Group { format: self, count, deletes, units });
            }
            // The rest of a page is zeros.
            rest = rest.get(bytes.max(GROUP_HEADER_BYTES)..).unwrap_or_default();
        }
        Err(damaged())
    }
}

/// Formats `page` as a page of these groups, which fit.
pub(super) fn write_page<'a>(page: &mut [u8], groups: impl Iterator<Item = &'a [u8]>) {
    page[..HEADER_BYTES].fill(0);
    page[..4].copy_from_slice(&MAGIC.to_le_bytes());
    let mut at = HEADER_BYTES;
    for group in groups {
        page[at..at + group.len()].copy_from_slice(group);
        at += group.len();
    }
    page[at..].fill(0);
}

impl<'a> Group<'a> {
    pub(super) fn key(&self, unit: usize) -> &'a [u8] {
        &self.units[unit * self.format.unit_bytes()..][..self.format.key_bytes]
    }

    /// None when the unit deletes its key.
    pub(super) fn payload(&self, unit: usize) -> Option<&'a [u8]> {
        let is_delete = self.deletes[unit / 8] >> (unit % 8) & 1 == 1;
        (!is_delete).then(|| {
            &self.units[unit * self.format.unit_bytes() + self.format.key_bytes..][..self.format.payload_bytes]
        })
    }

    /// The effect of the key's unit, if there is one: a payload, or none for a delete.
    pub(super) fn find(&self, key: &[u8]) -> Option<Option<&'a [u8]>> {
        let unit = partition(self.count, |unit| self.key(unit) < key);
        (unit < self.count && self.key(unit) == key).then(|| self.payload(unit))
    }

    /// The last unit whose key is at most `key`, or less than `key` if `is_below`.
    pub(super) fn last(&self, key: &[u8], is_below: bool) -> Option<usize> {
        partition(self.count, |unit| if is_below { self.key(unit) < key } else { self.key(unit) <= key }).checked_sub(1)
    }

    /// All units in key order.
    pub(super) fn units(self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        (0..self.count).map(move |unit| (self.key(unit), self.payload(unit)))
    }
}

/// The layouts of both kinds of nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Formats {
    pub(super) leaf: Format,
    pub(super) inner: Format,
}

impl Formats {
    /// # Errors
    /// [`Error::Invalid`] when a page has no room for a few entries of the shape.
    pub(super) fn new(shape: Shape) -> Result<Self> {
        let formats = Self { leaf: Format::leaf(shape), inner: Format::inner(shape) };
        if shape.key_bytes == 0 || formats.leaf.capacity() < 4 || formats.inner.capacity() < 4 {
            let what =
                format!("pages of {PAGE_BYTES} bytes are too small for entries of {} bytes", shape.entry_bytes());
            return Err(Error::Invalid(what));
        }
        Ok(formats)
    }
}
