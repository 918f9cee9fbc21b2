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
use super::frame::{Done, Frame, Step, Tree};
use super::outcome::Outcome;

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
