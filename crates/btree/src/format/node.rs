//! Internal nodes: one page each, written once and never changed.
//!
//! ```text
//!   0  magic         u32  "BtNd"
//!   4  crc           u32  of the rest of the page
//!   8  version       u8   2
//!   9  level         u8   1 above leaves, 2 above that, …
//!  10  children      u16  at least 1
//!  12  used          u16  bytes used, header and all
//!  14  prefix        u16  bytes that all separators begin with
//!  16  page          u64  its own
//!  24  incarnation   u64  its own
//!  32  table         u32
//!  36  bounds        u16  lower bounds of the parts of all children; of the children above level 1
//!  38  head bytes    u8   1 to 8
//!  39  length width  u8   bytes of a separator's length: 0 where all are as long as a head
//!  40  descriptors   of the columns: 10 on level 1, 3 above
//!   .  columns       the fields of the children's pointers (`Pointer::leaf_fields`)
//!   .  firsts        u16 × children: the bound that is the child's own; only where bounds are more than children
//!   .  starts        u16 × children: where a leaf's filter begins among all of them; only where filters differ in
//!                    their length
//!   .  filters       of the leaves (`crate::filter`)
//!   .  lengths       of the separators after the prefix
//!   .  prefix
//!   .  heads         the first bytes of each separator after the prefix, with zeros behind what is shorter
//!   .  rests         what separators have behind their heads
//!   .  zero to the end of the page
//! ```
//!
//! A separator is a bound other than the first, which the parent has. Bound `b` is the least key that its part may
//! hold. The part ends below bound `b + 1`; the last part ends at the parent's next bound.
//!
//! A node is read in its encoded form ([`Layout`]), so a cached node takes the bytes that its page uses. The length of
//! heads is chosen so that the node is small and few separators are longer than their heads.

mod layout;

use codec::{u32_at, u64_at};
use index::TableId;
use mapped::Shared;
use space::PAGE;

pub(crate) use layout::Layout;
use layout::{HEAD_MAX, HEADER, fields};

use super::columns::{DESCRIPTOR, SLACK, Span};
use super::{BOUND_BYTES_MAX, BOUND_FIXED, Damage, KEY_BYTES_MAX, LEAF_FIELDS, LEAF_POINTER, Pointer};
use crate::filter;
use crate::node::{Edges, Node};

const MAGIC: u32 = u32::from_le_bytes(*b"BtNd");
const VERSION: u8 = 2;

/// Bytes of a node of `children` leaves with bounds of the greatest length.
pub(crate) const fn node_bytes_max(children: usize) -> usize {
    let separators = (children - 1) * (KEY_BYTES_MAX + BOUND_FIXED);
    let leaf = LEAF_POINTER + FILTER_FIELDS + 2 + 2 + filter::BYTES_MAX;
    HEADER + LEAF_FIELDS * DESCRIPTOR + children * leaf + separators + BOUND_BYTES_MAX
}

/// Bytes of the fields for the shape of a filter, and for the newest seq of its leaf.
const FILTER_FIELDS: usize = 1 + 8;

/// Three children with the longest separators fit, so every node can be split.
const _: () = assert!(node_bytes_max(3) <= PAGE);

/// The identity of a node, as its pointer states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeIdentity {
    pub(crate) table: TableId,
    pub(crate) page: u64,
    pub(crate) incarnation: u64,
    pub(crate) level: u8,
}

/// The layout chosen for a list of children.
pub(crate) struct Plan {
    fields: usize,
    spans: [Span; LEAF_FIELDS],
    /// Whether a child has several parts.
    has_parts: bool,
    /// Whether filters differ in their length.
    has_starts: bool,
    prefix: usize,
    head_bytes: usize,
    length_width: usize,
    /// Bytes of the node.
    pub(crate) bytes: usize,
}

