//! Building a tree from entries in key order: leaves one after the other in the file, then the levels above.

use super::commit::Commit;
use super::logical::Changes;
use super::page::{Format, Node};
use crate::Result;
use crate::trees::{Shape, Sorted, bulk};

impl Commit<'_> {
    /// Builds the tree, whose root is an empty leaf so far, of nodes filled to the part `fill`.
    pub(super) fn load(mut self, shape: Shape, sorted: &mut Sorted<'_>, fill: f64) -> Result<()> {
        let (leaf, inner) = (self.formats.leaf, self.formats.inner);
        let mut above = Changes::new(inner);
        let mut entries = Changes::new(leaf);
        let filled = bulk::filled(leaf.capacity(), fill, 1);
        bulk::for_each(shape, sorted, |key, value| {
            if entries.len() == filled {
                self.add(leaf, &entries, 0..entries.len(), &mut above)?;
                entries = Changes::new(leaf);
            }
            entries.push(key, Some(value));
            Ok(())
        })?;
        self.add(leaf, &entries, 0..entries.len(), &mut above)?;
        while above.len() > 1 {
            let entries = std::mem::replace(&mut above, Changes::new(inner));
            let nodes = entries.len().div_ceil(bulk::filled(inner.capacity(), fill, 2));
            for node in 0..nodes {
                let range = node * entries.len() / nodes..(node + 1) * entries.len() / nodes;
                self.add(inner, &entries, range, &mut above)?;
            }
            self.state.height += 1;
        }
        self.write()
    }

    /// Makes a node, for now the root, and inserts the node into the level above.
    fn add(
        &mut self, format: Format, entries: &Changes, range: std::ops::Range<usize>, above: &mut Changes,
    ) -> Result<()> {
        let is_first = above.len() == 0;
        let node: Node = self.state.table.allocate()?;
        let least = vec![0; format.key_bytes];
        // Keys below the first key of a level belong to the first node of the level.
        let key = if is_first || range.is_empty() { least.as_slice() } else { entries.get(range.start).0 };
        above.push(key, Some(&node.0.to_le_bytes()));
        self.state.root = node;
        if range.is_empty() {
            return Ok(());
        }
        self.stage(format, node, true, range.map(|entry| entries.get(entry)))
    }
}
