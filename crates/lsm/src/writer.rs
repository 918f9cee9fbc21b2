//! Writing a file: versions in key order become data blocks, fences and filters.
//!
//! 1. Data blocks are written as they fill up. Partitions and filters stay in memory until the end of the file, about
//!    one hundredth of it. So they are together in the file, and whoever wants all of them reads once.
//! 2. An uncompressed block ends where a page of the device ends, as closely as its versions allow. So a lookup mostly
//!    reads one page. What is left of the page is padding where it is short, or the begin of a block across two pages.
//!    Compressed blocks are as long as they come.
//! 3. All versions of a key are in one block. If there are too many for that, they have blocks of their own, from the
//!    beginning of a partition on, whose fences all have the key.

use doclog::Compression;
use index::{Expiry, Result, Seq, TableId, Time, Update, due};
use psync::{BLOCK, File, Psync};
use seeded::Bug;

use crate::format::block::Builder;
use crate::format::fences::{Maker, Tombstones, between};
use crate::format::filter::{self, Hash};
use crate::format::footer::{Footer, Written};
use crate::format::stored;
use crate::format::{BLOCK_BYTES_MAX, Place};

/// Bytes of a page that are padded rather than used for the begin of a block.
const PADDING_MAX: usize = BLOCK / 16;
/// Bytes of a data block before it is compressed: a larger one compresses better, and takes longer to decompress.
const COMPRESSED_BLOCK_BYTES: usize = 16 << 10;
/// Bytes of a partition, about, and the fewest fences of one where they are long.
const PARTITION_BYTES: usize = BLOCK;
const FENCES_MIN: usize = 4;
/// Bytes of an entry of the top beside its fence.
const TOP_ENTRY_BYTES: usize = 34;

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// The compression of data blocks.
    pub(crate) compression: Compression,
    /// Tenths of a bit of the filters for each key; 0 for no filters.
    pub(crate) filter_tenths: u32,
    /// The time at which the file is written.
    pub(crate) now: Time,
}

/// A partition whose place is not known yet.
struct Partition {
    fence: Vec<u8>,
    fences: Vec<u8>,
    filter: Vec<u8>,
    tombstones: Tombstones,
}

