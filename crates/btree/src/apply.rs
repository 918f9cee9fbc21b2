//! Batch update (Roh et al., PVLDB 5(4), 2011, section 3.1.3, algorithm 2).
//!
//! 1. The batch goes down the tree a level at a time; at each level, the nodes that it touches are read in one psync, so
//!    many at a time ([`CHUNK_MIN`]) that memory stays bounded by chunk × fanout × height.
//! 2. At the level above leaves, [`window`] changes some hundred leaves at a time: what it needs is read in one psync, and what it makes is
//!    written in another. While one window is computed, the next is read and the one before is written ([`under_way`]), so that neither the
//!    processor nor the device waits. Leaves that cannot be appended to are rewritten ([`rewrite`]).
//! 3. On the way up, [`nodes`] packs changed lists of children into new nodes: it splits those that are too large and
//!    joins those that are nearly empty.
//! 4. What could not be joined because it was alone under its parent is looked at again in another pass: the parent has been
//!    joined by then. So are leaves in which an earlier batch had to leave tombstones ([`Again`]).
//! 5. [`claims`] keeps book of extents taken and given up. If anything fails, all that were taken go back, and the version
//!    that the batch began with is as it was: leaves were written beyond their published lengths only.

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

/// Least nodes of a level that are worked on together.
const CHUNK_MIN: usize = 256;
/// Leaves of a window, as many psyncs of reads: one is under way while the next is made ready.
const LEAF_PSYNCS: usize = 2;
/// Bytes of the leaves of a window, if all of them are full and rewritten. Three windows are in memory: one that is read, one that is computed, as it was and as it
/// becomes, and one that is written.
const WINDOW_BYTES: usize = 8 << 20;
/// Leaves of a window, however large they are.
const WINDOW_LEAVES_MIN: usize = 32;

/// A batch on its way into a tree.
pub(crate) struct Apply<'a> {
    base: &'a Version,
    /// The tree as passes before this one have made it.
    root: Root,
    batch: &'a dyn Batch,
    /// What has to stay in a leaf.
    rules: Rules<'a>,
    progress: &'a dyn Fn(usize),
    /// Whether the batch only says which leaves are rewritten.
    touching: bool,
    /// What another pass, or another batch, has to look at.
    again: Again,
    reads: Reads,
    /// Before the claims, so that nothing is given back that is being written.
    writes: Writes,
    claims: Claims,
    nodes: NodeWriter,
    dropped_documents: Vec<DocPointer>,
    /// Leaves were packed at an end at which the tree grew.
    packed: bool,
    /// Updates that have reached their leaves.
    done: usize,
}

/// What a batch made of a tree.
pub(crate) struct Done {
    pub(crate) root: Root,
    pub(crate) allocated: Vec<Extent>,
    pub(crate) retired: Vec<Extent>,
    pub(crate) dropped_documents: Vec<DocPointer>,
    /// What later batches have to look at.
    pub(crate) again: Again,
    /// Leaves were packed at an end at which the tree grew.
    pub(crate) packed: bool,
}

/// A node that the batch touches.
struct Item {
    node: Arc<Node>,
    /// Its lower bound.
    low: Vec<u8>,
    /// The updates of its keys.
    updates: Range<usize>,
}

/// Checks the limits, which are the caller's to keep, and says whether anything in the batch expires.
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

    /// Pages of a leaf for entries of which so many take so many bytes.
    fn leaf_pages(&self, entries: usize, bytes: usize) -> u32 {
        self.base.shared.leaf_size().pages(self.root.leaf_pages, entries, bytes)
    }

    /// Most pages of a leaf, but of one that has more versions of a key.
    fn leaf_pages_max(&self) -> u32 {
        self.base.shared.leaf_size().pages_max(self.root.leaf_pages)
    }

    /// Children of nodes on a level that are worked on together.
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

    /// What came of something, when nothing is being written any more. That a write failed goes before any other failure: after that nothing may be tried again.
    fn settled<T>(&mut self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| self.writes.settle().err().unwrap_or(error))
    }

    fn write_nodes_out(&mut self) -> Result<()> {
        self.nodes.close(&mut self.claims, self.base.shared.pages().file())?;
        self.writes.start(self.nodes.take_writes())?;
        self.writes.settle()
    }

    /// Passes over what has to be looked at again, until nothing has; each takes care of a level at least.
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
            // The batch is in, and that was the task. There will be space when later batches look.
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

    /// Applies the updates of nodes on `level`; gives the new children of each. Recursion as deep as the tree is high.
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

/// Nodes, so many at a time that the batch touches about so many children of theirs.
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

/// Gives a node's updates to its children.
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

/// The first index above `start` that is not `within`, or `end`; in steps that double, then halve.
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
