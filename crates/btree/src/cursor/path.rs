//! Which leaves a scan goes through: a walk over the internal nodes of a range. It reads nothing itself.

use std::ops::Bound;
use std::sync::Arc;

use index::{Bounds, Direction};

use crate::format::Pointer;
use crate::format::root::Root;
use crate::node::Node;

/// A node on the path, with the children that are still to be walked.
struct Step {
    node: Arc<Node>,
    first: usize,
    end: usize,
}

impl Step {
    fn new(node: Arc<Node>, bounds: &Bounds) -> Self {
        let first = match &bounds.lower {
            Bound::Included(key) | Bound::Excluded(key) => node.search(key),
            Bound::Unbounded => 0,
        };
        let end = match &bounds.upper {
            Bound::Included(key) => node.search(key) + 1,
            Bound::Excluded(key) => node.search_below(key) + 1,
            Bound::Unbounded => node.len(),
        };
        Self { node, first, end }
    }

    fn peek(&self, direction: Direction) -> Option<Pointer> {
        let child = match direction {
            Direction::Forward => self.first,
            Direction::Backward => self.end.wrapping_sub(1),
        };
        (self.first < self.end).then(|| self.node.pointer(child))
    }

    fn take(&mut self, direction: Direction) -> Option<Pointer> {
        let pointer = self.peek(direction)?;
        match direction {
            Direction::Forward => self.first += 1,
            Direction::Backward => self.end -= 1,
        }
        Some(pointer)
    }
}

/// What comes next on a path.
pub(super) enum Next {
    /// A leaf of the range.
    Leaf(Pointer),
    /// An internal node and its level: the path goes on with [`Path::enter`].
    Node(Pointer, u8),
}

/// From the root down to the level above leaves.
pub(super) struct Path {
    bounds: Bounds,
    direction: Direction,
    root: Option<(Pointer, u8)>,
    steps: Vec<Step>,
}

impl Path {
    pub(super) fn new(root: &Root, bounds: Bounds, direction: Direction) -> Self {
        let root = root.pointer.filter(|_| !bounds.is_empty()).map(|pointer| (pointer, root.height.saturating_sub(1)));
        Self { bounds, direction, root, steps: Vec::new() }
    }

    pub(super) const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    pub(super) const fn direction(&self) -> Direction {
        self.direction
    }

    /// What comes next; none at the end of the range.
    pub(super) fn next(&mut self) -> Option<Next> {
        let of_level = |pointer, level| if level == 0 { Next::Leaf(pointer) } else { Next::Node(pointer, level) };
        if let Some((root, level)) = self.root.take() {
            return Some(of_level(root, level));
        }
        while let Some(step) = self.steps.last_mut() {
            if let Some(child) = step.take(self.direction) {
                return Some(of_level(child, step.node.level() - 1));
            }
            self.steps.pop();
        }
        None
    }

    /// Goes on in the node that [`Path::next`] named last.
    pub(super) fn enter(&mut self, node: Arc<Node>) {
        self.steps.push(Step::new(node, &self.bounds));
    }

    /// Ends it here.
    pub(super) fn end(&mut self) {
        self.steps.clear();
    }

    /// The node above leaves that comes after the one that the path is in.
    pub(super) fn node_after(&self) -> Option<Pointer> {
        let [.., above, last] = self.steps.as_slice() else { return None };
        above.peek(self.direction).filter(|_| last.node.level() == 1)
    }
}
