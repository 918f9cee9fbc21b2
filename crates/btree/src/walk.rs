//! Walks over internal nodes alone: the shape of a tree, its pages, and its leaves that are due or lie far back in the
//! file.

use std::ops::ControlFlow;

use index::{Figure, LeafKeys, Result, Stats, Time};
use space::{Extent, PAGE, PageId};

use crate::format::Pointer;
use crate::node::Node;
use crate::version::Version;

/// Calls `node` for every internal node's pointer and `leaf` for every leaf's. Only internal nodes are read, those
/// below one node in one psync.
pub(crate) fn pointers(
    version: &Version, node: &mut dyn FnMut(&Pointer), leaf: &mut dyn FnMut(&Pointer),
) -> Result<()> {
    let Some(root) = version.root.pointer else { return Ok(()) };
    if version.root.height == 1 {
        leaf(&root);
        return Ok(());
    }
    let level = version.root.height - 1;
    node(&root);
    below(version, &root, level, node, leaf)
}

/// Recursion as deep as the tree is high.
fn below(
    version: &Version, pointer: &Pointer, level: u8, node: &mut dyn FnMut(&Pointer), leaf: &mut dyn FnMut(&Pointer),
) -> Result<()> {
    let parent = version.shared.node(version.table, pointer, level)?;
    if level == 1 {
        parent.pointers().for_each(|pointer| leaf(&pointer));
        return Ok(());
    }
    let pointers: Vec<_> = parent.pointers().collect();
    pointers.iter().for_each(&mut *node);
    // Held until the children are walked, so that the psync is not in vain where the cache is small.
    let children = version.shared.nodes(version.table, &pointers, level - 1)?;
    for (child, pointer) in children.iter().zip(&pointers) {
        if level == 2 {
            child.pointers().for_each(|pointer| leaf(&pointer));
        } else {
            below(version, pointer, level - 1, node, leaf)?;
        }
    }
    Ok(())
}

/// Key ranges of leaves that are due at `now`: from the first key to below the second, where there is a second.
/// Neighbours are joined. At most `most` ranges, the first in key order. Reads only nodes that lead to such leaves.
pub(crate) fn due(version: &Version, now: Time, most: usize) -> Result<Vec<LeafKeys>> {
    let mut found = Vec::new();
    let Some(root) = version.root.pointer.filter(|root| is_due(root, now)) else { return Ok(found) };
    let mut show = |keys: LeafKeys| keys.join(&mut found, most);
    let all = LeafKeys { low: Vec::new(), high: None };
    // The walk may end early; the ranges found so far count.
    let _ = due_below(version, &root, version.root.height - 1, all, now, &mut show)?;
    Ok(found)
}

/// Key ranges, in the form of [`due`], of leaves that do not end before `page`, and of some leaves below each node that
/// does not end before it. Writing these leaves anew moves all of those leaves and nodes elsewhere.
pub(crate) fn beyond(version: &Version, page: PageId, most: usize) -> Result<Vec<LeafKeys>> {
    let mut found = Vec::new();
    let Some(root) = version.root.pointer else { return Ok(found) };
    let all = LeafKeys { low: Vec::new(), high: None };
    let mut show = |keys: LeafKeys| keys.join(&mut found, most);
    // The walk may end early; the ranges found so far count.
    let _ = Beyond { version, page }.below(&root, version.root.height - 1, all, false, &mut show)?;
    Ok(found)
}

/// The target of [`beyond`].
struct Beyond<'a> {
    version: &'a Version,
    page: PageId,
}

