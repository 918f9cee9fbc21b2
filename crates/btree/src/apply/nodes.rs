//! New internal nodes: how changed lists of children are packed into nodes.
//!
//! 1. [`Apply::repack`] takes the changed lists of a node's children and returns the node's own new list.
//!    - An empty list vanishes, and a list too large for a page is cut.
//!    - A list that lost children and fills less than a quarter of a page is joined with a neighbour. The joined list
//!      is cut in two again where it fills most of a page.
//!    - A node without a neighbour is looked at again ([`index::Again`]).
//! 2. [`Apply::grow`] ends the way up: levels are put on top until one root is left, or levels with a single child are
//!    taken off.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use index::{Result, Seq};
use space::PAGE;

use super::Apply;
use crate::format::Pointer;
use crate::format::node::{Plan, node_bytes};
use crate::format::root::Root;
use crate::node::{Edges, Node};

/// A node smaller than this is joined with a neighbour.
const SMALL: usize = PAGE / 4;

/// Fill of nodes that will hardly grow.
pub(crate) const PACKED: usize = PAGE * 15 / 16;

/// A child on the way into a parent.
enum Piece {
    /// An unchanged child.
    Kept { low: Vec<u8>, pointer: Pointer },
    /// A child with a new list of children; `old` is its former node, which shows how the list grew.
    Changed { edges: Edges, old: Arc<Node> },
    /// The children of several nodes.
    Joined { edges: Edges },
}

impl Piece {
    /// The piece's children, if the piece is written anew.
    const fn edges(&self) -> Option<&Edges> {
        match self {
            Self::Kept { .. } => None,
            Self::Changed { edges, .. } | Self::Joined { edges } => Some(edges),
        }
    }
}

