//! The walk of a batch through the nodes of a trie.
//!
//! A trie may nest as many B+-trees as a key has chunks, which takes more stack than a thread has. So the walk keeps a
//! stack of its own:
//!
//! 1. A frame is a node, or a B+-tree, whose new content waits for what is below it.
//! 2. The last frame goes on until it needs what is below it. That becomes the last frame.
//! 3. A frame that is done leaves the stack, and hands its result to the frame before it.

use index::Result;

use super::Apply;
use super::content::Content;
use super::leaf::Leaf;
use super::outcome::Outcome;
use super::pack::Children;
use super::tree::{Path, Tree};

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

impl Frame {
    /// Goes on, with the result of the frame that it waited for.
    fn step(&mut self, apply: &mut Apply<'_>, below: Option<Done>) -> Result<Step> {
        match self {
            Self::Tree(tree) => tree.step(apply, below),
            Self::Path(path) => path.step(apply, below),
            Self::Children(children) => children.step(apply, below),
            Self::Leaf(leaf) => leaf.step(apply, below),
        }
    }
}

impl Apply<'_> {
    /// Walks a B+-tree with all that is below it.
    pub(super) fn walk(&mut self, tree: Tree) -> Result<Outcome> {
        let (mut frames, mut below) = (vec![Frame::Tree(tree)], None);
        while let Some(frame) = frames.last_mut() {
            match frame.step(self, below.take())? {
                Step::Down(frame) => frames.push(frame),
                Step::Up(done) => {
                    frames.pop();
                    below = Some(done);
                }
            }
        }
        Ok(below.expect("the first frame was done last").outcome())
    }
}
