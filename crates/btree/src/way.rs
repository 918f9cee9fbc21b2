//! The way of one key to its leaf, by nodes that are borrowed from the cache's front.

use cache::Held;
use index::Result;

use crate::format::Pointer;
use crate::node::Node;
use crate::version::Version;

/// The leaf that a key is in.
pub(crate) struct Way<'v> {
    /// The node above the leaf: the root, or another.
    top: Option<&'v Node>,
    below: Option<Held<Node>>,
    child: usize,
    pub(crate) pointer: Pointer,
    /// The part that the leaf's fences name.
    pub(crate) part: usize,
}

impl Way<'_> {
    /// The bytes of the leaf's filter.
    pub(crate) fn filter(&self) -> &[u8] {
        self.below.as_deref().or(self.top).map_or(&[], |node| node.filter(self.child))
    }
}

/// The way to the leaf of `key`. None where the root is a leaf of several blocks, because no node has the fences of
/// such a root.
pub(crate) fn way<'v>(version: &'v Version, root: &Pointer, key: &[u8]) -> Result<Option<Way<'v>>> {
    let Some(top) = version.top()? else {
        let is_one = root.blocks() == 1 && !root.is_filtered();
        return Ok(is_one.then(|| Way { top: None, below: None, child: 0, pointer: *root, part: 0 }));
    };
    let (mut place, mut below) = (top.find(key), None);
    let mut pointer = top.pointer(place.child);
    for level in (1..version.root.height.saturating_sub(1)).rev() {
        let node = version.shared.held_node(version.table, &pointer, level)?;
        place = node.find(key);
        pointer = node.pointer(place.child);
        below = Some(node);
    }
    Ok(Some(Way { top: Some(top), below, child: place.child, pointer, part: place.part }))
}
