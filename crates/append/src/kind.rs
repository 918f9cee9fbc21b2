//! The kind of all append-only tries.

use std::sync::Arc;

use cache::Part;
use doclog::{Content, DocLog};
use index::{Facts, FoundRoot, Home, Index, Kind, Lookups, Result, TableId};

use crate::{CHUNK_BYTES_DEFAULT, INLINE_BYTES_MAX, KEY_BYTES_MAX, Shared, Trie, salvage};

/// Tries have no settings. Earlier versions wrote pages of a leaf for them too.
const OLD_SETTINGS_BYTES: usize = 4;

/// The facts of the kind.
pub const FACTS: Facts = Facts {
    name: "append",
    code: 2,
    key_bytes_max: KEY_BYTES_MAX,
    inline_bytes: INLINE_BYTES_MAX,
    inline_bytes_max: INLINE_BYTES_MAX,
    only_appends: true,
    merges_later: false,
    has_history: true,
    choose: |_| Vec::new(),
    describe: |settings| matches!(settings.len(), 0 | OLD_SETTINGS_BYTES).then(Vec::new),
    start,
    directory: Some(Content::Nodes.directory()),
    root_of_redo: |redo, table, _| salvage::root_of_redo(redo, table),
};

fn start(home: &Home<'_>) -> Option<Arc<dyn Kind>> {
    let shared = Shared::new(home.store, home.cache_bytes)
        .with_loans_of(home.loans_bytes)
        .with_segment_bytes(home.segment_bytes)
        .with_lookups_in_flight(home.lookups_in_flight)
        .with_read_ahead(Arc::clone(&home.read_ahead))
        .with_reserve(Arc::clone(&home.reserve));
    Some(Arc::new(Tries(Arc::new(shared))))
}

struct Tries(Arc<Shared>);

impl Kind for Tries {
    fn create(&self, table: TableId, _settings: &[u8], documents: &Arc<DocLog>) -> Result<Box<dyn Index>> {
        Ok(Box::new(Trie::create(Arc::clone(&self.0), table, Arc::clone(documents), CHUNK_BYTES_DEFAULT)?))
    }

    fn open(&self, table: TableId, root: &[u8], documents: &Arc<DocLog>) -> Result<Box<dyn Index>> {
        Ok(Box::new(Trie::open(Arc::clone(&self.0), table, Arc::clone(documents), root)?))
    }

    fn cache(&self) -> Option<&dyn Part> {
        Some(self.0.cache())
    }

    /// A quarter more than the nodes, for the tables of places within each node and for the cache's own needs.
    fn cached_bytes(&self, node_bytes: u64) -> u64 {
        node_bytes + node_bytes / 4
    }

    fn room_bytes(&self, node_bytes: u64) -> u64 {
        self.0.room_bytes(node_bytes)
    }

    fn lookups(&self) -> Vec<Lookups> {
        let counted = self.0.cache().stats();
        vec![Lookups { nodes: "nodes", hits: counted.hits, reads: counted.misses, read_bytes: None }]
    }

    fn tables_left(&self) -> Result<Vec<TableId>> {
        salvage::tables_with_nodes(self.0.store())
    }

    fn remove_left(&self, table: TableId) -> Result<()> {
        Ok(DocLog::remove_table(Content::Nodes, self.0.store(), table.0)?)
    }

    fn newest_root(&self, table: TableId) -> Result<Option<FoundRoot>> {
        salvage::newest_root(&self.0, table)
    }
}
