//! The kind of all LSM trees.

use std::sync::Arc;

use cache::Part;
use doclog::DocLog;
use index::{Facts, FoundRoot, Home, Index, Kind, Lookups, Result, TableId};

use crate::shared::Shared;
use crate::sst::{self, DIRECTORY};
use crate::tree::Tree;
use crate::{INLINE_BYTES_MAX, KEY_BYTES_MAX, salvage};

/// Longest value that is not a document, unless a table wants longer ones.
const INLINE_BYTES: usize = 2 << 10;

/// The facts of the kind.
pub const FACTS: Facts = Facts {
    name: "lsm",
    code: 3,
    key_bytes_max: KEY_BYTES_MAX,
    inline_bytes: INLINE_BYTES,
    inline_bytes_max: INLINE_BYTES_MAX,
    only_appends: true,
    merges_later: true,
    has_history: false,
    choose: |_| Vec::new(),
    describe: |settings| settings.is_empty().then(Vec::new),
    start,
    directory: Some(DIRECTORY),
    root_of_redo: salvage::root_of_redo,
};

fn start(home: &Home<'_>) -> Option<Arc<dyn Kind>> {
    let shared = Shared::new(home.store, home.cache_bytes)
        .with_loans_of(home.loans_bytes)
        .with_file_bytes(home.segment_bytes)
        .with_lookups_in_flight(home.lookups_in_flight)
        .with_read_ahead(Arc::clone(&home.read_ahead))
        .with_reserve(Arc::clone(&home.reserve));
    Some(Arc::new(Trees(Arc::new(shared))))
}

struct Trees(Arc<Shared>);

impl Kind for Trees {
    fn create(&self, table: TableId, _settings: &[u8], _documents: &Arc<DocLog>) -> Result<Box<dyn Index>> {
        Ok(Box::new(Tree::create(Arc::clone(&self.0), table)?))
    }

    fn open(&self, table: TableId, root: &[u8], _documents: &Arc<DocLog>) -> Result<Box<dyn Index>> {
        Ok(Box::new(Tree::open(Arc::clone(&self.0), table, root)?))
    }

    fn cache(&self) -> Option<&dyn Part> {
        Some(self.0.cache())
    }

    /// A quarter more than the files, for the cache's own needs.
    fn cached_bytes(&self, node_bytes: u64) -> u64 {
        node_bytes + node_bytes / 4
    }

    fn room_bytes(&self, node_bytes: u64) -> u64 {
        self.0.room_bytes(node_bytes)
    }

    fn lookups(&self) -> Vec<Lookups> {
        let counted = self.0.cache().stats();
        vec![Lookups { nodes: "blocks", hits: counted.hits, reads: counted.misses, read_bytes: None }]
    }

    fn tables_left(&self) -> Result<Vec<TableId>> {
        salvage::tables_with_files(self.0.store())
    }

    fn remove_left(&self, table: TableId) -> Result<()> {
        sst::remove_all(self.0.store(), table)
    }

    fn newest_root(&self, table: TableId) -> Result<Option<FoundRoot>> {
        salvage::newest_root(&self.0, table)
    }
}