impl Plan {
    pub(crate) fn new(level: u8, edges: &Edges) -> Self {
        let fields = fields(level);
        let mut spans = [Span::NONE; LEAF_FIELDS];
        for pointer in edges.pointers() {
            for (span, field) in spans[..fields].iter_mut().zip(pointer.leaf_fields()) {
                span.add(field);
            }
        }
        let prefix = edges.separator_prefix();
        let (head_bytes, length_width, separators) = heads((1..edges.bounds()).map(|b| edges.bound(b).len() - prefix));
        let has_parts = edges.bounds() > edges.len();
        let filter = |child: usize| edges.filter(child).len();
        let has_starts = (1..edges.len()).any(|child| filter(child) != filter(0));
        let mut plan = Self { fields, spans, has_parts, has_starts, prefix, head_bytes, length_width, bytes: 0 };
        let filters: usize = (0..edges.len()).map(filter).sum();
        plan.bytes = plan.fixed() + edges.len() * plan.pointer_bytes() + filters + separators;
        plan
    }

    /// Bytes of the node apart from those of the children.
    pub(crate) const fn fixed(&self) -> usize {
        HEADER + self.fields * DESCRIPTOR + self.prefix
    }

    fn pointer_bytes(&self) -> usize {
        let fields: usize = self.spans[..self.fields].iter().map(Span::width).sum();
        fields + 2 * usize::from(self.has_parts) + 2 * usize::from(self.has_starts)
    }

    /// Bytes that a child takes with its bounds in a node of this layout.
    pub(crate) fn child_bytes(&self, edges: &Edges, child: usize) -> usize {
        let bound = |bound| {
            let length = edges.bound(bound).len().saturating_sub(self.prefix);
            self.head_bytes + self.length_width + length.saturating_sub(self.head_bytes)
        };
        self.pointer_bytes() + edges.filter(child).len() + edges.bounds_of(child).map(bound).sum::<usize>()
    }
}

/// Bytes of a head and of a separator's length, for separators of these lengths, and the bytes that all separators then
/// take. The result has the least bytes. Each separator longer than its head counts a byte more, because a search that
/// meets its head has to look at its rest.
fn heads(lengths: impl Iterator<Item = usize>) -> (usize, usize, usize) {
    let mut of_length = [0_usize; HEAD_MAX + 2];
    let (mut count, mut total, mut least, mut most) = (0, 0, usize::MAX, 0);
    for length in lengths {
        of_length[length.min(HEAD_MAX + 1)] += 1;
        (count, total, least, most) = (count + 1, total + length, least.min(length), most.max(length));
    }
    let (mut longer, mut shorter_bytes) = (count - of_length[0], 0);
    let mut best = (usize::MAX, (1, 0, 0));
    for (head, as_long) in of_length.into_iter().enumerate().take(HEAD_MAX + 1).skip(1) {
        longer -= as_long;
        shorter_bytes += as_long * head;
        let width = if least == head && most == head { 0 } else { usize::from(most > 255) + 1 };
        let rests = total - shorter_bytes - longer * head;
        let bytes = count * (head + width) + rests;
        if bytes + longer <= best.0 {
            best = (bytes + longer, (head, width, bytes));
        }
    }
    best.1
}

/// Bytes that a node of these children needs.
pub(crate) fn node_bytes(level: u8, edges: &Edges) -> usize {
    Plan::new(level, edges).bytes
}

