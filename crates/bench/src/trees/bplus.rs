//! The plain B+-tree that the PIO B-tree is compared with: changed in place, one request at a time.
//!
//! 1. Nodes of one size are in a [`Pager`]: an LRU buffer pool that has the whole budget. Their size is chosen
//!    by [`node_bytes_by_utility`], or for a workload by [`node_bytes_by_cost`].
//! 2. A put changes the entry's leaf in the pool. A full leaf is split in the middle; the last leaf of the tree is
//!    split at its end when the new key is the highest. The level above gets the first key of the new node.
//! 3. A delete takes the entry out of the leaf. A node that falls below half shares evenly with a neighbour under the
//!    same parent, or is merged with the neighbour when both fit in one node.
//! 4. A scan reads the leaves one by one along their links.
//!
//! Any number of threads may read at a time. A writer is alone, as in the paper, where only the B-link tree is
//! concurrent. After a put or delete that failed for the device, the tree is no longer usable.

use btree::cost::node_pages;
use parking_lot::RwLock;
use psync::BLOCK;
use psync::probe::DeviceProfile;

use super::bulk::{self, Root};
use super::node::{LEVELS_MAX, Layout, Node};
use super::pager::{NodeId, Pager, PagerCounters, ReadGuard, WriteGuard};
use super::{Setting, Shape, Sorted, Tree};
use crate::{Error, Result};

/// The node size with the highest utility per cost (Graefe, "The five-minute rule 20 years later"; Roh et al. 2011,
/// equation (3)): the logarithm of the entries of a page of that size, divided by the time to read the page alone.
#[must_use]
pub fn node_bytes_by_utility(profile: &DeviceProfile, shape: Shape) -> usize {
    // The utility does not depend on records, memory and inserts.
    node_pages(profile, 1, shape.entry_bytes() as u64, 1, 0.0).pages_by_utility * BLOCK
}

/// The node size with the least cost of an operation (Roh et al. 2011, equation (6)) in a tree of `records` with
/// `memory_bytes` for its pool, where the share `insert_share` of operations are inserts.
#[must_use]
pub fn node_bytes_by_cost(
    profile: &DeviceProfile, shape: Shape, records: u64, memory_bytes: u64, insert_share: f64,
) -> usize {
    node_pages(profile, records, shape.entry_bytes() as u64, memory_bytes, insert_share).pages * BLOCK
}

/// A B+-tree on disk.
pub struct BPlusTree {
    pager: Pager,
    layout: Layout,
    root: RwLock<Root>,
}

/// The inner nodes from the root to the parent of a leaf, and the index of the child taken in each.
struct Path {
    steps: [(NodeId, usize); LEVELS_MAX],
    len: usize,
}

impl Path {
    const fn new() -> Self {
        Self { steps: [(NodeId::NONE, 0); LEVELS_MAX], len: 0 }
    }

    fn push(&mut self, node: NodeId, child: usize) {
        self.steps[self.len] = (node, child);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<(NodeId, usize)> {
        self.len = self.len.checked_sub(1)?;
        Some(self.steps[self.len])
    }
}

impl BPlusTree {
    /// Builds a tree of nodes of `node_bytes`, filled to the part `fill` ([`bulk::FILL_DEFAULT`]), with the setting's
    /// memory as its pool.
    ///
    /// # Errors
    /// When the entries are out of order or of another shape, do not fit the nodes, or the device fails.
    pub fn build(setting: &Setting, sorted: &mut Sorted<'_>, node_bytes: usize, fill: f64) -> Result<Self> {
        let layout = Layout::new(setting.shape, node_bytes, false)?;
        let pager = Pager::create(setting, "bplus", node_bytes, setting.memory_bytes)?;
        let root = bulk::build(&pager, &layout, sorted, fill)?;
        Ok(Self { pager, layout, root: RwLock::new(root) })
    }

    /// Counters of the buffer pool.
    #[must_use]
    pub fn counters(&self) -> PagerCounters {
        self.pager.counters()
    }

    /// The file of the tree and its pool.
    #[must_use]
    pub const fn pager(&self) -> &Pager {
        &self.pager
    }

    fn read(&self, node: NodeId, level: usize) -> Result<Node<'_, ReadGuard>> {
        Node::open(&self.layout, node, level, self.pager.read(node)?)
    }

