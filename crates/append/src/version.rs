//! A version of a trie, which never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use cache::Held;
use doclog::{DocLog, DocPointer, SegmentId};
use index::{Result, Seq};

use crate::format::node::Node;
use crate::format::record::{Commit, Header, Redo};
use crate::shared::{Home, Reader, Shared};

/// One immutable version of a trie. Readers hold it in an `Arc` for as long as they like.
pub(crate) struct Version {
    pub(crate) shared: Arc<Shared>,
    pub(crate) nodes: Arc<DocLog>,
    pub(crate) commit: Commit,
    /// Bytes of nodes in each segment, as they were counted when the version became current.
    pub(crate) live: BTreeMap<SegmentId, u64>,
    /// Readers below this seq see an empty trie: loaded entries have the seq of the load, whatever their versions say.
    /// No reader is older than a restart, so the header does not store the floor.
    pub(crate) floor: Seq,
}

impl Version {
    /// The version after a batch.
    pub(crate) fn after(&self, redo: &Redo) -> Self {
        let mut live = self.live.clone();
        redo.made.iter().for_each(|made| *live.entry(made.segment).or_default() += made.bytes);
        for (segment, bytes) in &redo.dropped {
            live.entry(*segment).and_modify(|live| *live = live.saturating_sub(*bytes));
        }
        live.retain(|_, bytes| *bytes > 0);
        let (shared, nodes) = (Arc::clone(&self.shared), Arc::clone(&self.nodes));
        Self { shared, nodes, commit: redo.commit, live, floor: self.floor }
    }

    pub(crate) const fn header(&self) -> &Header {
        &self.commit.header
    }

    pub(crate) fn home(&self) -> Home<'_> {
        let header = self.header();
        Home { table: header.table, chunk_bytes: header.chunk_bytes(), nodes: &self.nodes }
    }

    /// The nodes that `pointers` lead to; nodes that are not cached are read in one psync.
    pub(crate) fn nodes(&self, pointers: &[DocPointer]) -> Result<Vec<Arc<Node>>> {
        self.shared.nodes(&self.home(), pointers, Reader::Walk)
    }

    /// As `nodes`, for a lookup or the beginning of a scan.
    pub(crate) fn looked_up(&self, pointers: &[DocPointer]) -> Result<Vec<Arc<Node>>> {
        self.shared.nodes(&self.home(), pointers, Reader::Lookup)
    }

    /// The node that `pointer` leads to, if the cache has it.
    pub(crate) fn cached(&self, pointer: &DocPointer, reader: Reader) -> Option<Held<Node>> {
        self.shared.cached_node(&self.home(), pointer, reader)
    }

    /// As `nodes`, for callers that take each node on its own: all nodes, or in place of the first the reason why one
    /// of them cannot be read.
    pub(crate) fn nodes_or_error(&self, pointers: &[DocPointer]) -> Vec<Result<Arc<Node>>> {
        match self.nodes(pointers) {
            Ok(nodes) => nodes.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    }
}
