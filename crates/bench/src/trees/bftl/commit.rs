//! The commit policy: how the records of the reservation buffer become index units in pages.
//!
//! 1. Records are taken leaf by leaf in key order. For each leaf the commit descends the tree and assembles the leaf
//!    from its units.
//! 2. The changes of a node become a group of units. In three cases the group is the whole node instead, and the node's
//!    list begins anew (compaction): the list is full; the node splits, into equal parts; the changes would be no
//!    smaller than the node.
//! 3. Changes of the nodes of a level change the level above: a new node adds an entry there, an empty node removes its
//!    entry. Levels follow one another up to the root.
//! 4. Groups are packed into pages, the largest first, each into the first page that has room. The pages are written in
//!    one batch: at the end, and whenever there is enough for a large one.
//!
//! Invariants: every node is changed at most once in a commit, and is never read for a lower level after its change.
//! The first key of an inner node is lowered to the beginning of the node's range before anything else changes in the
//! node.

use psync::Buffer;

use super::logical::{Changes, Logical};
use super::page::{Format, Formats, HEADER_BYTES, Node, PAGE_BYTES, write_page};
use super::state::State;
use crate::Result;
use crate::trees::pager::{NodeId, Pager, ReadGuard};
use crate::trees::pending::Operation;

/// Pages of groups that are gathered before they are written.
const GATHERED_PAGES: usize = 64;

/// The next group of units of a node.
struct Staged {
    node: Node,
    /// Whether the group is the whole node: the node's list begins anew.
    is_whole: bool,
    group: Vec<u8>,
}

/// An inner node on the way down.
struct Step {
    content: Logical,
    /// The beginning of the node's key range.
    low: Vec<u8>,
    /// The end of the node's key range: the beginning of the next node's range.
    high: Option<Vec<u8>>,
}

/// A node to be changed.
struct Target {
    node: Node,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// A commit under way.
pub(super) struct Commit<'a> {
    pager: &'a Pager,
    pub(super) formats: Formats,
    pub(super) state: &'a mut State,
    path: Vec<Step>,
    /// The node under change.
    content: Logical,
    pages: Vec<NodeId>,
    guards: Vec<ReadGuard>,
    staged: Vec<Staged>,
    staged_bytes: usize,
}

impl<'a> Commit<'a> {
    pub(super) const fn new(pager: &'a Pager, formats: Formats, state: &'a mut State) -> Self {
        Self {
            pager,
            formats,
            state,
            path: Vec::new(),
            content: Logical::new(formats.leaf),
            pages: Vec::new(),
            guards: Vec::new(),
            staged: Vec::new(),
            staged_bytes: 0,
        }
    }

    /// Commits all records of the reservation buffer, and empties the buffer.
    pub(super) fn run(mut self) -> Result<()> {
        let mut changes = Changes::new(self.formats.leaf);
        let mut records = self.state.reservation.snapshot(&vec![0; self.formats.leaf.key_bytes], None);
        while let Some((key, operation)) = records.current() {
            match operation {
                Operation::Put(value) => changes.push(key, Some(value)),
                Operation::Delete => changes.push(key, None),
            }
            records.advance();
        }
        for level in 0..=self.state.height {
            if level > self.state.height {
                break;
            }
            changes = self.change_level(level, &changes)?;
        }
        if changes.len() > 0 {
            self.grow_root(&changes)?;
        }
        self.write()?;
        self.state.reservation.clear();
        Ok(())
    }

    /// Makes the changes of a level; returns the resulting changes of the level above.
    fn change_level(&mut self, level: usize, changes: &Changes) -> Result<Changes> {
        let mut above = Changes::new(self.formats.inner);
        self.path.clear();
        let mut first = 0;
        while first < changes.len() {
            let target = self.find(level, changes.get(first).0)?;
            let is_here =
                |change: &usize| target.high.as_ref().is_none_or(|high| changes.get(*change).0 < high.as_slice());
            let end = (first..changes.len()).find(|change| !is_here(change)).unwrap_or(changes.len());
            self.change_node(level, &target, changes, first..end, &mut above)?;
            first = end;
        }
        Ok(above)
    }