/// Encodes a node as a page.
pub(crate) fn encode(identity: &NodeIdentity, edges: &Edges, page: &mut [u8]) {
    let plan = Plan::new(identity.level, edges);
    assert!(!edges.is_empty() && plan.bytes <= PAGE, "a node is split before it is too large for a page");
    let short = |value: usize| u16::try_from(value).expect("nothing in a node is longer than a page").to_le_bytes();
    let mut out = Vec::with_capacity(PAGE);
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[VERSION, identity.level]);
    for value in [edges.len(), plan.bytes, plan.prefix] {
        out.extend_from_slice(&short(value));
    }
    out.extend_from_slice(&identity.page.to_le_bytes());
    out.extend_from_slice(&identity.incarnation.to_le_bytes());
    out.extend_from_slice(&identity.table.0.to_le_bytes());
    out.extend_from_slice(&short(edges.bounds()));
    out.extend_from_slice(&[short(plan.head_bytes)[0], short(plan.length_width)[0]]);
    let spans = &plan.spans[..plan.fields];
    spans.iter().for_each(|span| span.encode(&mut out));
    let children: Vec<_> = edges.pointers().iter().map(Pointer::leaf_fields).collect();
    for (field, span) in spans.iter().enumerate() {
        children.iter().for_each(|fields| span.encode_number(fields[field], &mut out));
    }
    if plan.has_parts {
        (0..edges.len()).for_each(|child| out.extend_from_slice(&short(edges.bounds_of(child).start)));
    }
    if plan.has_starts {
        let mut start = 0;
        for child in 0..edges.len() {
            out.extend_from_slice(&short(start));
            start += edges.filter(child).len();
        }
    }
    for (child, pointer) in edges.pointers().iter().enumerate() {
        assert_eq!(edges.filter(child).len(), pointer.filter_bytes(), "a filter has the bytes that its pointer says");
        out.extend_from_slice(edges.filter(child));
    }
    let suffixes = || (1..edges.bounds()).map(|bound| &edges.bound(bound)[plan.prefix..]);
    suffixes().for_each(|suffix| out.extend_from_slice(&short(suffix.len())[..plan.length_width]));
    out.extend_from_slice(if edges.bounds() > 1 { &edges.bound(1)[..plan.prefix] } else { &[] });
    for suffix in suffixes() {
        let end = out.len() + plan.head_bytes;
        out.extend_from_slice(&suffix[..suffix.len().min(plan.head_bytes)]);
        out.resize(end, 0);
    }
    suffixes().for_each(|suffix| out.extend_from_slice(&suffix[suffix.len().min(plan.head_bytes)..]));
    assert_eq!(out.len(), plan.bytes, "a node takes the bytes that were computed for it");
    out.resize(PAGE, 0);
    let crc = checksum::crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    page.copy_from_slice(&out);
}

/// Decodes and checks a page that should be the node `identity`.
pub(crate) fn decode(identity: &NodeIdentity, page: &[u8]) -> Result<Node, Damage> {
    const WHAT: &str = "internal node";
    if page.len() != PAGE {
        return Err(Damage::new(0, WHAT, format!("{PAGE} bytes"), page.len()));
    }
    let magic = u32_at(page, 0).unwrap_or(0);
    if magic != MAGIC {
        return Err(Damage::new(0, WHAT, format!("magic {MAGIC:08x}"), format!("{magic:08x}")));
    }
    let (stored, crc) = (u32_at(page, 4).unwrap_or(0), checksum::crc32c(&page[8..]));
    if stored != crc {
        return Err(Damage::new(4, WHAT, format!("CRC {stored:08x}"), format!("{crc:08x}")));
    }
    if page[8] != VERSION {
        return Err(Damage::new(8, WHAT, format!("version {VERSION}"), page[8]));
    }
    let reused = seeded::on(seeded::Bug::IncarnationReused);
    let found = NodeIdentity {
        table: TableId(u32_at(page, 32).unwrap_or(0)),
        page: u64_at(page, 16).unwrap_or(0),
        incarnation: if reused { identity.incarnation } else { u64_at(page, 24).unwrap_or(0) },
        level: page[9],
    };
    if found != *identity {
        return Err(Damage::new(9, WHAT, format!("{identity:?}"), format!("{found:?}")));
    }
    body(page).ok_or_else(|| Damage::new(HEADER, WHAT, "children and separators", "some that cannot be"))
}

fn body(page: &[u8]) -> Option<Node> {
    let layout = Layout::read(page)?;
    let mut bytes = Shared::zeroed(layout.used() + SLACK);
    bytes[..layout.used()].copy_from_slice(&page[..layout.used()]);
    layout.is_sound(&bytes).then(|| Node::new(bytes, layout))
}

#[cfg(test)]
mod tests;