impl Apply<'_> {
    /// The new list of children of `node`, after the changes `changed` of its children on `level`.
    pub(super) fn repack(
        &mut self, level: u8, node: &Node, low: &[u8], changed: Vec<(usize, (Edges, Arc<Node>))>,
    ) -> Result<Edges> {
        let mut changed = changed.into_iter().peekable();
        let mut pieces = Vec::with_capacity(node.len());
        for child in 0..node.len() {
            if let Some((_, (edges, old))) = changed.next_if(|(index, _)| *index == child) {
                if !edges.is_empty() {
                    pieces.push(Piece::Changed { edges, old });
                }
            } else {
                let low = if child == 0 { low.to_vec() } else { node.separator(child) };
                pieces.push(Piece::Kept { low, pointer: node.pointer(child) });
            }
        }
        if pieces.iter().any(|piece| self.is_underfull(level, piece)) {
            pieces = self.join(level, pieces)?;
        }
        if let [only] = pieces.as_slice()
            && let Some(edges) = only.edges()
            && level + 2 < self.root.height
            && self.is_underfull(level, only)
        {
            self.again.add(edges.low(0), Seq(0));
        }
        let mut out = Edges::default();
        for piece in pieces {
            match piece {
                Piece::Kept { low, pointer } => out.push(&low, pointer),
                Piece::Changed { edges, old } => {
                    let parts = fitted(level, &edges, || grew_at_end(&old, &edges));
                    self.write_nodes(level, &edges, parts, &mut out)?;
                }
                Piece::Joined { edges } => {
                    let parts = cut(level, &edges, false);
                    self.write_nodes(level, &edges, parts, &mut out)?;
                }
            }
        }
        Ok(out)
    }

    /// Whether a node is nearly empty because children were lost. A node with few children that is new at the end at
    /// which the tree grows does not count.
    fn is_underfull(&self, level: u8, piece: &Piece) -> bool {
        let lost = match piece {
            Piece::Kept { .. } => false,
            Piece::Changed { edges, old } => self.touching || edges.len() < old.len(),
            Piece::Joined { .. } => true,
        };
        lost && piece.edges().is_some_and(|edges| node_bytes(level, edges) < SMALL)
    }

    /// Joins underfull pieces with a neighbour.
    fn join(&mut self, level: u8, pieces: Vec<Piece>) -> Result<Vec<Piece>> {
        let mut loaded = self.load_neighbours(level, &pieces)?;
        let mut out: Vec<Piece> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let Some(last) = out.pop() else {
                out.push(piece);
                continue;
            };
            let underfull = self.is_underfull(level, &last) || self.is_underfull(level, &piece);
            let is_loaded = |piece: &Piece| match piece {
                Piece::Kept { pointer, .. } => loaded.contains_key(&pointer.page),
                Piece::Changed { .. } | Piece::Joined { .. } => true,
            };
            if !underfull || !is_loaded(&last) || !is_loaded(&piece) {
                out.extend([last, piece]);
                continue;
            }
            let mut joined = Edges::default();
            for piece in [last, piece] {
                let edges = match piece {
                    Piece::Changed { edges, .. } | Piece::Joined { edges } => edges,
                    Piece::Kept { pointer, .. } => {
                        self.claims.retire(pointer.extent());
                        loaded.remove(&pointer.page).expect("it was just found")
                    }
                };
                joined.extend_from(&edges, 0..edges.len());
            }
            out.push(Piece::Joined { edges: joined });
        }
        Ok(out)
    }

    /// Reads the kept neighbours of underfull pieces, in one psync; returns their children by page.
    fn load_neighbours(&self, level: u8, pieces: &[Piece]) -> Result<HashMap<u64, Edges>> {
        let small = |index: usize| pieces.get(index).is_some_and(|piece| self.is_underfull(level, piece));
        let (mut lows, mut pointers) = (Vec::new(), Vec::new());
        for (index, piece) in pieces.iter().enumerate() {
            if let Piece::Kept { low, pointer } = piece
                && (small(index + 1) || index > 0 && small(index - 1))
            {
                lows.push(low);
                pointers.push(*pointer);
            }
        }
        let nodes = self.base.shared.nodes(self.base.table, &pointers, level)?;
        let edges = nodes.iter().zip(lows).map(|(node, low)| node.edges(low));
        Ok(pointers.iter().map(|pointer| pointer.page).zip(edges).collect())
    }

    /// Writes each part of a list of children as a node, and adds the nodes to their parent's list.
    pub(super) fn write_nodes(
        &mut self, level: u8, edges: &Edges, parts: Vec<Range<usize>>, out: &mut Edges,
    ) -> Result<()> {
        for range in parts {
            let part = edges.some(range);
            let pointer = self.write_node(level, &part)?;
            out.push(part.low(0), pointer);
        }
        Ok(())
    }

    fn write_node(&mut self, level: u8, edges: &Edges) -> Result<Pointer> {
        self.nodes.write(&mut self.claims, &self.base.shared, self.base.table, level, edges)
    }

    /// Waits until all new nodes are written.
    pub(super) fn write_nodes_out(&mut self) -> Result<()> {
        self.nodes.close(&mut self.claims, self.base.shared.pages().file())?;
        self.writes.start(self.nodes.take_writes())?;
        self.writes.finish()
    }

    /// Makes a root of a list of children on `level`, 0 for leaves; `old` is the former node of the children.
    pub(super) fn grow(&mut self, mut edges: Edges, mut level: u8, mut old: Option<&Node>) -> Result<Root> {
        let leaf_pages = self.root.leaf_pages;
        let is_top = edges.len() < 2;
        while edges.len() > 1 {
            level += 1;
            let mut above = Edges::default();
            let parts = fitted(level, &edges, || old.is_none_or(|old| grew_at_end(old, &edges)));
            self.write_nodes(level, &edges, parts, &mut above)?;
            old = None;
            edges = above;
        }
        let Some(mut pointer) = edges.pointers().first().copied() else {
            return Ok(Root { height: 0, pointer: None, leaf_pages, expires: false });
        };
        // A root with a single child is not needed. Its child may be a node of this batch, which then has to be read
        // back.
        if is_top && level > 0 {
            self.write_nodes_out()?;
        }
        while is_top && level > 0 {
            let node = self.base.shared.node(self.base.table, &pointer, level)?;
            if node.len() > 1 {
                break;
            }
            self.claims.retire(pointer.extent());
            pointer = node.pointer(0);
            level -= 1;
        }
        let pointer = if level == 0 { pointer.bare() } else { pointer };
        Ok(Root { height: level + 1, pointer: Some(pointer), leaf_pages, expires: self.root.expires })
    }
}

/// Whether all new children came after the old ones.
fn grew_at_end(old: &Node, edges: &Edges) -> bool {
    edges.len() > old.len() && (1..old.len()).all(|child| old.separator(child) == edges.low(child))
}

/// Cuts a list of children only where the list is too large for a page.
pub(super) fn fitted(level: u8, edges: &Edges, packed: impl FnOnce() -> bool) -> Vec<Range<usize>> {
    if node_bytes(level, edges) > PAGE {
        return cut(level, edges, packed());
    }
    std::iter::once(0..edges.len()).collect()
}

