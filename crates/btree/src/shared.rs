//! The parts that all trees of a database share: the file, the cache, incarnations and counters.
//!
//! 1. Internal nodes and blocks of leaves are cached, checked, under their page *and* incarnation, so an extent in a
//!    new life never meets an image of an old one.
//! 2. Reads of several nodes go to the device as one psync.
//! 3. A leaf that has no cached image may have its last page cached, for the next append.
//! 4. Searches of single keys find nodes and blocks of leaves in the cache's front. Each of the two kinds has its own
//!    front.
//! 5. Buffers of a finished search or scan wait here for the next one ([`SPARE_BYTES`]).
//!
//! Invariant: a cached image of a block that was appended to may be older or younger than the pointer that asks for the
//! block. The image is used only if it holds the runs that the pointer publishes ([`Leaf::seen`], and the same test for
//! last pages).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cache::{Beside, Cache, Front, Held, Part, Words, front_slots};
use index::{Error, ReadAhead, Result, TableId};
use mapped::{Shared as Heap, SharedBytes};
use parking_lot::Mutex;
use psync::{Buffer, Psync, Request, Spares};
use seeded::Bug;
use space::{PAGE, PagedFile};

use crate::counters::{Counters, CountersSnapshot, count};
use crate::cursor::Piece;
use crate::filter::Link;
use crate::format::node::{NodeIdentity, decode};
use crate::format::{Damage, INCARNATION_COUNTER_BITS, Pointer};
use crate::leaf::{Leaf, Span, Visible};
use crate::leaf_size::LeafSize;
use crate::node::Node;

/// The parts that all trees of a database share.
pub struct Shared {
    pages: Arc<PagedFile>,
    cache: Cache<Key, Image, Fronts>,
    epoch: u32,
    incarnations: AtomicU64,
    gap_bytes: usize,
    lookups_in_flight: Option<usize>,
    leaf_size: LeafSize,
    spares: Mutex<Spares>,
    read_ahead: Arc<ReadAhead>,
    pub(crate) counters: Counters,
}

/// Most bytes of buffers that a search or a scan keeps for its later reads and then leaves to the next one.
const SPARE_BYTES: usize = 2 << 20;

/// Longest gap in pages between two wanted pages that is read with them rather than skipped, unless the device says
/// otherwise.
const GAP_PAGES: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    page: u64,
    incarnation: u64,
    tail: bool,
}

#[derive(Clone)]
enum Image {
    Node(Arc<Node>),
    Leaf(Arc<Leaf>),
    Tail(Arc<Tail>),
}

/// The last page of a leaf, up to the published end. Length and CRC are those of the published bytes.
pub(crate) struct Tail {
    pub(crate) bytes: SharedBytes,
    length: u32,
    chain: u32,
}

/// The fronts of the cache: images that are found without its policy. Last pages are not among them.
struct Fronts {
    nodes: Front<Node>,
    leaves: Front<Leaf>,
}

/// Blocks of leaves, for each node, that the front has room for at least.
const LEAVES_PER_NODE: u64 = 8;

impl Fronts {
    fn new(cache_bytes: u64) -> Self {
        let slots = front_slots(cache_bytes);
        Self { nodes: Front::new(slots / LEAVES_PER_NODE), leaves: Front::new(slots) }
    }
}

impl Beside<Key> for Fronts {
    fn bytes(&self) -> u64 {
        self.nodes.bytes() + self.leaves.bytes()
    }

    fn forget(&self, key: &Key) {
        if !key.tail {
            self.nodes.forget(key.words());
            self.leaves.forget(key.words());
        }
    }

    fn clear(&self) {
        self.nodes.clear();
        self.leaves.clear();
    }

    fn sweep(&self, asked: &mut dyn FnMut(&Key)) {
        let mut show = |[page, incarnation]: Words| asked(&Key { page, incarnation, tail: false });
        self.nodes.sweep(&mut show);
        self.leaves.sweep(&mut show);
    }
}

impl Key {
    const fn words(&self) -> Words {
        [self.page, self.incarnation]
    }
}

fn weigh(_: &Key, image: &Image) -> u64 {
    let bytes = match image {
        Image::Node(node) => size_of::<Node>() + node.heap_bytes(),
        Image::Leaf(leaf) => size_of::<Leaf>() + leaf.heap_bytes(),
        Image::Tail(tail) => size_of::<Tail>() + Heap::taken(tail.bytes.len()),
    };
    bytes as u64
}

