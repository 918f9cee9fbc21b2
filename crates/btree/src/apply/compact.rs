//! Compaction: the tree is rewritten stretch by stretch, in key order, into packed leaves that lie next to each other.
//!
//! 1. A stretch begins at a key and has leaves of a limited number of bytes. No leaf of the stretch begins at or above
//!    the end of the [`index::Part`]. All leaves are below one node of level 2, so the stretch needs one list of
//!    children. Its internal nodes and its leaves are read in a psync each.
//! 2. All runs of a leaf are merged, and dead versions are dropped, as in any rewrite ([`index::merge`]). The remaining
//!    entries of all leaves are cut into leaves filled to 31/32 ([`layout`]), [`CHUNK_BYTES`] at a time; the last of
//!    these leaves is filled up with the entries that follow. A leaf that is entirely deleted by a range is given up
//!    unread, unless there are documents in it.
//! 3. New leaves are cut out of one long extent, or a few where the disk is too full, and written in one psync of long
//!    pieces.
//! 4. The nodes above the new leaves are packed anew, together with the children that stay; the path to the root is
//!    rewritten as after a batch.
//! 5. A stretch takes along the half-empty remains of the previous stretch: its last leaf, and the leaves of its last
//!    node.
//!
//! Invariant: a stretch is a change of its own, as a batch is. The tree is whole after each stretch, and is unchanged
//! after a failure.

use std::sync::Arc;

use index::{Again, Horizon, Part, Result, Seq, Touches, Update, merge};
use psync::{Buffer, Request};
use space::{Class, Extent, PAGE};

use super::claims::Claims;
use super::layout::{self, Cut, Growth, packed};
use super::nodes::fitted;
use super::rewrite::Made;
use super::{Apply, Done};
use crate::format::Pointer;
use crate::format::node::node_bytes;
use crate::leaf::Leaf;
use crate::node::{Edges, Node, separator};
use crate::version::Version;

/// The least bytes of runs that are cut into leaves together.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes that a leaf given up unread counts for: its part of the redo, and of the reads that find the leaf.
const BARE_LEAF_BYTES: usize = 64;

/// Pages of a write, unless a leaf is longer.
const PIECE_PAGES: u32 = 256;

/// A node filled less than this is taken along by the next stretch. The same holds for a leaf of less than this part of
/// a packed one.
const TAKEN_ALONG: (usize, usize) = (3, 4);

/// A stretch that was compacted.
pub(crate) struct Stretch {
    pub(crate) done: Done,
    /// Where the next stretch begins; none at the end of the tree.
    pub(crate) next: Option<Vec<u8>>,
    /// Number of leaves before the compaction.
    pub(crate) leaves: u64,
    /// Bytes of runs in those leaves.
    pub(crate) bytes: u64,
}

/// Compacts the first stretch of `part` into leaves of `leaf_pages` pages. Commits after `through` may be applied
/// again.
pub(crate) fn compact(
    base: &Version, again: Again, part: Part<'_>, leaf_pages: u32, through: Seq, horizon: &Horizon,
) -> Result<Stretch> {
    let nothing = Touches { keys: Vec::new(), through };
    let mut apply = Apply::new(base, &nothing, horizon, again, &|_| ());
    apply.root.leaf_pages = leaf_pages;
    if part.reclaims {
        apply.claims = Claims::new(base.shared.pages(), Class::Urgent);
    }
    apply.claims.set_below(part.below);
    let path = apply.path(part.from)?;
    let stretch = apply.gather(&path, part)?;
    let leaves = stretch.leaves.len() as u64;
    let bytes = stretch.leaves.pointers().iter().map(|leaf| u64::from(leaf.length)).sum();
    let next = stretch.next.clone().or_else(|| path.end());
    let children = apply.rewrite_all(stretch, next.as_deref())?;
    apply.root = apply.replace(path, children)?;
    apply.write_nodes_out()?;
    Ok(Stretch { done: apply.done(), next, leaves, bytes })
}

