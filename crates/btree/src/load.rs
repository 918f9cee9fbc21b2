//! Loading: a tree from entries that come in key order.
//!
//! 1. Entries are packed into runs of a page each, and runs into leaves that are filled to 15/16 ([`packed`]).
//! 2. Leaves get neighbouring extents, cut out of long extents whose length doubles. The pages gather in a buffer,
//!    which is written when it holds [`PIECE_BYTES`]. [`PIECES_IN_FLIGHT`] such writes are under way while the next
//!    buffer is filled.
//! 3. A full list of children becomes a node, and that node becomes a child one level up. The tree grows from its
//!    leaves to its root, and only its right edge is in memory.
//! 4. [`Load::finish`] writes the unfinished leaf and nodes of each level and returns the root.
//!
//! Invariants:
//!
//! - Every page of a leaf's extent is written, so that all writes are long.
//! - No page is written before the caller has made durable that the page is free.
//! - A dropped load gives every page back.
//!
//! Left to others: limits and order of the keys, flushing, the log, installing, and that nothing else changes the tree
//! meanwhile.

use std::sync::Arc;

use index::bloom::Hash;
use index::{Again, Expiry, Load, Loaded, Operation, Payload, Ready, Result, Seq, TableId, Time, Update};
use psync::{Buffer, Request, Stream};
use space::{Extent, PAGE};

use crate::apply::Done;
use crate::apply::claims::Claims;
use crate::apply::layout::packed;
use crate::apply::node_writer::NodeWriter;
use crate::apply::nodes;
use crate::counters::count;
use crate::fences::{Fences, Parts};
use crate::filter::{Maker, Shape};
use crate::format::node::{node_bytes, node_bytes_max};
use crate::format::root::Root;
use crate::format::run::{ENTRY_FIXED, EXPIRY_BYTES, Identity, OneSeqRun, RUN_HEADER};
use crate::format::{INLINE_BYTES_MAX, KEY_BYTES_MAX, Pointer};
use crate::node::{Edges, Keys, separator};
use crate::shared::Shared;
use index::due;

/// Bytes of a write.
const PIECE_BYTES: usize = 1 << 20;

/// Writes that are under way together.
const PIECES_IN_FLIGHT: usize = 8;

/// Pages of the longest extent that leaves are cut out of, unless a leaf is longer: 64 MiB.
const EXTENT_PAGES_MAX: u32 = 16_384;

/// Leaves of the first such extent.
const EXTENT_LEAVES_MIN: u32 = 16;

/// Children kept back when a node is written, so that no node is left with a single child.
const STAY: usize = 2;

const _: () = assert!(RUN_HEADER + ENTRY_FIXED + KEY_BYTES_MAX + INLINE_BYTES_MAX + EXPIRY_BYTES <= packed(PAGE));
// A list too large for a node has at least 2 × `STAY` children, so the written node has at least `STAY`.
const _: () = assert!(node_bytes_max(2 * STAY - 1) <= nodes::PACKED);

/// A tree under construction.
pub(crate) struct TreeLoad {
    // First, so that the writes are complete before the pages are given back.
    writes: Writes,
    claims: Claims,
    shared: Arc<Shared>,
    table: TableId,
    leaf_pages: u32,
    seq: Seq,
    nodes: NodeWriter,
    /// Children without a node yet, by level; those on level 0 are leaves.
    levels: Vec<Edges>,
    region: Option<Region>,
    region_leaves: u32,
    leaf: OpenLeaf,
    run: OneSeqRun,
    /// Bytes available to the run.
    room: usize,
    last_key: Vec<u8>,
    /// Whether an entry expires.
    expires: bool,
}

/// The extent that leaves are being cut out of, and the piece of the extent that is being filled.
struct Region {
    extent: Extent,
    /// Pages of the extent in this piece or before.
    pages: u32,
    piece: Buffer,
    filled: usize,
}

/// The leaf that is being filled.
#[derive(Default)]
struct OpenLeaf {
    low: Vec<u8>,
    fences: Fences,
    page: u64,
    incarnation: u64,
    /// Pages with a run.
    pages: u32,
    length: usize,
    chain: u32,
    entries: u32,
    documents: bool,
    /// Hashes of the leaf's keys.
    hashes: Vec<Hash>,
    /// Expiry times of the entries that expire.
    expiries: Vec<Expiry>,
}

/// Writes that are under way.
struct Writes {
    stream: Stream,
    spare: Vec<Buffer>,
}