    /// The node of a level that has a key. Keys are asked for in order, so the part of the path that covers the key
    /// stays.
    fn find(&mut self, level: usize, key: &[u8]) -> Result<Target> {
        while self.path.last().is_some_and(|step| step.high.as_ref().is_some_and(|high| high.as_slice() <= key)) {
            self.path.pop();
        }
        loop {
            let target = match self.path.last() {
                None => Target { node: self.state.root, low: vec![0; key.len()], high: None },
                Some(step) => step.target(key),
            };
            if self.path.len() == self.state.height - level {
                return Ok(target);
            }
            let mut content = Logical::new(self.formats.inner);
            self.read(self.formats.inner, target.node, &mut content)?;
            self.path.push(Step { content, low: target.low, high: target.high });
        }
    }

    fn read(&mut self, format: Format, node: Node, into: &mut Logical) -> Result<()> {
        self.pages.clear();
        self.pages.extend(self.state.table.pages(node));
        self.pager.read_many(&self.pages, &mut self.guards)?;
        into.load(format, node, &self.guards)
    }

    fn change_node(
        &mut self, level: usize, target: &Target, changes: &Changes, range: std::ops::Range<usize>, above: &mut Changes,
    ) -> Result<()> {
        let format = if level == 0 { self.formats.leaf } else { self.formats.inner };
        let mut content = std::mem::replace(&mut self.content, Logical::new(format));
        self.read(format, target.node, &mut content)?;
        let is_rekeyed = level > 0 && content.lower_first_key(&target.low);
        // A delete of a missing key changes nothing.
        let made: Vec<usize> = range
            .filter(|change| {
                let (key, payload) = changes.get(*change);
                payload.is_some() || content.contains(key)
            })
            .collect();
        content.apply(made.iter().map(|change| changes.get(*change)));
        if is_rekeyed || !made.is_empty() {
            let units = made.iter().map(|change| changes.get(*change));
            self.write_node(level, target, &content, (!is_rekeyed).then_some(units), above)?;
        }
        self.content = content;
        Ok(())
    }

