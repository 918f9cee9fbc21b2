//! The kind of all PIO B-trees.

use std::sync::Arc;

use cache::Part;
use doclog::DocLog;
use index::{Facts, Home, Index, Kind, Lookups, Result, TableId};
use space::PAGE;

use crate::{BTree, INLINE_BYTES_MAX, KEY_BYTES_MAX, Shared, salvage, settings};

/// The facts of the kind.
pub const FACTS: Facts = Facts {
    name: "btree",
    code: 1,
    key_bytes_max: KEY_BYTES_MAX,
    inline_bytes: INLINE_BYTES_MAX,
    inline_bytes_max: INLINE_BYTES_MAX,
    only_appends: false,
    merges_later: false,
    has_history: false,
    choose: settings::of_use,
    describe: settings::figures,
    start,
    directory: None,
    root_of_redo: |redo, table, _| salvage::root_of_redo(redo, table),
};

fn start(home: &Home<'_>) -> Option<Arc<dyn Kind>> {
    let shared = Shared::new(Arc::clone(home.pages?), home.cache_bytes, home.epoch);
    let shared = match home.gap_pages {
        Some(pages) => shared.with_gap(pages),
        None => shared,
    };
    let shared = shared
        .with_lookups_in_flight(home.lookups_in_flight)
        .with_longer_leaves(home.has_longer_leaves)
        .with_loans_of(home.loans_bytes)
        .with_read_ahead(Arc::clone(&home.read_ahead));
    Some(Arc::new(Trees(Arc::new(shared))))
}

struct Trees(Arc<Shared>);

impl Kind for Trees {
    fn create(&self, table: TableId, settings: &[u8], _documents: &Arc<DocLog>) -> Result<Box<dyn Index>> {
        let leaf_pages = settings::decode(settings, table)?;
        Ok(Box::new(BTree::create(Arc::clone(&self.0), table, leaf_pages)))
    }

    fn open(&self, table: TableId, root: &[u8], _documents: &Arc<DocLog>) -> Result<Box<dyn Index>> {
        Ok(Box::new(BTree::open(Arc::clone(&self.0), table, root)?))
    }

    fn cache(&self) -> Option<&dyn Part> {
        Some(self.0.cache())
    }

    fn cached_bytes(&self, _node_bytes: u64) -> u64 {
        self.0.pages().stats().used_pages() * PAGE as u64
    }

    fn lookups(&self) -> Vec<Lookups> {
        let counted = self.0.counters();
        vec![
            Lookups { nodes: "internal nodes", hits: counted.node_hits, reads: counted.node_reads, read_bytes: None },
            Lookups {
                nodes: "leaves",
                hits: counted.leaf_hits,
                reads: counted.leaf_reads,
                read_bytes: Some(counted.leaf_read_bytes),
            },
        ]
    }
}
