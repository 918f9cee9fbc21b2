//! A walk over the versions whose values are documents.
//!
//! Leaves without documents are not read. Other leaves, and nodes, are read in a few psyncs for all under one node,
//! ever more leaves at a time.

use std::ops::ControlFlow;

use index::{Result, ShowVersions, Update};
use psync::Buffer;

use crate::format::Pointer;
use crate::leaf::Leaf;
use crate::node::Node;
use crate::version::Version;

/// Leaves that the first psync brings.
const FIRST_WINDOW: usize = 4;
/// Most bytes of leaves that one psync brings, unless a single leaf is longer.
const WINDOW_BYTES: usize = 4 << 20;

/// Shows the versions of each key with documents, from `from` on.
pub(crate) fn documents(version: &Version, from: &[u8], show: &mut ShowVersions<'_>) -> Result<()> {
    let Some(root) = version.root.pointer else { return Ok(()) };
    let mut walk = Walk { version, from, show, window: FIRST_WINDOW };
    // An early stop is known to the caller.
    let _ = match version.root.height {
        1 => walk.leaves(&[root])?,
        height => {
            let node = version.shared.node(version.table, &root, height - 1)?;
            walk.below(&node, height - 1, &[])?
        }
    };
    Ok(())
}

struct Walk<'a, 's> {
    version: &'a Version,
    from: &'a [u8],
    show: &'a mut ShowVersions<'s>,
    window: usize,
}

impl Walk<'_, '_> {
    /// Walks all below a node of `level` whose lower bound is `low`. Recursion as deep as the tree is high.
    fn below(&mut self, node: &Node, level: u8, low: &[u8]) -> Result<ControlFlow<()>> {
        let first = node.search(self.from);
        let pointers: Vec<Pointer> = (first..node.len()).map(|child| node.pointer(child)).collect();
        if level == 1 {
            // A place to stop at, also where there are no documents.
            if low > self.from && (self.show)(low, &[]).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let with_documents: Vec<_> = pointers.into_iter().filter(|pointer| pointer.documents).collect();
            return self.leaves(&with_documents);
        }
        let shared = &self.version.shared;
        for (number, pointers) in pointers.chunks(shared.psync().pio_max()).enumerate() {
            let children = shared.nodes(self.version.table, pointers, level - 1)?;
            for (index, child) in children.iter().enumerate() {
                let index = first + number * shared.psync().pio_max() + index;
                let low = if index == 0 { low.to_vec() } else { node.separator(index) };
                if self.below(child, level - 1, &low)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn leaves(&mut self, mut pointers: &[Pointer]) -> Result<ControlFlow<()>> {
        while !pointers.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            for pointer in pointers.iter().take(self.window) {
                bytes += pointer.published_bytes();
                if count > 0 && bytes > WINDOW_BYTES {
                    break;
                }
                count += 1;
            }
            let (window, rest) = pointers.split_at(count);
            pointers = rest;
            self.window = self.window.saturating_mul(2);
            let shared = &self.version.shared;
            let cached: Vec<_> = window.iter().map(|pointer| shared.cached_leaf(pointer, 0)).collect();
            let missing = window.iter().zip(&cached).filter(|(_, cached)| cached.is_none());
            let reads = missing.map(|(pointer, _)| shared.read(pointer, 0, pointer.published_bytes(), 0)).collect();
            let mut read = shared.psync().run_all(reads)?.into_iter().flatten();
            for (pointer, cached) in window.iter().zip(cached) {
                let shown = match cached {
                    Some(leaf) => self.leaf(pointer, &leaf)?,
                    None => {
                        let bytes = read.next().unwrap_or_else(|| Buffer::zeroed(0));
                        let leaf = shared.parse_leaf(self.version.table, pointer, &bytes)?;
                        self.leaf(pointer, &leaf)?
                    }
                };
                if shown.is_break() {
                    return Ok(shown);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn leaf(&mut self, pointer: &Pointer, leaf: &Leaf) -> Result<ControlFlow<()>> {
        let visible = leaf.visible(pointer).expect("a leaf is chosen or read by this pointer");
        let entries = visible.sorted().map_err(|damage| self.version.shared.corrupt(pointer, damage))?;
        let mut versions: Vec<Update<'_>> = Vec::new();
        for of_key in entries.chunk_by(|one, other| one.update.key == other.update.key) {
            let key = of_key[0].update.key;
            if key < self.from || of_key.iter().all(|entry| entry.update.operation.document().is_none()) {
                continue;
            }
            versions.clear();
            let mut newer_came = u32::MAX;
            for same in of_key.chunk_by(|one, other| one.update.seq == other.update.seq).rev() {
                let came = same[0].run;
                // A version that came after a newer one was reported dropped before it came again.
                if came <= newer_came {
                    newer_came = came;
                    versions.extend(same.iter().rev().map(|entry| entry.update));
                }
            }
            versions.reverse();
            if versions.iter().any(|version| version.operation.document().is_some())
                && (self.show)(key, &versions).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
