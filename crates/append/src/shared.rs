//! What all tries of a database share: the store, and the cache of nodes.
//!
//! A node is cached under its table, segment and offset: nothing is ever written to that place again, so an image is never stale.

use std::sync::Arc;

use cache::Cache;
use doclog::{DocLog, DocPointer, SegmentId};
use index::{Error, ReadAhead, Result, TableId};
use psync::Psync;
use space::{FileStore, Reserve};

use crate::format::Damage;
use crate::format::node::Node;

/// Bytes of a node segment at least and at most, and the part that one is of what is alive: a segment goes as a whole, so where there is little, they are small.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
const SEGMENT_PART: u64 = 256;
/// Segments for which there is to be room on a full disk: deletes may fill two of them, and what is in another one that is emptied finds room in the others.
const RESERVE_SEGMENTS: u64 = 4;

/// What all tries of a database share.
pub struct Shared {
    store: FileStore,
    cache: Cache<Key, Arc<Node>>,
    read_ahead: Arc<ReadAhead>,
    reserve: Arc<Reserve>,
    segment_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    table: TableId,
    segment: SegmentId,
    offset: u64,
}

fn key_of(table: TableId, pointer: &DocPointer) -> Key {
    Key { table, segment: pointer.segment, offset: pointer.offset }
}

impl Shared {
    /// Tries whose segments are in `store`.
    #[must_use]
    pub fn new(store: &FileStore, cache_bytes: u64) -> Self {
        let read_ahead = Arc::new(ReadAhead::new(u64::MAX));
        let weigh = |_: &Key, node: &Arc<Node>| (size_of::<Node>() + node.heap_bytes()) as u64;
        Self {
            store: store.clone(),
            cache: Cache::new(cache_bytes, weigh),
            read_ahead,
            reserve: Arc::new(Reserve::new(store)),
            segment_bytes: SEGMENT_BYTES_MAX,
        }
    }

    /// Scans that share this memory with others.
    #[must_use]
    pub fn with_read_ahead(mut self, read_ahead: Arc<ReadAhead>) -> Self {
        self.read_ahead = read_ahead;
        self
    }

    /// Tries whose room on a full disk is kept together with that of others.
    #[must_use]
    pub fn with_reserve(mut self, reserve: Arc<Reserve>) -> Self {
        self.reserve = reserve;
        self
    }

    /// Node segments of that many bytes at most.
    #[must_use]
    pub const fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Where their segments are.
    pub const fn store(&self) -> &FileStore {
        &self.store
    }

    /// Bytes of the next segment of a trie whose nodes take so many.
    pub(crate) fn segment_bytes(&self, live_bytes: u64) -> u64 {
        (live_bytes / SEGMENT_PART).max(SEGMENT_BYTES_MIN).min(self.segment_bytes)
    }

    /// The room that is to be kept on the disk for tries whose nodes take so many bytes together.
    #[must_use]
    pub fn room_bytes(&self, live_bytes: u64) -> u64 {
        RESERVE_SEGMENTS * self.segment_bytes(live_bytes)
    }

    /// Room on the disk for tries that become smaller. Who makes anything else longer fills it up first.
    pub(crate) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// What all scans read ahead.
    pub(crate) const fn read_ahead(&self) -> &Arc<ReadAhead> {
        &self.read_ahead
    }

    /// Most nodes that are read together ahead of a scan.
    pub(crate) fn pio_max(&self) -> usize {
        self.psync().pio_max()
    }

    pub(crate) fn psync(&self) -> &Psync {
        self.store.psync()
    }

    /// Caches at most so many bytes from now on.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.cache.set_capacity(bytes);
    }

    /// Forgets every cached node.
    pub fn clear_cache(&self) {
        self.cache.clear();
    }

    /// Size and use of the cache.
    #[must_use]
    pub fn cache_stats(&self) -> cache::Stats {
        self.cache.stats()
    }

    /// Caches nodes that were made, and forgets those that were dropped.
    pub(crate) fn renew(&self, table: TableId, made: &[(DocPointer, Arc<Node>)], dropped: &[DocPointer]) {
        made.iter().for_each(|(pointer, node)| self.keep(table, pointer, node));
        dropped.iter().for_each(|pointer| self.forget(table, pointer));
    }

    /// Caches a node.
    fn keep(&self, table: TableId, pointer: &DocPointer, node: &Arc<Node>) {
        self.cache.insert(key_of(table, pointer), Arc::clone(node));
    }

    /// Nobody will ask for a node any more but readers of older versions.
    fn forget(&self, table: TableId, pointer: &DocPointer) {
        self.cache.remove(&key_of(table, pointer));
    }

    /// The nodes that `pointers` lead to, in their order; what is not cached is read in one psync.
    pub(crate) fn nodes(&self, home: &Home<'_>, pointers: &[DocPointer]) -> Result<Vec<Arc<Node>>> {
        let mut nodes: Vec<_> = pointers.iter().map(|pointer| self.cache.get(&key_of(home.table, pointer))).collect();
        let missing: Vec<_> = (0..nodes.len()).filter(|index| nodes[*index].is_none()).collect();
        if !missing.is_empty() {
            let wanted: Vec<_> = missing.iter().map(|index| pointers[*index]).collect();
            for ((index, pointer), bytes) in missing.into_iter().zip(&wanted).zip(home.nodes.read_many(&wanted)?) {
                let node = Node::decode(bytes, home.chunk_bytes);
                let node = Arc::new(node.map_err(|damage| corrupt(home.nodes, pointer, damage))?);
                let is_kept = node.level() > 0 || {
                    let bytes = size_of::<Node>() + node.heap_bytes();
                    self.cache.admits(&key_of(home.table, pointer), bytes as u64)
                };
                if is_kept {
                    self.keep(home.table, pointer, &node);
                }
                nodes[index] = Some(node);
            }
        }
        Ok(nodes.into_iter().flatten().collect())
    }
}

/// Where nodes of a trie are, and what is to be known to read them.
#[derive(Clone, Copy)]
pub(crate) struct Home<'a> {
    pub(crate) table: TableId,
    pub(crate) chunk_bytes: usize,
    pub(crate) nodes: &'a DocLog,
}

/// The error that a document of the node segments does not check.
pub(crate) fn corrupt(nodes: &DocLog, pointer: &DocPointer, damage: Damage) -> Error {
    Error::Corrupt {
        file: nodes.path_of(pointer.segment).display().to_string(),
        offset: pointer.offset + DocPointer::BEFORE_PAYLOAD + damage.offset as u64,
        what: damage.what,
        expected: damage.expected,
        found: damage.found,
    }
}
