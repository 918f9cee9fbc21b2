//! Trees that are ready to be measured.
//!
//! 1. A [`Plan`] names a tree, its tuning, its number of entries and its memory. [`Stock::take`] hands out the tree
//!    that an earlier figure left, or builds a new one.
//! 2. [`Stock::put_back`] keeps the tree for later figures, unless inserts have made it another tree. Only the last few
//!    trees are kept.
//!
//! Invariant: loaded entries have even indexes, and entries inserted later have odd indexes. A workload therefore
//! always knows which keys are present.

use std::fs;
use std::path::PathBuf;

use crate::reproduce::lab::Lab;
use crate::trees::{Setting, Shape, Sorted, Tree, bftl, blink, bplus, fdtree, pio};
use crate::{Error, Result, keys, values};

/// Trees that are kept: enough for all trees that a figure with several kinds of work compares, so that none is fresher
/// than the others.
const KEPT: usize = 3;
/// Fill factor of the nodes of every loaded tree: the same as that of Braid's loader.
const FILL: f64 = 15.0 / 16.0;
/// A tree that grew by more than one entry in so many no longer matches its plan.
const GROWTH: u64 = 10;

/// A tree with its tuning parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Contestant {
    /// The plain B+-tree.
    BPlus {
        /// Bytes of a node.
        node_bytes: usize,
    },
    /// The B-link tree.
    BLink {
        /// Bytes of a node.
        node_bytes: usize,
    },
    /// BFTL.
    Bftl(bftl::Tuning),
    /// The FD-tree.
    Fd(fdtree::Tuning),
    /// Braid.
    Pio(pio::Tuning),
}

impl Contestant {
    /// The tree's name in figures.
    #[must_use]
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BPlus { .. } => "B+-tree",
            Self::BLink { .. } => "B-link tree",
            Self::Bftl(_) => "BFTL",
            Self::Fd(_) => "FD-tree",
            Self::Pio(_) => "PIO B-tree",
        }
    }

    /// The tuning parameters, for the notes of a figure.
    #[must_use]
    pub(super) fn tuning(self) -> String {
        match self {
            Self::BPlus { node_bytes } | Self::BLink { node_bytes } => format!("nodes of {} KiB", node_bytes >> 10),
            Self::Bftl(tuning) => format!("up to {} for each node", pages(tuning.list_pages as u64)),
            Self::Fd(fdtree::Tuning { size_ratio, head_bytes }) => {
                format!("levels {size_ratio} times as large, a head of {} KiB", head_bytes >> 10)
            }
            Self::Pio(pio::Tuning { leaf_pages, queue_bytes }) => {
                format!("leaves of {}, an OPQ of {} KiB", pages(leaf_pages.into()), queue_bytes >> 10)
            }
        }
    }

    fn build(self, setting: &Setting, entries: &mut Sorted<'_>) -> Result<Box<dyn Tree>> {
        Ok(match self {
            Self::BPlus { node_bytes } => Box::new(bplus::BPlusTree::build(setting, entries, node_bytes, FILL)?),
            Self::BLink { node_bytes } => Box::new(blink::BLinkTree::build(setting, entries, node_bytes, FILL)?),
            Self::Bftl(tuning) => Box::new(bftl::Bftl::build(setting, entries, tuning, FILL)?),
            Self::Fd(tuning) => Box::new(fdtree::FdTree::build(setting, entries, tuning)?),
            Self::Pio(tuning) => Box::new(pio::Pio::build(setting, entries, tuning)?),
        })
    }
}

/// The initial contents of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// So many entries with even indexes.
    Even(u64),
    /// The indexes of a freshly populated TPC-C database with so many warehouses.
    Tpcc(u64),
}

/// A tree to be built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    /// The tree and its tuning.
    pub(super) contestant: Contestant,
    /// The sizes of an entry's key and value.
    pub(super) shape: Shape,
    /// The initial contents.
    pub(super) load: Load,
    /// The memory budget.
    pub(super) memory_bytes: u64,
}

/// A tree that is ready to be measured.
pub(super) struct Prepared {
    /// The plan that the tree was built from.
    pub(super) plan: Plan,
    /// The tree.
    pub(super) tree: Box<dyn Tree>,
    /// Entries that workloads inserted.
    pub(super) inserted: u64,
    directory: PathBuf,
}

impl Prepared {
    /// Removes the tree's files.
    fn discard(self) -> Result<()> {
        drop(self.tree);
        fs::remove_dir_all(&self.directory).map_err(Error::io("removing", self.directory))
    }

    fn is_as_planned(&self) -> bool {
        match self.plan.load {
            Load::Even(entries) => self.inserted <= entries / GROWTH,
            Load::Tpcc(_) => self.inserted == 0,
        }
    }
}

/// Trees left by earlier figures, the most recently used at the end.
#[derive(Default)]
pub(super) struct Stock {
    kept: Vec<Prepared>,
}

impl Stock {
    /// The tree of a plan.
    ///
    /// # Errors
    /// When the tree cannot be built; [`Error::Interrupted`].
    pub(super) fn take(&mut self, lab: &mut Lab<'_>, plan: &Plan) -> Result<Prepared> {
        if let Some(place) = self.kept.iter().position(|prepared| prepared.plan == *plan) {
            return Ok(self.kept.remove(place));
        }
        lab.go_on()?;
        lab.phase(&format!("building the {}", plan.contestant.name()));
        let directory = lab.room()?;
        let setting = Setting {
            psync: lab.psync().clone(),
            directory: directory.clone(),
            shape: plan.shape,
            memory_bytes: plan.memory_bytes,
        };
        let mut indexes: Box<dyn Iterator<Item = u64>> = match plan.load {
            Load::Even(entries) => Box::new((0..entries).map(|position| position * 2)),
            Load::Tpcc(warehouses) => Box::new(crate::tpcc::Trace::load(warehouses)),
        };
        let shape = plan.shape;
        let mut entries = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            let Some(index) = indexes.next().filter(|_| !lab.is_stopped()) else { return false };
            entry(shape, index, key, value);
            true
        };
        let tree = plan.contestant.build(&setting, &mut entries)?;
        lab.go_on()?;
        Ok(Prepared { plan: *plan, tree, inserted: 0, directory })
    }

    /// Removes all kept trees.
    ///
    /// # Errors
    /// When files cannot be removed.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.kept.drain(..).try_for_each(Prepared::discard)
    }

    /// Keeps a tree for later figures.
    ///
    /// # Errors
    /// When the files of a tree that is not kept cannot be removed.
    pub(super) fn put_back(&mut self, prepared: Prepared) -> Result<()> {
        if !prepared.is_as_planned() {
            return prepared.discard();
        }
        self.kept.push(prepared);
        if self.kept.len() > KEPT { self.kept.remove(0).discard() } else { Ok(()) }
    }
}

/// A count of pages with its noun: `1 page`, `4 pages`.
pub(super) fn pages(count: u64) -> String {
    format!("{count} page{}", if count == 1 { "" } else { "s" })
}

/// The key and the value of an index.
pub(super) fn entry(shape: Shape, index: u64, key: &mut Vec<u8>, value: &mut Vec<u8>) {
    key.resize(shape.key_bytes, 0);
    keys::write(index, key);
    value.resize(shape.value_bytes, 0);
    values::write(index, 0, value);
}