    /// Stages a node that has changed to `content`: by the units of its changes, if they are given and smaller, or as a
    /// whole.
    fn write_node<'c>(
        &mut self, level: usize, target: &Target, content: &Logical,
        units: Option<impl ExactSizeIterator<Item = (&'c [u8], Option<&'c [u8]>)>>, above: &mut Changes,
    ) -> Result<()> {
        let format = if level == 0 { self.formats.leaf } else { self.formats.inner };
        let (node, count) = (target.node, content.len());
        let is_root = node == self.state.root;
        if count == 0 {
            self.drop_empty(target, is_root, above);
            return Ok(());
        }
        if is_root && level > 0 && count == 1 {
            // A root with one child gives way to the child.
            self.state.root = content.child(0);
            self.state.height -= 1;
            self.state.table.free(node);
            return Ok(());
        }
        if count > format.capacity() {
            return self.split(format, target, content, above);
        }
        let has_place = !self.state.table.is_full(node) && self.state.table.pages(node).len() > 0;
        match units {
            Some(units) if has_place && units.len() < count => self.stage(format, node, false, units),
            _ => self.stage(format, node, true, content.units(0..count)),
        }
    }

    fn drop_empty(&mut self, target: &Target, is_root: bool, above: &mut Changes) {
        if is_root {
            // An inner root without children is an empty leaf.
            self.state.height = 0;
            self.state.table.clear(target.node);
        } else {
            above.push(&target.low, None);
            self.state.table.free(target.node);
        }
    }

    /// Splits a node into nodes of one size; the first keeps its id.
    fn split(&mut self, format: Format, target: &Target, content: &Logical, above: &mut Changes) -> Result<()> {
        let count = content.len();
        // At most three quarters full, so that the next entries do not split them again.
        let nodes = count.div_ceil(format.capacity() * 3 / 4).max(2);
        for part in 0..nodes {
            let entries = part * count / nodes..(part + 1) * count / nodes;
            let node = if part == 0 { target.node } else { self.state.table.allocate()? };
            if part > 0 {
                above.push(content.key(entries.start), Some(&node.0.to_le_bytes()));
            }
            self.stage(format, node, true, content.units(entries))?;
        }
        Ok(())
    }

    /// Puts a new root above the old one and the nodes that were split off.
    fn grow_root(&mut self, nodes: &Changes) -> Result<()> {
        let root = self.state.table.allocate()?;
        let first = (vec![0; self.formats.inner.key_bytes], self.state.root.0.to_le_bytes());
        let first = std::iter::once((first.0.as_slice(), Some(first.1.as_slice())));
        self.stage(self.formats.inner, root, true, first.chain((0..nodes.len()).map(|node| nodes.get(node))))?;
        self.state.root = root;
        self.state.height += 1;
        Ok(())
    }

    pub(super) fn stage<'c>(
        &mut self, format: Format, node: Node, is_whole: bool,
        units: impl Iterator<Item = (&'c [u8], Option<&'c [u8]>)>,
    ) -> Result<()> {
        let group = format.encode(node, units);
        self.staged_bytes += group.len();
        self.staged.push(Staged { node, is_whole, group });
        if self.staged_bytes >= GATHERED_PAGES * PAGE_BYTES { self.write() } else { Ok(()) }
    }

    /// Packs the staged groups into pages and writes them.
    pub(super) fn write(&mut self) -> Result<()> {
        let mut staged = std::mem::take(&mut self.staged);
        self.staged_bytes = 0;
        staged.sort_by_key(|staged| std::cmp::Reverse(staged.group.len()));
        let bins = pack(&staged);
        // Lists release old pages only after the new ones are allocated, so no page that this commit still reads is
        // overwritten.
        let pages = self.state.table.allocate_pages(self.pager, bins.len())?;
        let mut writes: Vec<(NodeId, Vec<&Vec<usize>>)> = Vec::new();
        for (page, bin) in pages.iter().zip(&bins) {
            match writes.last_mut() {
                Some((first, bins)) if first.0 + bins.len() as u64 == page.0 => bins.push(bin),
                _ => writes.push((*page, vec![bin])),
            }
        }
        let extents = writes.into_iter().map(|(first, bins)| {
            let mut buffer = Buffer::zeroed(bins.len() * PAGE_BYTES);
            for (page, bin) in buffer.chunks_exact_mut(PAGE_BYTES).zip(bins) {
                write_page(page, bin.iter().map(|index| staged[*index].group.as_slice()));
            }
            (first, buffer)
        });
        self.pager.write_past(extents)?;
        for (page, bin) in pages.iter().zip(&bins) {
            for index in bin {
                if staged[*index].is_whole {
                    self.state.table.clear(staged[*index].node);
                }
                self.state.table.append(staged[*index].node, *page)?;
            }
        }
        Ok(())
    }
}

impl Step {
    fn target(&self, key: &[u8]) -> Target {
        let entry = self.content.entry_of(key);
        let low = if entry == 0 { self.low.clone() } else { self.content.key(entry).to_vec() };
        let high =
            if entry + 1 < self.content.len() { Some(self.content.key(entry + 1).to_vec()) } else { self.high.clone() };
        Target { node: self.content.child(entry), low, high }
    }
}

/// Assigns groups to pages: each to the first page that has room. Groups are sorted, the largest first.
fn pack(staged: &[Staged]) -> Vec<Vec<usize>> {
    let mut bins: Vec<(usize, Vec<usize>)> = Vec::new();
    // Pages before this one have no room for any remaining group.
    let smallest = staged.last().map_or(0, |staged| staged.group.len());
    let mut first_open = 0;
    for (index, group) in staged.iter().enumerate() {
        let bytes = group.group.len();
        while bins.get(first_open).is_some_and(|(room, _)| *room < smallest) {
            first_open += 1;
        }
        match bins[first_open..].iter_mut().find(|(room, _)| *room >= bytes) {
            Some((room, bin)) => {
                *room -= bytes;
                bin.push(index);
            }
            None => bins.push((PAGE_BYTES - HEADER_BYTES - bytes, vec![index])),
        }
    }
    bins.into_iter().map(|(_, bin)| bin).collect()
}
