//! Writing nodes past the pool, in large sequential writes, to build trees.

use std::sync::atomic::Ordering;

use psync::{Buffer, Request};

use super::{NodeId, Pager};
use crate::Result;

/// Bytes of nodes gathered before they are written as one batch.
const GATHERED_BYTES: usize = 4 << 20;

/// Most bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Writes the first nodes of a pager's file, while no other thread uses the pager. The gathered nodes are beside the
/// pool's budget.
pub(crate) struct Loader<'p> {
    pager: &'p Pager,
    gathered: Vec<(NodeId, Buffer)>,
}

impl<'p> Loader<'p> {
    pub(crate) const fn new(pager: &'p Pager) -> Self {
        Self { pager, gathered: Vec::new() }
    }

    /// A new node: its id, and memory of zeros for the node, to be passed to [`Loader::write`] later.
    pub(crate) fn allocate(&mut self) -> (NodeId, Buffer) {
        let id = NodeId(self.pager.end.fetch_add(1, Ordering::AcqRel));
        (id, Buffer::zeroed(self.pager.node_bytes))
    }

    /// Takes a complete node. Neighbours in the file that are complete at about the same time are written together.
    pub(crate) fn write(&mut self, node: NodeId, bytes: Buffer) -> Result<()> {
        self.gathered.push((node, bytes));
        if self.gathered.len() * self.pager.node_bytes >= GATHERED_BYTES { self.write_gathered() } else { Ok(()) }
    }

    /// Writes the rest.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.write_gathered()?;
        self.pager.space.lock().grown = self.pager.end.load(Ordering::Acquire) - 1;
        Ok(())
    }

    fn write_gathered(&mut self) -> Result<()> {
        self.gathered.sort_unstable_by_key(|(node, _)| *node);
        let node_bytes = self.pager.node_bytes;
        let nodes_max = (WRITE_BYTES / node_bytes).max(1);
        let mut writes = Vec::new();
        let mut left = self.gathered.as_slice();
        while let Some((first, _)) = left.first() {
            let adjacent =
                left.iter().zip(first.0..).take(nodes_max).take_while(|((node, _), id)| node.0 == *id).count();
            let (run, rest) = left.split_at(adjacent);
            let mut bytes = Buffer::zeroed(adjacent * node_bytes);
            for (place, (_, node)) in bytes.chunks_exact_mut(node_bytes).zip(run) {
                place.copy_from_slice(node);
            }
            writes.push(Request::write(&self.pager.file, (first.0 - 1) * node_bytes as u64, bytes, 0));
            left = rest;
        }
        self.pager.psync.run_all(writes)?;
        self.gathered.clear();
        Ok(())
    }
}
