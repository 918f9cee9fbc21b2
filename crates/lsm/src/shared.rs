//! The parts that all LSM trees of a database share: the store, and the cache of blocks.
//!
//! A block is cached under its table, file and offset. Files are never changed, and their numbers never given twice, so
//! a cached block is never stale.

use std::sync::Arc;

use cache::{Cache, Part};
use index::{Error, Result};
use psync::{Buffer, File, Request};
use space::FileStore;

use crate::blocks::{Kind, Loaded};
use crate::format::Place;
use crate::format::stored::Identity;
use crate::sst::Sst;

/// Maximum size of one read, in bytes.
const WINDOW_BYTES: u64 = 256 << 10;

/// The parts that all LSM trees of a database share.
pub struct Shared {
    store: FileStore,
    cache: Cache<Key, Arc<Loaded>>,
    lookups_in_flight: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    file: Identity,
    offset: u32,
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
        let lookups_in_flight = store.psync().pio_max();
        Self { store: store.clone(), cache: Cache::new(cache_bytes, weigh), lookups_in_flight }
    }

    /// The store of the files.
    #[must_use]
    pub const fn store(&self) -> &FileStore {
        &self.store
    }

    /// The cache of blocks.
    #[must_use]
    pub const fn cache(&self) -> &dyn Part {
        &self.cache
    }

    /// These blocks, in their order. Those that are not cached are read in one psync.
    pub(crate) fn blocks(&self, wants: &[Want<'_>]) -> Result<Vec<Arc<Loaded>>> {
        let mut blocks: Vec<_> = wants.iter().map(|want| self.cache.get(&want.key())).collect();
        let missing: Vec<_> = (0..blocks.len()).filter(|index| blocks[*index].is_none()).collect();
        if !missing.is_empty() {
            self.read(wants, missing, &mut |index, block| blocks[index] = Some(block))?;
        }
        Ok(blocks.into_iter().map(|block| block.expect("found or read")).collect())
    }

    /// As [`Shared::blocks`], of one.
    pub(crate) fn block(&self, want: Want<'_>) -> Result<Arc<Loaded>> {
        Ok(self.blocks(&[want])?.pop().expect("a block for each want"))
    }

    /// Reads some of the wanted blocks in one psync, and caches them.
    fn read(&self, wants: &[Want<'_>], missing: Vec<usize>, show: &mut dyn FnMut(usize, Arc<Loaded>)) -> Result<()> {
        let windows = self.windows(wants, missing)?;
        let mut stream = self.store.psync().stream(self.lookups_in_flight);
        for (tag, window) in (0..).zip(&windows) {
            let bytes = usize::try_from(window.end - window.start).expect("a window is short");
            stream.push(Request::read(&window.file, window.start, Buffer::for_read(bytes), tag));
        }
        let mut failed: Option<(usize, Error)> = None;
        for completion in stream {
            let tag = usize::try_from(completion.tag).expect("the index of a window");
            let taken = self.take(wants, &windows[tag], completion.buffer, completion.result, show);
            if let Err(error) = taken
                && failed.as_ref().is_none_or(|(first, _)| tag < *first)
            {
                failed = Some((tag, error));
            }
        }
        failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Checks and caches the blocks of a window.
    fn take(
        &self, wants: &[Want<'_>], window: &Window, buffer: Option<Buffer>, result: psync::Result<()>,
        show: &mut dyn FnMut(usize, Arc<Loaded>),
    ) -> Result<()> {
        result?;
        let buffer = buffer.expect("a read has a buffer");
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
            self.cache.insert(want.key(), Arc::clone(&block));
            last = Some((want.key(), Arc::clone(&block)));
            show(*index, block);
        }
        Ok(())
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