impl Load for TreeLoad {
    fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    fn push(&mut self, key: &[u8], payload: Payload<'_>, expiry: Option<Expiry>, ready: &Ready<'_>) -> Result<()> {
        debug_assert!(key > self.last_key.as_slice(), "keys rise");
        let update = Update { key, seq: self.seq, operation: Operation::Put(payload, expiry) };
        if self.run.bytes_with(&update) > self.room {
            self.next_page(&update, ready)?;
        }
        self.run.push(&update);
        self.leaf.documents |= matches!(payload, Payload::Document(_));
        self.leaf.hashes.push(Hash::of(key));
        self.leaf.expiries.extend(expiry);
        self.expires |= expiry.is_some();
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    fn finish(mut self: Box<Self>, ready: &Ready<'_>) -> Result<Loaded> {
        let root = self.root(ready)?;
        if let Some(mut region) = self.region.take() {
            self.claims.shorten(region.extent, region.pages)?;
            region.piece.truncate(region.filled);
            self.write(region.request(&self.shared), ready)?;
        }
        self.nodes.close(&mut self.claims, self.shared.pages().file())?;
        self.write_nodes(ready)?;
        self.writes.wait(0)?;
        let (allocated, retired) = self.claims.keep();
        let (dropped_documents, again) = (Vec::new(), Again::default());
        let done = Done { root, allocated, retired, dropped_documents, again, packed: false };
        Ok(Loaded::new(vec![self.shared.pages().file().clone()], done))
    }
}

impl TreeLoad {
    pub(crate) fn new(shared: &Arc<Shared>, table: TableId, leaf_pages: u32, seq: Seq) -> Self {
        let mut load = Self {
            writes: Writes { stream: shared.psync().stream(PIECES_IN_FLIGHT), spare: Vec::new() },
            claims: Claims::ahead(shared.pages()),
            shared: Arc::clone(shared),
            table,
            leaf_pages,
            seq,
            nodes: NodeWriter::default(),
            levels: Vec::new(),
            region: None,
            region_leaves: EXTENT_LEAVES_MIN,
            leaf: OpenLeaf::default(),
            run: OneSeqRun::new(seq),
            room: 0,
            last_key: Vec::with_capacity(KEY_BYTES_MAX),
            expires: false,
        };
        load.room = load.room_on(0);
        load
    }

    fn root(&mut self, ready: &Ready<'_>) -> Result<Root> {
        let (leaf_pages, expires) = (self.leaf_pages, self.expires);
        if self.run.is_empty() {
            return Ok(Root { height: 0, pointer: None, leaf_pages, expires });
        }
        self.end_page(ready)?;
        self.end_leaf(ready)?;
        let mut level = 0;
        loop {
            let edges = std::mem::take(&mut self.levels[level]);
            level += 1;
            if level == self.levels.len() && edges.len() == 1 {
                let height = u8::try_from(level).expect("a tree has fewer levels than 48-bit page numbers have bits");
                return Ok(Root {
                    height,
                    pointer: edges.pointers().first().map(|only| only.bare()),
                    leaf_pages,
                    expires,
                });
            }
            self.write_node(level, &edges, ready)?;
        }
    }

    /// Bytes available to the run on a page of a leaf.
    fn room_on(&self, page: u32) -> usize {
        packed(self.leaf_pages as usize * PAGE).saturating_sub(page as usize * PAGE).min(PAGE)
    }

    /// Ends the page, and ends the leaf too where `next` does not fit its next page.
    #[cold]
    fn next_page(&mut self, next: &Update<'_>, ready: &Ready<'_>) -> Result<()> {
        self.end_page(ready)?;
        self.room = self.room_on(self.leaf.pages);
        if self.run.bytes_with(next) > self.room {
            self.end_leaf(ready)?;
            self.leaf.low.extend_from_slice(separator(&self.last_key, next.key));
            self.room = self.room_on(0);
        } else {
            self.leaf.fences.add_page(Some(&self.last_key), next.key);
        }
        Ok(())
    }

    /// Puts the run on the leaf's next page.
    fn end_page(&mut self, ready: &Ready<'_>) -> Result<()> {
        if self.leaf.pages == 0 {
            self.leaf.page = self.place()?;
            self.leaf.incarnation = self.shared.incarnation();
            self.leaf.fences.add_page(None, &[]);
        }
        let leaf = &mut self.leaf;
        let identity = Identity { incarnation: leaf.incarnation, table: self.table };
        let start = leaf.pages as usize * PAGE;
        let position = u32::try_from(start).expect("a leaf is shorter than 4 GiB");
        leaf.entries += u32::try_from(self.run.count()).expect("a page holds fewer than 2^16 entries");
        let region = self.region.as_mut().expect("a leaf was given its place in a region");
        let (bytes, chain) = self.run.finish(&identity, position, 0, region.page());
        leaf.chain = chain;
        leaf.length = start + bytes;
        leaf.pages += 1;
        self.end_piece(ready)
    }

    /// Fills up the leaf's extent, and adds the leaf to its parent.
    fn end_leaf(&mut self, ready: &Ready<'_>) -> Result<()> {
        for _ in self.leaf.pages..self.leaf_pages {
            self.region.as_mut().expect("a leaf was given its place in a region").page().fill(0);
            self.end_piece(ready)?;
        }
        let mut leaf = std::mem::take(&mut self.leaf);
        let Parts { sorted, part_log, fences } = leaf.fences.finish(&leaf.low);
        let pointer = Pointer {
            page: leaf.page,
            pages: self.leaf_pages,
            incarnation: leaf.incarnation,
            sorted,
            part_log,
            appended: false,
            length: u32::try_from(leaf.length).expect("a leaf is shorter than 4 GiB"),
            chain: leaf.chain,
            entries: leaf.entries,
            keys_min: leaf.entries,
            documents: leaf.documents,
            due: due::made(leaf.expiries, leaf.entries as usize, Time(0)),
            newest: self.seq,
            filter: Shape::new(self.leaf_pages, sorted, leaf.entries as usize, leaf.length),
        };
        let pointer = pointer.sound();
        let mut filter = Maker::new(pointer.filter, pointer.pages, sorted);
        leaf.hashes.drain(..).for_each(|hash| filter.add_sorted(hash));
        self.leaf.hashes = leaf.hashes;
        count(&self.shared.counters.leaf_pages_written, self.leaf_pages as usize);
        self.add_child(0, &leaf.low, (&fences, &filter.finish()), pointer, ready)
    }

