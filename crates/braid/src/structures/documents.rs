//! The document cache: documents that lookups ask for again stay in memory.
//!
//! 1. A document is cached under its table, segment and offset. A place in a segment is written once, so a cached
//!    document is never stale.
//! 2. The cache admits a document if there is room, or if the document was asked for before, not long ago
//!    ([`Cache::admits`]).
//! 3. A document that is read and not admitted goes to the memory that is lent. So does a document that a commit
//!    writes, because it may be asked for next.
//! 4. Documents of long scans (ranges, compactions, backups) bypass the cache.

use std::{ops::Deref, sync::Arc};

use cache::{Cache, Part};
use doclog::DocLog;
use index::{DocPointer, ReadAhead, TableId};
use mapped::{Shared, SharedBytes};

use crate::{error::Result, words::portions::first_portion};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    table: TableId,
    segment: u64,
    offset: u64,
}

impl Key {
    const fn new(table: TableId, pointer: &DocPointer) -> Self {
        Self { table, segment: pointer.segment.0, offset: pointer.offset }
    }
}

/// A document that was read: cached, or not cached.
pub(crate) enum Document {
    Cached(Arc<SharedBytes>),
    Read(Vec<u8>),
}

impl Document {
    /// The bytes; a cached document is copied.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Cached(document) => document.to_vec(),
            Self::Read(document) => document,
        }
    }
}

impl Deref for Document {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Cached(document) => document,
            Self::Read(document) => document,
        }
    }
}

/// The documents' part of the cache.
pub(crate) struct Documents {
    cache: Cache<Key, Arc<SharedBytes>>,
    read_ahead: Arc<ReadAhead>,
}

impl Documents {
    /// A cache of at most `most_bytes`, and of at most `loans_bytes` in lent memory. No document is kept before
    /// the cache gets a capacity. A batch is read in portions of its share of `read_ahead`.
    pub(crate) fn new(most_bytes: u64, loans_bytes: u64, read_ahead: Arc<ReadAhead>) -> Self {
        let weigh = |_: &Key, document: &Arc<SharedBytes>| Shared::taken(document.len()) as u64;
        let cache = Cache::new(most_bytes, weigh).with_loans_of(loans_bytes);
        cache.set_capacity(0);
        Self { cache, read_ahead }
    }

    /// The cache. Lent memory is for documents that the cache does not admit.
    pub(crate) fn cache(&self) -> &dyn Part {
        &self.cache
    }

    /// Keeps a document that was just written in lent memory, if there is some.
    pub(crate) fn put_written(&self, table: TableId, pointer: &DocPointer, document: &[u8]) {
        self.cache.put_read(&Key::new(table, pointer), document);
    }

    /// One document, shared with the cache if it is cached.
    ///
    /// # Errors
    /// As [`Documents::get_many`].
    pub(crate) fn read(&self, table: TableId, documents: &DocLog, pointer: &DocPointer) -> Result<Document> {
        let mut read = self.get_many(table, documents, std::slice::from_ref(pointer))?;
        Ok(read.next().expect("as many documents as pointers"))
    }