impl Beyond<'_> {
    /// Shows the matching leaves below a pointer to a node or leaf on `level`. If `owed`, a node above has to move too,
    /// and the first leaf is shown in any case: a leaf that is written anew takes along the nodes on its way. Recursion
    /// as deep as the tree is high.
    fn below(
        &self, pointer: &Pointer, level: u8, keys: LeafKeys, owed: bool,
        show: &mut dyn FnMut(LeafKeys) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let Self { version, page } = self;
        let is_shown = owed || pointer.extent().end() > *page;
        if level == 0 {
            return Ok(if is_shown { show(keys) } else { ControlFlow::Continue(()) });
        }
        let node = version.shared.node(version.table, pointer, level)?;
        let pointers: Vec<_> = node.pointers().collect();
        // The children are held until they are walked.
        let _children = if level > 1 { version.shared.nodes(version.table, &pointers, level - 1)? } else { Vec::new() };
        for (child, below) in pointers.iter().enumerate() {
            let keys = keys_of(&node, child, &keys);
            if self.below(below, level - 1, keys, is_shown && child == 0, show)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Keys below a child of a node that has these.
fn keys_of(node: &Node, child: usize, keys: &LeafKeys) -> LeafKeys {
    LeafKeys {
        low: if child == 0 { keys.low.clone() } else { node.separator(child) },
        high: if child + 1 < node.len() { Some(node.separator(child + 1)) } else { keys.high.clone() },
    }
}

fn is_due(pointer: &Pointer, now: Time) -> bool {
    pointer.due.is_some_and(|due| due.is_past(now))
}

/// Shows the keys of due leaves below a pointer to a node or leaf on `level`. Recursion as deep as the tree is high.
fn due_below(
    version: &Version, pointer: &Pointer, level: u8, keys: LeafKeys, now: Time,
    show: &mut dyn FnMut(LeafKeys) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    if level == 0 {
        return Ok(show(keys));
    }
    let node = version.shared.node(version.table, pointer, level)?;
    for (child, below) in node.pointers().enumerate().filter(|(_, below)| is_due(below, now)) {
        if due_below(version, &below, level - 1, keys_of(&node, child, &keys), now, show)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The shape of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Levels, leaves included; 0 when empty.
    pub height: u32,
    /// Pages of internal nodes.
    pub internal_pages: u64,
    /// Leaves.
    pub leaves: u64,
    /// Leaves that begin where the one before them in key order ends: a scan reads them as one sequence.
    pub adjacent_leaves: u64,
    /// Pages that leaves occupy.
    pub leaf_pages: u64,
    /// Bytes of runs in leaves.
    pub run_bytes: u64,
    /// Entries in runs, dead versions included.
    pub entries: u64,
}

impl From<Shape> for Stats {
    fn from(shape: Shape) -> Self {
        Self {
            entries: shape.entries,
            entry_bytes: shape.run_bytes,
            stored_bytes: shape.leaf_pages * PAGE as u64,
            figures: vec![
                Figure::count("levels", u64::from(shape.height)),
                Figure::count("internal nodes", shape.internal_pages),
                Figure::count("leaves", shape.leaves),
                Figure::count("adjacent leaves", shape.adjacent_leaves),
            ],
        }
    }
}

/// The shape of a version.
pub(crate) fn shape(version: &Version) -> Result<Shape> {
    let mut shape = Shape { height: u32::from(version.root.height), ..Shape::default() };
    let (mut internal_pages, mut end) = (0, None);
    pointers(version, &mut |_| internal_pages += 1, &mut |leaf| {
        shape.leaves += 1;
        shape.adjacent_leaves += u64::from(end == Some(leaf.page));
        end = Some(leaf.page + u64::from(leaf.pages));
        shape.leaf_pages += u64::from(leaf.pages);
        shape.run_bytes += u64::from(leaf.length);
        shape.entries += u64::from(leaf.entries);
    })?;
    shape.internal_pages = internal_pages;
    Ok(shape)
}

/// The lower bounds of all nodes or leaves on the highest level that has more than `wanted`, or of all leaves. Reads
/// one level after the other, each in one psync and none with more than `wanted` nodes.
pub(crate) fn fences(version: &Version, wanted: usize) -> Result<Vec<Vec<u8>>> {
    let Some(root) = version.root.pointer.filter(|_| version.root.height > 1) else { return Ok(Vec::new()) };
    let mut level = version.root.height - 1;
    let mut nodes = vec![version.shared.node(version.table, &root, level)?];
    let mut lows = vec![Vec::new()];
    loop {
        let (mut below, mut pointers) = (Vec::new(), Vec::new());
        for (node, low) in nodes.iter().zip(lows) {
            pointers.extend(node.pointers());
            below.push(low);
            below.extend((1..node.len()).map(|child| node.separator(child)));
        }
        lows = below;
        if level == 1 || lows.len() > wanted {
            lows.remove(0);
            return Ok(lows);
        }
        level -= 1;
        nodes = version.shared.nodes(version.table, &pointers, level)?;
    }
}

/// Every extent of a version.
pub(crate) fn extents(version: &Version, visit: &mut dyn FnMut(Extent)) -> Result<()> {
    let mut leaves = Vec::new();
    pointers(version, &mut |node| visit(node.extent()), &mut |leaf| leaves.push(leaf.extent()))?;
    leaves.into_iter().for_each(visit);
    Ok(())
}
