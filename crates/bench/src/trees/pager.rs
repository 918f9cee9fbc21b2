//! Nodes of one size in a file, behind an LRU buffer pool. The trees that issue one request at a time stand on this
//! pager.
//!
//! 1. A [`NodeId`] is a place in the file. [`Pager::allocate`] gives a new node, [`Pager::free`] returns a node for the
//!    next allocation.
//! 2. [`Pager::read`] and [`Pager::write`] latch a node, shared or exclusive. A node outside the pool is read with one
//!    request. If its frame holds changes of another node, these are written first, with one request. Both are plain
//!    system calls, because that is the cheapest way to do a single request.
//! 3. A frame is pinned while a thread holds its latch or waits for its latch. A write through a write latch makes the
//!    node dirty.
//! 4. The file grows ahead by an eighth of its size, written with zeros, so that the first write of a node costs no
//!    more than later ones.
//! 5. [`Pager::write_back`] writes the dirty nodes, in the order of the file.
//!
//! Invariants:
//! - The lock of the pool is never held across I/O, and no thread waits for a latch while holding that lock.
//! - A node is in at most one frame.
//! - A node stays in its frame until its write has completed, so no thread reads an old state of the node from the
//!   file.
//! - There are no more frames than the budget pays for, unless all of them are pinned.
//!
//! Left to others: the meaning of the bytes, and an order of latches in which threads do not wait in a circle.

mod load;
mod past;

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard};
use parking_lot::{Mutex, RawRwLock, RwLock};
use psync::{BLOCK, Buffer, File, OpenOptions, Psync, Request};

pub(crate) use load::Loader;

use crate::trees::Setting;
use crate::{Error, Result};

/// Bytes that a frame costs beside its node: its share of the map, its place in the list, its latch.
pub const FRAME_OVERHEAD_BYTES: usize = 176;

/// Fewest frames, however small the budget: a node, its two neighbours and their parent.
const FRAMES_MIN: u64 = 4;

/// Least and most bytes by which the file grows.
const GROWTH_BYTES: (u64, u64) = (1 << 20, 8 << 20);

/// Bytes of one write of zeros.
const ZEROS_BYTES: usize = 1 << 20;

/// A node's place in the file, from 1 on. 0 names no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u64);

impl NodeId {
    /// No node.
    pub const NONE: Self = Self(0);

    /// Whether this is `NodeId::NONE`.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Counters of a pager since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagerCounters {
    /// Nodes asked for that were in the pool.
    pub hits: u64,
    /// Nodes read from the file.
    pub reads: u64,
    /// Nodes written to the file.
    pub writes: u64,
}

/// A file of nodes and its buffer pool. All methods may be called from any thread.
pub struct Pager {
    psync: Psync,
    file: File,
    node_bytes: usize,
    frames_max: usize,
    pool: Mutex<Pool>,
    space: Mutex<Space>,
    /// The first node that was never allocated.
    end: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// The content of a frame.
struct Content {
    /// None when the read of the node failed or the node was freed.
    node: NodeId,
    dirty: bool,
    bytes: Buffer,
}

type Frame = Arc<RwLock<Content>>;
type ReadLatch = ArcRwLockReadGuard<RawRwLock, Content>;
type WriteLatch = ArcRwLockWriteGuard<RawRwLock, Content>;

struct Pool {
    frames: LruCache<NodeId, Frame>,
    hits: u64,
}

/// The allocation of nodes. The lock is held while the file grows.
struct Space {
    /// Nodes that the file has room for.
    grown: u64,
    free: Vec<NodeId>,
}

/// A frame that holds the wanted node, or has been assigned to the node.
enum Pinned {
    Held(Frame),
    /// Latched exclusively; the bytes are still those of another node.
    Empty(WriteLatch),
}

/// A node latched for reading, shared with other readers.
pub struct ReadGuard(ReadLatch);

/// A node latched exclusively. A write through the guard makes the node dirty.
pub struct WriteGuard(WriteLatch);

impl Pager {
    /// Creates the file `name` in the setting's directory, with nodes of `node_bytes` and a pool of `pool_bytes`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `node_bytes` is no multiple of [`BLOCK`]; else when the file cannot be created.
    pub fn create(setting: &Setting, name: &str, node_bytes: usize, pool_bytes: u64) -> Result<Self> {
        if node_bytes == 0 || !node_bytes.is_multiple_of(BLOCK) {
            return Err(Error::Invalid(format!("a node of {node_bytes} bytes is not made of blocks of {BLOCK} bytes")));
        }
        let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
        let file = setting.psync.open(&setting.directory.join(name), &options)?;
        let frames = (pool_bytes / (node_bytes + FRAME_OVERHEAD_BYTES) as u64).max(FRAMES_MIN);
        Ok(Self {
            psync: setting.psync.clone(),
            file,
            node_bytes,
            frames_max: usize::try_from(frames).unwrap_or(usize::MAX),
            pool: Mutex::new(Pool { frames: LruCache::unbounded(), hits: 0 }),
            space: Mutex::new(Space { grown: 0, free: Vec::new() }),
            end: AtomicU64::new(1),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        })
    }