/// The path from the root down to level 2, and the children below.
struct Path {
    /// Nodes from the root on, each with its lower bound and the child on the path; the last node is on level 2.
    nodes: Vec<(Arc<Node>, Pointer, Vec<u8>, usize)>,
    /// Children of the last node of the path, on level 1. Where the root is on level 1 or is a leaf, the root itself.
    below: Edges,
    /// The child of `below` in which the stretch begins.
    first: usize,
}

impl Path {
    /// Where the keys below this path end.
    fn end(&self) -> Option<Vec<u8>> {
        // The keys behind the last node's children are outside this path, so the last node's own child does not count.
        let above = self.nodes.len().saturating_sub(1);
        let turn = self.nodes[..above].iter().rev().find(|(node, _, _, child)| child + 1 < node.len());
        turn.map(|(node, _, _, child)| node.separator(child + 1))
    }
}

/// Children of neighbouring nodes of level 1, and those nodes.
#[derive(Default)]
struct Gathered {
    /// The nodes' indices in [`Path::below`].
    nodes: std::ops::Range<usize>,
    before: Edges,
    /// The leaves to rewrite.
    leaves: Edges,
    after: Edges,
    /// Where the stretch ends, if more is below the same node of level 2.
    next: Option<Vec<u8>>,
}

/// New children for some of [`Path::below`].
struct Children {
    nodes: std::ops::Range<usize>,
    edges: Edges,
}