impl Shared {
    /// `epoch` is larger at each open of the database, so incarnations differ from all earlier ones.
    #[must_use]
    pub fn new(pages: Arc<PagedFile>, cache_bytes: u64, epoch: u32) -> Self {
        Self {
            pages,
            cache: Cache::with_front(cache_bytes, weigh, Fronts::new(cache_bytes)),
            epoch,
            incarnations: AtomicU64::new(1),
            gap_bytes: GAP_PAGES * PAGE,
            lookups_in_flight: None,
            leaf_size: LeafSize::default(),
            spares: Mutex::default(),
            read_ahead: Arc::new(ReadAhead::new(u64::MAX)),
            counters: Counters::default(),
        }
    }

    /// The longest gap, in `pages`, that is read together with the pages on both sides of it rather than skipped. Such
    /// a gap costs the device as much as one more request.
    #[must_use]
    pub fn with_gap(mut self, pages: usize) -> Self {
        self.gap_bytes = pages * PAGE;
        self
    }

    /// A batch of lookups keeps so many requests in flight, instead of the number that all other operations use. Most
    /// of these requests are of one page each.
    #[must_use]
    pub const fn with_lookups_in_flight(mut self, requests: usize) -> Self {
        self.lookups_in_flight = Some(requests);
        self
    }

    /// Requests that a batch of lookups keeps in flight.
    pub fn lookups_in_flight(&self) -> usize {
        self.lookups_in_flight.unwrap_or_else(|| self.psync().pio_max())
    }

    /// Leaves of long entries may have more pages than the other leaves of the tree, so that a batch brings several
    /// entries to each.
    #[must_use]
    pub const fn with_longer_leaves(mut self, allowed: bool) -> Self {
        self.leaf_size = LeafSize { follows_entries: allowed };
        self
    }

    pub(crate) const fn leaf_size(&self) -> LeafSize {
        self.leaf_size
    }

    /// `read_ahead` bounds the bytes that all scans together read ahead, besides the bound of each scan.
    #[must_use]
    pub fn with_read_ahead(mut self, read_ahead: Arc<ReadAhead>) -> Self {
        self.read_ahead = read_ahead;
        self
    }

    /// The bound of the bytes that scans read ahead.
    #[must_use]
    pub const fn read_ahead(&self) -> &Arc<ReadAhead> {
        &self.read_ahead
    }

    pub(crate) const fn gap_bytes(&self) -> usize {
        self.gap_bytes
    }

    /// The file that the trees are in.
    #[must_use]
    pub const fn pages(&self) -> &Arc<PagedFile> {
        &self.pages
    }

    /// The cache of nodes and leaves. Lent memory is for pages of leaves that the cache does not admit.
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

    /// The counters of the trees.
    #[must_use]
    pub fn counters(&self) -> CountersSnapshot {
        self.counters.snapshot()
    }

    /// Buffers that an earlier search or scan has left, at most so many bytes, for the caller's reads alone.
    pub(crate) fn take_spares(&self, bytes: usize) -> Spares {
        let spares = std::mem::take(&mut *self.spares.lock());
        spares.at_most(bytes.min(SPARE_BYTES))
    }

    /// Leaves buffers to the next search or scan.
    pub(crate) fn leave_spares(&self, spares: Spares) {
        let left = std::mem::replace(&mut *self.spares.lock(), spares);
        drop(left);
    }

    pub(crate) fn psync(&self) -> &Psync {
        self.pages.psync()
    }

    /// An incarnation that was never given before.
    pub(crate) fn incarnation(&self) -> u64 {
        let counter = self.incarnations.fetch_add(1, Ordering::Relaxed);
        (u64::from(self.epoch) << INCARNATION_COUNTER_BITS).wrapping_add(counter)
    }

    /// The error for bytes of a node or leaf that do not check.
    pub(crate) fn corrupt(&self, pointer: &Pointer, damage: Damage) -> Error {
        damage.at(self.pages.file().path().display(), pointer.offset())
    }

    /// A request for `bytes` of an extent from its page `first` on.
    pub(crate) fn read(&self, pointer: &Pointer, first: usize, bytes: usize, tag: u64) -> Request {
        let offset = pointer.offset() + (first * PAGE) as u64;
        Request::read(self.pages.file(), offset, Buffer::for_read(bytes), tag)
    }

    /// The internal node that `pointer` points to.
    pub(crate) fn node(&self, table: TableId, pointer: &Pointer, level: u8) -> Result<Arc<Node>> {
        self.held_node(table, pointer, level).map(|node| Arc::clone(node.shared()))
    }

