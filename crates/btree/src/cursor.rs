//! Scans: parallel range search (Roh et al., PVLDB 5(4), 2011, section 3.1.2).
//!
//! 1. A cursor keeps a path of internal nodes and takes leaves off it, a window at a time. The window's leaves are read in one
//!    psync.
//! 2. The first window is [`WINDOW_FIRST`] leaves; each next one is twice as long, up to PioMax, so that a short scan
//!    reads little and a long one keeps the device busy. A long scan reads the next node of the level above leaves with the
//!    window.
//! 3. The entries of a leaf's runs are sorted, and of each key the newest version at or below the cursor's seq is kept.
//!
//! A scan looks into the cache, but does not fill it with leaves and does not make those it finds there any hotter.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use index::{Bounds, Cursor, Direction, Operation, Pair, Result, Seq};
use space::PAGE;

use crate::format::{Damage, Pointer};
use crate::leaf::{Leaf, Place};
use crate::node::Node;
use crate::search::stored;
use crate::version::Version;

/// Leaves of the first window.
const WINDOW_FIRST: usize = 2;

/// From this window on, nodes of the level above leaves are read ahead.
const WINDOW_LONG: usize = 16;

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
        (self.first < self.end).then(|| *self.node.pointer(child))
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

/// A leaf whose pairs are being handed out.
struct Current {
    pointer: Pointer,
    leaf: Arc<Leaf>,
    /// In key order whatever the direction; taken from the end that comes first.
    places: VecDeque<Place>,
}

/// Walks a version in key order.
pub(crate) struct TreeCursor {
    version: Arc<Version>,
    bounds: Bounds,
    at: Seq,
    direction: Direction,
    /// From the root down to the level above leaves.
    path: Vec<Step>,
    /// The only leaf of a tree without internal nodes.
    only: Option<Pointer>,
    window: usize,
    leaves: VecDeque<(Pointer, Arc<Leaf>)>,
    current: Option<Current>,
}

impl TreeCursor {
    pub(crate) fn new(version: Arc<Version>, bounds: &Bounds, at: Seq, direction: Direction) -> Result<Self> {
        let mut cursor = Self {
            version,
            bounds: bounds.clone(),
            at,
            direction,
            path: Vec::new(),
            only: None,
            window: WINDOW_FIRST,
            leaves: VecDeque::new(),
            current: None,
        };
        if !bounds.is_empty() {
            match cursor.version.root.height {
                0 => {}
                1 => cursor.only = cursor.version.root.pointer,
                height => {
                    if let Some(root) = cursor.version.root.pointer {
                        cursor.enter(&root, height - 1)?;
                    }
                }
            }
        }
        Ok(cursor)
    }

    fn enter(&mut self, pointer: &Pointer, level: u8) -> Result<()> {
        let node = self.version.shared.node(self.version.table, pointer, level)?;
        self.path.push(Step::new(node, &self.bounds));
        Ok(())
    }

    /// The next leaves, at most a window of them.
    fn next_pointers(&mut self) -> Result<Vec<Pointer>> {
        let mut pointers: Vec<_> = self.only.take().into_iter().collect();
        while pointers.len() < self.window {
            let Some(step) = self.path.last_mut() else { break };
            let level = step.node.level();
            match step.take(self.direction) {
                Some(leaf) if level == 1 => pointers.push(leaf),
                Some(node) => self.enter(&node, level - 1)?,
                None => drop(self.path.pop()),
            }
        }
        Ok(pointers)
    }

    /// The node above the leaves that comes after the current one, if it should be read now.
    fn node_ahead(&self) -> Option<Pointer> {
        let [.., above, last] = self.path.as_slice() else { return None };
        let near = self.window >= WINDOW_LONG && last.end - last.first.min(last.end) <= 2 * self.window;
        let next = above.peek(self.direction).filter(|_| near && last.node.level() == 1)?;
        (!self.version.shared.has_node(&next)).then_some(next)
    }

    /// Reads the next window.
    fn fill(&mut self) -> Result<()> {
        let pointers = self.next_pointers()?;
        let (shared, table) = (&self.version.shared, self.version.table);
        let mut leaves: Vec<_> = pointers.iter().map(|pointer| shared.cached_leaf(pointer, true)).collect();
        let missing: Vec<_> = (0..leaves.len()).filter(|index| leaves[*index].is_none()).collect();
        if !missing.is_empty() {
            let ahead = self.node_ahead();
            let read = |index: &usize| shared.read(&pointers[*index], 0, pointers[*index].published_bytes(), 0);
            let mut requests: Vec<_> = missing.iter().map(read).collect();
            requests.extend(ahead.map(|node| shared.read(&node, 0, PAGE, 0)));
            let mut buffers = shared.psync().run_all(requests)?.into_iter().flatten();
            for (index, buffer) in missing.iter().zip(buffers.by_ref()) {
                leaves[*index] = Some(Arc::new(shared.parse_leaf(table, &pointers[*index], &buffer)?));
            }
            if let Some((node, page)) = ahead.zip(buffers.next()) {
                shared.parse_node(table, &node, 1, &page)?;
            }
        }
        self.leaves = pointers.into_iter().zip(leaves.into_iter().flatten()).collect();
        self.window = (self.window * 2).min(shared.psync().pio_max().max(WINDOW_FIRST));
        Ok(())
    }

    /// Makes the next leaf current; false at the end.
    fn advance(&mut self) -> Result<bool> {
        if self.leaves.is_empty() {
            self.fill()?;
        }
        let Some((pointer, leaf)) = self.leaves.pop_front() else { return Ok(false) };
        let places = live(&leaf, &pointer, &self.bounds, self.at)
            .map_err(|damage| self.version.shared.corrupt(&pointer, damage))?;
        self.current = Some(Current { pointer, leaf, places });
        Ok(true)
    }
}

/// Where the newest version of each live key is, in key order.
fn live(leaf: &Leaf, pointer: &Pointer, bounds: &Bounds, at: Seq) -> std::result::Result<VecDeque<Place>, Damage> {
    let visible = leaf.visible(pointer).expect("a leaf is chosen or read by this pointer");
    let entries = visible.sorted(bounds)?;
    let mut places = VecDeque::with_capacity(entries.len());
    let mut start = 0;
    while start < entries.len() {
        let key = entries[start].key;
        let mut newest = None;
        while start < entries.len() && entries[start].key == key {
            if entries[start].seq <= at {
                newest = Some(entries[start].place);
            }
            start += 1;
        }
        if let Some(place) = newest
            && visible.at(place)?.operation != Operation::Delete
        {
            places.push_back(place);
        }
    }
    Ok(places)
}

impl Cursor for TreeCursor {
    fn next(&mut self) -> Result<Option<Pair>> {
        loop {
            if let Some(current) = &mut self.current {
                let place = match self.direction {
                    Direction::Forward => current.places.pop_front(),
                    Direction::Backward => current.places.pop_back(),
                };
                if let Some(place) = place {
                    let visible =
                        current.leaf.visible(&current.pointer).expect("it was visible when it became current");
                    let entry =
                        visible.at(place).map_err(|damage| self.version.shared.corrupt(&current.pointer, damage))?;
                    let value = stored(&entry).expect("places are of puts");
                    return Ok(Some(Pair { key: entry.key.to_vec(), seq: entry.seq, value }));
                }
            }
            self.current = None;
            if !self.advance()? {
                return Ok(None);
            }
        }
    }
}
