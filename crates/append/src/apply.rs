//! A batch on its way into a trie.
//!
//! 1. The batch goes through the trie in key order ([`walk`], [`tree`], [`leaf`]). The nodes for some thousand keys at
//!    a time are read ahead, level by level, each level in one psync ([`Apply::node`]).
//! 2. The new content of a leaf is written as entries ([`content`]); entries that the batch does not touch are copied
//!    unchanged. On the way up, the new nodes become lists of children. A node that is too large is split, a small one
//!    is joined with its neighbour ([`pack`]).
//! 3. A node is appended after the nodes below it. Its pointer is known at once; the bytes go to the device with
//!    others, in large writes ([`doclog::Appender`]). The commit header is the last.
//! 4. Nodes made and nodes no longer referred to are listed. A node that this batch made and then made anew is in
//!    neither list.
//!
//! If anything fails, the appended bytes are space that is given out again, and the version that the batch began with
//! is unchanged.

mod content;
mod frame;
mod leaf;
mod outcome;
mod pack;
mod tree;
mod walk;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use doclog::{Appender, DocLog, DocPointer, Retained, SegmentId};
use index::merge::Rules;
use index::{Again, Batch, Horizon, Operation, Payload, Result, Seq, Time, Update};
use psync::File;

use crate::filter;
use crate::format::Link;
use crate::format::node::Node;
use crate::format::record::{Commit, Header, Redo, Shape};
use crate::search::{Leaves, descend};
use crate::shared::corrupt;
use crate::version::Version;
use content::Content;

/// Updates whose nodes are read together. So at most as many leaves are in memory.
const WINDOW: usize = 1024;

/// The updates of a batch, and between them keys to be looked at again.
struct Work<'a> {
    batch: &'a dyn Batch,
    again: Vec<Vec<u8>>,
    /// Numbers of updates; the keys to be looked at again are numbered behind the updates of the batch. None: the order
    /// of the batch.
    order: Option<Vec<usize>>,
}

impl<'a> Work<'a> {
    fn new(batch: &'a dyn Batch, again: Vec<Vec<u8>>) -> Self {
        let mut work = Self { batch, again, order: None };
        if !work.again.is_empty() {
            let mut order: Vec<usize> = (0..work.batch.len() + work.again.len()).collect();
            // Stable, so updates of equal keys stay in the order of their seqs.
            order.sort_by_key(|number| work.key_of(*number));
            work.order = Some(order);
        }
        work
    }

    fn len(&self) -> usize {
        self.batch.len() + self.again.len()
    }

    fn number(&self, index: usize) -> usize {
        self.order.as_ref().map_or(index, |order| order[index])
    }

    fn key_of(&self, number: usize) -> &[u8] {
        match number.checked_sub(self.batch.len()) {
            None => self.batch.get(number).key,
            Some(again) => &self.again[again],
        }
    }

    fn key(&self, index: usize) -> &[u8] {
        self.key_of(self.number(index))
    }

    /// The update; none for a key that is only to be looked at.
    fn update(&self, index: usize) -> Option<Update<'a>> {
        let number = self.number(index);
        (number < self.batch.len()).then(|| self.batch.get(number))
    }
}

/// The result of a batch on a trie.
pub(crate) struct Done {
    pub(crate) redo: Redo,
    pub(crate) dropped_documents: Vec<DocPointer>,
    /// Documents that were made of values.
    pub(crate) documents: Vec<DocPointer>,
    /// Keys that later batches have to look at.
    pub(crate) again: Again,
    /// Nodes worth caching, and nodes no longer referred to.
    pub(crate) made_nodes: Vec<(DocPointer, Arc<Node>)>,
    pub(crate) dropped_nodes: Vec<DocPointer>,
    /// Files that were written.
    pub(crate) files: Vec<File>,
}

/// A place of a node segment.
type Place = (SegmentId, u64);

fn place_of(pointer: &DocPointer) -> Place {
    (pointer.segment, pointer.offset)
}

/// A node that the batch made.
struct Made {
    pointer: DocPointer,
    /// Kept for nodes that may be asked for again: internal nodes, and roots.
    node: Option<Arc<Node>>,
}

