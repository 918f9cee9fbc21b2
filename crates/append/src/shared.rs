//! The parts that all tries of a database share: the store, and the cache of nodes.
//!
//! A node is cached under its table, segment and offset. Nothing is ever written to that place again, so a cached node
//! is never stale.

use std::sync::Arc;

use cache::{Beside, Cache, Front, Held, Part, Words, front_slots};
use doclog::{DocLog, DocPointer, SegmentId};
use index::{Error, ReadAhead, Result, TableId};
use psync::Psync;
use space::{FileStore, Reserve};

use crate::format::Damage;
use crate::format::node::Node;

/// Bounds for the bytes of a node segment, and the fraction of the live bytes that one segment is. A segment is
/// released as a whole, so segments are small while there are few bytes.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
const SEGMENT_PART: u64 = 512;
/// Segments for which space is reserved on a full disk. Deletes may fill two of them; the live nodes of an emptied
/// segment find space in the others.
const RESERVE_SEGMENTS: u64 = 4;

/// The parts that all tries of a database share.
pub struct Shared {
    store: FileStore,
    cache: Cache<Key, Arc<Node>, Nodes>,
    read_ahead: Arc<ReadAhead>,
    reserve: Arc<Reserve>,
    segment_bytes: u64,
    lookups_in_flight: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    table: TableId,
    segment: SegmentId,
    offset: u64,
}

/// The front of the cache: nodes found without the cache's policy.
struct Nodes(Front<Node>);

impl Nodes {
    fn forget(&self, key: &Key) {
        key.words().into_iter().for_each(|words| self.0.forget(words));
    }
}

impl Beside<Key> for Nodes {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn forget(&self, key: &Key) {
        self.forget(key);
    }

    fn clear(&self) {
        self.0.clear();
    }

    fn sweep(&self, asked: &mut dyn FnMut(&Key)) {
        self.0.sweep(|words| asked(&Key::of_words(words)));
    }
}

impl Key {
    /// The key in the front. A segment whose number does not fit in 32 bits has no key there; no table comes that far.
    fn words(&self) -> Option<Words> {
        let segment = u32::try_from(self.segment.0).ok()?;
        Some([u64::from(self.table.0) << u32::BITS | u64::from(segment), self.offset])
    }

    fn of_words([file, offset]: Words) -> Self {
        let (table, segment) = (TableId((file >> u32::BITS) as u32), SegmentId(file & u64::from(u32::MAX)));
        Self { table, segment, offset }
    }
}

fn key_of(table: TableId, pointer: &DocPointer) -> Key {
    Key { table, segment: pointer.segment, offset: pointer.offset }
}

impl Shared {
    /// The shared parts of tries whose segments are in `store`, with a cache of `cache_bytes`.
    #[must_use]
    pub fn new(store: &FileStore, cache_bytes: u64) -> Self {
        let read_ahead = Arc::new(ReadAhead::new(u64::MAX));
        let weigh = |_: &Key, node: &Arc<Node>| (size_of::<Node>() + node.heap_bytes()) as u64;
        Self {
            store: store.clone(),
            cache: Cache::with_front(cache_bytes, weigh, Nodes(Front::new(front_slots(cache_bytes)))),
            read_ahead,
            reserve: Arc::new(Reserve::new(store)),
            segment_bytes: SEGMENT_BYTES_MAX,
            lookups_in_flight: store.psync().pio_max(),
        }
    }

    /// Scans use this read-ahead memory, together with the scans of others.
    #[must_use]
    pub fn with_read_ahead(mut self, read_ahead: Arc<ReadAhead>) -> Self {
        self.read_ahead = read_ahead;
        self
    }

    /// The space reserved for a full disk is kept together with that of others.
    #[must_use]
    pub fn with_reserve(mut self, reserve: Arc<Reserve>) -> Self {
        self.reserve = reserve;
        self
    }

    /// Node segments have at most that many bytes.
    #[must_use]
    pub const fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Batches of lookups keep so many requests in flight.
    #[must_use]
    pub const fn with_lookups_in_flight(mut self, requests: usize) -> Self {
        self.lookups_in_flight = requests;
        self
    }

    /// The store of the segments.
    pub const fn store(&self) -> &FileStore {
        &self.store
    }

    /// Bytes of the next segment of a trie with `live_bytes` of nodes.
    pub(crate) fn segment_bytes(&self, live_bytes: u64) -> u64 {
        (live_bytes / SEGMENT_PART).max(SEGMENT_BYTES_MIN).min(self.segment_bytes)
    }

    /// Bytes to be reserved on the disk for tries whose nodes take `live_bytes` together.
    #[must_use]
    pub fn room_bytes(&self, live_bytes: u64) -> u64 {
        RESERVE_SEGMENTS * self.segment_bytes(live_bytes)
    }

    /// Space on the disk for tries that become smaller. Writers that make any other file longer fill the reserve up
    /// first.
    pub(crate) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// The memory in which all scans read ahead.
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

    /// The cache of nodes. Lent memory is for leaves that the cache does not admit.
    #[must_use]
    pub const fn cache(&self) -> &dyn Part {
        &self.cache
    }

