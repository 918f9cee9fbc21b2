//! Batch update (Roh et al., PVLDB 5(4), 2011, section 3.1.3, algorithm 2).
//!
//! 1. The batch goes down the tree one level at a time. The nodes of a level that the batch touches are read in one
//!    psync, many nodes at a time ([`CHUNK_MIN`]). Memory stays bounded by chunk × fanout × height.
//! 2. At the level above leaves, [`window`] changes some hundred leaves at a time: one psync reads their pages and
//!    another writes the new ones. While one window is computed, the next is read and the previous one is written
//!    ([`under_way`]), so neither the processor nor the device waits. Leaves that cannot take an append are rewritten
//!    ([`rewrite`]).
//! 3. On the way up, [`nodes`] packs changed lists of children into new nodes: too large nodes are split, and nearly
//!    empty ones are joined.
//! 4. A leaf or node that could not be joined because it was alone under its parent is looked at again in another pass,
//!    because the parent has been joined by then. The same holds for leaves in which an earlier batch had to leave
//!    tombstones ([`Again`]).
//! 5. [`claims`] records the extents taken and given up. If anything fails, all taken extents go back. The version that
//!    the batch began with is then unchanged, because leaves were written only beyond their published lengths.

pub(crate) mod claims;
pub(crate) mod compact;
pub(crate) mod layout;
mod neighbours;
pub(crate) mod nodes;
mod rewrite;
mod under_way;
mod window;

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use doclog::DocPointer;
use index::merge::Rules;
use index::{Again, Batch, Error, Horizon, Operation, Payload, Result, Touches, class_of};
use space::{Extent, PAGE};

use crate::format::root::Root;
use crate::format::{INLINE_BYTES_MAX, KEY_BYTES_MAX, Pointer};
use crate::node::{Edges, Node};
use crate::version::Version;
use claims::Claims;
use nodes::NodeWriter;
use under_way::{Reads, Writes};
use window::Parent;

/// The least number of nodes of a level that are processed together.
const CHUNK_MIN: usize = 256;
/// Leaves of a window, in psyncs of reads: one psync is under way while the next is made ready.
const LEAF_PSYNCS: usize = 2;
/// Bytes of the leaves of a window, if all of them are full and rewritten. Three windows are in memory: one being read,
/// one being computed (its old and its new leaves), and one being written.
const WINDOW_BYTES: usize = 8 << 20;
/// The least number of leaves of a window, however large the leaves are.
const WINDOW_LEAVES_MIN: usize = 32;

/// A batch on its way into a tree.
pub(crate) struct Apply<'a> {
    base: &'a Version,
    /// The tree as earlier passes have left it.
    root: Root,
    batch: &'a dyn Batch,
    /// The rules that decide which versions stay in a leaf.
    rules: Rules<'a>,
    progress: &'a dyn Fn(usize),
    /// True if the batch has no updates and only names the leaves to rewrite.
    touching: bool,
    /// Leaves that another pass or another batch has to look at.
    again: Again,
    reads: Reads,
    /// Dropped before the claims, so that no extent is given back while it is being written.
    writes: Writes,
    claims: Claims,
    nodes: NodeWriter,
    dropped_documents: Vec<DocPointer>,
    /// True if leaves were packed at an end at which the tree grew.
    packed: bool,
    /// Updates that have reached their leaves.
    done: usize,
}

/// The result of a batch.
pub(crate) struct Done {
    pub(crate) root: Root,
    pub(crate) allocated: Vec<Extent>,
    pub(crate) retired: Vec<Extent>,
    pub(crate) dropped_documents: Vec<DocPointer>,
    /// Leaves that later batches have to look at.
    pub(crate) again: Again,
    /// True if leaves were packed at an end at which the tree grew.
    pub(crate) packed: bool,
}

/// A node that the batch touches.
struct Item {
    node: Arc<Node>,
    /// Lower bound of the node.
    low: Vec<u8>,
    /// The updates of the node's keys.
    updates: Range<usize>,
}

/// Checks the limits, which the caller has to keep, and returns whether any entry of the batch expires.
fn check(batch: &dyn Batch) -> bool {
    let mut expires = false;
    for index in 0..batch.len() {
        let update = batch.get(index);
        assert!(update.key.len() <= KEY_BYTES_MAX, "a key of {} bytes", update.key.len());
        expires |= update.operation.expiry().is_some();
        if let Operation::Put(Payload::Inline(value), _) = update.operation {
            assert!(value.len() <= INLINE_BYTES_MAX, "a value of {} bytes that is not a document", value.len());
        }
    }
    expires
}

