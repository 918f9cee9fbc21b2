//! Frames: what waits for its turn in the walk of a batch, or for what is below it.

use std::ops::Range;
use std::sync::Arc;

use super::content::Content;
use super::outcome::Outcome;
use crate::format::Link;
use crate::format::node::Node;

/// What waits for its turn, or for what is below it.
pub(super) enum Frame {
    /// A B+-tree. Waits for the entries of its new root.
    Tree(Tree),
    /// New B+-trees above one whose skip not all updates share. Waits for the outcome of that one.
    Path(Path),
    /// A node with children. Waits for the entries of one child after the other.
    Children(Children),
    /// A leaf. Waits for the outcomes of the B+-trees of its groups.
    Leaf(Leaf),
}

impl Frame {
    /// A node on its way to its new content; `depth` is that of its B+-tree.
    pub(super) fn of_node(node: Arc<Node>, low: Vec<u8>, range: Range<usize>, depth: usize, is_root: bool) -> Self {
        if node.level() == 0 {
            return Self::Leaf(Leaf::new(Some(node), low, range, depth));
        }
        let children = Vec::with_capacity(node.len());
        Self::Children(Children { node, low, index: 0, range, depth, is_root, children })
    }
}

/// A B+-tree on its way to its outcome.
pub(super) struct Tree {
    /// Its root; none in an empty trie.
    pub(super) root: Option<Arc<Node>>,
    /// What it skips of the keys in it; of the skip of the root no more than this.
    pub(super) skip: Vec<u8>,
    /// Bytes of a key above the skip.
    pub(super) depth: usize,
    /// Its updates. Without any the root is made anew.
    pub(super) range: Range<usize>,
    /// Whether it is the tree at the top of the trie.
    pub(super) is_top: bool,
}

/// The entries of a new B+-tree above `root`, whose skip not all updates share.
pub(super) struct Path {
    pub(super) root: Arc<Node>,
    /// The chunk that leads to the old tree.
    pub(super) old: Vec<u8>,
    /// What the old tree skips behind it.
    pub(super) skip: Vec<u8>,
    /// Bytes of a key above the chunk.
    pub(super) depth: usize,
    /// The updates that are left.
    pub(super) range: Range<usize>,
    pub(super) content: Content,
    /// Whether the old tree has its turn behind it.
    pub(super) is_placed: bool,
}

/// A node above leaves on its way to its new content.
pub(super) struct Children {
    pub(super) node: Arc<Node>,
    pub(super) low: Vec<u8>,
    /// Children that are behind, or have their turn.
    pub(super) index: usize,
    /// The updates that are left.
    pub(super) range: Range<usize>,
    /// Bytes of a key above the chunks of the node.
    pub(super) depth: usize,
    pub(super) is_root: bool,
    /// The new children.
    pub(super) children: Vec<Child>,
}

/// A child of an internal node.
pub(super) enum Child {
    /// A child that the batch did not touch.
    Old { low: Vec<u8>, link: Link },
    /// A child that is to be written.
    New(Content),
}

/// A leaf on its way to its new content, or a missing one.
pub(super) struct Leaf {
    pub(super) leaf: Option<Arc<Node>>,
    /// Groups of the leaf that are behind.
    pub(super) index: usize,
    /// The updates that are left.
    pub(super) range: Range<usize>,
    /// Bytes of a key above the chunks of the leaf.
    pub(super) depth: usize,
    pub(super) content: Content,
}

impl Leaf {
    pub(super) const fn new(leaf: Option<Arc<Node>>, low: Vec<u8>, range: Range<usize>, depth: usize) -> Self {
        Self { leaf, index: 0, range, depth, content: Content::new(0, low) }
    }
}

/// The result of a frame.
pub(super) enum Done {
    /// The entries of a node.
    Entries(Content),
    /// The outcome for a B+-tree.
    Outcome(Outcome),
}

impl Done {
    pub(super) fn entries(self) -> Content {
        match self {
            Self::Entries(content) => content,
            Self::Outcome(_) => unreachable!("a B+-tree is never right below what waits for entries"),
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::Outcome(outcome) => outcome,
            Self::Entries(_) => unreachable!("only a B+-tree is below what waits for an outcome"),
        }
    }
}

/// How a frame goes on.
pub(super) enum Step {
    /// With what is below it.
    Down(Frame),
    /// With the frame before it.
    Up(Done),
}
