//! A file of pages, and the record of which pages are in use.
//!
//! 1. Pages come from the free list. When it has none left, the file grows ahead by an eighth of its size, between
//!    1 MiB and [`GROWTH_BYTES_MAX`]. A file shorter than 1 MiB doubles instead, by at least [`GROWTH_BYTES_MIN`].
//!
//!    New space is *written* with zeros. A file system serves writes into space that was only reserved at half the
//!    rate, and makes every flush commit metadata. A request for many pages at once ([`LONG_PAGES`]) writes all of its
//!    space itself, in long pieces and before the next flush. For such a request the file grows by the missing pages,
//!    and nothing is written twice.
//! 2. Some free pages are a reserve. Once the file cannot grow, only requests that give space back may use the reserve
//!    ([`Class`]). A delete takes new pages before it gives old ones back, so without a reserve a full disk could never
//!    be emptied. Growth keeps the reserve filled and chooses it anew, so that it is in long runs.
//! 3. Growth for which the disk has no room is cut off again, and retried with the least that serves the request. Later
//!    growth begins at half of the failed size and doubles with every success, so that the end of a disk is reached in
//!    few attempts. If the least fails too, the request fails with [`Error::Full`], and everything is as before.
//!
//! Invariants:
//!
//! - The file is at least as long as its known pages.
//! - One thread grows the file at a time, and holds no other lock while it writes. Therefore giving pages back, images
//!   and statistics never wait for I/O, and neither does an allocation that free pages can serve.
//!
//! Left to others: reading and writing pages (through [`PagedFile::file`]), flushing, and the order of retire and
//! release.

use std::ops::Range;
use std::path::Path;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use psync::{BLOCK, Buffer, File, Psync, Request};

use crate::allocator::Allocator;
use crate::lazy::Lazy;
use crate::stats::RESERVE_PAGES_FULL;
use crate::{
    AllocatorImage, Audit, CheckedImage, Class, Error, Extent, FileStore, PAGE, PageId, Result, Stats, StreamKind,
    Survey, format,
};

/// Minimum growth of a file, in bytes.
pub const GROWTH_BYTES_MIN: u64 = 16 << 10;
/// A file shorter than this doubles; a longer one grows by at least this.
const GROWTH_BYTES_SMALL: u64 = 1 << 20;
/// Maximum growth ahead, in bytes. A larger request still gets all of its pages.
pub const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// The file grows ahead by its size divided by this, within its limits.
const GROWTH_PART: u64 = 8;
/// Limits of growth ahead, in pages.
const AHEAD_PAGES: Range<u64> = GROWTH_BYTES_MIN / PAGE as u64..GROWTH_BYTES_MAX / PAGE as u64;
/// A request for at least this many pages gets room that is not written, if the file grows for the request.
const LONG_PAGES: u64 = (2 << 20) / PAGE as u64;
/// Bytes of one request that fills new space.
const ZERO_BYTES: usize = 1 << 20;
/// Number of such requests in one batch, which bounds the memory for growth.
const ZERO_REQUESTS: usize = 4;

/// Maximum length of a file, in pages: byte offsets must fit the system's signed 64 bits.
const PAGES_MAX: u64 = i64::MAX as u64 / PAGE as u64;

const _: () = assert!(ZERO_BYTES.is_multiple_of(PAGE) && ZERO_BYTES.is_multiple_of(BLOCK));

/// A file of pages. All methods may be called from any thread.
#[derive(Debug)]
pub struct PagedFile {
    store: FileStore,
    pub(crate) file: File,
    allocator: Mutex<Lazy>,
    /// Held by the one thread that makes the file longer or shorter. Never taken while `allocator` is held.
    pub(crate) growth: Mutex<Growth>,
    unread: Mutex<Unread>,
}

/// Retired pages that no reader needs any more, in lists as they were given. The changes that retired them are in the
/// log, but may not be durable.
pub type Unread = Vec<Vec<Extent>>;

/// The filling of new space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filling {
    /// Zeros that are written.
    Written,
    /// Room that the disk keeps.
    Reserved,
}

/// The state of the last growth.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Maximum growth ahead, in pages: lower near the end of the disk.
    ahead_max: u64,
}

