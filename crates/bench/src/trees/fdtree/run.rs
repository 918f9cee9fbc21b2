//! Sorted runs on the device: their space, the writer, the reader in key order.
//!
//! 1. A run is a list of chunks of [`CHUNK_PAGES`] pages. A chunk is one request of a merge; [`BATCH_CHUNKS`] of them
//!    are one psync batch.
//! 2. [`RunWriter`] packs entries and fences into pages. A page that would begin with an entry gets an *internal fence*
//!    before the entry: the pointer of the previous fence. So a search finds its way down from any one page of a run.
//! 3. [`RunReader`] returns a run in order, from any page on. Its requests grow from one page, read through the buffer
//!    pool, to batches of chunks, read past the pool.
//! 4. A run returns its chunks after its last reader, and the pool forgets them.

use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;

use parking_lot::Mutex;
use psync::Buffer;

use super::page::{Layout, PAGE_BYTES, Page, PageBuilder};
use crate::trees::pager::{NodeId, Pager, ReadGuard};
use crate::trees::pending::{Operation, partition};
use crate::{Error, Result};

/// Pages of a chunk: 64 KiB.
const CHUNK_PAGES: usize = 16;

/// Chunks of one batch: 512 KiB.
const BATCH_CHUNKS: usize = 8;

/// The file of all runs, and its chunks that belong to no run.
pub(super) struct Chunks {
    pub(super) pager: Pager,
    free: Mutex<Vec<u32>>,
}

/// The chunks of a run, returned when dropped.
struct Owned {
    chunks: Arc<Chunks>,
    list: Vec<u32>,
}

/// A sorted run.
pub(super) struct Run {
    space: Owned,
    pub(super) pages: u32,
    pub(super) entries: u64,
}

impl Chunks {
    pub(super) const fn new(pager: Pager) -> Self {
        Self { pager, free: Mutex::new(Vec::new()) }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.pager.memory_bytes() + (self.free.lock().capacity() * size_of::<u32>()) as u64
    }

    fn allocate(&self) -> Result<u32> {
        if let Some(chunk) = self.free.lock().pop() {
            return Ok(chunk);
        }
        let first = self.pager.reserve(CHUNK_PAGES as u64)?.0;
        u32::try_from((first - 1) / CHUNK_PAGES as u64).map_err(|_| too_large())
    }

    const fn node(chunk: u32, page: usize) -> NodeId {
        NodeId(chunk as u64 * CHUNK_PAGES as u64 + page as u64 + 1)
    }
}

fn too_large() -> Error {
    Error::Invalid("an FD-tree has at most 2³² pages".to_owned())
}

impl Drop for Owned {
    fn drop(&mut self) {
        for chunk in &self.list {
            self.chunks.pager.forget(Chunks::node(*chunk, 0), CHUNK_PAGES as u64);
        }
        // The first chunk is the first to be reused, so that a following run is written in the order of the file too.
        self.chunks.free.lock().extend(self.list.iter().rev());
    }
}

impl Run {
    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.space.list.capacity() * size_of::<u32>()) as u64
    }

    /// Reads a page through the pool.
    pub(super) fn read(&self, page: u32) -> Result<ReadGuard> {
        let page = page as usize;
        let chunk = self.space.list.get(page / CHUNK_PAGES).copied();
        let chunk = chunk.ok_or_else(|| {
            Error::Invalid(format!("a fence of the FD-tree leads to page {page}, which is not there"))
        })?;
        self.space.chunks.pager.read(Chunks::node(chunk, page % CHUNK_PAGES))
    }
}

/// Writes a run. A writer that is dropped unfinished returns its space.
pub(super) struct RunWriter {
    space: Owned,
    pages: u32,
    entries: u64,
    builder: PageBuilder,
    /// The pointer of the last fence.
    pointer: Option<u32>,
    /// Chunks that wait for a full batch; the last is being filled.
    waiting: Vec<Buffer>,
    spare: Vec<Buffer>,
    /// Pages of the last chunk that are filled.
    filled: usize,
}

impl RunWriter {
    pub(super) fn new(chunks: &Arc<Chunks>, layout: Layout) -> Self {
        Self {
            space: Owned { chunks: Arc::clone(chunks), list: Vec::new() },
            pages: 0,
            entries: 0,
            builder: PageBuilder::new(layout),
            pointer: None,
            waiting: Vec::new(),
            spare: Vec::new(),
            filled: 0,
        }
    }

