//! The parts that all LSM trees of a database share: the store, and the cache of blocks.
//!
//! A block is cached under its table, file and offset. Files are never changed, and their numbers never given twice, so
//! a cached block is never stale.

use std::collections::HashSet;
use std::sync::Arc;

use cache::{Cache, Part};
use index::{Error, ReadAhead, Result, TableId};
use psync::{Buffer, File, Request};
use space::{FileStore, Reserve};

use crate::blocks::{Kind, Loaded};
use crate::format::Place;
use crate::format::stored::Identity;
use crate::sizes::Sizes;
use crate::sst::Sst;

/// Room for deletes on a full disk: so many files.
const ROOM_FILES: u64 = 4;
/// Maximum size of one read, in bytes.
const WINDOW_BYTES: u64 = 256 << 10;

/// The parts that all LSM trees of a database share.
pub struct Shared {
    store: FileStore,
    cache: Cache<Key, Arc<Loaded>>,
    read_ahead: Arc<ReadAhead>,
    reserve: Arc<Reserve>,
    sizes: Sizes,
    lookups_in_flight: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    file: Identity,
    offset: u32,
}

/// The kind of a reader, which decides whether blocks are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A lookup or the beginning of a scan, which may come again.
    Lookup,
    /// A walk that takes one block after the other, each once.
    Walk,
}

/// A block to be found or read.
#[derive(Clone, Copy)]
pub(crate) struct Want<'a> {
    pub(crate) sst: &'a Sst,
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

impl Want<'_> {
    const fn key(&self) -> Key {
        Key { file: self.sst.identity(), offset: self.place.offset }
    }

    fn end(&self) -> u64 {
        u64::from(self.place.offset) + u64::from(self.place.bytes)
    }
}

/// A part of a file that is read at once, and the wanted blocks in it, by their places in the call.
struct Window {
    file: File,
    start: u64,
    end: u64,
    wants: Vec<usize>,
}