impl PagedFile {
    /// Creates the file `name` with nothing but its header, which is durable with the next flush of the file and its
    /// directory entry with [`FileStore::sync_directories`].
    ///
    /// # Errors
    /// When the file exists already or cannot be written.
    pub fn create(store: &FileStore, name: &str) -> Result<Self> {
        let file = store.create(StreamKind::Node, name, true)?;
        let header = Buffer::from_slice(&format::encode_file_header());
        store.psync().run_all(vec![Request::write(&file, 0, header, 0)])?;
        let empty = AllocatorImage { total_pages: 1, free: Vec::new(), holes: Vec::new() };
        Ok(Self::with(store, file, CheckedImage::from(&empty)))
    }

    /// Opens the file `name` as `image` describes it.
    ///
    /// # Errors
    /// When the file is missing, not of this format, or shorter than the image says.
    pub fn open(store: &FileStore, name: &str, image: CheckedImage) -> Result<Self> {
        let file = store.open_existing(StreamKind::Node, name, true)?;
        let length = file.len()?;
        let expected = image.stats().total_pages.saturating_mul(PAGE as u64);
        if length < expected {
            let [expected, found] = [expected, length].map(|bytes| format!("at least {bytes} bytes"));
            return Err(Error::corrupt(file.path(), length, "length", expected, found));
        }
        let header = Request::read(&file, 0, Buffer::zeroed(PAGE), 0);
        let header = store.psync().run_all(vec![header])?.pop().flatten();
        format::check_file_header(file.path(), &header.unwrap_or_else(|| Buffer::zeroed(0)))?;
        Ok(Self::with(store, file, image))
    }

    /// Opens the file `name` to read its remains. The state of its pages is unknown, so all of them are taken to be in
    /// use. The header is not checked.
    ///
    /// # Errors
    /// When the file is missing, or the store is not read-only.
    pub fn open_damaged(store: &FileStore, name: &str) -> Result<Self> {
        let file = store.open_existing(StreamKind::Node, name, true)?;
        if !store.is_read_only() {
            return Err(Error::State {
                file: file.path().to_owned(),
                operation: "open",
                extent: Extent { page: PageId(0), pages: 1 },
                expected: "a store for reading only",
                found: "one for writing",
            });
        }
        let total_pages = (file.len()? / PAGE as u64).max(1);
        let all_used = AllocatorImage { total_pages, free: Vec::new(), holes: Vec::new() };
        Ok(Self::with(store, file, CheckedImage::from(&all_used)))
    }

    fn with(store: &FileStore, file: File, image: CheckedImage) -> Self {
        let allocator = Lazy::new(file.path(), image);
        Self {
            store: store.clone(),
            file,
            allocator: Mutex::new(allocator),
            growth: Mutex::new(Growth { ahead_max: AHEAD_PAGES.end }),
            unread: Mutex::default(),
        }
    }