    fn write(&self, node: NodeId, level: usize) -> Result<Node<'_, WriteGuard>> {
        Node::open(&self.layout, node, level, self.pager.write(node)?)
    }

    fn allocate(&self, level: usize) -> Result<(NodeId, Node<'_, WriteGuard>)> {
        let bytes = self.pager.allocate()?;
        Ok((bytes.id(), Node::format(&self.layout, level, bytes)))
    }

    /// The leaf that a key belongs to.
    fn leaf_of(&self, root: Root, key: &[u8], mut step: impl FnMut(NodeId, usize)) -> Result<NodeId> {
        let mut id = root.node;
        for level in (1..=root.level).rev() {
            let node = self.read(id, level)?;
            let index = node.child_index(key)?;
            step(id, index);
            id = node.child(index);
        }
        Ok(id)
    }

    /// Splits a full leaf in two, one of which gets the entry, and updates the levels above.
    fn split_leaf(
        &self, root: &mut Root, path: Path, mut leaf: Node<'_, WriteGuard>, index: usize, key: &[u8], value: &[u8],
    ) -> Result<()> {
        let (right_id, mut right) = self.allocate(0)?;
        let middle = if index == leaf.count() && leaf.right().is_none() { index } else { leaf.count() / 2 };
        leaf.split_off(middle, &mut right, right_id);
        if index < middle || (index == middle && right.count() > 0) {
            leaf.insert(index, key, value);
        } else {
            right.insert(index - middle, key, value);
        }
        let separator = right.key(0).to_vec();
        drop((leaf, right));
        self.insert_child(root, path, separator, right_id)
    }

    /// Inserts a new node into the level above its left neighbour's, splitting full nodes.
    fn insert_child(&self, root: &mut Root, mut path: Path, mut separator: Vec<u8>, mut child: NodeId) -> Result<()> {
        let mut level = 0;
        while let Some((id, index)) = path.pop() {
            level += 1;
            let mut node = self.write(id, level)?;
            if !node.is_full() {
                node.insert_child(index + 1, &separator, child);
                return Ok(());
            }
            let (right_id, mut right) = self.allocate(level)?;
            let middle = node.count() / 2;
            node.split_off(middle, &mut right, right_id);
            if index < middle {
                node.insert_child(index + 1, &separator, child);
            } else {
                right.insert_child(index + 1 - middle, &separator, child);
            }
            separator.clear();
            separator.extend_from_slice(right.key(0));
            child = right_id;
        }
        if level + 1 == LEVELS_MAX {
            return Err(Error::Invalid(format!("a tree of more than {LEVELS_MAX} levels")));
        }
        let (id, mut node) = self.allocate(level + 1)?;
        node.insert_child(0, &vec![0; self.layout.key_bytes()], root.node);
        node.insert_child(1, &separator, child);
        *root = Root { node: id, level: level + 1 };
        Ok(())
    }

    /// Fills up a node that fell below half, and the nodes above that fall below half as a result.
    fn rebalance(&self, root: &mut Root, mut path: Path) -> Result<()> {
        let mut level = 0;
        while let Some((id, index)) = path.pop() {
            let mut parent = self.write(id, level + 1)?;
            if parent.count() > 1 {
                let left = index.min(parent.count() - 2);
                self.even_out(&mut parent, level, left)?;
            }
            if parent.count() >= self.layout.capacity(level + 1) / 2 {
                return Ok(());
            }
            level += 1;
        }
        while root.level > 0 {
            let node = self.write(root.node, root.level)?;
            if node.count() > 1 {
                break;
            }
            *root = Root { node: node.child(0), level: root.level - 1 };
            self.pager.free(node.into_bytes());
        }
        Ok(())
    }

    /// Merges the children `index` and `index + 1` if they fit in one node, else gives each half of their entries.
    fn even_out(&self, parent: &mut Node<'_, WriteGuard>, level: usize, index: usize) -> Result<()> {
        let mut left = self.write(parent.child(index), level)?;
        let mut right = self.write(parent.child(index + 1), level)?;
        let (left_count, right_count) = (left.count(), right.count());
        let sum = left_count + right_count;
        if sum <= self.layout.capacity(level) {
            left.insert_from(left_count, &right, 0..right_count);
            left.set_right(right.right());
            parent.remove(index + 1..index + 2);
            drop(left);
            self.pager.free(right.into_bytes());
            return Ok(());
        }
        let half = sum / 2;
        if left_count < half {
            left.insert_from(left_count, &right, 0..half - left_count);
            right.remove(0..half - left_count);
        } else {
            right.insert_from(0, &left, half..left_count);
            left.remove(half..left_count);
        }
        parent.set_key(index + 1, right.key(0));
        Ok(())
    }
}

impl Tree for BPlusTree {
    fn name(&self) -> &'static str {
        "B+-tree"
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.layout.check_key(key)?;
        let root = self.root.read();
        let leaf = self.read(self.leaf_of(*root, key, |_, _| {})?, 0)?;
        Ok(leaf.copy_value(key, value))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.layout.check(key, value)?;
        let mut root = self.root.write();
        let mut path = Path::new();
        let leaf = self.leaf_of(*root, key, |node, child| path.push(node, child))?;
        let mut leaf = self.write(leaf, 0)?;
        match leaf.search(key) {
            Ok(index) => leaf.set_value(index, value),
            Err(index) if leaf.is_full() => self.split_leaf(&mut root, path, leaf, index, key, value)?,
            Err(index) => leaf.insert(index, key, value),
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.layout.check_key(key)?;
        let mut root = self.root.write();
        let mut path = Path::new();
        let leaf = self.leaf_of(*root, key, |node, child| path.push(node, child))?;
        let mut leaf = self.write(leaf, 0)?;
        let Ok(index) = leaf.search(key) else {
            return Ok(());
        };
        leaf.remove(index..index + 1);
        if leaf.count() < self.layout.capacity(0) / 2 && root.level > 0 {
            drop(leaf);
            self.rebalance(&mut root, path)?;
        }
        Ok(())
    }

    fn scan(&self, first: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.layout.check_key(first)?;
        let root = self.root.read();
        let mut leaf = self.read(self.leaf_of(*root, first, |_, _| {})?, 0)?;
        let mut index = leaf.lower_bound(first);
        let mut visited = 0;
        loop {
            let upto = leaf.lower_bound(end);
            visited += leaf.visit(index..upto, visit);
            let right = leaf.right();
            if upto < leaf.count() || right.is_none() {
                return Ok(visited);
            }
            drop(leaf);
            leaf = self.read(right, 0)?;
            index = 0;
        }
    }

    fn write_back(&self) -> Result<()> {
        self.pager.write_back()
    }

    fn memory_bytes(&self) -> u64 {
        self.pager.memory_bytes()
    }
}