pub(crate) struct Apply<'a> {
    base: &'a Version,
    work: Work<'a>,
    /// The seq that the new header will store.
    through: Seq,
    rules: Rules<'a>,
    progress: &'a dyn Fn(usize),
    again: Again,
    nodes: Appender<'a>,
    documents: Appender<'a>,
    made: HashMap<Place, Made>,
    dropped: Vec<DocPointer>,
    made_documents: Vec<DocPointer>,
    dropped_documents: Vec<DocPointer>,
    shape: Shape,
    /// Whether the trie, or the batch, has anything that expires. Without it no node is due.
    expires: bool,
    /// Nodes that were read ahead.
    ahead: HashMap<Place, Arc<Node>>,
}

impl<'a> Apply<'a> {
    pub(crate) fn new(
        base: &'a Version, documents: &'a DocLog, batch: &'a dyn Batch, horizon: &'a Horizon, mut again: Again,
        progress: &'a dyn Fn(usize),
    ) -> Self {
        let due = again.take_due(batch.through());
        Self {
            base,
            work: Work::new(batch, due),
            through: batch.through(),
            rules: Rules { horizon, through: batch.through(), is_all: true },
            progress,
            again,
            nodes: base.nodes.appender(),
            documents: documents.appender(),
            made: HashMap::new(),
            dropped: Vec::new(),
            made_documents: Vec::new(),
            dropped_documents: Vec::new(),
            shape: base.header().shape,
            expires: base.header().expires,
            ahead: HashMap::new(),
        }
    }

    /// Rewrites the leaves of these keys too, even if the batch does not touch them. The rewrite drops versions that
    /// need not stay and brings nothing new.
    pub(crate) fn rewriting(mut self, keys: Vec<Vec<u8>>) -> Self {
        let mut again = std::mem::take(&mut self.work.again);
        again.extend(keys);
        self.work = Work::new(self.work.batch, again);
        self.through = self.base.header().through;
        self
    }

    pub(crate) fn run(mut self) -> Result<Done> {
        let all = 0..self.work.len();
        let root = self.update_trie(all)?;
        (self.progress)(self.work.batch.len());
        let (base, commit) = (self.base, self.base.commit);
        self.dropped.extend(commit.place);
        let mut dropped: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for pointer in &self.dropped {
            *dropped.entry(pointer.segment).or_default() += pointer.stored_bytes();
        }
        let made: u64 = self.made.values().map(|made| made.pointer.stored_bytes()).sum();
        let live = (commit.header.live_bytes + made).saturating_sub(dropped.values().sum());
        let header = Header {
            number: commit.header.number + 1,
            through: self.through,
            shape: self.shape,
            live_bytes: live + Header::stored_bytes(),
            root: root.as_ref().map(|root| root.pointer),
            before: commit.place,
            due: root.as_ref().and_then(|root| root.due),
            expires: self.expires && root.is_some(),
            ..*base.header()
        };
        let place = self.nodes.push(&header.encode())?;
        self.made.insert(place_of(&place), Made { pointer: place, node: None });
        // Documents are written first, so no node leads to a missing document. If the nodes find no space, the
        // documents go too.
        self.documents.write()?;
        self.nodes.write()?;
        let mut files = self.documents.finish()?;
        files.extend(self.nodes.finish()?);
        let mut pointers: Vec<_> = self.made.values().map(|made| made.pointer).collect();
        pointers.sort_unstable();
        let redo = Redo {
            commit: Commit { place: Some(place), header },
            made: retained(&pointers),
            dropped: dropped.into_iter().collect(),
            documents: retained(&self.made_documents),
        };
        let made_nodes = self.made.into_values().filter_map(|made| Some((made.pointer, made.node?))).collect();
        Ok(Done {
            redo,
            dropped_documents: self.dropped_documents,
            documents: self.made_documents,
            again: self.again,
            made_nodes,
            dropped_nodes: self.dropped,
            files,
        })
    }

    fn chunk_bytes(&self) -> usize {
        self.base.header().chunk_bytes()
    }

    /// A node that the update at `index`, or one of its neighbours, has reached.
    fn node(&mut self, pointer: &DocPointer, index: usize) -> Result<Arc<Node>> {
        let place = place_of(pointer);
        if let Some(node) = self.made.get(&place).and_then(|made| made.node.as_ref()) {
            return Ok(Arc::clone(node));
        }
        if !self.ahead.contains_key(&place) {
            self.read_ahead(index)?;
        }
        match self.ahead.get(&place) {
            Some(node) => Ok(Arc::clone(node)),
            None => Ok(self.fetch(&[*pointer])?.remove(0)),
        }
    }

