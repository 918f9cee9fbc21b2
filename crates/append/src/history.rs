//! Older versions of a trie, found again by the root records that told of them.
//!
//! Nodes are never changed, so a version is whole as long as its segments are there: who wants to open one again, or to go back to it, keeps its root record and
//! pins its segments ([`Trie::pin`]). A **rollback** appends a commit header that names the older root. It comes behind the newest header, as every other does,
//! so headers stay one chain, and its redo counts live bytes to where they were then: recovery and publishing know no difference.

use std::collections::BTreeSet;
use std::sync::Arc;

use doclog::{DocImage, Retained, SegmentId};
use index::{Again, Applied, Result, Seq, TableId, View};

use crate::apply::Done;
use crate::format::record::{Commit, Header, Redo, Root};
use crate::trie::{Trie, record_error};
use crate::version::Version;

/// What a root record tells of its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// The number of its commit header.
    pub number: u64,
    /// Keys whose newest version is no tombstone.
    pub keys: u64,
    /// Bytes of its nodes and header, as they are stored.
    pub live_bytes: u64,
}

/// What the root record of a version of `table` tells.
///
/// # Errors
/// [`index::Error::Corrupt`] when it is not one of that table.
pub fn describe(root: &[u8], table: TableId) -> Result<Described> {
    let Header { number, shape, live_bytes, .. } = decode(root, table)?.commit.header;
    Ok(Described { number, keys: shape.keys, live_bytes })
}

fn decode(root: &[u8], table: TableId) -> Result<Root> {
    Root::decode(root, table).map_err(|damage| record_error("root record", table, damage))
}

/// Where nodes of a version live.
fn live(nodes: &DocImage) -> impl Iterator<Item = Retained> {
    let segments = nodes.segments.iter().filter(|segment| segment.live_bytes > 0);
    segments.map(|segment| Retained { segment: segment.id, bytes: segment.live_bytes, end: segment.length })
}

impl Trie {
    /// The version that a root record of this trie told of. Its segments have to be pinned, or its table held as it is.
    ///
    /// # Errors
    /// [`index::Error::Corrupt`] when it is not a root record of this table.
    pub fn at(&self, root: &[u8]) -> Result<Arc<dyn View>> {
        let Root { commit, nodes } = decode(root, self.table())?;
        let live = live(&nodes).map(|retained| (retained.segment, retained.bytes)).collect();
        let current = self.current();
        let (shared, nodes) = (Arc::clone(&current.shared), Arc::clone(&current.nodes));
        Ok(Arc::new(Version { shared, nodes, commit, live, floor: Seq(0) }))
    }

    /// Keeps the segments of the versions that these root records tell of, and of no others.
    ///
    /// # Errors
    /// [`index::Error::Corrupt`] when one is not a root record of this table; nothing changes then.
    pub fn pin<'a>(&self, roots: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let mut segments: BTreeSet<SegmentId> = BTreeSet::new();
        for root in roots {
            let nodes = decode(root, self.table())?.nodes;
            segments.extend(live(&nodes).map(|retained| retained.segment));
        }
        self.current().nodes.pin(&segments);
        Ok(())
    }

    /// Goes back to the version that `root` tells of: like an [`index::Index::apply`] written, to be flushed, and to be published or discarded.
    ///
    /// # Errors
    /// [`index::Error::Corrupt`] when it is not a root record of this table, or what that refers to is not there; when writing fails, or there is no space.
    pub fn roll_back(&self, root: &[u8]) -> Result<Applied> {
        let base = self.current();
        let Root { commit: then, nodes } = decode(root, self.table())?;
        let own = Header::stored_bytes();
        let mut live: Vec<Retained> = live(&nodes).collect();
        live.iter().try_for_each(|retained| base.nodes.check_in(retained))?;
        base.nodes(then.header.root.as_slice())?;
        // Its header is not the newest any more; what comes in its place is counted below.
        if let Some(place) = then.place
            && let Some(retained) = live.iter_mut().find(|retained| retained.segment == place.segment)
        {
            retained.bytes -= place.stored_bytes().min(retained.bytes);
        }
        let (mut made, dropped) = Retained::difference(&base.live, &live);
        let nodes_bytes = then.header.live_bytes - then.place.map_or(0, |_| own.min(then.header.live_bytes));
        let header = Header {
            number: base.header().number + 1,
            live_bytes: nodes_bytes + own,
            before: base.commit.place,
            ..then.header
        };
        let place = base.nodes.append(&[&header.encode()])?.remove(0);
        Retained::count(&mut made, &place);
        let files = base.nodes.take_unflushed();
        let redo = Redo { commit: Commit { place: Some(place), header }, made, dropped, documents: Vec::new() };
        let done = Done {
            redo,
            dropped_documents: Vec::new(),
            documents: Vec::new(),
            again: Again::default(),
            made_nodes: Vec::new(),
            dropped_nodes: Vec::new(),
            files,
        };
        Ok(self.pend(&base, done, Seq(0)))
    }
}
