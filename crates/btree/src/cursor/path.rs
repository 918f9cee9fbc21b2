//! The leaves that a scan goes through: a walk over the internal nodes of a range. The walk itself reads nothing.

use std::ops::{Bound, Range};
use std::sync::Arc;

use index::{Bounds, Direction};

use crate::format::Pointer;
use crate::format::root::Root;
use crate::node::{Node, Place};

/// A node on the path, with the children that are still to be walked.
struct Step {
    node: Arc<Node>,
    first: usize,
    end: usize,
    /// The parts in which the range begins and ends, among the children above leaves.
    begins: Option<Place>,
    ends: Option<Place>,
}

impl Step {
    fn new(node: Arc<Node>, bounds: &Bounds) -> Self {
        let place = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(node.find(key)),
            Bound::Unbounded => None,
        };
        let (begins, ends) = (place(&bounds.lower), place(&bounds.upper));
        let end = match (&bounds.upper, ends) {
            (Bound::Excluded(key), _) => node.search_below(key) + 1,
            (_, Some(place)) => place.child + 1,
            (_, None) => node.len(),
        };
        Self { node, first: begins.map_or(0, |place| place.child), end, begins, ends }
    }

    fn peek(&self, direction: Direction) -> Option<(usize, Pointer)> {
        let child = match direction {
            Direction::Forward => self.first,
            Direction::Backward => self.end.wrapping_sub(1),
        };
        (self.first < self.end).then(|| (child, self.node.pointer(child)))
    }

    /// The next child and, if that child is a leaf, its parts in the range.
    fn take(&mut self, direction: Direction) -> Option<(Pointer, Range<usize>)> {
        let (child, pointer) = self.peek(direction)?;
        match direction {
            Direction::Forward => self.first += 1,
            Direction::Backward => self.end -= 1,
        }
        let of_child = |place: Option<Place>| place.filter(|place| place.child == child).map(|place| place.part);
        let end = of_child(self.ends).map_or(pointer.parts(), |part| part + 1);
        Some((pointer, of_child(self.begins).unwrap_or(0)..end))
    }
}

/// The next step of a path.
pub(super) enum Next {
    /// A leaf of the range, and its parts that are in the range.
    Leaf(Pointer, Range<usize>),
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

    /// The next step; none at the end of the range.
    pub(super) fn next(&mut self) -> Option<Next> {
        let of_level = |pointer, parts, level| match level {
            0 => Next::Leaf(pointer, parts),
            level => Next::Node(pointer, level),
        };
        if let Some((root, level)) = self.root.take() {
            return Some(of_level(root, 0..root.parts(), level));
        }
        while let Some(step) = self.steps.last_mut() {
            if let Some((child, parts)) = step.take(self.direction) {
                return Some(of_level(child, parts, step.node.level() - 1));
            }
            self.steps.pop();
        }
        None
    }

    /// Goes on in the node that [`Path::next`] named last.
    pub(super) fn enter(&mut self, node: Arc<Node>) {
        self.steps.push(Step::new(node, &self.bounds));
    }

    /// Ends the path here.
    pub(super) fn end(&mut self) {
        self.steps.clear();
    }

    /// The node above leaves that comes after the one that the path is in.
    pub(super) fn node_after(&self) -> Option<Pointer> {
        let [.., above, last] = self.steps.as_slice() else { return None };
        above.peek(self.direction).map(|(_, child)| child).filter(|_| last.node.level() == 1)
    }
}