/// A file that is being written.
pub(crate) struct Writer {
    file: File,
    pieces: psync::Writer,
    format: Format,
    /// What is in the file so far. Its top is not known before the end.
    footer: Footer,
    /// Bytes that were put.
    offset: usize,
    block: Builder,
    /// Most bytes of the block, unless its first key has more.
    limit: usize,
    /// The fence of the block.
    fence: Vec<u8>,
    /// Those of the partition so far, its first fence, and its keys.
    fences: Maker<1>,
    first_fence: Vec<u8>,
    keys: Vec<Hash>,
    partitions: Vec<Partition>,
    /// Bytes of the top, about.
    top_bytes: usize,
    /// Those of the versions so far.
    expiries: Vec<Expiry>,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl Writer {
    /// Begins a file, which is empty and the caller's own.
    pub(crate) fn new(psync: &Psync, file: File, table: TableId, number: u64, format: Format) -> Self {
        let top = Place::default();
        let (entries, tombstones, documents, blocks, oldest, newest) = (0, 0, 0, 0, Seq::MAX, Seq(0));
        let footer = Footer { table, number, top, entries, tombstones, documents, blocks, oldest, newest, due: None };
        let mut writer = Self {
            file,
            pieces: psync::Writer::new(psync, None),
            format,
            footer,
            offset: 0,
            block: Builder::new(),
            limit: 0,
            fence: Vec::new(),
            fences: Maker::new(),
            first_fence: Vec::new(),
            keys: Vec::new(),
            partitions: Vec::new(),
            top_bytes: 0,
            expiries: Vec::new(),
            low: Vec::new(),
            high: None,
        };
        writer.limit = writer.next_limit();
        writer
    }

    /// Bytes of data so far, about.
    pub(crate) const fn bytes(&self) -> usize {
        self.offset
    }

    /// Whether no more keys should be added, because their fences are so long that the file may have no room for more.
    pub(crate) const fn is_full(&self) -> bool {
        self.top_bytes > BLOCK_BYTES_MAX / 2
    }

    /// Adds all versions of a key, the newest first. Keys rise.
    pub(crate) fn push(&mut self, versions: &[Update<'_>]) {
        let Some(Update { key, .. }) = versions.first() else { return };
        debug_assert!(self.high.as_deref().is_none_or(|high| high < *key), "keys rise");
        if !self.has_room(versions, self.limit) {
            self.end_block();
        }
        // One version has room in any block that is empty, and several may need more than one block.
        let is_long = versions.len() > 1 && !self.has_room(versions, BLOCK_BYTES_MAX);
        if is_long {
            self.end_block();
            self.end_partition();
        }
        self.begin_block(key, is_long);
        for version in versions {
            if is_long && self.block.bytes_with(version).is_none() {
                self.end_block();
                self.begin_block(key, true);
            }
            self.block.push(version);
            self.footer.oldest = self.footer.oldest.min(version.seq);
            self.footer.newest = self.footer.newest.max(version.seq);
            self.footer.documents += version.operation.document().map_or(0, |document| document.stored_bytes());
            self.expiries.extend(version.operation.expiry());
        }
        self.footer.entries += versions.len() as u64;
        let high = self.high.get_or_insert_default();
        high.clear();
        high.extend_from_slice(key);
    }

    /// Whether the block can have all these versions and be no longer than `limit`. An empty one can have any version.
    fn has_room(&self, versions: &[Update<'_>], limit: usize) -> bool {
        let fits = |block: &Builder, version| block.bytes_with(version).is_some_and(|bytes| bytes <= limit);
        if let [version] = versions {
            return self.block.is_empty() || fits(&self.block, version);
        }
        let mut block = self.block.clone();
        versions.iter().all(|version| {
            fits(&block, version) && {
                block.push(version);
                true
            }
        })
    }

    /// Notes that the next version of `key` goes to the block, which may be empty, and to the partition. If `is_alike`,
    /// the key is the fence.
    fn begin_block(&mut self, key: &[u8], is_alike: bool) {
        if self.block.is_empty() {
            self.fence.clear();
            match &self.high {
                _ if is_alike => self.fence.extend_from_slice(key),
                Some(high) => self.fence.extend_from_slice(between(high, key)),
                None => {}
            }
            // With this fence the others may share less of their beginnings, and all of them become longer.
            let is_long = |bytes: usize| bytes > PARTITION_BYTES.max(FENCES_MIN * self.fence.len());
            if !self.fences.is_empty() && self.fences.bytes_with(&self.fence).is_none_or(is_long) {
                self.end_partition();
            }
        }
        if self.high.is_none() {
            self.low = key.to_vec();
        }
        let hash = if seeded::on(Bug::FilterOfOtherKeys) { Hash::of(&self.fence) } else { Hash::of(key) };
        if self.keys.last() != Some(&hash) {
            self.keys.push(hash);
        }
    }

    fn end_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let (tombstones, mut block, mut bytes) = (self.block.tombstones(), Vec::new(), Vec::new());
        self.block.finish(&mut block);
        stored::put(&mut bytes, &block, self.format.compression);
        self.footer.tombstones += u64::from(tombstones.count);
        self.footer.blocks += 1;
        let place = self.put(&bytes);
        if self.fences.is_empty() {
            self.first_fence.clone_from(&self.fence);
        }
        self.fences.push(&self.fence, [place], tombstones);
        self.limit = self.next_limit();
    }

    /// Most bytes of the next block, which begins where the last one has ended, or behind the page if little is left of
    /// that.
    fn next_limit(&mut self) -> usize {
        if self.format.compression != Compression::None {
            return COMPRESSED_BLOCK_BYTES;
        }
        let left = BLOCK - self.offset % BLOCK;
        if left <= PADDING_MAX {
            self.pad(left);
        }
        match BLOCK - self.offset % BLOCK {
            BLOCK => BLOCK - stored::HEAD,
            left => left + BLOCK - stored::HEAD,
        }
    }

    fn end_partition(&mut self) {
        if self.fences.is_empty() {
            return;
        }
        let filter = filter::encode(&self.keys, self.format.filter_tenths);
        self.keys.clear();
        let (tombstones, mut fences) = (self.fences.tombstones(), Vec::new());
        self.fences.finish(&mut fences);
        self.top_bytes += self.first_fence.len() + TOP_ENTRY_BYTES;
        let fence = std::mem::take(&mut self.first_fence);
        self.partitions.push(Partition { fence, fences, filter, tombstones });
    }

    fn put(&mut self, bytes: &[u8]) -> Place {
        let place = self.footer.identity().place(self.offset, bytes);
        self.pieces.put(&self.file, self.offset as u64, bytes);
        self.offset += bytes.len();
        place
    }

    fn pad(&mut self, bytes: usize) {
        self.pieces.put(&self.file, self.offset as u64, &[0; BLOCK][..bytes]);
        self.offset += bytes;
    }

    /// The file.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Whether a value with an expiry was added.
    pub(crate) const fn expires(&self) -> bool {
        !self.expiries.is_empty()
    }

    /// Writes what is left, and tells what is in the file; none where no key was added. The file is still to be
    /// flushed.
    ///
    /// # Errors
    /// When a write failed.
    pub(crate) fn finish(mut self) -> Result<Option<Written>> {
        self.end_block();
        self.end_partition();
        let Some(high) = self.high.take() else { return Ok(None) };
        let (mut top, mut bytes) = (Maker::<2>::new(), Vec::new());
        for Partition { fence, fences, filter, tombstones } in std::mem::take(&mut self.partitions) {
            let places = [fences, filter].map(|block| {
                if block.is_empty() {
                    return Place::default();
                }
                bytes.clear();
                stored::put(&mut bytes, &block, Compression::None);
                self.put(&bytes)
            });
            top.push(&fence, places, tombstones);
        }
        let mut block = Vec::new();
        top.finish(&mut block);
        bytes.clear();
        stored::put(&mut bytes, &block, Compression::None);
        self.footer.top = self.put(&bytes);
        let entries = usize::try_from(self.footer.entries).unwrap_or(usize::MAX);
        self.footer.due = due::made(std::mem::take(&mut self.expiries), entries, self.format.now);
        let end = (self.offset + Footer::BYTES).next_multiple_of(BLOCK);
        self.pad(end - Footer::BYTES - self.offset);
        self.pieces.put(&self.file, self.offset as u64, &self.footer.encode());
        // A file that finds no room goes, and the write can be tried again.
        self.pieces.finish().map_err(space::Error::Io)?;
        Ok(Some(Written { bytes: end as u64, low: self.low, high, footer: self.footer }))
    }
}