impl<'a> Apply<'a> {
    pub(crate) fn new(
        base: &'a Version, batch: &'a dyn Batch, horizon: &'a Horizon, again: Again, progress: &'a dyn Fn(usize),
    ) -> Self {
        let expires = check(batch);
        Self {
            base,
            root: Root { expires: base.root.expires || expires, ..base.root },
            batch,
            rules: Rules { horizon, through: batch.through() },
            progress,
            touching: false,
            again,
            reads: Reads::new(base.shared.psync()),
            writes: Writes::new(base.shared.psync()),
            claims: Claims::new(base.shared.pages(), class_of(batch, horizon)),
            nodes: NodeWriter::default(),
            dropped_documents: Vec::new(),
            packed: false,
            done: 0,
        }
    }

    /// Pages of a leaf for entries of this count and these bytes.
    fn leaf_pages(&self, entries: usize, bytes: usize) -> u32 {
        self.base.shared.leaf_size().pages(self.root.leaf_pages, entries, bytes)
    }

    /// The most pages of a leaf. Only a leaf with more versions of one key is longer.
    fn leaf_pages_max(&self) -> u32 {
        self.base.shared.leaf_size().pages_max(self.root.leaf_pages)
    }

    /// Number of children processed together for nodes of this level.
    fn chunk(&self, level: u8) -> usize {
        let pio_max = self.base.shared.psync().pio_max();
        if level > 1 {
            return (4 * pio_max).max(CHUNK_MIN);
        }
        let leaves = WINDOW_BYTES / (self.leaf_pages_max() as usize * PAGE);
        (LEAF_PSYNCS * pio_max).min(leaves.max(WINDOW_LEAVES_MIN))
    }

    pub(crate) fn run(mut self) -> Result<Done> {
        self.pass()?;
        self.look_again(0)
    }

    fn pass(&mut self) -> Result<()> {
        let outcome = self.go_down();
        self.settled(outcome)
    }

    fn go_down(&mut self) -> Result<()> {
        let all = 0..self.batch.len();
        if !all.is_empty() {
            self.root = self.root(all)?;
        }
        self.write_nodes_out()
    }

