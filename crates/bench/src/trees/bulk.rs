//! Building a tree of `Node`s from entries in key order.
//!
//! 1. One node per level is open. Once the node has as many entries as the fill factor allows, the next node of its
//!    level (1) gets its place in the file, (2) becomes its right neighbour, (3) is inserted into the level above.
//! 2. A node that has its right neighbour is complete and is written, together with its neighbours in the file.
//!
//! The last node of each level has the remaining entries.

use psync::Buffer;

use super::node::{LEVELS_MAX, Layout, Node};
use super::pager::{Loader, NodeId, Pager};
use super::{Shape, Sorted};
use crate::{Error, Result};

/// The fill factor of built nodes unless said otherwise: the utilisation of a B+-tree after random inserts (ln 2). The
/// paper's F' rests on the same utilisation (Roh et al. 2011, table 1).
pub const FILL_DEFAULT: f64 = 0.7;

/// The root of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    pub(super) node: NodeId,
    /// The level of the root; 0 when the root is a leaf.
    pub(super) level: usize,
}

struct Open<'l> {
    id: NodeId,
    node: Node<'l, Buffer>,
}

struct Builder<'p, 'l> {
    loader: Loader<'p>,
    layout: &'l Layout,
    fill: f64,
    levels: Vec<Open<'l>>,
}

/// Passes the entries to `add`, one after the other, unless they are of another shape or out of order.
pub(super) fn for_each(
    shape: Shape, sorted: &mut Sorted<'_>, mut add: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut key, mut value, mut last) = (Vec::new(), Vec::new(), Vec::new());
    while sorted(&mut key, &mut value) {
        shape.check(&key, &value)?;
        if !last.is_empty() && last >= key {
            return Err(Error::Invalid(
                "the entries to build a tree from are not in the order of their keys".to_owned(),
            ));
        }
        add(&key, &value)?;
        last.clone_from(&key);
    }
    Ok(())
}

/// Refuses a number that cannot be a fill factor.
pub(super) fn check_fill(fill: f64) -> Result<()> {
    if !(fill > 0.0 && fill <= 1.0) {
        return Err(Error::Invalid(format!("a fill factor of {fill} is not above 0 and at most 1")));
    }
    Ok(())
}

/// Entries of a node of `capacity` that is filled to the part `fill`, but at least `least`.
pub(super) fn filled(capacity: usize, fill: f64, least: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the capacity")]
    let filled = (capacity as f64 * fill) as usize;
    filled.clamp(least, capacity)
}

/// Builds a tree in an empty pager.
pub(super) fn build(pager: &Pager, layout: &Layout, sorted: &mut Sorted<'_>, fill: f64) -> Result<Root> {
    check_fill(fill)?;
    let mut builder = Builder { loader: Loader::new(pager), layout, fill, levels: Vec::new() };
    builder.open_level();
    for_each(layout.shape(), sorted, |key, value| builder.add(0, key, value))?;
    builder.finish()
}

impl Builder<'_, '_> {
    fn open_level(&mut self) {
        let (id, bytes) = self.loader.allocate();
        let node = Node::format(self.layout, self.levels.len(), bytes);
        self.levels.push(Open { id, node });
    }

    fn add(&mut self, level: usize, key: &[u8], payload: &[u8]) -> Result<()> {
        let count = self.levels[level].node.count();
        if count < self.entries_max(level) {
            self.levels[level].node.insert(count, key, payload);
            return Ok(());
        }
        let (id, bytes) = self.loader.allocate();
        let mut node = Node::format(self.layout, level, bytes);
        node.insert(0, key, payload);
        let mut complete = std::mem::replace(&mut self.levels[level], Open { id, node });
        complete.node.set_right(id);
        complete.node.set_high_key(key);
        if self.levels.len() == level + 1 {
            if level + 1 == LEVELS_MAX {
                return Err(Error::Invalid(format!("a tree of more than {LEVELS_MAX} levels")));
            }
            self.open_level();
            // The first key of a level is below all others.
            let lowest = vec![0; self.layout.key_bytes()];
            self.levels[level + 1].node.insert_child(0, &lowest, complete.id);
        }
        self.loader.write(complete.id, complete.node.into_bytes())?;
        self.add(level + 1, key, &id.0.to_le_bytes())
    }

    fn entries_max(&self, level: usize) -> usize {
        // Inner nodes with one child would add levels without end.
        filled(self.layout.capacity(level), self.fill, if level == 0 { 1 } else { 2 })
    }

    fn finish(mut self) -> Result<Root> {
        let level = self.levels.len() - 1;
        let node = self.levels[level].id;
        for open in self.levels {
            self.loader.write(open.id, open.node.into_bytes())?;
        }
        self.loader.finish()?;
        Ok(Root { node, level })
    }
}
