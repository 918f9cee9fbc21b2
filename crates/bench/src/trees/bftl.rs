//! BFTL of Wu, Kuo and Chang, "An efficient B-tree layer implementation for flash-memory storage systems" (ACM TECS
//! 6(3), 2007).
//!
//! 1. Inserts and deletes are records in a *reservation buffer* of a few pages.
//! 2. The records of a full buffer become *index units*; a unit is one change of one node of a B-tree. Units of many
//!    nodes are packed into few pages (`commit`), which are written to pages on no list.
//! 3. The *node translation table* in memory lists for each node the pages of its units. A read of a node reads all
//!    these pages and assembles the node from its units. A node whose list would grow beyond C pages is compacted:
//!    written as a whole.
//! 4. A page that is on no list is free, so the file is at most C pages for each node.
//!
//! The table is in memory by design, whatever the budget is: [`Tree::memory_bytes`] shows when the table exceeds the
//! budget. The rest of the budget, beside the table and the reservation buffer, is a buffer pool. With the paper's
//! small budgets nothing is left but the four pages that the pool needs to work.
//!
//! Deviations from the paper, in its favour unless said otherwise:
//! - Units are packed into pages of 4 KiB, not sectors of 512 bytes. Units of one node that are packed together name
//!   their node once.
//! - The pages of a list are read in one psync batch, the pages of a commit are written in one.
//! - A commit takes its records in key order, so that the records of one leaf, or below one inner node, read that node
//!   once.
//! - A split of a node also compacts the node. Nodes are freed when they are empty; they are not merged before.
//! - A put replaces the value of an existing key.
//!
//! The paper's layer knows one thread. Here any number of threads may read at a time; a commit, which is part of a put,
//! excludes readers.

mod commit;
mod load;
mod logical;
mod page;
mod state;
mod table;
mod tuning;

use parking_lot::RwLock;

use self::commit::Commit;
use self::logical::{Logical, child};
use self::page::{Format, Formats, Group, Node};
use self::state::State;
use self::table::Table;
use crate::trees::pager::{NodeId, Pager, ReadGuard};
use crate::trees::pending::{Operation, Pending, Snapshot};
use crate::trees::{Setting, Shape, Sorted, Tree, bulk};
use crate::{Error, Result};

pub use self::tuning::{Tuning, tune};

/// A B-tree on BFTL.
pub struct Bftl {
    shape: Shape,
    formats: Formats,
    tuning: Tuning,
    pager: Pager,
    state: RwLock<State>,
}

impl Bftl {
    /// Builds a tree of nodes filled to the part `fill`, in a new file of the setting's directory.
    ///
    /// # Errors
    /// When a page has no room for a few entries, or the device fails.
    pub fn build(setting: &Setting, sorted: &mut Sorted<'_>, tuning: Tuning, fill: f64) -> Result<Self> {
        let formats = Formats::new(setting.shape)?;
        bulk::check_fill(fill)?;
        if tuning.list_pages == 0 {
            return Err(Error::Invalid("a node needs a page for its units: C is at least 1".to_owned()));
        }
        let pool_bytes = setting.memory_bytes.saturating_sub(tuning.reservation_bytes + tuning.table_bytes);
        let pager = Pager::create(setting, "bftl", page::PAGE_BYTES, pool_bytes)?;
        let table = Table::new(tuning.list_pages);
        let reservation = Pending::new(setting.shape);
        let mut state = State { table, root: Node(0), height: 0, reservation, has_failed: false };
        Commit::new(&pager, formats, &mut state).load(setting.shape, sorted, fill)?;
        Ok(Self { shape: setting.shape, formats, tuning, pager, state: RwLock::new(state) })
    }

    /// The file's pool and counters.
    #[must_use]
    pub fn pager(&self) -> &Pager {
        &self.pager
    }

    fn write(&self, key: &[u8], operation: Operation<'_>) -> Result<()> {
        let mut state = self.state.write();
        state.check()?;
        state.reservation.set(key, operation);
        if state.reservation.memory_bytes() > self.tuning.reservation_bytes {
            self.commit(&mut state)?;
        }
        Ok(())
    }

    fn commit(&self, state: &mut State) -> Result<()> {
        let committed = Commit::new(&self.pager, self.formats, state).run();
        state.has_failed = committed.is_err();
        committed
    }
}

/// Reads nodes, with memory that is reused from node to node.
struct Reader<'a> {
    pager: &'a Pager,
    state: &'a State,
    formats: Formats,
    pages: Vec<NodeId>,
    guards: Vec<ReadGuard>,
}

impl<'a> Reader<'a> {
    fn new(tree: &'a Bftl, state: &'a State) -> Self {
        Self { pager: &tree.pager, state, formats: tree.formats, pages: Vec::new(), guards: Vec::new() }
    }

    /// Reads the pages of a node, oldest first, in one batch.
    fn read(&mut self, node: Node) -> Result<()> {
        self.pages.clear();
        self.pages.extend(self.state.table.pages(node));
        self.pager.read_many(&self.pages, &mut self.guards)
    }

    fn load(&mut self, format: Format, node: Node, into: &mut Logical) -> Result<()> {
        self.read(node)?;
        into.load(format, node, &self.guards)
    }