    /// A node that no update has reached.
    fn neighbour(&mut self, pointer: &DocPointer) -> Result<Arc<Node>> {
        let place = place_of(pointer);
        let made = self.made.get(&place).and_then(|made| made.node.as_ref());
        match made.or_else(|| self.ahead.get(&place)) {
            Some(node) => Ok(Arc::clone(node)),
            None => Ok(self.fetch(&[*pointer])?.remove(0)),
        }
    }

    fn fetch(&mut self, pointers: &[DocPointer]) -> Result<Vec<Arc<Node>>> {
        let nodes = self.base.nodes(pointers)?;
        self.ahead.extend(pointers.iter().map(place_of).zip(nodes.iter().cloned()));
        Ok(nodes)
    }

    /// Reads the nodes of the updates from `index` on.
    fn read_ahead(&mut self, index: usize) -> Result<()> {
        let Some(root) = self.base.header().root else { return Ok(()) };
        self.ahead.clear();
        let (base, work, ahead) = (self.base, &self.work, &mut self.ahead);
        let count = (work.len() - index.min(work.len())).min(WINDOW);
        let mut fetch = |pointers: &[DocPointer]| {
            let nodes = base.nodes(pointers)?;
            ahead.extend(pointers.iter().map(place_of).zip(nodes.iter().cloned()));
            Ok(nodes)
        };
        let (chunk_bytes, key) = (base.header().chunk_bytes(), |number| work.key(index + number));
        descend(root, count, chunk_bytes, Leaves::All, key, &mut fetch, &mut |_, _| {})
    }

    /// Appends a node. `is_root`: the node is the root of a B+-tree.
    fn make(&mut self, content: &Content, skip: &[u8], is_root: bool) -> Result<Link> {
        let bytes = content.encode(skip);
        let pointer = self.nodes.push(&bytes)?;
        // The written bytes are decoded at once, so a mistake here is found before anything refers to the node.
        let node = Node::decode(&bytes, self.chunk_bytes());
        let node = node.map_err(|damage| corrupt(&self.base.nodes, &pointer, damage))?;
        count(&mut self.shape, node.level(), pointer.length.stored(), node.counts(), u64::wrapping_add);
        // Expired versions that were only copied are due at once; those that had to stay are due later.
        let looked_at = if content.is_copied { Time(0) } else { self.rules.horizon.now };
        let due = if self.expires { node.due(looked_at) } else { None };
        let filter = filter::of(&node);
        let node = (is_root || node.level() > 0).then(|| Arc::new(node));
        self.made.insert(place_of(&pointer), Made { pointer, node });
        Ok(Link { pointer, due, filter })
    }

    /// Counts a node of the trie as no longer referred to.
    fn drop_node(&mut self, pointer: &DocPointer, node: &Node) {
        count(&mut self.shape, node.level(), pointer.length.stored(), node.counts(), u64::wrapping_sub);
        if self.made.remove(&place_of(pointer)).is_none() {
            self.dropped.push(*pointer);
        }
    }

    /// Turns a value that is too large for a node into a document.
    fn place(&mut self, update: &mut Update<'_>) -> Result<()> {
        if let Operation::Put(Payload::Inline(value), expiry) = update.operation
            && value.len() > crate::INLINE_BYTES_MAX
        {
            let document = self.documents.push(value)?;
            self.made_documents.push(document);
            update.operation = Operation::Put(Payload::Document(document), expiry);
        }
        Ok(())
    }

    /// The updates of a range whose keys have the same chunk at `depth` as the first.
    fn same_chunk(&self, range: &Range<usize>, depth: usize) -> Range<usize> {
        let chunk = crate::search::chunk_at(self.work.key(range.start), depth, self.chunk_bytes());
        let is_same =
            |index: &usize| crate::search::chunk_at(self.work.key(*index), depth, self.chunk_bytes()) == chunk;
        let end = (range.start + 1..range.end).find(|index| !is_same(index)).unwrap_or(range.end);
        range.start..end
    }
}

fn count(shape: &mut Shape, level: u8, bytes: u64, (versions, keys): (u64, u64), add: fn(u64, u64) -> u64) {
    let (nodes, of) = match level {
        0 => (&mut shape.leaves, &mut shape.leaf_bytes),
        _ => (&mut shape.internal_nodes, &mut shape.internal_bytes),
    };
    (*nodes, *of) = (add(*nodes, 1), add(*of, bytes));
    (shape.versions, shape.keys) = (add(shape.versions, versions), add(shape.keys, keys));
}

fn retained(pointers: &[DocPointer]) -> Vec<Retained> {
    let mut list = Vec::new();
    pointers.iter().for_each(|pointer| Retained::count(&mut list, pointer));
    list
}