    /// The cache can be lent up to so many bytes.
    #[must_use]
    pub fn with_loans_of(mut self, most_bytes: u64) -> Self {
        self.cache = self.cache.with_loans_of(most_bytes);
        self
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

    /// Forgets a node that only readers of older versions can still ask for.
    fn forget(&self, table: TableId, pointer: &DocPointer) {
        self.cache.remove(&key_of(table, pointer));
    }

    /// The node that `pointer` leads to, if the cache has it; borrowed if the front of the cache has it. Nodes of
    /// lookups come to the front. Not finding it is not counted as a miss.
    #[inline]
    pub(crate) fn cached_node(&self, home: &Home<'_>, pointer: &DocPointer, reader: Reader) -> Option<Held<Node>> {
        let (key, front) = (key_of(home.table, pointer), &self.cache.front().0);
        if let Some(node) = key.words().and_then(|words| front.get(words)) {
            self.cache.count_front_hit();
            return Some(node);
        }
        let node = self.cache.find(&key)?;
        if let Some(words) = key.words().filter(|_| reader == Reader::Lookup) {
            self.cache.lift(&key, front, words, &node, |other| Arc::ptr_eq(other, &node));
        }
        Some(Held::of(node))
    }

    /// The node that `pointer` leads to, borrowed if the front of the cache has the node.
    #[inline]
    pub(crate) fn held_node(&self, home: &Home<'_>, pointer: &DocPointer) -> Result<Held<Node>> {
        if let Some(node) = self.cached_node(home, pointer, Reader::Lookup) {
            return Ok(node);
        }
        self.cache.count_miss();
        if let Some(node) = self.read_before(home, pointer) {
            return Ok(Held::of(node));
        }
        let mut read = None;
        self.read(home, std::slice::from_ref(pointer), Reader::Lookup, &mut |_, node| read = Some(node))?;
        Ok(Held::of(read.expect("a node for each pointer")))
    }

    /// The nodes that `pointers` lead to, in their order; nodes that are not cached are read in one psync.
    pub(crate) fn nodes(&self, home: &Home<'_>, pointers: &[DocPointer], reader: Reader) -> Result<Vec<Arc<Node>>> {
        let find = |pointer| self.cache.get(&key_of(home.table, pointer)).or_else(|| self.read_before(home, pointer));
        let mut nodes: Vec<_> = pointers.iter().map(find).collect();
        let missing: Vec<_> = (0..nodes.len()).filter(|index| nodes[*index].is_none()).collect();
        if !missing.is_empty() {
            let wanted: Vec<_> = missing.iter().map(|index| pointers[*index]).collect();
            self.read(home, &wanted, reader, &mut |place, node| nodes[missing[place]] = Some(node))?;
        }
        Ok(nodes.into_iter().flatten().collect())
    }

    /// A leaf whose bytes were read not long ago.
    fn read_before(&self, home: &Home<'_>, pointer: &DocPointer) -> Option<Arc<Node>> {
        let decode = |bytes: &[u8]| Node::decode(bytes, home.chunk_bytes).ok().map(Arc::new);
        self.cache.found_read(&key_of(home.table, pointer), decode)
    }

    /// Reads nodes in one psync, and caches those that the cache admits. The bytes of the others are kept for a lookup
    /// as long as there is lent memory. `show` gets each node as soon as the node has come, with its place among the
    /// pointers, while others are read.
    fn read(
        &self, home: &Home<'_>, pointers: &[DocPointer], reader: Reader, show: &mut dyn FnMut(usize, Arc<Node>),
    ) -> Result<()> {
        let mut failed: Option<(usize, Error)> = None;
        home.nodes.read_as_they_come(pointers, self.lookups_in_flight, &mut |place, bytes| {
            let node =
                bytes.map_err(Error::from).and_then(|bytes| self.read_node(home, &pointers[place], bytes, reader));
            match node {
                Ok(node) => show(place, node),
                Err(error) if failed.as_ref().is_none_or(|(first, _)| place < *first) => failed = Some((place, error)),
                Err(_) => {}
            }
        });
        failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn read_node(&self, home: &Home<'_>, pointer: &DocPointer, bytes: Vec<u8>, reader: Reader) -> Result<Arc<Node>> {
        let node = Node::decode(&bytes, home.chunk_bytes);
        let node = Arc::new(node.map_err(|damage| corrupt(home.nodes, pointer, damage))?);
        let is_kept = node.level() > 0 || {
            let bytes = size_of::<Node>() + node.heap_bytes();
            self.cache.admits(&key_of(home.table, pointer), bytes as u64)
        };
        if is_kept {
            self.keep(home.table, pointer, &node);
        } else if reader == Reader::Lookup {
            self.cache.put_read(&key_of(home.table, pointer), index::Image::bytes(&*node));
        }
        Ok(node)
    }
}

/// The kind of reader, which decides whether bytes of a node are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A lookup or the beginning of a scan, which may come again.
    Lookup,
    /// A walk that takes one node after the other, each once.
    Walk,
}

/// The place of a trie's nodes, and the facts needed to read them.
#[derive(Clone, Copy)]
pub(crate) struct Home<'a> {
    pub(crate) table: TableId,
    pub(crate) chunk_bytes: usize,
    pub(crate) nodes: &'a DocLog,
}

/// The error for a document of the node segments that does not check.
pub(crate) fn corrupt(nodes: &DocLog, pointer: &DocPointer, damage: Damage) -> Error {
    damage.at(nodes.path_of(pointer.segment).display(), pointer.offset + DocPointer::BEFORE_PAYLOAD)
}