impl Shared {
    /// The shared parts of trees whose files are in `store`, with a cache of `cache_bytes`.
    #[must_use]
    pub fn new(store: &FileStore, cache_bytes: u64) -> Self {
        let weigh = |_: &Key, block: &Arc<Loaded>| (size_of::<Loaded>() + block.heap_bytes()) as u64;
        Self {
            store: store.clone(),
            cache: Cache::new(cache_bytes, weigh),
            read_ahead: Arc::new(ReadAhead::new(u64::MAX)),
            reserve: Arc::new(Reserve::new(store)),
            sizes: Sizes::new(u64::MAX),
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

    /// Batches of lookups keep so many requests in flight.
    #[must_use]
    pub const fn with_lookups_in_flight(mut self, requests: usize) -> Self {
        self.lookups_in_flight = requests;
        self
    }

    /// The cache can be lent up to so many bytes.
    #[must_use]
    pub fn with_loans_of(mut self, most_bytes: u64) -> Self {
        self.cache = self.cache.with_loans_of(most_bytes);
        self
    }

    /// Bytes to be reserved on the disk for trees whose files take `live_bytes` together.
    pub(crate) fn room_bytes(&self, live_bytes: u64) -> u64 {
        ROOM_FILES * self.sizes.file_bytes(live_bytes) as u64
    }

    /// Files have at most so many bytes, about.
    #[must_use]
    pub fn with_file_bytes(mut self, most: u64) -> Self {
        self.sizes = Sizes::new(most);
        self
    }

    /// How long files are.
    pub(crate) const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Space on the disk for trees that become smaller. Writers that make any file longer fill the reserve up first.
    pub(crate) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// The memory in which all scans read ahead.
    pub(crate) const fn read_ahead(&self) -> &Arc<ReadAhead> {
        &self.read_ahead
    }

    /// The store of the files.
    #[must_use]
    pub const fn store(&self) -> &FileStore {
        &self.store
    }

    /// The cache of blocks. Lent memory is for data blocks that the cache does not admit.
    #[must_use]
    pub const fn cache(&self) -> &dyn Part {
        &self.cache
    }

    /// These blocks, in their order. Those that are not cached are read in one psync.
    pub(crate) fn blocks(&self, wants: &[Want<'_>]) -> Result<Vec<Arc<Loaded>>> {
        self.blocks_for(wants, Reader::Lookup)
    }

    /// As [`Shared::blocks`], for this reader.
    pub(crate) fn blocks_for(&self, wants: &[Want<'_>], reader: Reader) -> Result<Vec<Arc<Loaded>>> {
        let find = |want: &Want<'_>| match reader {
            Reader::Lookup => self.cache.get(&want.key()).or_else(|| self.read_before(want)),
            Reader::Walk => self.cache.peek(&want.key()),
        };
        let mut blocks: Vec<_> = wants.iter().map(find).collect();
        let missing: Vec<_> = (0..blocks.len()).filter(|index| blocks[*index].is_none()).collect();
        if !missing.is_empty() {
            self.read(wants, missing, reader, &mut |index, block| blocks[index] = Some(block))?;
        }
        Ok(blocks.into_iter().map(|block| block.expect("found or read")).collect())
    }

    /// A block, if the cache has it. Not finding it is not counted as a miss.
    pub(crate) fn cached(&self, want: Want<'_>) -> Option<Arc<Loaded>> {
        self.cache.find(&want.key())
    }

    /// These blocks, in their order, read past the cache.
    pub(crate) fn read_again(&self, wants: &[Want<'_>]) -> Result<Vec<Arc<Loaded>>> {
        let mut blocks: Vec<Option<Arc<Loaded>>> = vec![None; wants.len()];
        let all = (0..wants.len()).collect();
        self.read(wants, all, Reader::Walk, &mut |index, block| blocks[index] = Some(block))?;
        Ok(blocks.into_iter().map(|block| block.expect("read")).collect())
    }

    /// Forgets the blocks of files that were removed.
    pub(crate) fn forget(&self, table: TableId, numbers: &[u64]) {
        let numbers: HashSet<u64> = numbers.iter().copied().collect();
        self.cache.retain(|key, _| key.file.table != table || !numbers.contains(&key.file.number));
    }

    /// As [`Shared::blocks`], of one.
    pub(crate) fn block(&self, want: Want<'_>) -> Result<Arc<Loaded>> {
        Ok(self.blocks(&[want])?.pop().expect("a block for each want"))
    }

    /// Reads some of the wanted blocks in one psync, and caches those of a lookup.
    fn read(
        &self, wants: &[Want<'_>], missing: Vec<usize>, reader: Reader, show: &mut dyn FnMut(usize, Arc<Loaded>),
    ) -> Result<()> {
        let windows = self.windows(wants, missing)?;
        let mut stream = self.store.psync().stream(self.lookups_in_flight);
        for (tag, window) in (0..).zip(&windows) {
            let bytes = usize::try_from(window.end - window.start).expect("a window is short");
            stream.push(Request::read(&window.file, window.start, Buffer::for_read(bytes), tag));
        }
        let mut failed: Option<(usize, Error)> = None;
        for completion in stream {
            let tag = usize::try_from(completion.tag).expect("the index of a window");
            let read = completion.result.map(|()| completion.buffer.expect("a read has a buffer"));
            let taken = read.map_err(Error::from).and_then(|read| self.take(wants, &windows[tag], &read, reader, show));
            if let Err(error) = taken
                && failed.as_ref().is_none_or(|(first, _)| tag < *first)
            {
                failed = Some((tag, error));
            }
        }
        failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Checks the blocks of a window, and caches those of a lookup.
    fn take(
        &self, wants: &[Want<'_>], window: &Window, buffer: &Buffer, reader: Reader,
        show: &mut dyn FnMut(usize, Arc<Loaded>),
    ) -> Result<()> {
        // Wants of one block stand together.
        let mut last: Option<(Key, Arc<Loaded>)> = None;
        for index in &window.wants {
            let want = &wants[*index];
            if let Some((_, block)) = last.as_ref().filter(|(key, _)| *key == want.key()) {
                show(*index, Arc::clone(block));
                continue;
            }
            let at = usize::try_from(u64::from(want.place.offset) - window.start).expect("a window is short");
            let stored = &buffer[at..at + usize::from(want.place.bytes)];
            let block = Loaded::decode(stored, want.kind, want.place, want.sst.identity(), window.file.path())?;
            let block = Arc::new(block);
            if reader == Reader::Lookup {
                self.keep(want, &block, stored);
            }
            last = Some((want.key(), Arc::clone(&block)));
            show(*index, block);
        }
        Ok(())
    }

    /// Caches a block that was read. A data block is kept if the cache admits it; otherwise its bytes are kept for a
    /// lookup as long as there is lent memory.
    fn keep(&self, want: &Want<'_>, block: &Arc<Loaded>, stored: &[u8]) {
        let bytes = size_of::<Loaded>() + block.heap_bytes();
        if want.kind != Kind::Data || self.cache.admits(&want.key(), bytes as u64) {
            self.cache.insert(want.key(), Arc::clone(block));
        } else {
            self.cache.put_read(&want.key(), stored);
        }
    }

    /// A data block whose bytes were read not long ago.
    fn read_before(&self, want: &Want<'_>) -> Option<Arc<Loaded>> {
        let path = self.store.directory();
        let decode = |stored: &[u8]| {
            let block = Loaded::decode(stored, want.kind, want.place, want.sst.identity(), path);
            block.ok().map(Arc::new)
        };
        if want.kind == Kind::Data { self.cache.found_read(&want.key(), decode) } else { None }
    }

    /// The windows in which these blocks are: blocks in the same or neighbouring sectors of a file are read together.
    fn windows(&self, wants: &[Want<'_>], mut missing: Vec<usize>) -> Result<Vec<Window>> {
        missing.sort_unstable_by_key(|index| (wants[*index].sst.identity().number, wants[*index].place.offset));
        let mut windows: Vec<Window> = Vec::new();
        for index in missing {
            let want = &wants[index];
            want.sst.check_place(want.place)?;
            let file = want.sst.file(&self.store)?;
            let unit = (file.unit() as u64).max(1);
            let start = u64::from(want.place.offset) / unit * unit;
            let end = want.end().next_multiple_of(unit);
            match windows.last_mut() {
                Some(last) if last.file == file && start <= last.end && end - last.start <= WINDOW_BYTES => {
                    last.end = last.end.max(end);
                    last.wants.push(index);
                }
                _ => windows.push(Window { file, start, end, wants: vec![index] }),
            }
        }
        Ok(windows)
    }
}
