//! A version of a trie, which never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use doclog::{DocLog, DocPointer, SegmentId};
use index::{Bounds, Cursor, Direction, Found, Moment, Result, ShowVersions, Stats, View, Visit};

use crate::cursor::TrieCursor;
use crate::format::node::Node;
use crate::format::record::{Commit, Header};
use crate::shared::{Home, Shared};
use crate::{documents, search, verify, walk};

/// One immutable version of a trie. Readers hold it in an `Arc` for as long as they like.
pub(crate) struct Version {
    pub(crate) shared: Arc<Shared>,
    pub(crate) nodes: Arc<DocLog>,
    pub(crate) commit: Commit,
    /// Bytes of nodes in each segment, as they were counted when it became current.
    pub(crate) live: BTreeMap<SegmentId, u64>,
}

impl Version {
    pub(crate) const fn header(&self) -> &Header {
        &self.commit.header
    }

    pub(crate) fn home(&self) -> Home<'_> {
        let header = self.header();
        Home { table: header.table, chunk_bytes: header.chunk_bytes(), nodes: &self.nodes }
    }

    /// The nodes that `pointers` lead to; what is not cached is read in one psync.
    pub(crate) fn nodes(&self, pointers: &[DocPointer]) -> Result<Vec<Arc<Node>>> {
        self.shared.nodes(&self.home(), pointers)
    }
}

impl View for Version {
    fn get_many(&self, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> Result<()> {
        assert_eq!(keys.len(), out.len(), "one place for each key");
        search::get_many(self, keys, at, out)
    }

    fn cursor(self: Arc<Self>, bounds: &Bounds, at: Moment, direction: Direction) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(TrieCursor::new(self, bounds, at, direction)))
    }

    fn verify(&self, visit: &mut dyn Visit) -> Result<()> {
        verify::verify(self, visit)
    }

    fn documents(&self, from: &[u8], show: &mut ShowVersions<'_>) -> Result<()> {
        documents::documents(self, from, show)
    }

    fn fences(&self, wanted: usize) -> Result<Vec<Vec<u8>>> {
        walk::fences(self, wanted)
    }

    fn stats(&self) -> Result<Stats> {
        walk::stats(self)
    }
}
