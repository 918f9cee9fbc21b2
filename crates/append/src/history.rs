//! Older versions of a trie, found again by the root records that described them.
//!
//! Nodes are never changed, so a version is whole as long as its segments exist. A caller that wants to open a version
//! again, or to roll back to one, keeps its root record and protects its segments ([`History::protect`]).
//!
//! A **rollback** appends a commit header that names the older root. The new header comes behind the newest one, as
//! every other does, so headers stay one chain. Its redo sets the counts of live bytes back to those of the older
//! version, so recovery and installing need no special case.

use std::collections::BTreeSet;
use std::sync::Arc;

use doclog::{DocImage, Retained, SegmentId};
use index::{Again, Applied, Described, History, Result, Seq, TableId, View};

use crate::apply::Done;
use crate::format::record::{Commit, Header, Redo, Root};
use crate::trie::Trie;
use crate::version::Version;

fn decode(root: &[u8], table: TableId) -> Result<Root> {
    Root::decode(root, table).map_err(|damage| damage.in_record("root record", table))
}

/// The segments with live nodes of a version.
fn live(nodes: &DocImage) -> impl Iterator<Item = Retained> {
    let segments = nodes.segments.iter().filter(|segment| segment.live_bytes > 0);
    segments.map(|segment| Retained { segment: segment.id, bytes: segment.live_bytes, end: segment.length })
}

impl History for Trie {
    fn at(&self, root: &[u8]) -> Result<Arc<dyn View>> {
        let Root { commit, nodes } = decode(root, self.table())?;
        let live = live(&nodes).map(|retained| (retained.segment, retained.bytes)).collect();
        let current = self.current();
        let (shared, nodes) = (Arc::clone(&current.shared), Arc::clone(&current.nodes));
        Ok(Arc::new(Version { shared, nodes, commit, live, floor: Seq(0) }))
    }

    fn protect(&self, roots: &mut dyn Iterator<Item = &[u8]>) -> Result<()> {
        let mut segments: BTreeSet<SegmentId> = BTreeSet::new();
        for root in roots {
            let nodes = decode(root, self.table())?.nodes;
            segments.extend(live(&nodes).map(|retained| retained.segment));
        }
        self.current().nodes.pin(&segments);
        Ok(())
    }

    fn describe(&self, root: &[u8]) -> Result<Described> {
        let Header { number, shape, live_bytes, .. } = decode(root, self.table())?.commit.header;
        Ok(Described { number, keys: shape.keys, live_bytes })
    }

    fn roll_back(&self, root: &[u8]) -> Result<Applied> {
        let base = self.current();
        let Root { commit: then, nodes } = decode(root, self.table())?;
        let own = Header::stored_bytes();
        let mut live: Vec<Retained> = live(&nodes).collect();
        live.iter().try_for_each(|retained| base.nodes.check_in(retained))?;
        base.nodes(then.header.root.as_slice())?;
        // The header of the older version is not the newest any more; the new header that replaces it is counted below.
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
