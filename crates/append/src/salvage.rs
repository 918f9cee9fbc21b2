//! Salvage: takes everything that checks out of a damaged trie.
//!
//! If nothing is left that names the newest version, salvage takes the last version in the node segments whose commit
//! header and root check ([`newest_root`]). Nodes are read past the cache, each on its own. A node that does not check
//! hides a range of keys, and this range is reported. A node is found through its parent alone, because older nodes in
//! its segment are as whole as the node itself.
//!
//! Invariants: pairs come in key order; keys outside the ranges reported as lost are as the trie had them.

use std::ops::ControlFlow;
use std::sync::Arc;

use doclog::{Content, DocImage, DocLog, DocPointer};
use index::{Error, FoundRoot, Lost, Operation, PairRef, Rescue, Result, TableId};
use space::FileStore;

use crate::format::Damage;
use crate::format::Link;
use crate::format::node::Node;
use crate::format::record::{Commit, HEADER_BYTES, Header, Redo, Root};
use crate::ordered::{Groups, Span, Walk, walk};
use crate::shared::{Shared, corrupt};
use crate::version::Version;

/// Shows the keys of a version that check, and the ranges that do not.
pub(crate) fn salvage(version: &Version, rescue: &mut dyn Rescue) {
    walk(version, &mut Salvage { rescue });
}

/// The root record in a redo, for [`crate::Trie::open`]. The record lists no segments, so only segments that have files
/// are known.
///
/// # Errors
/// [`Error::Corrupt`] when `redo` is not one of this table.
pub(crate) fn root_of_redo(redo: &[u8], table: TableId) -> Result<Vec<u8>> {
    let redo = Redo::decode(redo, table).map_err(|damage| damage.in_record("redo", table))?;
    Ok(Root { commit: redo.commit, nodes: DocImage::default() }.encode())
}

/// The tables that have left nodes, rising.
///
/// # Errors
/// When files cannot be listed.
pub(crate) fn tables_with_nodes(store: &FileStore) -> Result<Vec<TableId>> {
    Ok(doclog::tables_with(store, Content::Nodes)?.into_iter().map(TableId).collect())
}

/// The root record of the newest version of a table whose commit header and root check, and the place of that header.
/// For use when no record tells which version is the newest. A header cannot tell for all keys which commits are in its
/// version.
///
/// # Errors
/// When files cannot be listed or opened.
pub(crate) fn newest_root(shared: &Shared, table: TableId) -> Result<Option<FoundRoot>> {
    let (store, segment_bytes) = (shared.store(), shared.segment_bytes(0));
    let nodes = DocLog::open_of(Content::Nodes, store, table.0, &DocImage::default(), segment_bytes)?;
    for segment in nodes.segments().into_iter().rev() {
        for (place, payload) in nodes.find_by_length(segment, HEADER_BYTES as u64)?.into_iter().rev() {
            let Ok(header) = Header::decode(&payload, table) else { continue };
            let is_whole = header.root.is_none_or(|root| {
                let read = nodes.read_each(&[root]).pop().and_then(std::result::Result::ok);
                read.is_some_and(|bytes| Node::decode(&bytes, header.chunk_bytes()).is_ok())
            });
            if is_whole {
                let commit = Commit { place: Some(place), header };
                let root = Root { commit, nodes: DocImage::default() }.encode();
                let place = format!("{} at byte {}", nodes.path_of(segment).display(), place.offset);
                return Ok(Some(FoundRoot { root, place }));
            }
        }
    }
    Ok(None)
}

struct Salvage<'a> {
    rescue: &'a mut dyn Rescue,
}

impl Walk for Salvage<'_> {
    fn enters(&mut self, _span: &Span, _link: &Link) -> bool {
        true
    }

    fn fetch(&mut self, version: &Version, pointers: &[DocPointer]) -> Vec<Result<Arc<Node>>> {
        let chunk_bytes = version.header().chunk_bytes();
        let node = |(read, pointer): (doclog::Result<Vec<u8>>, &DocPointer)| {
            let node = Node::decode(&read?, chunk_bytes);
            Ok(Arc::new(node.map_err(|damage: Damage| corrupt(&version.nodes, pointer, damage))?))
        };
        version.nodes.read_each(pointers).into_iter().zip(pointers).map(node).collect()
    }

    fn leaf(&mut self, _leaf: &Node, _span: &Span) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn groups(&mut self, groups: &Groups) -> ControlFlow<()> {
        let mut newest = Vec::new();
        groups.each_key(|key, mut versions| {
            if let Some((seq, Operation::Put(value, expiry))) = versions.next() {
                newest.push((key, seq, value, expiry));
            }
            ControlFlow::Continue(())
        })?;
        let pairs =
            newest.iter().map(|(key, seq, value, expiry)| PairRef { key, seq: *seq, value: *value, expiry: *expiry });
        let pairs: Vec<_> = pairs.collect();
        if pairs.is_empty() { ControlFlow::Continue(()) } else { self.rescue.pairs(&pairs) }
    }

    fn failed(&mut self, span: &Span, why: Error) -> ControlFlow<()> {
        self.rescue.lost(Lost { low: span.low.clone(), high: span.high.clone(), taken: false, why });
        ControlFlow::Continue(())
    }
}
