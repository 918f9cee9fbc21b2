//! A concurrent B-link tree (Lehman and Yao, "Efficient locking for concurrent operations on B-trees", ACM TODS 6(4),
//! 1981).
//!
//! 1. Every node has a high key and a link to its right neighbour. A split may follow the read of the parent; then a
//!    thread reaches a node whose high key is not above the wanted key. The thread goes right until the high key is
//!    above.
//! 2. A search latches one node at a time, shared, and releases each latch before the next.
//! 3. An insert descends like a search and remembers its nodes. The insert latches the leaf exclusively. A split makes
//!    the new node reachable by the link at once, and then inserts the node into the level above, from the remembered
//!    node on to the right. The nodes are latched one at a time from the leaf up. (Sagiv 1986 has shown that the
//!    paper's hold on the lower node meanwhile is not needed.)
//! 4. The root is an atomic word. A thread that splits the root makes a new one. If another thread was first, the level
//!    above is looked up from the new root.
//! 5. A delete only takes the entry out of its leaf, as in the paper: nodes are never merged.
//!
//! Invariants:
//! - No thread waits for a latch or for the device while holding a latch that others may wait for. A split therefore
//!   allocates the new node before the latch under which the node is needed.
//! - The first key and the place of a node never change, so an old pointer still leads to the right place.
//!
//! After a put or delete that failed for the device, the tree is no longer usable.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::bulk::{self, Root};
use super::node::{LEVELS_MAX, Layout, Node};
use super::pager::{NodeId, Pager, PagerCounters, ReadGuard, WriteGuard};
use super::{Setting, Sorted, Tree};
use crate::{Error, Result};

/// Bits of the root's word below its level.
const NODE_BITS: u32 = 56;

/// A B-link tree on disk. Any number of threads may read and write at a time.
pub struct BLinkTree {
    pager: Pager,
    layout: Layout,
    /// The root's level and node.
    root: AtomicU64,
    /// Held by the thread that makes a new root.
    growth: Mutex<()>,
}

/// The nodes of a descent, by level.
type Path = [NodeId; LEVELS_MAX];

/// The entry to insert into a node.
#[derive(Clone, Copy)]
enum Entry<'v> {
    Value(&'v [u8]),
    Child(NodeId),
}

/// The effect of an insert on its level.
enum Inserted {
    Done,
    /// The node was split: the key and place of the new one, for the level above.
    Split(Vec<u8>, NodeId),
}

impl BLinkTree {
    /// Builds a tree of nodes of `node_bytes`, filled to the part `fill` ([`bulk::FILL_DEFAULT`]), with the setting's
    /// memory as its pool.
    ///
    /// # Errors
    /// When the entries are out of order or of another shape, do not fit the nodes, or the device fails.
    pub fn build(setting: &Setting, sorted: &mut Sorted<'_>, node_bytes: usize, fill: f64) -> Result<Self> {
        let layout = Layout::new(setting.shape, node_bytes, true)?;
        let pager = Pager::create(setting, "blink", node_bytes, setting.memory_bytes)?;
        let root = bulk::build(&pager, &layout, sorted, fill)?;
        Ok(Self { pager, layout, root: AtomicU64::new(root_word(root)), growth: Mutex::new(()) })
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

    fn root(&self) -> Root {
        let word = self.root.load(Ordering::Acquire);
        Root { node: NodeId(word & ((1 << NODE_BITS) - 1)), level: (word >> NODE_BITS) as usize }
    }

    /// The node of a level that has room for a key, latched for reading.
    fn read(&self, mut id: NodeId, level: usize, key: &[u8]) -> Result<Node<'_, ReadGuard>> {
        loop {
            let node = Node::open(&self.layout, id, level, self.pager.read(id)?)?;
            match node.beyond(key) {
                None => return Ok(node),
                Some(right) => id = right,
            }
        }
    }