    fn cached_node(&self, pointer: &Pointer, level: u8) -> Option<Arc<Node>> {
        match self.cache.get(&key_of(pointer))? {
            Image::Node(node) if node.level() == level => {
                self.counters.node_hits.add(1);
                Some(node)
            }
            _ => None,
        }
    }

    /// The internal node that `pointer` points to, borrowed where the front of the cache has it.
    #[inline]
    pub(crate) fn held_node(&self, table: TableId, pointer: &Pointer, level: u8) -> Result<Held<Node>> {
        match self.found_node(pointer, level) {
            Some(node) => Ok(node),
            None => {
                let mut read = self.read_nodes(table, &[pointer], level)?;
                Ok(Held::of(read.pop().expect("as many nodes as pointers")))
            }
        }
    }

    /// The node, if the cache has it. The front is asked first.
    #[inline]
    fn found_node(&self, pointer: &Pointer, level: u8) -> Option<Held<Node>> {
        let key = key_of(pointer);
        if let Some(node) = self.cache.front().nodes.get(key.words()).filter(|node| node.level() == level) {
            self.cache.count_front_hit();
            self.counters.node_hits.add(1);
            return Some(node);
        }
        let node = self.cached_node(pointer, level)?;
        let is_it = |image: &Image| matches!(image, Image::Node(other) if Arc::ptr_eq(other, &node));
        self.cache.lift(&key, &self.cache.front().nodes, key.words(), &node, is_it);
        Some(Held::of(node))
    }

    /// An image of a block of a leaf, borrowed where the front of the cache has it. [`Leaf::seen`] says whether the
    /// image holds the runs that `pointer` publishes. The caller counts the hit if the image is of use.
    #[inline]
    pub(crate) fn held_block(&self, pointer: &Pointer, block: usize) -> Option<Held<Leaf>> {
        let key = block_key(pointer, block);
        if let Some(leaf) = self.cache.front().leaves.get(key.words()) {
            self.cache.count_front_hit();
            return Some(leaf);
        }
        let Image::Leaf(leaf) = self.cache.get(&key)? else { return None };
        let is_it = |image: &Image| matches!(image, Image::Leaf(other) if Arc::ptr_eq(other, &leaf));
        self.cache.lift(&key, &self.cache.front().leaves, key.words(), &leaf, is_it);
        Some(Held::of(leaf))
    }

    /// Whether the node is in the cache. The look leaves no trace.
    pub(crate) fn has_node(&self, pointer: &Pointer) -> bool {
        self.cache.peek(&key_of(pointer)).is_some()
    }

    /// The nodes that `pointers` point to, in their order. Nodes that are not cached are read in one psync.
    pub(crate) fn nodes(&self, table: TableId, pointers: &[Pointer], level: u8) -> Result<Vec<Arc<Node>>> {
        let found = |pointer: &Pointer| self.found_node(pointer, level).map(|node| Arc::clone(node.shared()));
        let mut nodes: Vec<_> = pointers.iter().map(found).collect();
        let is_missing = |(pointer, node): (_, &Option<_>)| node.is_none().then_some(pointer);
        let missing: Vec<_> = pointers.iter().zip(&nodes).filter_map(is_missing).collect();
        if !missing.is_empty() {
            let mut read = self.read_nodes(table, &missing, level)?.into_iter();
            nodes.iter_mut().filter(|node| node.is_none()).for_each(|node| *node = read.next());
        }
        Ok(nodes.into_iter().flatten().collect())
    }

    /// Reads nodes in one psync.
    fn read_nodes(&self, table: TableId, pointers: &[&Pointer], level: u8) -> Result<Vec<Arc<Node>>> {
        count(&self.counters.node_psyncs, 1);
        let requests = pointers.iter().map(|pointer| self.read(pointer, 0, PAGE, 0)).collect();
        let pages = self.psync().run_all(requests)?.into_iter();
        let parse = |(page, pointer): (Option<Buffer>, &&Pointer)| {
            self.parse_node(table, pointer, level, &page.expect("a read hands its buffer back"))
        };
        pages.zip(pointers).map(parse).collect()
    }

    /// Parses a node that was read, and caches it.
    pub(crate) fn parse_node(&self, table: TableId, pointer: &Pointer, level: u8, page: &[u8]) -> Result<Arc<Node>> {
        count(&self.counters.node_reads, 1);
        let identity = NodeIdentity { table, page: pointer.page, incarnation: pointer.incarnation, level };
        let node = decode(&identity, page).map_err(|damage| self.corrupt(pointer, damage))?;
        Ok(self.keep_node(pointer, node))
    }

