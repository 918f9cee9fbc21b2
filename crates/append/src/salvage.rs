//! Taking what checks out of a damaged trie.
//!
//! The nodes are read past the cache, each for itself. What one that does not check hides is told as a range of keys: a node is found through its
//! parent alone, since older nodes in its segment are as whole as it is.
//!
//! Invariants: pairs come in key order; what was not told as lost is as the trie had it.

use std::ops::ControlFlow;
use std::sync::Arc;

use doclog::{DocImage, DocPointer};
use index::due::Due;
use index::{Error, Lost, Operation, PairRef, Rescue, Result, TableId};

use crate::format::Damage;
use crate::format::node::Node;
use crate::format::record::{Redo, Root};
use crate::ordered::{Groups, Span, Walk, walk};
use crate::shared::corrupt;
use crate::trie::record_error;
use crate::version::Version;

/// Shows what checks of a version, and what does not.
pub(crate) fn salvage(version: &Version, rescue: &mut dyn Rescue) {
    walk(version, &mut Salvage { rescue });
}

/// The root record in a redo: what [`crate::Trie::open`] takes. It knows of no segments but those that there are files of.
///
/// # Errors
/// [`Error::Corrupt`] when `redo` is not one of this table.
pub fn root_of_redo(redo: &[u8], table: TableId) -> Result<Vec<u8>> {
    let redo = Redo::decode(redo, table).map_err(|damage| record_error("redo", table, damage))?;
    Ok(Root { commit: redo.commit, nodes: DocImage::default() }.encode())
}

struct Salvage<'a> {
    rescue: &'a mut dyn Rescue,
}

impl Walk for Salvage<'_> {
    fn enters(&mut self, _span: &Span, _due: Option<Due>) -> bool {
        true
    }

    fn fetch(&mut self, version: &Version, pointers: &[DocPointer]) -> Vec<Result<Arc<Node>>> {
        let chunk_bytes = version.header().chunk_bytes();
        let node = |(read, pointer): (doclog::Result<Vec<u8>>, &DocPointer)| {
            let node = Node::decode(read?, chunk_bytes);
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