impl Apply<'_> {
    fn path(&self, from: &[u8]) -> Result<Path> {
        let (mut nodes, mut below) = (Vec::new(), Edges::default());
        let Some(mut pointer) = self.root.pointer else { return Ok(Path { nodes, below, first: 0 }) };
        let mut low = Vec::new();
        for level in (2..self.root.height).rev() {
            let node = self.base.shared.node(self.base.table, &pointer, level)?;
            let child = node.search(from);
            let next = node.pointer(child);
            let next_low = if child == 0 { low.clone() } else { node.separator(child) };
            nodes.push((node, pointer, std::mem::replace(&mut low, next_low), child));
            pointer = next;
        }
        match nodes.last() {
            Some((node, _, low, child)) => Ok(Path { below: node.edges(low), first: *child, nodes }),
            None => {
                below.push(&low, pointer);
                Ok(Path { nodes, below, first: 0 })
            }
        }
    }

    /// Finds the leaves of the stretch.
    fn gather(&self, path: &Path, part: Part<'_>) -> Result<Gathered> {
        let from = part.from;
        if self.root.height < 2 {
            return Ok(Gathered { nodes: 0..path.below.len(), leaves: path.below.clone(), ..Gathered::default() });
        }
        let first = path.first.saturating_sub(1);
        let mut known = self.level_1(path, first..path.first + 1)?;
        let mut edges = known.pop().expect("as many nodes as asked for");
        let takes = |before: &Edges| is_sparse(before) || ends_short(before);
        let start = known.pop().filter(|before| edges.low(0) >= from && takes(before));
        let mut gathered = Gathered { nodes: path.first..path.first, ..Gathered::default() };
        match start {
            Some(before) => {
                gathered.before = before;
                gathered.nodes.start = first;
            }
            None => {
                let kept = (1..edges.len()).take_while(|&child| edges.low(child) <= from).count();
                gathered.before.extend_from(&edges, 0..kept);
                edges = edges.some(kept..edges.len());
            }
        }
        gathered.take_along();
        let mut left = part.bytes;
        gathered.take(&edges, part, self.rules.horizon, &mut left);
        // The expected number of nodes, if all are like the first.
        let each = edges.pointers().iter().map(|leaf| leaf.length as usize).sum::<usize>().max(1);
        while gathered.next.is_none() && gathered.nodes.end < path.below.len() {
            let low = path.below.low(gathered.nodes.end);
            if left == 0 || !part.has(low) {
                gathered.next = Some(low.to_vec());
                break;
            }
            let end = (gathered.nodes.end + left.div_ceil(each)).min(path.below.len());
            for edges in self.level_1(path, gathered.nodes.end..end)? {
                if left == 0 || !part.has(edges.low(0)) {
                    break;
                }
                gathered.take(&edges, part, self.rules.horizon, &mut left);
            }
        }
        Ok(gathered)
    }

    /// The children of some nodes of level 1.
    fn level_1(&self, path: &Path, range: std::ops::Range<usize>) -> Result<Vec<Edges>> {
        let nodes = self.base.shared.nodes(self.base.table, &path.below.pointers()[range.clone()], 1)?;
        Ok(nodes.iter().zip(range).map(|(node, child)| node.edges(path.below.low(child))).collect())
    }

    /// Rewrites the leaves, which end below `high`; returns all children of the nodes.
    fn rewrite_all(&mut self, mut gathered: Gathered, high: Option<&[u8]>) -> Result<Children> {
        gathered.leaves.pointers().iter().for_each(|leaf| self.claims.retire(leaf.extent()));
        let first_low = if gathered.leaves.is_empty() { Vec::new() } else { gathered.leaves.low(0).to_vec() };
        gathered.leaves = self.without_bare(&gathered.leaves, high);
        let leaves = self.read_all(&gathered.leaves)?;
        let sum = |of: fn(&Pointer) -> u32| gathered.leaves.pointers().iter().map(|leaf| of(leaf) as usize).sum();
        let (entries, total): (usize, usize) = (sum(|leaf| leaf.entries), sum(|leaf| leaf.length));
        let leaf_pages = self.leaf_pages(entries, total);
        let capacity = leaf_pages as usize * PAGE;
        let mut out = Output::new(leaf_pages, total / packed(capacity) + 1);
        let mut edges = gathered.before;
        let mut low = first_low;
        let (mut waiting, mut bytes): (Vec<Update<'_>>, usize) = (Vec::new(), 0);
        for (leaf, pointer) in leaves.iter().zip(gathered.leaves.pointers()) {
            let visible = leaf.visible(pointer).expect("a leaf is chosen or read by this pointer");
            let mut entries = Vec::with_capacity(pointer.entries as usize);
            visible.entries(&mut entries).map_err(|damage| self.base.shared.corrupt(pointer, damage))?;
            waiting.extend(merge::merge(entries, self.rules, &mut self.dropped_documents));
            bytes += pointer.length as usize;
            if bytes >= CHUNK_BYTES.max(4 * capacity) {
                self.put_leaves(&mut waiting, &mut low, false, &mut out, &mut edges)?;
                bytes = 0;
            }
        }
        self.put_leaves(&mut waiting, &mut low, true, &mut out, &mut edges)?;
        out.end(&mut self.claims)?;
        let file = self.base.shared.pages().file();
        let writes = out.pieces.into_iter().map(|(offset, buffer)| Request::write(file, offset, buffer, 0)).collect();
        self.base.shared.psync().run_all(writes)?;
        edges.extend_from(&gathered.after, 0..gathered.after.len());
        Ok(Children { nodes: gathered.nodes, edges })
    }

    /// The leaves in which an entry may stay, out of leaves that end below `high`.
    fn without_bare(&self, leaves: &Edges, high: Option<&[u8]>) -> Edges {
        let mut out = Edges::default();
        for leaf in 0..leaves.len() {
            let high = if leaf + 1 < leaves.len() { Some(leaves.low(leaf + 1)) } else { high };
            if !is_bare(leaves, leaf, high, self.rules.horizon) {
                out.extend_from(leaves, leaf..leaf + 1);
            }
        }
        out
    }

    /// The leaves, in order; those not cached are read in one psync.
    fn read_all(&self, leaves: &Edges) -> Result<Vec<Arc<Leaf>>> {
        let shared = &self.base.shared;
        let mut out: Vec<_> = leaves.pointers().iter().map(|leaf| shared.cached_leaf(leaf, 0)).collect();
        let missing: Vec<_> = leaves.pointers().iter().enumerate().filter(|(index, _)| out[*index].is_none()).collect();
        let requests = missing.iter().map(|(_, leaf)| shared.read(leaf, 0, leaf.published_bytes(), 0)).collect();
        for ((index, leaf), buffer) in missing.into_iter().zip(shared.psync().run_all(requests)?) {
            let buffer = buffer.expect("a read hands its buffer back");
            out[index] = Some(Arc::new(shared.parse_leaf(self.base.table, leaf, &buffer)?));
        }
        Ok(out.into_iter().flatten().collect())
    }

    /// Puts entries into leaves, which begin at `low`. The entries of the last leaf are kept back, because more may
    /// follow.
    fn put_leaves(
        &mut self, waiting: &mut Vec<Update<'_>>, low: &mut Vec<u8>, all: bool, out: &mut Output, edges: &mut Edges,
    ) -> Result<()> {
        let cuts = layout::cut(waiting, out.leaf_pages, Growth::Compacted)?;
        let whole = if all { cuts.len() } else { cuts.len().saturating_sub(1) };
        let mut start = 0;
        for cut in &cuts[..whole] {
            let entries = &waiting[start..cut.end];
            let extent = out.place(&mut self.claims, cut)?;
            let made = self.encode(entries, low, extent, &mut out.room(extent)[..cut.used * PAGE]);
            let Made { pointer, fences, filter } = made;
            if let Some(seq) = self.waits_for(&pointer, entries) {
                self.again.add(low, seq);
            }
            edges.push_leaf(low, &fences, &filter, pointer);
            low.clear();
            if let Some(next) = waiting.get(cut.end) {
                low.extend_from_slice(separator(waiting[cut.end - 1].key, next.key));
            }
            start = cut.end;
        }
        waiting.drain(..start);
        Ok(())
    }

    /// Puts new children below the path, and rewrites the path up to the root.
    fn replace(&mut self, path: Path, children: Children) -> Result<crate::format::root::Root> {
        if self.root.height < 2 {
            return self.grow(children.edges, 0, None);
        }
        path.below.pointers()[children.nodes.clone()].iter().for_each(|node| self.claims.retire(node.extent()));
        if path.nodes.is_empty() {
            return self.grow(children.edges, 0, None);
        }
        let mut edges = Edges::default();
        edges.extend_from(&path.below, 0..children.nodes.start);
        if !children.edges.is_empty() {
            let parts = fitted(1, &children.edges, || true);
            self.write_nodes(1, &children.edges, parts, &mut edges)?;
        }
        edges.extend_from(&path.below, children.nodes.end..path.below.len());
        let mut level = 2;
        let mut nodes = path.nodes.into_iter().rev();
        let (mut old, pointer, ..) = nodes.next().expect("a tree of three levels has a node on level 2");
        self.claims.retire(pointer.extent());
        for (node, pointer, low, child) in nodes {
            edges = self.repack(level, &node, &low, vec![(child, (edges, old))])?;
            self.claims.retire(pointer.extent());
            (old, level) = (node, level + 1);
        }
        self.grow(edges, level - 1, Some(&old))
    }
}