    /// The first page of the next leaf.
    fn place(&mut self) -> Result<u64> {
        let leaf_pages = self.leaf_pages;
        if let Some(region) = &self.region
            && region.pages < region.extent.pages
        {
            return Ok(region.extent.page.0 + u64::from(region.pages));
        }
        let most = (EXTENT_PAGES_MAX / leaf_pages).max(1);
        let extent = self.claims.allocate_long(leaf_pages, self.region_leaves.min(most))?;
        self.region_leaves = most.min(self.region_leaves * 2);
        let piece = self.writes.buffer(extent.bytes());
        self.region = Some(Region { extent, pages: 0, piece, filled: 0 });
        Ok(extent.page.0)
    }

    /// Writes the piece if full, and begins the next.
    fn end_piece(&mut self, ready: &Ready<'_>) -> Result<()> {
        let Some(region) = self.region.take_if(|region| region.filled == region.piece.len()) else { return Ok(()) };
        let (extent, pages) = (region.extent, region.pages);
        self.write(region.request(&self.shared), ready)?;
        let left = extent.pages - pages;
        if left > 0 {
            let piece = self.writes.buffer(u64::from(left) * PAGE as u64);
            self.region = Some(Region { extent, pages, piece, filled: 0 });
        }
        Ok(())
    }

    /// Adds a child to the list of its level; a full list becomes a node.
    fn add_child(
        &mut self, level: usize, low: &[u8], (fences, filter): (&Keys, &[u8]), pointer: Pointer, ready: &Ready<'_>,
    ) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Edges::default());
        }
        let edges = &mut self.levels[level];
        edges.push_leaf(low, fences, filter, pointer);
        if node_bytes(node_level(level + 1), edges) <= nodes::PACKED {
            return Ok(());
        }
        let cut = edges.len() - STAY;
        let full = edges.some(0..cut);
        *edges = edges.some(cut..edges.len());
        self.write_node(level + 1, &full, ready)
    }

    fn write_node(&mut self, level: usize, edges: &Edges, ready: &Ready<'_>) -> Result<()> {
        let pointer = self.nodes.write(&mut self.claims, &self.shared, self.table, node_level(level), edges)?;
        self.write_nodes(ready)?;
        self.add_child(level, edges.low(0), (&Keys::default(), &[]), pointer, ready)
    }

    fn write_nodes(&mut self, ready: &Ready<'_>) -> Result<()> {
        self.nodes.take_writes().into_iter().try_for_each(|request| self.write(request, ready))
    }

    fn write(&mut self, request: Request, ready: &Ready<'_>) -> Result<()> {
        if self.claims.are_fresh() {
            ready()?;
        }
        self.writes.push(request)
    }
}

fn node_level(level: usize) -> u8 {
    u8::try_from(level).expect("a tree has fewer levels than 48-bit page numbers have bits")
}

impl Region {
    /// The next page, to be filled whole.
    fn page(&mut self) -> &mut [u8] {
        let at = self.filled;
        self.filled += PAGE;
        self.pages += 1;
        &mut self.piece[at..at + PAGE]
    }

    fn request(self, shared: &Shared) -> Request {
        let first = self.extent.page.0 + u64::from(self.pages) - (self.filled / PAGE) as u64;
        Request::write(shared.pages().file(), first * PAGE as u64, self.piece, 0)
    }
}

impl Writes {
    fn push(&mut self, request: Request) -> Result<()> {
        self.wait(PIECES_IN_FLIGHT - 1)?;
        self.stream.push(request);
        self.stream.submit();
        Ok(())
    }

    /// Waits until at most `in_flight` writes are under way.
    fn wait(&mut self, in_flight: usize) -> Result<()> {
        while self.stream.in_flight() > in_flight
            && let Some(completion) = self.stream.next()
        {
            completion.result?;
            let reusable = |buffer: &Buffer| buffer.len() == PIECE_BYTES && self.spare.len() < PIECES_IN_FLIGHT;
            let buffer = completion.buffer.filter(reusable);
            self.spare.extend(buffer);
        }
        Ok(())
    }

    /// A buffer for the next piece of the `left` bytes; its content is arbitrary.
    fn buffer(&mut self, left: u64) -> Buffer {
        let bytes = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        self.spare.pop().filter(|_| bytes == PIECE_BYTES).unwrap_or_else(|| Buffer::zeroed(bytes))
    }
}