    /// Bytes of a node.
    #[must_use]
    pub const fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// The file, for its counters and for measuring the device on it.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> PagerCounters {
        PagerCounters {
            hits: self.pool.lock().hits,
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    /// Bytes of memory that the frames and the list of free nodes have now.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let frames = self.pool.lock().frames.len() * (self.node_bytes + FRAME_OVERHEAD_BYTES);
        let free = self.space.lock().free.capacity() * size_of::<NodeId>();
        (frames + free) as u64
    }

    /// Latches a node for reading.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such node; else when the device fails.
    pub fn read(&self, node: NodeId) -> Result<ReadGuard> {
        loop {
            let latch = match self.pin(node)? {
                Pinned::Held(frame) => frame.read_arc(),
                Pinned::Empty(latch) => WriteLatch::downgrade(self.load(latch)?),
            };
            // The frame belongs to another node if the read failed while this thread waited for the latch.
            if latch.node == node {
                return Ok(ReadGuard(latch));
            }
        }
    }

    /// Latches a node exclusively.
    ///
    /// # Errors
    /// As [`Pager::read`].
    pub fn write(&self, node: NodeId) -> Result<WriteGuard> {
        loop {
            let latch = match self.pin(node)? {
                Pinned::Held(frame) => frame.write_arc(),
                Pinned::Empty(latch) => self.load(latch)?,
            };
            if latch.node == node {
                return Ok(WriteGuard(latch));
            }
        }
    }

    /// A new node of zeros, latched exclusively.
    ///
    /// # Errors
    /// When the file cannot grow or the device fails.
    pub fn allocate(&self) -> Result<WriteGuard> {
        let node = self.allocate_id()?;
        let mut latch = match self.pin(node)? {
            Pinned::Held(frame) => frame.write_arc(),
            Pinned::Empty(latch) => latch,
        };
        latch.dirty = true;
        latch.bytes.fill(0);
        Ok(WriteGuard(latch))
    }

    /// Gives a node back. No thread may ask for the node from now on.
    pub fn free(&self, node: WriteGuard) {
        let WriteGuard(mut latch) = node;
        let id = mem::take(&mut latch.node);
        self.pool.lock().frames.pop(&id);
        drop(latch);
        self.space.lock().free.push(id);
    }

    /// Writes the dirty nodes one after another, in the order of the file. The writes are not made durable.
    ///
    /// # Errors
    /// When the device fails.
    pub fn write_back(&self) -> Result<()> {
        let mut nodes: Vec<NodeId> = self.pool.lock().frames.iter().map(|(node, _)| *node).collect();
        nodes.sort_unstable();
        for node in nodes {
            let frame = self.pool.lock().frames.peek(&node).map(Arc::clone);
            if let Some(frame) = frame {
                self.write_out(&mut frame.write_arc())?;
            }
        }
        Ok(())
    }

    fn allocate_id(&self) -> Result<NodeId> {
        let mut space = self.space.lock();
        if let Some(node) = space.free.pop() {
            return Ok(node);
        }
        let node = self.end.load(Ordering::Relaxed);
        if node > space.grown {
            self.grow(&mut space)?;
        }
        self.end.store(node + 1, Ordering::Release);
        Ok(NodeId(node))
    }