    /// Returns `outcome` once no write is under way. A failed write goes before any other failure, because nothing may
    /// be retried after it.
    fn settled<T>(&mut self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| self.writes.settle().err().unwrap_or(error))
    }

    fn write_nodes_out(&mut self) -> Result<()> {
        self.nodes.close(&mut self.claims, self.base.shared.pages().file())?;
        self.writes.start(self.nodes.take_writes())?;
        self.writes.settle()
    }

    /// Runs passes over the remembered leaves until none is left; each pass takes care of a level at least.
    fn look_again(mut self, passes: u8) -> Result<Done> {
        let keys = self.again.take_due(self.rules.through);
        if keys.is_empty() || self.root.height == 0 || passes > self.base.root.height {
            return Ok(self.done());
        }
        let mark = (self.claims.mark(), self.dropped_documents.len(), self.root);
        let touches = Touches { keys, through: self.rules.through };
        let mut next = Apply { batch: &touches, touching: true, ..self };
        match next.pass() {
            Ok(()) => next.look_again(passes + 1),
            // The batch itself is applied, so the task is done. Later batches look again when there is space.
            Err(Error::Space(error)) if error.is_disk_full() => {
                let (claims, documents, root) = mark;
                next.nodes = NodeWriter::default();
                next.claims.undo(claims);
                next.dropped_documents.truncate(documents);
                next.root = root;
                touches.keys.iter().for_each(|low| next.again.add(low, touches.through));
                Ok(next.done())
            }
            Err(error) => Err(error),
        }
    }

    fn done(mut self) -> Done {
        let (allocated, retired) = self.claims.keep();
        let Self { root, dropped_documents, again, packed, .. } = self;
        Done { root, allocated, retired, dropped_documents, again, packed }
    }

    fn root(&mut self, all: Range<usize>) -> Result<Root> {
        let old = self.root;
        let Some(pointer) = old.pointer.filter(|_| old.height > 1) else {
            let only = Parent::around(old.pointer, all);
            let mut window = self.begin(vec![only]);
            self.read_in(&mut window)?;
            let edges = self.change(window)?.pop().expect("a list of children for each parent");
            return self.grow(edges, 0, None);
        };
        let level = old.height - 1;
        let node = self.base.shared.node(self.base.table, &pointer, level)?;
        let item = Item { node: Arc::clone(&node), low: Vec::new(), updates: all };
        let edges = self.update(level, vec![item])?.pop().expect("a list of children for each node");
        self.claims.retire(pointer.extent());
        self.grow(edges, level - 1, Some(&node))
    }

    /// Applies the updates of nodes on `level`; returns the new children of each. Recursion depth is the tree's height.
    fn update(&mut self, level: u8, items: Vec<Item>) -> Result<Vec<Edges>> {
        let mut out = Vec::with_capacity(items.len());
        let mut chunks = Chunks { items: items.into_iter().peekable(), children: self.chunk(level) };
        if level > 1 {
            for together in chunks {
                out.extend(self.above_nodes(level, together)?);
            }
            return Ok(out);
        }
        let mut next = chunks.next().map(|items| self.begin(parents(items)));
        while let Some(mut window) = next {
            self.read_in(&mut window)?;
            next = chunks.next().map(|items| self.begin(parents(items)));
            out.extend(self.change(window)?);
        }
        Ok(out)
    }

    fn above_nodes(&mut self, level: u8, items: Vec<Item>) -> Result<Vec<Edges>> {
        let touched: Vec<_> = items.iter().map(|item| split(self.batch, &item.node, item.updates.clone())).collect();
        let mut below = Vec::new();
        let mut pointers: Vec<Pointer> = Vec::new();
        for (item, children) in items.iter().zip(&touched) {
            pointers.extend(children.iter().map(|(child, _)| item.node.pointer(*child)));
        }
        let nodes = self.base.shared.nodes(self.base.table, &pointers, level - 1)?;
        let mut loaded = nodes.iter();
        for (item, children) in items.iter().zip(&touched) {
            for ((child, updates), node) in children.iter().zip(loaded.by_ref()) {
                let low = if *child == 0 { item.low.clone() } else { item.node.separator(*child) };
                below.push(Item { node: Arc::clone(node), low, updates: updates.clone() });
            }
        }
        pointers.iter().for_each(|pointer| self.claims.retire(pointer.extent()));
        let mut lists = self.update(level - 1, below)?.into_iter().zip(nodes);
        let mut out = Vec::with_capacity(items.len());
        for (item, children) in items.iter().zip(touched) {
            let changed = children.into_iter().map(|(child, _)| child).zip(lists.by_ref()).collect();
            out.push(self.repack(level - 1, &item.node, &item.low, changed)?);
        }
        Ok(out)
    }
}

/// Groups of nodes, sized so that the batch touches about a given number of their children.
struct Chunks {
    items: Peekable<IntoIter<Item>>,
    children: usize,
}

impl Iterator for Chunks {
    type Item = Vec<Item>;

    fn next(&mut self) -> Option<Vec<Item>> {
        let (mut together, mut children) = (Vec::new(), 0);
        while let Some(item) = self.items.next_if(|_| children < self.children) {
            children += item.updates.len().min(item.node.len());
            together.push(item);
        }
        (!together.is_empty()).then_some(together)
    }
}

fn parents(items: Vec<Item>) -> Vec<Parent> {
    items.into_iter().map(|item| Parent::of(item.node, item.low, item.updates)).collect()
}

/// Assigns a node's updates to its children.
fn split(batch: &dyn Batch, node: &Node, updates: Range<usize>) -> Vec<(usize, Range<usize>)> {
    let mut out = Vec::new();
    let mut start = updates.start;
    while start < updates.end {
        let child = node.search(batch.get(start).key);
        let end = end_of(start, updates.end, |index| node.below_end(child, batch.get(index).key));
        out.push((child, start..end));
        start = end;
    }
    out
}

/// The first index above `start` that is not `within`, or `end`. The steps double, then halve.
fn end_of(start: usize, end: usize, within: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (start + 1, 1);
    while low + step <= end && within(low + step - 1) {
        low += step;
        step *= 2;
    }
    let mut high = (low + step - 1).min(end);
    while low < high {
        let middle = low + (high - low) / 2;
        if within(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::end_of;

    #[test]
    fn the_end_is_found_from_any_distance() {
        for end in 1..70 {
            for boundary in 1..=end {
                assert_eq!(end_of(0, end, |index| index < boundary), boundary);
            }
        }
    }
}