    /// Adds an entry. Returns the page that begins with this entry, if any.
    pub(super) fn push_entry(&mut self, key: &[u8], operation: Operation<'_>) -> Result<Option<u32>> {
        if !self.builder.is_empty() && !self.builder.has_room_for_entry() {
            self.finish_page()?;
        }
        let begins = self.builder.is_empty().then_some(self.pages);
        if begins.is_some()
            && let Some(pointer) = self.pointer
        {
            self.builder.push_fence(key, pointer);
        }
        self.builder.push_entry(key, operation);
        self.entries += 1;
        Ok(begins)
    }

    /// Adds as many of these entries, none of which is a filter, as the open page has room for. Returns how many.
    pub(super) fn push_entries(&mut self, page: &Page<'_>, entries: Range<usize>) -> usize {
        let count = self.builder.push_entries(page, entries);
        self.entries += count as u64;
        count
    }

    /// Adds a fence, unless the previous fence has the same pointer. Returns the page that begins with this fence, if
    /// any.
    pub(super) fn push_fence(&mut self, key: &[u8], pointer: u32) -> Result<Option<u32>> {
        if self.pointer == Some(pointer) {
            return Ok(None);
        }
        if !self.builder.has_room_for_fence() {
            self.finish_page()?;
        }
        let begins = self.builder.is_empty().then_some(self.pages);
        self.pointer = Some(pointer);
        self.builder.push_fence(key, pointer);
        Ok(begins)
    }

    pub(super) fn finish(mut self) -> Result<Run> {
        if !self.builder.is_empty() {
            self.finish_page()?;
        }
        self.write()?;
        self.space.list.shrink_to_fit();
        Ok(Run { space: self.space, pages: self.pages, entries: self.entries })
    }

    fn finish_page(&mut self) -> Result<()> {
        if self.filled == CHUNK_PAGES || self.waiting.is_empty() {
            if self.waiting.len() == BATCH_CHUNKS {
                self.write()?;
            }
            self.space.list.push(self.space.chunks.allocate()?);
            let chunk = self.spare.pop().unwrap_or_else(|| Buffer::zeroed(CHUNK_PAGES * PAGE_BYTES));
            self.waiting.push(chunk);
            self.filled = 0;
        }
        let chunk = self.waiting.last_mut().expect("one was pushed if there was none");
        self.builder.finish(&mut chunk[self.filled * PAGE_BYTES..][..PAGE_BYTES]);
        self.filled += 1;
        self.pages = self.pages.checked_add(1).ok_or_else(too_large)?;
        Ok(())
    }

    /// Writes the waiting chunks, in one batch.
    fn write(&mut self) -> Result<()> {
        if let Some(last) = self.waiting.last_mut() {
            last.truncate(self.filled * PAGE_BYTES);
        }
        let first = self.space.list.len() - self.waiting.len();
        let nodes = self.space.list[first..].iter().map(|chunk| Chunks::node(*chunk, 0));
        self.spare = self.space.chunks.pager.write_past(nodes.zip(self.waiting.drain(..)))?;
        Ok(())
    }
}

/// The item at the position of a reader.
pub(super) enum Item<'a> {
    /// A key, and the page of the next level to read from this key on.
    Fence(&'a [u8], u32),
    Entry(&'a [u8], Operation<'a>),
    /// Entries of a page with no fence between them.
    Entries(Page<'a>, Range<usize>),
}

/// Pages in memory.
enum Window {
    Pooled(ReadGuard),
    Read(Buffer),
}

impl Deref for Window {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pooled(page) => page,
            Self::Read(pages) => pages,
        }
    }
}

/// Reads a run in order.
pub(super) struct RunReader {
    run: Arc<Run>,
    layout: Layout,
    /// The first page of this reader.
    begin: usize,
    /// The page after those in the windows.
    next: usize,
    /// Pages of the next batch: as many as have been read so far, so that a short range reads little.
    ahead: usize,
    windows: VecDeque<Window>,
    /// The current page of the first window, and its entries and fences.
    page: usize,
    entries: usize,
    fences: usize,
    entry: usize,
    fence: usize,
    /// Whether the current item is a fence.
    is_fence: bool,
    with_fences: bool,
}

impl RunReader {
    /// Reads the whole run, in batches of chunks. Fences are left out unless `with_fences` is set.
    pub(super) fn whole(run: &Arc<Run>, layout: Layout, with_fences: bool) -> Result<Self> {
        Self::new(run, layout, 0, BATCH_CHUNKS * CHUNK_PAGES, with_fences)
    }

    /// Reads the entries from `first` on. If the run has `first`, `page` is its page.
    pub(super) fn from(run: &Arc<Run>, layout: Layout, page: u32, first: &[u8]) -> Result<Self> {
        let mut reader = Self::new(run, layout, page as usize, 1, false)?;
        if let Some(page) = reader.current_page() {
            reader.entry = page.lower_bound(first);
        }
        reader.stop()?;
        Ok(reader)
    }

