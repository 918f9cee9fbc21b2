//! The leaves that a window changes, and what of them is in memory.

use std::ops::Range;
use std::sync::Arc;

use index::Update;
use psync::Buffer;

use super::layout::Growth;
use crate::format::Pointer;
use crate::format::run::Plan;
use crate::leaf::Leaf;
use crate::node::{Edges, Node};
use crate::shared::Tail;

/// A node above leaves, or its substitute where the tree has none.
pub(super) struct Parent {
    pub(super) node: Option<Arc<Node>>,
    /// The only leaf, where the tree has no node.
    only: Option<Pointer>,
    low: Vec<u8>,
    pub(super) updates: Range<usize>,
}

impl Parent {
    pub(super) fn of(node: Arc<Node>, low: Vec<u8>, updates: Range<usize>) -> Self {
        Self { node: Some(node), only: None, low, updates }
    }

    /// A parent of the only leaf of a tree, or of an empty tree.
    pub(super) fn around(only: Option<Pointer>, updates: Range<usize>) -> Self {
        Self { node: None, only, low: Vec::new(), updates }
    }

    pub(super) fn children(&self) -> usize {
        self.node.as_ref().map_or(1, |node| node.len())
    }

    /// The filter of a child.
    pub(super) fn filter(&self, child: usize) -> &[u8] {
        self.node.as_ref().map_or(&[], |node| node.filter(child))
    }

    /// None in an empty tree.
    pub(super) fn pointer(&self, child: usize) -> Option<Pointer> {
        self.node.as_ref().map_or(self.only, |node| Some(node.pointer(child)))
    }

    pub(super) fn low(&self, child: usize) -> Vec<u8> {
        match &self.node {
            Some(node) if child > 0 => node.separator(child),
            _ => self.low.clone(),
        }
    }

    pub(super) fn edges(&self) -> Edges {
        if let Some(node) = &self.node {
            return node.edges(&self.low);
        }
        let mut edges = Edges::default();
        if let Some(only) = self.only {
            edges.push(&self.low, only);
        }
        edges
    }
}

/// A leaf that the window changes.
pub(super) struct Task {
    pub(super) parent: usize,
    pub(super) child: usize,
    /// None in an empty tree.
    pub(super) pointer: Option<Pointer>,
    pub(super) updates: Range<usize>,
    pub(super) how: How,
}

impl Task {
    /// Whether the whole leaf has to be read, not only its last page.
    pub(super) fn reads_all(&self, pointer: &Pointer) -> bool {
        pointer.documents || !matches!(self.how, How::Append { .. })
    }
}

/// How a leaf is changed.
pub(super) enum How {
    /// Runs are appended at these positions; at least `keys_min` keys are live afterwards.
    Append { runs: Vec<(usize, Plan)>, keys_min: u32 },
    /// The leaf is rewritten.
    Rewrite,
    /// The leaf was planned for an append, but is rewritten with a neighbour.
    Joined,
}

/// The part of a leaf that is in memory.
pub(super) enum Loaded {
    /// Nothing, because nothing is needed.
    Nothing,
    /// The last page, from the cache.
    Tail(Arc<Tail>),
    /// The last page, read from storage.
    Page(Buffer),
    /// The whole leaf, or its last part where that is enough, and whether the image came from the cache.
    Leaf(Arc<Leaf>, bool),
}

/// The remaining entries of a leaf.
pub(super) struct Merged<'w> {
    pub(super) entries: Vec<Update<'w>>,
    /// Bytes of the entries as one leaf.
    pub(super) length: usize,
    pub(super) growth: Growth,
    /// Whether the leaf was cached.
    pub(super) hot: bool,
}