    /// As `read`, latched exclusively.
    fn write(&self, mut id: NodeId, level: usize, key: &[u8]) -> Result<Node<'_, WriteGuard>> {
        loop {
            let node = Node::open(&self.layout, id, level, self.pager.write(id)?)?;
            match node.beyond(key) {
                None => return Ok(node),
                Some(right) => id = right,
            }
        }
    }

    /// A node of `level`, at or to the left of the node that a key belongs to.
    fn descend(&self, key: &[u8], level: usize, mut step: impl FnMut(usize, NodeId)) -> Result<NodeId> {
        let root = self.root();
        let mut id = root.node;
        for above in (level + 1..=root.level).rev() {
            let node = self.read(id, above, key)?;
            step(above, node.bytes().id());
            id = node.child(node.child_index(key)?);
        }
        Ok(id)
    }

    /// Inserts an entry into its node of the level: `from`, or a node to the right of `from`.
    fn insert(&self, level: usize, from: NodeId, key: &[u8], entry: Entry<'_>) -> Result<Inserted> {
        let mut spare = None;
        loop {
            let mut node = self.write(from, level, key)?;
            let index = match (node.search(key), entry) {
                (Ok(index), Entry::Value(value)) => {
                    node.set_value(index, value);
                    break;
                }
                (Err(index), _) => index,
                (Ok(_), Entry::Child(child)) => {
                    return Err(Error::Invalid(format!(
                        "node {} was put into its parent twice: it is damaged",
                        child.0
                    )));
                }
            };
            if !node.is_full() {
                put_at(&mut node, index, key, entry);
                break;
            }
            let Some(bytes) = spare.take() else {
                // The allocation of a node may take I/O, so the latch is released first.
                drop(node);
                spare = Some(self.pager.allocate()?);
                continue;
            };
            return Ok(self.split(node, level, bytes, index, key, entry));
        }
        if let Some(bytes) = spare {
            self.pager.free(bytes);
        }
        Ok(Inserted::Done)
    }

    /// Splits a full node in two, one of which gets the entry.
    fn split(
        &self, mut node: Node<'_, WriteGuard>, level: usize, bytes: WriteGuard, index: usize, key: &[u8],
        entry: Entry<'_>,
    ) -> Inserted {
        let right_id = bytes.id();
        let mut right = Node::format(&self.layout, level, bytes);
        let at_end = index == node.count() && node.right().is_none();
        let middle = if level == 0 && at_end { index } else { node.count() / 2 };
        node.split_off(middle, &mut right, right_id);
        if index < middle || (index == middle && right.count() > 0) {
            put_at(&mut node, index, key, entry);
        } else {
            put_at(&mut right, index - middle, key, entry);
        }
        let separator = right.key(0).to_vec();
        node.set_high_key(&separator);
        Inserted::Split(separator, right_id)
    }

    /// Inserts new nodes into the levels above, as far up as there are splits.
    fn tell_parents(&self, path: &Path, mut separator: Vec<u8>, mut child: NodeId) -> Result<()> {
        for (level, remembered) in path.iter().enumerate().skip(1) {
            let from = match *remembered {
                NodeId::NONE => match self.grow(level, &separator, child)? {
                    None => return Ok(()),
                    Some(from) => from,
                },
                remembered => remembered,
            };
            match self.insert(level, from, &separator, Entry::Child(child))? {
                Inserted::Done => return Ok(()),
                Inserted::Split(key, node) => (separator, child) = (key, node),
            }
        }
        Err(Error::Invalid(format!("a tree of more than {LEVELS_MAX} levels")))
    }

    /// Makes a root of that level above the present one. If the level exists by now, returns the node in which to
    /// insert the child.
    fn grow(&self, level: usize, separator: &[u8], child: NodeId) -> Result<Option<NodeId>> {
        if self.root().level >= level {
            return self.descend(separator, level, |_, _| {}).map(Some);
        }
        let bytes = self.pager.allocate()?;
        let growth = self.growth.lock();
        let root = self.root();
        if root.level >= level {
            drop(growth);
            self.pager.free(bytes);
            return self.descend(separator, level, |_, _| {}).map(Some);
        }
        let id = bytes.id();
        let mut node = Node::format(&self.layout, level, bytes);
        node.insert_child(0, &vec![0; self.layout.key_bytes()], root.node);
        node.insert_child(1, separator, child);
        drop(node);
        self.root.store(root_word(Root { node: id, level }), Ordering::Release);
        Ok(None)
    }
}

fn root_word(root: Root) -> u64 {
    (root.level as u64) << NODE_BITS | root.node.0
}

fn put_at(node: &mut Node<'_, WriteGuard>, index: usize, key: &[u8], entry: Entry<'_>) {
    match entry {
        Entry::Value(value) => node.insert(index, key, value),
        Entry::Child(child) => node.insert_child(index, key, child),
    }
}

impl Tree for BLinkTree {
    fn name(&self) -> &'static str {
        "B-link tree"
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.layout.check_key(key)?;
        let leaf = self.read(self.descend(key, 0, |_, _| {})?, 0, key)?;
        Ok(leaf.copy_value(key, value))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.layout.check(key, value)?;
        let mut path: Path = [NodeId::NONE; LEVELS_MAX];
        let leaf = self.descend(key, 0, |level, node| path[level] = node)?;
        match self.insert(0, leaf, key, Entry::Value(value))? {
            Inserted::Done => Ok(()),
            Inserted::Split(separator, node) => self.tell_parents(&path, separator, node),
        }
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.layout.check_key(key)?;
        let mut leaf = self.write(self.descend(key, 0, |_, _| {})?, 0, key)?;
        if let Ok(index) = leaf.search(key) {
            leaf.remove(index..index + 1);
        }
        Ok(())
    }

    fn scan(&self, first: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.layout.check_key(first)?;
        let mut leaf = self.read(self.descend(first, 0, |_, _| {})?, 0, first)?;
        let mut index = leaf.lower_bound(first);
        let mut visited = 0;
        loop {
            visited += leaf.visit(index..leaf.lower_bound(end), visit);
            let right = leaf.right();
            if right.is_none() || leaf.high_key() >= end {
                return Ok(visited);
            }
            drop(leaf);
            leaf = Node::open(&self.layout, right, 0, self.pager.read(right)?)?;
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