    fn new(run: &Arc<Run>, layout: Layout, next: usize, ahead: usize, with_fences: bool) -> Result<Self> {
        let mut reader = Self {
            run: Arc::clone(run),
            layout,
            begin: next,
            next,
            ahead,
            windows: VecDeque::new(),
            page: 0,
            entries: 0,
            fences: 0,
            entry: 0,
            fence: 0,
            is_fence: false,
            with_fences,
        };
        reader.fetch()?;
        reader.enter_page()?;
        reader.stop()?;
        Ok(reader)
    }

    /// The current key, and whether the item is a fence; none at the end.
    pub(super) fn key(&self) -> Option<(&[u8], bool)> {
        let page = self.current_page()?;
        let key = if self.is_fence { page.fence_key(self.fence) } else { page.key(self.entry) };
        Some((key, self.is_fence))
    }

    /// The current item and its length: a fence, or the entries below `limit` with no fence between them, at least one.
    pub(super) fn current(&self, limit: Option<&[u8]>) -> Option<(Item<'_>, usize)> {
        let page = self.current_page()?;
        if self.is_fence {
            return Some((Item::Fence(page.fence_key(self.fence), page.fence_pointer(self.fence)), 1));
        }
        let fence = (self.with_fences && self.fence < self.fences).then(|| page.fence_key(self.fence));
        let is_below = |entry: usize| {
            let key = page.key(entry);
            limit.is_none_or(|limit| key < limit) && fence.is_none_or(|fence| key < fence)
        };
        let next = self.entry + 1;
        // Where sources of like size meet, the next entry often comes from another source.
        let count = if next < self.entries && is_below(next) {
            1 + partition(self.entries - next, |entry| is_below(next + entry))
        } else {
            1
        };
        Some((Item::Entries(page, self.entry..self.entry + count), count))
    }

    /// Advances past a fence or `count` entries.
    pub(super) fn advance(&mut self, count: usize) -> Result<()> {
        if self.is_fence {
            self.fence += count;
        } else {
            self.entry += count;
        }
        self.stop()
    }

    fn bytes(&self) -> Option<&[u8]> {
        self.windows.front().map(|window| &window[self.page * PAGE_BYTES..][..PAGE_BYTES])
    }

    fn current_page(&self) -> Option<Page<'_>> {
        self.bytes().map(|bytes| Page::known(self.layout, bytes, self.entries, self.fences))
    }

    /// Finds the item at or after the current position.
    fn stop(&mut self) -> Result<()> {
        while let Some(page) = self.current_page() {
            let has_entry = self.entry < page.entries;
            let has_fence = self.with_fences && self.fence < page.fences;
            if has_entry || has_fence {
                self.is_fence = has_fence && (!has_entry || page.fence_key(self.fence) <= page.key(self.entry));
                return Ok(());
            }
            self.next_page()?;
        }
        Ok(())
    }

    fn next_page(&mut self) -> Result<()> {
        self.page += 1;
        if self.windows.front().is_some_and(|window| self.page * PAGE_BYTES >= window.len()) {
            self.page = 0;
            self.windows.pop_front();
            if self.windows.is_empty() {
                self.fetch()?;
            }
        }
        self.enter_page()
    }

    /// Moves to the beginning of a page that has not been parsed.
    fn enter_page(&mut self) -> Result<()> {
        (self.entry, self.fence) = (0, 0);
        if let Some(bytes) = self.bytes() {
            let page = Page::parse(self.layout, bytes)?;
            (self.entries, self.fences) = (page.entries, page.fences);
        }
        Ok(())
    }

    /// Reads the next batch, and makes the one after larger.
    fn fetch(&mut self) -> Result<()> {
        let pages = self.ahead.min(self.run.pages as usize - self.next.min(self.run.pages as usize));
        let end = self.next + pages;
        if self.ahead == 1 && pages == 1 {
            self.windows.push_back(Window::Pooled(self.run.read(u32::try_from(self.next).unwrap_or(u32::MAX))?));
        } else if pages > 0 {
            let (list, mut page) = (&self.run.space.list, self.next);
            let extents = std::iter::from_fn(|| {
                let first = page;
                let chunk_end = (first / CHUNK_PAGES + 1) * CHUNK_PAGES;
                page = chunk_end.min(end);
                (first < end).then(|| (Chunks::node(list[first / CHUNK_PAGES], first % CHUNK_PAGES), page - first))
            });
            let buffers = self.run.space.chunks.pager.read_past(extents)?;
            self.windows.extend(buffers.into_iter().map(Window::Read));
        }
        self.next = end;
        self.ahead = self.ahead.max(self.next - self.begin).min(BATCH_CHUNKS * CHUNK_PAGES);
        Ok(())
    }
}