/// Cuts a list of children into lists that fit. Packed lists are filled to 15/16 of a page, the last one less; other
/// lists are filled to at most 7/10.
fn cut(level: u8, edges: &Edges, packed: bool) -> Vec<Range<usize>> {
    let plan = Plan::new(level, edges);
    let cost = |index: usize| plan.child_bytes(edges, index);
    let empty = plan.fixed();
    let mut left: usize = (0..edges.len()).map(cost).sum();
    let mut parts = (empty + left).div_ceil(PAGE * 7 / 10);
    let (mut out, mut start) = (Vec::new(), 0);
    while start < edges.len() {
        let target = if packed || parts <= 1 { PACKED } else { empty + left.div_ceil(parts) };
        let (mut end, mut bytes) = (start + 1, empty + cost(start));
        // As near to the target as the children's different sizes allow.
        while end < edges.len() && bytes + cost(end) <= PAGE && (bytes + cost(end) / 2 <= target || end - start < 2) {
            bytes += cost(end);
            end += 1;
        }
        // The size of a part is known only when the part itself is laid out: with other heads it may exceed its share
        // of the whole.
        while end - start > 2 && node_bytes(level, &edges.some(start..end)) > PAGE {
            end -= 1;
        }
        // The last child is not left alone; three always fit.
        if end + 1 == edges.len() {
            if end - start > 2 { end -= 1 } else { end += 1 }
        }
        left -= (start..end).map(cost).sum::<usize>();
        parts = parts.saturating_sub(1);
        out.push(start..end);
        start = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::{BOUND_BYTES_MAX, BOUND_FIXED};
    use crate::node::Keys;

    proptest! {
        #[test]
        fn parts_of_a_node_fit_and_are_all_of_it(
            keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..1025), 1..60),
            prefix in 0..900_usize, level in 1..3_u8, packed in any::<bool>(),
            numbers in prop::collection::vec(any::<u64>(), 1..50),
        ) {
            let mut edges = Edges::default();
            let keys: std::collections::BTreeSet<_> = keys.iter().map(|key| {
                let mut long = vec![7; prefix];
                long.extend(key);
                long.truncate(1024);
                long
            }).collect();
            let mut numbers = numbers.into_iter().cycle();
            let mut numbers = |most: u64| numbers.next().unwrap_or(0) % most;
            let mut keys = keys.iter().peekable();
            while let Some(low) = keys.next() {
                let (mut fences, mut bytes) = (Keys::default(), low.len() + BOUND_FIXED);
                while level == 1 && numbers(3) > 0
                    && let Some(fence) = keys.next_if(|fence| bytes + fence.len() + BOUND_FIXED <= BOUND_BYTES_MAX)
                {
                    bytes += fence.len() + BOUND_FIXED;
                    fences.push(fence);
                }
                let sorted = u32::try_from(fences.len() + 1).expect("few");
                let leaf = Pointer {
                    pages: sorted,
                    sorted,
                    length: sorted * 4096 - 1,
                    chain: u32::try_from(numbers(1 << 32)).expect("32 bits"),
                    entries: u32::try_from(1 + numbers(1 << 20)).expect("small"),
                    ..Pointer::to_node(numbers(1 << 40), numbers(u64::MAX))
                };
                edges.push_fenced(low, &fences, leaf);
            }
            prop_assume!(node_bytes(level, &edges) > PAGE);
            let mut next = 0;
            let ranges = cut(level, &edges, packed);
            // A child is at most a third of a node.
            let least = if packed { PACKED } else { PAGE * 7 / 10 };
            prop_assert!(ranges.len() <= node_bytes(level, &edges).div_ceil(least - PAGE / 3) + 1, "{:?}", ranges);
            for range in ranges {
                prop_assert_eq!(range.start, next);
                prop_assert!(range.len() >= 2 || edges.len() == 1);
                next = range.end;
                prop_assert!(node_bytes(level, &edges.some(range)) <= PAGE);
            }
            prop_assert_eq!(next, edges.len());
        }

        #[test]
        fn parts_whose_separators_are_of_two_lengths_fit(
            seed in any::<u64>(), count in 1500..3000_u64, longer in 4..7_u64, packed in any::<bool>(),
        ) {
            // Separators as of hashed keys, where the number of leaves is about the number that short separators tell
            // apart.
            let mut edges = Edges::default();
            let keys: std::collections::BTreeSet<_> = (0..count).map(|number| {
                let hash = (number ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let length = if (hash >> 7) % 10 < longer { 3 } else { 2 };
                (hash ^ hash << 23).to_be_bytes()[..length].to_vec()
            }).collect();
            let mut keys = keys.iter().peekable();
            while let Some(low) = keys.next() {
                let mut fences = Keys::default();
                (0..14).map_while(|_| keys.next()).for_each(|fence| fences.push(fence));
                let sorted = u32::try_from(fences.len() + 1).expect("few");
                let page = low.iter().fold(0, |page, byte| page * 256 + u64::from(*byte));
                let leaf = Pointer {
                    pages: sorted,
                    sorted,
                    length: sorted * 4096 - 1,
                    chain: low.iter().fold(9, |chain, byte| chain * 31 + u32::from(*byte)),
                    entries: 1,
                    ..Pointer::to_node(page, page)
                };
                edges.push_fenced(low, &fences, leaf);
            }
            prop_assume!(node_bytes(1, &edges) > PAGE);
            for range in cut(1, &edges, packed) {
                prop_assert!(range.len() >= 2 && node_bytes(1, &edges.some(range)) <= PAGE);
            }
        }
    }
}