    /// The units of a node that has been read, newest first.
    fn groups(&self, format: Format, node: Node) -> impl Iterator<Item = Result<Group<'_>>> {
        self.guards.iter().rev().map(move |page| format.group(page, node))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut node = self.state.root;
        for _ in 0..self.state.height {
            self.read(node)?;
            node = self.child_of(node, key)?;
        }
        self.read(node)?;
        for group in self.groups(self.formats.leaf, node) {
            if let Some(found) = group?.find(key) {
                value.extend_from_slice(found.unwrap_or_default());
                return Ok(found.is_some());
            }
        }
        Ok(false)
    }

    /// The child that has a key: the child of the last entry at or before the key. The node is not assembled.
    fn child_of(&self, node: Node, key: &[u8]) -> Result<Node> {
        let (mut bound, mut is_below) = (key, false);
        loop {
            let mut last: Option<(&[u8], Option<&[u8]>)> = None;
            for group in self.groups(self.formats.inner, node) {
                let group = group?;
                if let Some(unit) = group.last(bound, is_below)
                    && last.is_none_or(|(key, _)| group.key(unit) > key)
                {
                    last = Some((group.key(unit), group.payload(unit)));
                }
            }
            match last {
                Some((_, Some(payload))) => return Ok(child(payload)),
                // This entry was deleted, so the entry before it counts.
                Some((key, None)) => (bound, is_below) = (key, true),
                // All entries are above the key, so the key belongs to the first child.
                None => {
                    let mut content = Logical::new(self.formats.inner);
                    content.load(self.formats.inner, node, &self.guards)?;
                    let is_empty = || Error::Invalid(format!("node {} of BFTL has no children", node.0));
                    return (content.len() > 0).then(|| content.child(0)).ok_or_else(is_empty);
                }
            }
        }
    }
}

/// A range search: leaf by leaf, merged with the reservation buffer.
struct Scan<'a> {
    reader: Reader<'a>,
    records: Snapshot,
    first: &'a [u8],
    end: &'a [u8],
    visit: &'a mut dyn FnMut(&[u8], &[u8]),
    count: u64,
    leaf: Logical,
}

impl Scan<'_> {
    fn run(mut self) -> Result<u64> {
        let (root, height) = (self.reader.state.root, self.reader.state.height);
        self.node(root, height)?;
        while self.records.current().is_some_and(|(key, _)| key < self.end) {
            self.record();
        }
        Ok(self.count)
    }

    fn node(&mut self, node: Node, level: usize) -> Result<()> {
        if level == 0 {
            return self.leaf(node);
        }
        let mut content = Logical::new(self.reader.formats.inner);
        self.reader.load(self.reader.formats.inner, node, &mut content)?;
        let from = content.entry_of(self.first);
        for entry in from..content.len() {
            if entry > from && content.key(entry) >= self.end {
                break;
            }
            self.node(content.child(entry), level - 1)?;
        }
        Ok(())
    }

    fn leaf(&mut self, node: Node) -> Result<()> {
        let mut leaf = std::mem::replace(&mut self.leaf, Logical::new(self.reader.formats.leaf));
        self.reader.load(self.reader.formats.leaf, node, &mut leaf)?;
        for entry in leaf.lower_bound(self.first)..leaf.lower_bound(self.end) {
            let key = leaf.key(entry);
            while self.records.current().is_some_and(|(record, _)| record < key) {
                self.record();
            }
            if self.records.current().is_some_and(|(record, _)| record == key) {
                self.record();
            } else {
                (self.visit)(key, leaf.payload(entry));
                self.count += 1;
            }
        }
        self.leaf = leaf;
        Ok(())
    }

    /// Visits the next record of the reservation buffer, if the record is a put.
    fn record(&mut self) {
        if let Some((key, Operation::Put(value))) = self.records.current() {
            (self.visit)(key, value);
            self.count += 1;
        }
        self.records.advance();
    }
}

impl Tree for Bftl {
    fn name(&self) -> &'static str {
        "BFTL"
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.shape.check_key(key)?;
        value.clear();
        let state = self.state.read();
        state.check()?;
        match state.reservation.find(key) {
            Some(Operation::Put(bytes)) => {
                value.extend_from_slice(bytes);
                Ok(true)
            }
            Some(Operation::Delete) => Ok(false),
            None => Reader::new(self, &state).get(key, value),
        }
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.shape.check(key, value)?;
        self.write(key, Operation::Put(value))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.shape.check_key(key)?;
        self.write(key, Operation::Delete)
    }

    fn scan(&self, first: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        self.shape.check_key(first)?;
        self.shape.check_key(end)?;
        if first >= end {
            return Ok(0);
        }
        let state = self.state.read();
        state.check()?;
        let records = state.reservation.snapshot(first, Some(end));
        let leaf = Logical::new(self.formats.leaf);
        Scan { reader: Reader::new(self, &state), records, first, end, visit, count: 0, leaf }.run()
    }

    fn write_back(&self) -> Result<()> {
        let mut state = self.state.write();
        state.check()?;
        if state.reservation.is_empty() { Ok(()) } else { self.commit(&mut state) }
    }

    fn memory_bytes(&self) -> u64 {
        let state = self.state.read();
        state.table.memory_bytes() + state.reservation.memory_bytes() + self.pager.memory_bytes()
    }
}