    /// Caches a node.
    pub(crate) fn keep_node(&self, pointer: &Pointer, node: Node) -> Arc<Node> {
        let node = Arc::new(node);
        self.cache.insert(key_of(pointer), Image::Node(Arc::clone(&node)));
        node
    }

    /// The cached image of a block of a leaf, if the image holds the runs that `pointer` publishes.
    pub(crate) fn cached_block(&self, pointer: &Pointer, block: usize, link: Link) -> Option<Arc<Leaf>> {
        let leaf = usable(pointer, block, link.end, self.cache.get(&block_key(pointer, block))?)?;
        self.counters.leaf_hits.add(1);
        Some(leaf)
    }

    /// The same, or an image of bytes that were read for the block not long ago, checked anew.
    pub(crate) fn found_block(&self, table: TableId, pointer: &Pointer, block: usize, link: Link) -> Option<Arc<Leaf>> {
        if let Some(leaf) = self.cached_block(pointer, block, link) {
            return Some(leaf);
        }
        let (key, of) = (block_key(pointer, block), pointer.block(block));
        // The leaf may have been appended to since those bytes were read. Then the device has runs that are missing
        // here.
        let parse = |bytes: &[u8]| Leaf::parse(bytes, pointer, of, link, table).ok().map(Arc::new).map(Image::Leaf);
        let Image::Leaf(leaf) = self.cache.found_read(&key, parse)? else { return None };
        self.counters.leaf_hits.add(1);
        Some(leaf)
    }

    /// The same for a part of a leaf that was not appended to. The look leaves no trace.
    pub(crate) fn peek_part(&self, pointer: &Pointer, part: usize) -> Option<Arc<Leaf>> {
        usable(pointer, part, None, self.cache.peek(&block_key(pointer, part))?)
    }

    /// The cached image of the last block of a leaf, if the image holds the runs that `pointer` publishes. The look
    /// leaves no trace.
    pub(crate) fn cached_end(&self, pointer: &Pointer) -> Option<Arc<Leaf>> {
        self.peek_part(pointer, pointer.blocks() - 1)
    }

    /// Checks a piece that a scan has read, one part of a leaf or all parts from one on, and caches the piece if the
    /// cache admits it. None where the cache does not.
    pub(crate) fn keep_scanned(&self, table: TableId, piece: &Piece, pages: &[u8]) -> Result<Option<Arc<Leaf>>> {
        let pointer = &piece.pointer;
        let key = block_key(pointer, if piece.to_end { pointer.blocks() - 1 } else { piece.part });
        if !self.cache.admits(&key, pages.len() as u64) {
            return Ok(None);
        }
        let leaf = Leaf::parse(pages, pointer, piece.of(), Link::default(), table);
        let leaf = Arc::new(leaf.map_err(|damage| self.corrupt(pointer, damage))?);
        if piece.to_end {
            self.keep_leaf(pointer, &leaf);
        } else {
            self.cache.insert(key, Image::Leaf(Arc::clone(&leaf)));
        }
        Ok(Some(leaf))
    }

    /// The image of a leaf from a part on, if all blocks from there on are cached. The look leaves no trace.
    pub(crate) fn cached_leaf(&self, pointer: &Pointer, part: usize) -> Option<Arc<Leaf>> {
        let end = self.cached_end(pointer)?;
        let last = pointer.blocks() - 1;
        if part == last {
            return Some(end);
        }
        let peek = |block| match self.cache.peek(&block_key(pointer, block))? {
            Image::Leaf(leaf) => Some(leaf),
            _ => None,
        };
        let mut blocks = (part..last).map(peek).collect::<Option<Vec<_>>>()?;
        blocks.push(end);
        Leaf::joined(&blocks, pointer).map(Arc::new)
    }

    /// Parses a leaf that was read, without caching it.
    pub(crate) fn parse_leaf(&self, table: TableId, pointer: &Pointer, pages: &[u8]) -> Result<Leaf> {
        self.count_leaf_read(pages);
        let leaf = Leaf::parse(pages, pointer, pointer.all(), Link::default(), table);
        leaf.map_err(|damage| self.corrupt(pointer, damage))
    }

