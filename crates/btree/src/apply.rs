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

mod batch;
pub(crate) mod claims;
pub(crate) mod compact;
pub(crate) mod layout;
mod neighbours;
pub(crate) mod node_writer;
pub(crate) mod nodes;
mod rewrite;
mod split;
mod task;
mod under_way;
mod window;

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use doclog::DocPointer;
use index::{Again, Error, Result, Touches};
use space::{Extent, PAGE};

use crate::format::Pointer;
use crate::format::root::Root;
use crate::node::{Edges, Node};
pub(crate) use batch::Apply;
use node_writer::NodeWriter;
use split::split;
use task::Parent;

/// The least number of nodes of a level that are processed together.
const CHUNK_MIN: usize = 256;
/// Leaves of a window, in psyncs of reads: one psync is under way while the next is made ready.
const LEAF_PSYNCS: usize = 2;
/// Bytes of the leaves of a window, if all of them are full and rewritten. Three windows are in memory: one being read,
/// one being computed (its old and its new leaves), and one being written.
const WINDOW_BYTES: usize = 8 << 20;
/// The least number of leaves of a window, however large the leaves are.
const WINDOW_LEAVES_MIN: usize = 32;

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

impl Apply<'_> {
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
        self.written(outcome)
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
    fn written<T>(&mut self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| self.writes.finish().err().unwrap_or(error))
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