    /// Documents of `table`, in the order of `pointers`, shared with the cache where cached. Others are read in
    /// portions, each portion in one psync.
    ///
    /// # Errors
    /// When a document cannot be read or does not check.
    pub(crate) fn get_many<'a>(
        &'a self, table: TableId, documents: &'a DocLog, pointers: &'a [DocPointer],
    ) -> Result<impl Iterator<Item = Document> + use<'a>> {
        let key = move |pointer: &DocPointer| Key::new(table, pointer);
        let kept = |bytes: &[u8]| Some(Arc::new(Shared::copied(bytes)));
        let find = |key: Key| self.cache.get(&key).or_else(|| self.cache.found_read(&key, kept));
        let found: Vec<_> = pointers.iter().map(|pointer| find(key(pointer))).collect();
        let missing = || pointers.iter().zip(&found).filter(|(_, found)| found.is_none());
        let missing: Vec<DocPointer> = missing().map(|(pointer, _)| *pointer).collect();
        let mut read = self.read_in_portions(documents, &missing)?.into_iter();
        let document = move |(pointer, found): (&DocPointer, Option<Arc<SharedBytes>>)| {
            if let Some(found) = found {
                return Some(Document::Cached(found));
            }
            let document = read.next()?;
            let key = key(pointer);
            if self.cache.admits(&key, document.len() as u64) {
                self.cache.insert(key, Arc::new(Shared::copied(&document)));
            } else {
                self.cache.put_read(&key, &document);
            }
            Some(Document::Read(document))
        };
        Ok(pointers.iter().zip(found).filter_map(document))
    }

    /// Reads documents in portions, so that each portion fits the call's share of the read-ahead memory.
    fn read_in_portions(&self, documents: &DocLog, mut pointers: &[DocPointer]) -> Result<Vec<Vec<u8>>> {
        if let [] | [_] = pointers {
            return Ok(documents.read_many(pointers)?);
        }
        let mut read = Vec::with_capacity(pointers.len());
        let share = self.read_ahead.share();
        while !pointers.is_empty() {
            let portion = first_portion(pointers, share.bytes_max() as u64, DocPointer::stored_bytes);
            read.extend(documents.read_many(portion)?);
            pointers = &pointers[portion.len()..];
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use doclog::Compression;
    use psync::sim::SimDisk;

    use crate::{
        handles::{database::Database, table::Table},
        options::{Options, TableOptions},
        words::structure::Structure,
    };

    const VALUE: usize = 4000;

    fn value(number: u8) -> Vec<u8> {
        vec![number; VALUE]
    }

    fn open(cache_bytes: u64) -> Database {
        let options = Options::new().background(false).cache_bytes(cache_bytes).segment_bytes(64 << 10);
        options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens")
    }

    fn filled(database: &Database, structure: Structure, compression: Compression) -> Table {
        let options = TableOptions::new().compression(compression);
        let table = database.table_with("table", structure, &options).expect("created");
        (0..100).for_each(|key| table.put([key], value(key)).map(drop).expect("put"));
        database.checkpoint().expect("a checkpoint divides the cache");
        table
    }

    fn documents_read(database: &Database) -> u64 {
        let streams = database.stats().expect("stats").streams;
        streams.iter().filter(|stream| stream.stream == "doc").map(|stream| stream.reads).sum()
    }

    #[test]
    fn what_is_asked_for_again_is_in_memory() {
        let with = |structure| [Compression::None, Compression::Zstd].map(|compression| (structure, compression));
        for (structure, compression) in Structure::ALL.iter().copied().flat_map(with) {
            let database = open(8 << 20);
            let table = filled(&database, structure, compression);
            let keys: Vec<[u8; 1]> = (0..100).map(|key| [key]).collect();
            let expected: Vec<_> = (0..100).map(|key| Some(value(key))).collect();
            assert_eq!(table.get_many(&keys[..50]).expect("read"), expected[..50]);
            let before = documents_read(&database);
            assert_eq!(table.get_many(&keys[..50]).expect("read"), expected[..50]);
            assert_eq!(table.get([7]).expect("read"), Some(value(7)));
            assert_eq!(documents_read(&database), before, "{structure} {compression}");
            // Some cached documents, among others.
            assert_eq!(table.get_many(&keys).expect("read"), expected);
            let cache = database.stats().expect("stats").cache;
            assert_eq!((cache.document_hits, cache.document_misses), (101, 100));
            assert!(cache.document_bytes >= 100 * VALUE as u64 && cache.bytes <= cache.capacity_bytes);
            // Another value is another document.
            table.put([7], value(200)).expect("put");
            assert_eq!(table.get([7]).expect("read"), Some(value(200)));
            database.drop_caches();
            let before = documents_read(&database);
            assert_eq!(table.get([8]).expect("read"), Some(value(8)));
            assert_eq!(documents_read(&database), before + 1);
        }
    }

    #[test]
    fn a_small_cache_is_not_exceeded_and_ranges_pass_it_by() {
        let database = open(256 << 10);
        let table = filled(&database, Structure::BTree, Compression::None);
        assert_eq!(table.iter().count(), 100);
        assert_eq!(database.stats().expect("stats").cache.document_bytes, 0);
        for _ in 0..5 {
            (0..100).for_each(|key| assert_eq!(table.get([key]).expect("read"), Some(value(key))));
        }
        let cache = database.stats().expect("stats").cache;
        assert!(cache.document_bytes > 0 && cache.bytes <= cache.capacity_bytes, "{cache:?}");
    }

    #[test]
    fn a_large_value_in_the_cache_is_shared_and_not_copied() {
        for &structure in Structure::ALL {
            let database = open(512 << 20);
            let table = database.table("table", structure).expect("created");
            let large = vec![7; 1 << 20];
            // With a single one, the documents' share of the cache would be no larger than that.
            (0..64_u8).for_each(|number| table.put([number], &large).map(drop).expect("put"));
            table.put("large", &large).expect("put");
            database.checkpoint().expect("a checkpoint divides the cache");
            // It is cached once it was asked for again.
            (0..3).for_each(|_| assert_eq!(table.get("large").expect("read").as_ref(), Some(&large)));
            let read = documents_read(&database);
            let one = table.get_pinned("large").expect("read").expect("there");
            let many = table.get_many_pinned(&["absent", "large"]).expect("read").pop().flatten().expect("there");
            let then = database.snapshot().get_many_pinned(&table, &["large"]).expect("read").pop().flatten();
            let place = one.as_ptr();
            assert_eq!(one.len(), large.len());
            let same = table.get_with("large", |value| value.as_ptr() == place).expect("read");
            assert_eq!(same, Some(true), "{structure}");
            assert!(many.as_ptr() == place && then.expect("there").as_ptr() == place, "{structure}");
            assert_eq!(documents_read(&database), read);
        }
    }
}