    /// Checks a block of a leaf that was read and shows it to `look`. The block is cached too, if the cache admits it.
    /// A block that is not cached needs no image of its own, but room for the list of its runs.
    pub(crate) fn with_block<T>(
        &self, table: TableId, block: (&Pointer, usize, Link), pages: &[u8], spans: &mut Vec<Span>,
        look: impl FnOnce(&Visible<'_>) -> std::result::Result<T, Damage>,
    ) -> Result<T> {
        self.count_leaf_read(pages);
        let (pointer, number, link) = block;
        let of = pointer.block(number);
        let key = block_key(pointer, number);
        if self.cache.admits(&key, pages.len() as u64) {
            let leaf = Leaf::parse(pages, pointer, of, link, table).map_err(|damage| self.corrupt(pointer, damage))?;
            let found = self.look_into(block, &leaf, look);
            self.cache.insert(key, Image::Leaf(Arc::new(leaf)));
            return found;
        }
        let published = pages.len().min((pointer.length as usize).saturating_sub(of.start));
        let found = Visible::check(pages, pointer, of, link, table, spans).and_then(|leaf| look(&leaf));
        if found.is_ok() {
            self.cache.put_read(&key, &pages[..published]);
        }
        found.map_err(|damage| self.corrupt(pointer, damage))
    }

    /// Shows to `look` the runs of an image that the pointer of the block publishes. The image was found in the cache
    /// or parsed by that pointer.
    pub(crate) fn look_into<T>(
        &self, (pointer, block, link): (&Pointer, usize, Link), leaf: &Leaf,
        look: impl FnOnce(&Visible<'_>) -> std::result::Result<T, Damage>,
    ) -> Result<T> {
        let visible = leaf.seen(pointer, block, link.end).expect("a block is chosen or read by this pointer");
        look(&visible).map_err(|damage| self.corrupt(pointer, damage))
    }

    fn count_leaf_read(&self, pages: &[u8]) {
        count(&self.counters.leaf_reads, 1);
        count(&self.counters.leaf_read_bytes, pages.len());
    }

    /// Caches the blocks of a leaf, from the beginning of the image to the last. The image begins where a block begins.
    pub(crate) fn keep_leaf(&self, pointer: &Pointer, leaf: &Arc<Leaf>) {
        let last = pointer.blocks() - 1;
        if leaf.first() == pointer.block(last).start {
            self.cache.insert(block_key(pointer, last), Image::Leaf(Arc::clone(leaf)));
            return;
        }
        for block in (0..=last).skip_while(|block| pointer.block(*block).start < leaf.first()) {
            let image = leaf.block(pointer.block(block));
            self.cache.insert(block_key(pointer, block), Image::Leaf(Arc::new(image)));
        }
    }

    /// The cached last page of a leaf, if that page is the one that `pointer` publishes.
    pub(crate) fn cached_tail(&self, pointer: &Pointer) -> Option<Arc<Tail>> {
        match self.cache.get(&tail_key(pointer))? {
            Image::Tail(tail) if tail_matches(&tail, pointer) => {
                count(&self.counters.tail_hits, 1);
                Some(tail)
            }
            _ => None,
        }
    }

    /// Caches the last page of a leaf.
    pub(crate) fn keep_tail(&self, pointer: &Pointer, page: &[u8]) {
        let bytes = Heap::copied(&page[..pointer.length as usize % PAGE]);
        let tail = Tail { bytes, length: pointer.length, chain: pointer.chain };
        self.cache.insert(tail_key(pointer), Image::Tail(Arc::new(tail)));
    }
}

/// The image of a block, if it holds the runs that `pointer` publishes.
fn usable(pointer: &Pointer, block: usize, end: Option<u32>, image: Image) -> Option<Arc<Leaf>> {
    match image {
        Image::Leaf(leaf) if leaf.seen(pointer, block, end).is_some() => Some(leaf),
        _ => None,
    }
}

/// The key of a node, or of a leaf's first block. The two never collide, because no leaf and node share a page with the
/// same incarnation.
fn key_of(pointer: &Pointer) -> Key {
    Key { page: pointer.page, incarnation: pointer.incarnation, tail: false }
}

/// The key of a block of a leaf.
fn block_key(pointer: &Pointer, block: usize) -> Key {
    Key { page: pointer.page + (pointer.block(block).start / PAGE) as u64, ..key_of(pointer) }
}

/// The key of a leaf's last page.
fn tail_key(pointer: &Pointer) -> Key {
    Key { tail: true, ..key_of(pointer) }
}

fn tail_matches(tail: &Tail, pointer: &Pointer) -> bool {
    let same = tail.length == pointer.length && tail.chain == pointer.chain;
    same || seeded::on(Bug::StaleCachedTail)
}