    fn grow(&self, space: &mut Space) -> Result<()> {
        let node_bytes = self.node_bytes as u64;
        let begin = space.grown * node_bytes;
        let nodes = (begin / 8).clamp(GROWTH_BYTES.0, GROWTH_BYTES.1).div_ceil(node_bytes);
        let end = begin + nodes * node_bytes;
        let mut zeros = Vec::new();
        let mut offset = begin;
        while offset < end {
            let bytes = usize::try_from(end - offset).unwrap_or(usize::MAX).min(ZEROS_BYTES);
            zeros.push(Request::write(&self.file, offset, Buffer::zeroed(bytes), 0));
            offset += bytes as u64;
        }
        self.psync.run_all(zeros)?;
        space.grown += nodes;
        Ok(())
    }

    fn pin(&self, node: NodeId) -> Result<Pinned> {
        if node.is_none() || node.0 >= self.end.load(Ordering::Acquire) {
            let path = self.file.path().display();
            return Err(Error::Invalid(format!("{path} has no node {}: a pointer in it is damaged", node.0)));
        }
        loop {
            let mut pool = self.pool.lock();
            if let Some(frame) = pool.frames.get(&node) {
                let frame = Arc::clone(frame);
                pool.hits += 1;
                return Ok(Pinned::Held(frame));
            }
            let mut latch = pool.victim(self.frames_max, self.node_bytes);
            if !latch.dirty {
                if pool.frames.pop(&latch.node).is_some() && pool.frames.len() >= self.frames_max {
                    // This frame was one too many, from a time when all frames were pinned.
                    continue;
                }
                latch.node = node;
                pool.frames.put(node, Arc::clone(WriteLatch::rwlock(&latch)));
                return Ok(Pinned::Empty(latch));
            }
            // The node stays in its frame until the write completes, because a reader of the node must wait for the
            // latch meanwhile. The loop then checks anew whether the frame can be taken, and whether the wanted node is
            // in the pool by now.
            drop(pool);
            self.write_out(&mut latch)?;
        }
    }

    fn load(&self, mut latch: WriteLatch) -> Result<WriteLatch> {
        let node = latch.node;
        self.reads.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.transfer(&mut latch, Request::read) {
            self.pool.lock().frames.pop(&node);
            latch.node = NodeId::NONE;
            return Err(error);
        }
        Ok(latch)
    }

    /// The offset of a node in the file. `node` is not `NodeId::NONE`.
    fn offset(&self, node: NodeId) -> u64 {
        (node.0 - 1) * self.node_bytes as u64
    }

    fn write_out(&self, content: &mut Content) -> Result<()> {
        if content.dirty && !content.node.is_none() {
            self.writes.fetch_add(1, Ordering::Relaxed);
            self.transfer(content, Request::write)?;
            content.dirty = false;
        }
        Ok(())
    }

    fn transfer(&self, content: &mut Content, request: fn(&File, u64, Buffer, u64) -> Request) -> Result<()> {
        let buffer = mem::replace(&mut content.bytes, Buffer::zeroed(0));
        for completion in self.psync.run(vec![request(&self.file, self.offset(content.node), buffer, 0)]) {
            content.bytes = completion.buffer.unwrap_or_else(|| Buffer::zeroed(self.node_bytes));
            completion.result?;
        }
        Ok(())
    }
}

impl Pool {
    /// The least recently used unpinned frame, or a new one, latched. A pin is a clone of the frame, and clones are
    /// made under the lock of the pool only, so an unpinned frame stays unpinned.
    fn victim(&mut self, frames_max: usize, node_bytes: usize) -> WriteLatch {
        if self.frames.len() >= frames_max {
            let unpinned = self.frames.iter().rev().filter(|(_, frame)| Arc::strong_count(frame) == 1);
            if let Some(latch) = unpinned.filter_map(|(_, frame)| frame.try_write_arc()).next() {
                return latch;
            }
        }
        let content = Content { node: NodeId::NONE, dirty: false, bytes: Buffer::zeroed(node_bytes) };
        Arc::new(RwLock::new(content)).write_arc()
    }
}

impl ReadGuard {
    /// The id of the node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.0.node
    }
}

impl Deref for ReadGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl WriteGuard {
    /// The id of the node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.0.node
    }
}

impl Deref for WriteGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl DerefMut for WriteGuard {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.dirty = true;
        &mut self.0.bytes
    }
}

#[cfg(test)]
mod tests;