impl Gathered {
    /// Moves the last leaf before the stretch into the stretch, if the previous stretch has left that leaf half empty.
    fn take_along(&mut self) {
        let before = &self.before;
        if ends_short(before) {
            let last = before.len() - 1;
            let rest = before.some(0..last);
            self.leaves.extend_from(before, last..last + 1);
            self.before = rest;
        }
    }

    /// Takes the next node's leaves, as far as the part and the limit go; the other leaves stay unchanged.
    fn take(&mut self, edges: &Edges, part: Part<'_>, horizon: &Horizon, left: &mut usize) {
        let mut end = 0;
        while end < edges.len() && *left > 0 && part.has(edges.low(end)) {
            let high = (end + 1 < edges.len()).then(|| edges.low(end + 1));
            let bytes = match high {
                Some(_) if is_bare(edges, end, high, horizon) => BARE_LEAF_BYTES,
                _ => edges.pointers()[end].length as usize,
            };
            *left = left.saturating_sub(bytes);
            end += 1;
        }
        self.leaves.extend_from(edges, 0..end);
        self.after.extend_from(edges, end..edges.len());
        self.nodes.end += 1;
        if end < edges.len() {
            self.next = Some(edges.low(end).to_vec());
        }
    }
}

/// Whether a leaf that ends below `high` keeps no entry and has no documents.
fn is_bare(edges: &Edges, leaf: usize, high: Option<&[u8]>, horizon: &Horizon) -> bool {
    !edges.pointers()[leaf].documents && horizon.is_bare(edges.low(leaf), high)
}