    pub(crate) fn allocator(&self) -> MappedMutexGuard<'_, Allocator> {
        MutexGuard::map(self.allocator.lock(), Lazy::get)
    }

    /// Puts the free list in order now, and not with its first use.
    pub fn prepare(&self) {
        drop(self.allocator());
    }

    /// The file, for reading and writing allocated pages. Direct where the file system allows it: whole pages only.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The I/O that serves the file.
    #[must_use]
    pub fn psync(&self) -> &Psync {
        self.store.psync()
    }

    /// Takes `pages` consecutive unused pages; their content is undefined.
    ///
    /// # Errors
    /// [`Error::Full`] when there is no room. The state is as before, and a retry is worthwhile after space was made.
    pub fn allocate(&self, pages: u32, class: Class) -> Result<Extent> {
        let extents = self.allocate_many(1, pages, class)?;
        Ok(extents[0])
    }

    /// Takes `count` extents of `pages` each, in page order, all or none. They are adjacent where the free space
    /// allows, so that a batch of new nodes is written as one sequence.
    ///
    /// # Errors
    /// [`Error::Full`] when there is no room. The state is as before, and a retry is worthwhile after space was made.
    pub fn allocate_many(&self, count: usize, pages: u32, class: Class) -> Result<Vec<Extent>> {
        self.take_many(count, pages, class, false)
    }

    /// Takes free pages below the page `ceiling`, otherwise as [`PagedFile::allocate_many`]. The file does not grow for
    /// the request.
    ///
    /// # Errors
    /// [`Error::Full`] when there are not enough of them.
    pub fn allocate_below(&self, count: usize, pages: u32, class: Class, ceiling: PageId) -> Result<Vec<Extent>> {
        self.store.writable("allocate pages in", self.file.path())?;
        let wanted = wanted(self.file.path(), count, pages)?;
        let mut allocator = self.allocator();
        let taken = allocator.take_below(count as u64, pages, class, ceiling.0);
        taken.ok_or_else(|| allocator.full(wanted, class))
    }

    /// Takes pages as [`PagedFile::allocate_many`] does, ahead of the log record that will name them. Until
    /// [`PagedFile::confirm`], an image counts them as free, so a crash leaves none of them behind. `discard` gives
    /// them back.
    ///
    /// # Errors
    /// As [`PagedFile::allocate_many`].
    pub fn allocate_ahead(&self, count: usize, pages: u32, class: Class) -> Result<Vec<Extent>> {
        self.take_many(count, pages, class, true)
    }

    /// Marks pages that were taken ahead as named by the log; other pages of `extents` stay as they are. No image may
    /// be made between the record and this call.
    pub fn confirm(&self, extents: &[Extent]) {
        self.allocator().confirm(extents);
    }

    fn take_many(&self, count: usize, pages: u32, class: Class, ahead: bool) -> Result<Vec<Extent>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        self.store.writable("allocate pages in", self.file.path())?;
        let extents = count as u64;
        let wanted = wanted(self.file.path(), count, pages)?;
        let mark = |allocator: &mut Allocator, taken: Vec<Extent>| {
            if ahead {
                allocator.set_ahead(&taken);
            }
            taken
        };
        let take = |allocator: &mut Allocator| {
            let taken = allocator.take(extents, pages, class)?;
            Some(mark(allocator, taken))
        };
        if let Some(taken) = take(&mut self.allocator()) {
            return Ok(taken);
        }
        let (mut growth, mut has_grown) = (self.growth.lock(), false);
        loop {
            // Try again under the growth lock: its previous holder has made room, for this request too or for others
            // that took it.
            let (total, least) = {
                let mut allocator = self.allocator();
                if let Some(taken) = take(&mut allocator) {
                    if has_grown {
                        allocator.renew_reserve();
                    }
                    return Ok(taken);
                }
                (allocator.total(), allocator.missing(wanted, class))
            };
            let reserved = wanted >= LONG_PAGES && self.enlarge(total, least, Filling::Reserved)?;
            has_grown = reserved || growth.grow(self, total, least)?;
            if !has_grown {
                let mut allocator = self.allocator();
                let last = match class {
                    Class::Normal => None,
                    Class::Urgent => allocator.take_urgently(extents, pages),
                    Class::Reclaim | Class::Emptying => allocator.take_with_reserve(extents, pages),
                };
                let full = allocator.full(wanted, class);
                return last.map(|taken| mark(&mut allocator, taken)).ok_or(full);
            }
        }
    }

    /// Prepares a short file before the disk is filled with other files. The file becomes so long that its reserve is
    /// that of a longer file, with as many other pages besides; or half as long, where there is no more room.
    ///
    /// # Errors
    /// [`Error::Full`] when there is not even room for half of that length.
    pub fn make_reserve(&self) -> Result<()> {
        let _growth = self.growth.lock();
        let (total, kept) = {
            let allocator = self.allocator();
            (allocator.total(), allocator.kept())
        };
        if kept > RESERVE_PAGES_FULL {
            return Ok(());
        }
        let (least, ample) = (RESERVE_PAGES_FULL + 1 - kept, 2 * RESERVE_PAGES_FULL - kept);
        if self.grow(total, ample, Filling::Written)? || self.grow(total, least, Filling::Written)? {
            return Ok(());
        }
        Err(self.allocator().full(least, Class::Normal))
    }

    /// Makes room for `pages` missing pages: in holes as far as they go, or else all at the end of the file. `false`,
    /// with the state as before, when the disk is full or room cannot be reserved.
    fn enlarge(&self, total: u64, pages: u64, filling: Filling) -> Result<bool> {
        let holes = self.allocator().holes_for(pages);
        Ok((!holes.is_empty() && self.fill(holes, filling)?) || self.grow(total, pages, filling)?)
    }

    /// Fills parts of holes; `false` when the disk is full or room cannot be reserved.
    fn fill(&self, holes: Vec<Range<u64>>, filling: Filling) -> Result<bool> {
        let bytes = |hole: &Range<u64>| hole.start * PAGE as u64..hole.end * PAGE as u64;
        let filled = match filling {
            Filling::Written => self.write_zeros(holes.iter().cloned()).map(|()| true),
            Filling::Reserved => holes.iter().try_fold(true, |all, hole| Ok(all && self.file.reserve(bytes(hole))?)),
        };
        let is_filled = match filled {
            Ok(is_filled) => is_filled,
            Err(error) if error.is_disk_full() => false,
            Err(error) => return Err(error.into()),
        };
        if is_filled {
            self.allocator().fill_holes(holes);
        } else {
            let is_punched = |hole: &&Range<u64>| self.allocator().is_punched(hole);
            for hole in holes.iter().filter(is_punched) {
                // The part that was filled is room that others may lack.
                if let Err(error) = self.file.punch(bytes(hole)) {
                    events::warn!(%error, "a hole that could not be filled keeps what was filled of it");
                }
            }
        }
        Ok(is_filled)
    }

    /// Makes the file longer by `pages` pages of zeros. `false`, with the length as before, when the disk is full or
    /// room cannot be reserved.
    fn grow(&self, total: u64, pages: u64, filling: Filling) -> Result<bool> {
        if total + pages > PAGES_MAX {
            return Ok(false);
        }
        // The file is longer than its known pages while an image still counts with pages that were left out.
        let length = self.file.len()?.max(total * PAGE as u64);
        let grown = match filling {
            Filling::Written => self.write_zeros(std::iter::once(total..total + pages)).map(|()| true),
            Filling::Reserved => self.file.reserve(total * PAGE as u64..(total + pages) * PAGE as u64),
        };
        if matches!(grown, Ok(false)) {
            return Ok(false);
        }
        let Err(error) = grown else {
            self.allocator().grow(pages);
            events::debug!(file = %self.file.path().display(), pages, total = total + pages, "file grown");
            return Ok(true);
        };
        // The allocator does not know the part that was written; giving that part back to the disk is best effort.
        if let Err(cut) = self.file.set_len(length) {
            events::warn!(error = %cut, "space of a failed growth stays in the file until it grows again");
        }
        if error.is_disk_full() {
            return Ok(false);
        }
        Err(error.into())
    }

    fn write_zeros(&self, parts: impl Iterator<Item = Range<u64>>) -> psync::Result<()> {
        let pieces = parts.flat_map(|part| {
            let end = part.end * PAGE as u64;
            let starts = (part.start * PAGE as u64..end).step_by(ZERO_BYTES);
            starts.map(move |start| (start, usize::try_from(end - start).unwrap_or(ZERO_BYTES).min(ZERO_BYTES)))
        });
        let (mut spare, mut pieces) = (Vec::new(), pieces.peekable());
        while pieces.peek().is_some() {
            let write = |(offset, bytes): (u64, usize)| {
                let mut buffer = spare.pop().unwrap_or_else(|| Buffer::zeroed(ZERO_BYTES));
                buffer.truncate(bytes);
                Request::write(&self.file, offset, buffer, offset)
            };
            let requests = pieces.by_ref().take(ZERO_REQUESTS).map(write).collect();
            let written = self.psync().run_all(requests)?.into_iter().flatten();
            spare = written.filter(|buffer| buffer.len() == ZERO_BYTES).collect();
        }
        Ok(())
    }

    /// Marks allocated pages as retired: they are unreachable from the newest version. They are not used again before
    /// they are released.
    ///
    /// # Errors
    /// [`Error::State`] when one of the pages is not allocated, which a damaged pointer can cause; then none is
    /// retired.
    pub fn retire(&self, extents: &[Extent]) -> Result<()> {
        self.allocator().retire(extents)
    }

    /// Marks retired pages as free: they have no reader left, and the change that retired them is durable.
    ///
    /// # Errors
    /// [`Error::State`] when one of the pages is not retired; then none is released.
    pub fn release(&self, extents: &[Extent]) -> Result<()> {
        self.allocator().release(extents)
    }

    /// Notes that retired pages have no reader left. They stay retired until the change that retired them is durable:
    /// whoever makes the log durable takes them before ([`PagedFile::take_unread`]), and releases them behind that.
    pub fn note_unread(&self, extents: Vec<Extent>) {
        if !extents.is_empty() {
            self.unread.lock().push(extents);
        }
    }

    /// Takes the pages that were noted. The changes that retired them are in the log by now.
    #[must_use]
    pub fn take_unread(&self) -> Unread {
        std::mem::take(&mut *self.unread.lock())
    }

    /// Whether pages were noted and not taken.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        !self.unread.lock().is_empty()
    }

    /// Releases pages that were taken, because the log is durable behind the changes that retired them.
    pub fn release_unread(&self, unread: Unread) {
        for extents in unread {
            if let Err(error) = self.release(&extents) {
                events::error!(%error, "pages of an old version stay unused until the database is opened again");
            }
        }
    }

    /// Marks allocated pages as free to which no version ever referred, as after a failed batch.
    ///
    /// # Errors
    /// [`Error::State`] when one of the pages is not allocated; then none is freed.
    pub fn discard(&self, extents: &[Extent]) -> Result<()> {
        self.allocator().discard(extents)
    }

    /// The current state of the allocator, for a checkpoint. Retired pages count as free, because there are no readers
    /// after a restart.
    #[must_use]
    pub fn image(&self) -> AllocatorImage {
        let survey = self.allocator().survey();
        survey.image()
    }

    /// Recovery: the log records that these pages were allocated after the image was made. They may be free, retired
    /// earlier in the log, or past the end of the image.
    ///
    /// # Errors
    /// [`Error::State`] when one of the pages is in use already or past the end of the file; then none is taken.
    pub fn replay_allocate(&self, extents: &[Extent]) -> Result<()> {
        let file_pages = self.file.len()? / PAGE as u64;
        self.allocator().replay_allocate(extents, file_pages)
    }

    /// Recovery: the log records that these pages were retired after the image was made.
    ///
    /// # Errors
    /// [`Error::State`] when one of the pages is not allocated; then none is retired.
    pub fn replay_retire(&self, extents: &[Extent]) -> Result<()> {
        self.retire(extents)
    }

    /// Marks all retired pages as free: no reader and no log record needs them, as at the end of recovery.
    pub fn release_all_retired(&self) {
        let mut lazy = self.allocator.lock();
        self.unread.lock().clear();
        if let Some(allocator) = lazy.made() {
            allocator.release_all();
        }
    }

    /// Pages by state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.allocator.lock().stats()
    }

    /// The free and the retired pages at this moment.
    #[must_use]
    pub fn survey(&self) -> Survey {
        self.allocator().survey()
    }

    /// Compares the pages in use, in any order, with the allocator. The result is exact only while nothing is allocated
    /// or given back.
    #[must_use]
    pub fn audit(&self, used: &[Extent]) -> Audit {
        let survey = self.allocator().survey();
        survey.audit(used)
    }
}

/// The number of pages of `count` extents.
fn wanted(file: &Path, count: usize, pages: u32) -> Result<u64> {
    let wanted = (count as u64).checked_mul(u64::from(pages)).filter(|wanted| (1..PAGES_MAX / 2).contains(wanted));
    wanted.ok_or_else(|| Error::Size { file: file.to_owned(), count, pages })
}

impl Growth {
    /// The next growth is the least again, because the space grown ahead was given back.
    pub(crate) const fn begin_anew(&mut self) {
        self.ahead_max = AHEAD_PAGES.start;
    }

    /// Makes `file` longer by `least` pages, and ahead if the disk allows; `false` when the disk is full.
    fn grow(&mut self, file: &PagedFile, total: u64, least: u64) -> Result<bool> {
        let small = total.min(GROWTH_BYTES_SMALL / PAGE as u64);
        let ahead = (total / GROWTH_PART).max(small).clamp(AHEAD_PAGES.start, AHEAD_PAGES.end);
        let ample = ahead.min(self.ahead_max).max(least);
        if file.enlarge(total, ample, Filling::Written)? {
            self.ahead_max = (self.ahead_max.max(ample) * 2).clamp(self.ahead_max, AHEAD_PAGES.end.max(self.ahead_max));
            return Ok(true);
        }
        self.ahead_max = ample / 2;
        Ok(least < ample && file.enlarge(total, least, Filling::Written)?)
    }
}