/// Whether the last leaf of a list is half empty, as at the end of a stretch.
fn ends_short(leaves: &Edges) -> bool {
    let full = |leaf: &Pointer| packed(leaf.capacity()) * TAKEN_ALONG.0 / TAKEN_ALONG.1;
    leaves.pointers().last().is_some_and(|leaf| (leaf.length as usize) < full(leaf))
}

fn is_sparse(edges: &Edges) -> bool {
    node_bytes(1, edges) < PAGE * TAKEN_ALONG.0 / TAKEN_ALONG.1
}

/// The destination of new leaves.
struct Output {
    /// Pages of each new leaf.
    leaf_pages: u32,
    /// Number of leaves still expected.
    expected: usize,
    /// The extent that leaves are cut out of, and how many of its pages are given out.
    extent: Option<(Extent, u32)>,
    /// Pieces to be written, each with its file offset; the last one may grow.
    pieces: Vec<(u64, Buffer)>,
    filled: usize,
}

impl Output {
    const fn new(leaf_pages: u32, expected: usize) -> Self {
        Self { leaf_pages, expected, extent: None, pieces: Vec::new(), filled: 0 }
    }

    /// The extent of the next leaf.
    fn place(&mut self, claims: &mut Claims, cut: &Cut) -> Result<Extent> {
        if cut.pages != self.leaf_pages {
            return Ok(claims.allocate(1, cut.pages)?[0]);
        }
        let (extent, used) = match self.extent {
            Some((extent, used)) if used < extent.pages => (extent, used),
            _ => {
                let leaves = u32::try_from(self.expected.max(1)).unwrap_or(u32::MAX / self.leaf_pages);
                (claims.allocate_long(self.leaf_pages, leaves)?, 0)
            }
        };
        self.expected = self.expected.saturating_sub(1);
        self.extent = Some((extent, used + self.leaf_pages));
        Ok(Extent::new(space::PageId(extent.page.0 + u64::from(used)), self.leaf_pages))
    }

    /// The buffer space for the bytes of a leaf, all zero.
    fn room(&mut self, extent: Extent) -> &mut [u8] {
        let bytes = extent.pages as usize * PAGE;
        let joins = self.pieces.last().is_some_and(|(offset, buffer)| {
            offset + self.filled as u64 == extent.offset() && self.filled + bytes <= buffer.len()
        });
        if !joins {
            self.end_piece();
            let most = (PIECE_PAGES / extent.pages).max(1) as usize;
            self.pieces.push((extent.offset(), Buffer::zeroed((self.expected + 1).min(most) * bytes)));
        }
        let at = self.filled;
        self.filled += bytes;
        let (_, buffer) = self.pieces.last_mut().expect("it was there or was made just now");
        &mut buffer[at..at + bytes]
    }

    fn end_piece(&mut self) {
        if let Some((_, buffer)) = self.pieces.last_mut() {
            buffer.truncate(self.filled);
        }
        self.filled = 0;
    }

    /// Gives back the unused pages.
    fn end(&mut self, claims: &mut Claims) -> Result<()> {
        self.end_piece();
        match self.extent.take() {
            Some((extent, used)) => claims.shorten(extent, used),
            None => Ok(()),
        }
    }
}
