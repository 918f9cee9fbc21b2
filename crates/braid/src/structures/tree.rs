//! The structures that tables can have. Only this module knows more of them than their trait.
//!
//! 1. [`Trees`] holds what the structures of a database share, separately for each kind. The cache is shared by all
//!    kinds and divided among them by the bytes of their tables. The reserve on the disk for append-only structures is
//!    sized by these bytes as well ([`Trees::adapt`]).
//! 2. A [`Tree`] is the structure of one table, and an [`Index`] like any other. In addition a tree can be loaded
//!    ([`Load`]).

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use append::Trie;
use btree::BTree;
use doclog::{DocLog, DocPointer, PackedDocuments};
use index::{Applied, Expiry, Index, LeafKeys, Payload, ReadAhead, Seq, TableId, View};
use parking_lot::Mutex;
use psync::File;
use space::{FileStore, Loan, PageId, PagedFile, Reserve};

use crate::{
    error::{Error, Result},
    format::CreateTable,
    options::no_history,
    structures::documents::Documents,
    words::structure::Structure,
};

/// The least share of the cache, as its divisor. Documents get at least this part of the cache if they can use that
/// much, and the structures together get at least this part. Each kind of structure in use gets at least this part of
/// the structures' share.
const CACHE_PARTS: u64 = 8;

/// The reserve holds this part (as a divisor) of all document bytes, at most one segment.
const DOCUMENT_ROOM_PART: u64 = 8;
/// The reserve for documents grows in steps of a segment divided by this number, so few commits have to enlarge it.
const ROOM_STEPS: u64 = 64;

/// Size and use of each part of the cache.
pub(crate) struct Caches {
    pub(crate) btree: cache::Stats,
    pub(crate) append: cache::Stats,
    pub(crate) documents: cache::Stats,
}

/// A part of the cache: its bytes now, its new bytes, and the function that sets them.
type Part<'a> = (u64, u64, &'a dyn Fn(u64));

/// Gives each part its new bytes. Parts that shrink are set before parts that grow.
fn divide(parts: &[Part<'_>]) {
    parts.iter().filter(|(has, gets, _)| gets < has).for_each(|(_, gets, set)| set(*gets));
    parts.iter().filter(|(has, gets, _)| gets > has).for_each(|(_, gets, set)| set(*gets));
}

/// Memory lent to the cache.
#[derive(Default)]
struct Lent {
    bytes: u64,
    /// The shares of B-tree pages, trie nodes and documents.
    shares: [u64; 3],
}

/// The size of a table, as far as the shared parts of structures depend on it.
#[derive(Clone, Copy)]
pub(crate) struct Footprint {
    pub(crate) structure: Structure,
    /// Live bytes in files that belong to the table's structure alone.
    pub(crate) node_bytes: u64,
    pub(crate) document_bytes: u64,
    pub(crate) live_document_bytes: u64,
    pub(crate) is_compressed: bool,
}

/// The shared parts of the structures of all tables.
pub(crate) struct Trees {
    btree: Arc<btree::Shared>,
    append: Arc<append::Shared>,
    documents: Documents,
    reserve: Arc<Reserve>,
    /// The nodes' share of the reserve, and the bytes of all documents, including those appended since tables were last
    /// looked at.
    node_room_bytes: AtomicU64,
    document_bytes: AtomicU64,
    read_ahead: Arc<ReadAhead>,
    cache_bytes: u64,
    loan: Mutex<Lent>,
    segment_bytes: u64,
}

/// The structure of a table.
pub(crate) enum Tree {
    BTree(BTree),
    Append(Box<Trie>),
}

impl Trees {
    /// The shared parts of a database, whose cache can be lent so many bytes besides its own. Files of append-only
    /// structures have at most `segment_bytes`.
    pub(crate) fn new(
        store: &FileStore, btree: btree::Shared, (cache_bytes, loans_bytes): (u64, u64), read_ahead: Arc<ReadAhead>,
        segment_bytes: u64,
    ) -> Self {
        let reserve = Arc::new(Reserve::new(store));
        let append = append::Shared::new(store, cache_bytes)
            .with_loans_of(loans_bytes)
            .with_segment_bytes(segment_bytes)
            .with_lookups_in_flight(btree.lookups_in_flight());
        append.set_cache_bytes(0);
        Self {
            btree: Arc::new(btree.with_loans_of(loans_bytes).with_read_ahead(Arc::clone(&read_ahead))),
            append: Arc::new(append.with_read_ahead(Arc::clone(&read_ahead)).with_reserve(Arc::clone(&reserve))),
            documents: Documents::new(cache_bytes, loans_bytes, Arc::clone(&read_ahead)),
            reserve,
            node_room_bytes: AtomicU64::new(0),
            document_bytes: AtomicU64::new(0),
            read_ahead,
            cache_bytes,
            loan: Mutex::default(),
            segment_bytes,
        }
    }

    /// Creates the structure of a table from the log record that begins the table. Values too large for it go to
    /// `documents`.
    pub(crate) fn create(&self, record: &CreateTable, documents: &Arc<DocLog>) -> Result<Tree> {
        Ok(match record.structure {
            Structure::BTree => Tree::BTree(BTree::create(Arc::clone(&self.btree), record.id, record.leaf_pages)),
            Structure::Append => {
                let (append, documents) = (Arc::clone(&self.append), Arc::clone(documents));
                let trie = Trie::create(append, record.id, documents, append::CHUNK_BYTES_DEFAULT)?;
                Tree::Append(Box::new(trie))
            }
        })
    }

    /// Opens the structure that a root record describes.
    pub(crate) fn open(&self, structure: Structure, id: TableId, root: &[u8], documents: &Arc<DocLog>) -> Result<Tree> {
        Ok(match structure {
            Structure::BTree => Tree::BTree(BTree::open(Arc::clone(&self.btree), id, root)?),
            Structure::Append => {
                let trie = Trie::open(Arc::clone(&self.append), id, Arc::clone(documents), root)?;
                Tree::Append(Box::new(trie))
            }
        })
    }

    /// The read-ahead memory of all scans and batches.
    pub(crate) const fn read_ahead(&self) -> &Arc<ReadAhead> {
        &self.read_ahead
    }

    /// Adapts the shared parts of structures to the sizes of these tables.
    pub(crate) fn adapt(&self, tables: &[Footprint]) {
        self.divide_cache(tables);
        let append = tables.iter().filter(|table| table.structure == Structure::Append);
        let nodes = append.map(|table| table.node_bytes).reduce(|one, other| one + other);
        let documents: u64 = tables.iter().map(|table| table.document_bytes).sum();
        let nodes = nodes.map_or(0, |bytes| self.append.room_bytes(bytes));
        self.node_room_bytes.store(nodes, Ordering::Relaxed);
        self.document_bytes.store(documents, Ordering::Relaxed);
        self.want_room(documents);
        if let Err(error) = self.reserve.trim() {
            tracing::warn!(%error, "room on the disk that is not needed could not be given back");
        }
    }

    fn want_room(&self, document_bytes: u64) {
        let step = self.segment_bytes.div_ceil(ROOM_STEPS);
        let documents = (document_bytes / DOCUMENT_ROOM_PART).next_multiple_of(step).min(self.segment_bytes);
        self.reserve.want(self.node_room_bytes.load(Ordering::Relaxed) + documents);
    }

    /// Fills the reserve, then appends documents. So on a full disk an append fails while operations that free space
    /// still have the reserve.
    pub(crate) fn append_documents(&self, documents: &DocLog, packed: &PackedDocuments<'_>) -> Result<Vec<DocPointer>> {
        let bytes = packed.stored_bytes();
        self.want_room(self.document_bytes.load(Ordering::Relaxed) + bytes);
        self.reserve.fill()?;
        let written = documents.append_packed(packed)?;
        self.document_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(written)
    }

    /// Lends so many bytes of the reserve to a relocation of documents that lets their segment be released. None unless
    /// the reserve holds these bytes and half of the nodes' share besides, because the nodes that refer to the
    /// documents take space from that half.
    pub(crate) fn lend_room(&self, bytes: u64) -> Result<Option<Loan>> {
        Ok(self.reserve.lend(bytes, self.node_room_bytes.load(Ordering::Relaxed) / 2)?)
    }

    /// Whether a part of the reserve is lent.
    pub(crate) fn is_room_lent(&self) -> bool {
        self.reserve.is_lent()
    }

    /// Divides the cache among the kinds of structures in use and the documents, by their bytes. Structures come first,
    /// because lookups reach documents through them. Documents get the rest, or at least one part.
    fn divide_cache(&self, tables: &[Footprint]) {
        let of = |structure| tables.iter().filter(move |table| table.structure == structure);
        let (append, btree) = (of(Structure::Append).count() > 0, of(Structure::BTree).count() > 0);
        let nodes: u64 = of(Structure::Append).map(|table| table.node_bytes).sum();
        // A quarter more, for the tables of places within each node and for the cache's own needs.
        let nodes = nodes + nodes / 4;
        let pages = self.btree.pages().stats();
        let used = if btree { pages.used_pages() * space::PAGE as u64 } else { 0 };
        let documents: u64 = tables.iter().map(|table| table.live_document_bytes).sum();
        let least = self.cache_bytes / CACHE_PARTS;
        let left = self.cache_bytes.saturating_sub(nodes + used).clamp(least, self.cache_bytes - least);
        // Half more than all documents, for the cache's own needs with each. For compressed documents all that is left
        // is taken, because their uncompressed length is not counted.
        let is_compressed = tables.iter().any(|table| table.is_compressed);
        let documents = if is_compressed && documents > 0 { left } else { (documents + documents / 2).min(left) };
        let structures = self.cache_bytes - documents;
        let append = match (append, btree) {
            (false, _) => 0,
            (true, false) => structures,
            (true, true) => {
                let share = u128::from(structures) * u128::from(nodes) / u128::from((nodes + used).max(1));
                let least = structures / CACHE_PARTS;
                u64::try_from(share).unwrap_or(structures).clamp(least, structures - least)
            }
        };
        self.set_caches(structures - append, append, documents);
    }

    fn set_caches(&self, btree: u64, append: u64, documents: u64) {
        let caches = self.caches();
        let set: [Part<'_>; 3] = [
            (caches.btree.capacity_bytes, btree, &|bytes| self.btree.set_cache_bytes(bytes)),
            (caches.append.capacity_bytes, append, &|bytes| self.append.set_cache_bytes(bytes)),
            (caches.documents.capacity_bytes, documents, &|bytes| self.documents.set_cache_bytes(bytes)),
        ];
        divide(&set);
        self.divide_loan(&mut self.loan.lock());
    }

    /// Lends the cache so many bytes, in place of those lent before. Each part gets a share in proportion to its
    /// capacity.
    pub(crate) fn lend(&self, bytes: u64) {
        let mut loan = self.loan.lock();
        loan.bytes = bytes;
        self.divide_loan(&mut loan);
    }

    fn divide_loan(&self, loan: &mut Lent) {
        let (bytes, caches) = (loan.bytes, self.caches());
        let share = |part: &cache::Stats| {
            let share = u128::from(bytes) * u128::from(part.capacity_bytes) / u128::from(self.cache_bytes.max(1));
            u64::try_from(share).unwrap_or(bytes).min(bytes)
        };
        let [btree, append, documents] =
            std::mem::replace(&mut loan.shares, [&caches.btree, &caches.append, &caches.documents].map(share));
        divide(&[
            (btree, loan.shares[0], &|bytes| self.btree.lend(bytes)),
            (append, loan.shares[1], &|bytes| self.append.lend(bytes)),
            (documents, loan.shares[2], &|bytes| self.documents.lend(bytes)),
        ]);
    }

    /// Forgets everything that is cached.
    pub(crate) fn clear_cache(&self) {
        self.btree.clear_cache();
        self.append.clear_cache();
        self.documents.clear_cache();
    }

    /// Size and use of each part of the cache.
    pub(crate) fn caches(&self) -> Caches {
        let (btree, append) = (self.btree.cache_stats(), self.append.cache_stats());
        Caches { btree, append, documents: self.documents.cache_stats() }
    }

    /// The cached documents.
    pub(crate) const fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Counters of reads of B-trees.
    pub(crate) fn counters(&self) -> btree::CountersSnapshot {
        self.btree.counters()
    }
}

impl Deref for Tree {
    type Target = dyn Index;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::BTree(tree) => tree,
            Self::Append(trie) => &**trie,
        }
    }
}

impl Tree {
    /// Begins to load sorted entries, whose versions will have `seq`. None if the structure is not empty. Nothing else
    /// may change the structure until the load is dropped, published or discarded.
    pub(crate) fn begin_load(&self, seq: Seq) -> Option<Load> {
        match self {
            Self::BTree(tree) => tree.begin_load(seq).map(|load| Load::BTree(Box::new(load))),
            Self::Append(trie) => trie.begin_load(seq).map(|load| Load::Append(Box::new(load))),
        }
    }

    /// Key ranges of leaves that do not end before `page` of the file of all pages, at most `most` ranges. Always empty
    /// for structures with files of their own.
    pub(crate) fn beyond(&self, page: PageId, most: usize) -> Result<Vec<LeafKeys>> {
        match self {
            Self::BTree(tree) => Ok(tree.beyond(page, most)?),
            Self::Append(_) => Ok(Vec::new()),
        }
    }

    /// Takes loaded data, of which readers below `floor` see nothing. From here on it is handled like an applied batch.
    pub(crate) fn take_loaded(&self, loaded: Loaded, floor: Seq) -> Applied {
        match (self, loaded) {
            (Self::BTree(tree), Loaded::BTree(loaded)) => tree.take_loaded(loaded, floor),
            (Self::Append(trie), Loaded::Append(loaded)) => trie.take_loaded(*loaded, floor),
            _ => unreachable!("what was loaded is taken by the structure that it was loaded for"),
        }
    }
}

/// Older states, as root records describe them.
impl Tree {
    /// The view that a root record describes.
    pub(crate) fn at(&self, root: &[u8]) -> Result<Arc<dyn View>> {
        Ok(self.trie()?.at(root)?)
    }

    /// Pins the views that these root records describe: the segments they refer to are kept.
    pub(crate) fn pin<'a>(&self, roots: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        match self {
            Self::BTree(_) => Ok(()),
            Self::Append(trie) => Ok(trie.pin(roots)?),
        }
    }

    /// Goes back to the view that a root record describes. From here on it is handled like an applied batch.
    pub(crate) fn roll_back(&self, root: &[u8]) -> Result<Applied> {
        Ok(self.trie()?.roll_back(root)?)
    }

    fn trie(&self) -> Result<&Trie> {
        match self {
            Self::BTree(_) => Err(no_history()),
            Self::Append(trie) => Ok(trie),
        }
    }
}

/// A structure under construction.
pub(crate) enum Load {
    BTree(Box<btree::Load>),
    Append(Box<append::Load>),
}

/// A structure whose construction is complete and written.
pub(crate) enum Loaded {
    BTree(btree::Loaded),
    Append(Box<append::Loaded>),
}

impl Loaded {
    /// The files that were written; `pages` is the file of all pages.
    pub(crate) fn files(&self, pages: &File) -> Vec<File> {
        match self {
            Self::BTree(_) => vec![pages.clone()],
            Self::Append(loaded) => loaded.files().to_vec(),
        }
    }
}

/// Prepares for a write, or refuses to go on.
type Ready<'a> = dyn Fn() -> Result<()> + 'a;

impl Load {
    /// The key of the entry before; empty before the first.
    #[inline]
    pub(crate) fn last_key(&self) -> &[u8] {
        match self {
            Self::BTree(load) => load.last_key(),
            Self::Append(load) => load.last_key(),
        }
    }

    /// Takes the next entry.
    #[inline]
    pub(crate) fn push(
        &mut self, key: &[u8], payload: Payload<'_>, expiry: Option<Expiry>, ready: &Ready<'_>,
    ) -> Result<()> {
        match self {
            Self::BTree(load) => load.push::<Error>(key, payload, expiry, ready),
            Self::Append(load) => load.push::<Error>(key, payload, expiry, ready),
        }
    }

    /// Writes the rest.
    pub(crate) fn finish(self, ready: &Ready<'_>) -> Result<Loaded> {
        Ok(match self {
            Self::BTree(load) => Loaded::BTree(load.finish::<Error>(ready)?),
            Self::Append(load) => Loaded::Append(Box::new(load.finish::<Error>(ready)?)),
        })
    }
}

/// A root record that was found although nothing referred to it.
pub(crate) struct FoundRoot {
    pub(crate) structure: Structure,
    pub(crate) root: Vec<u8>,
    /// The place where it was found.
    pub(crate) place: String,
}

/// The structures of a database that may be damaged. They are only read.
pub(crate) struct DamagedTrees {
    /// None if there is no data file.
    btree: Option<Arc<btree::Shared>>,
    append: Arc<append::Shared>,
}

impl DamagedTrees {
    /// The structures of a database with these pages, if there are any. Tables are read one after the other.
    pub(crate) fn new(store: &FileStore, pages: Option<&Arc<PagedFile>>, cache_bytes: u64) -> Self {
        let btree = pages.map(|pages| Arc::new(btree::Shared::new(Arc::clone(pages), cache_bytes, 0)));
        Self { btree, append: Arc::new(append::Shared::new(store, cache_bytes)) }
    }

    /// Opens the structure that a root record describes; none if its file is missing.
    pub(crate) fn open(
        &self, structure: Structure, id: TableId, root: &[u8], documents: &Arc<DocLog>,
    ) -> Result<Option<Tree>> {
        Ok(match (structure, &self.btree) {
            (Structure::BTree, None) => None,
            (Structure::BTree, Some(shared)) => Some(Tree::BTree(BTree::open(Arc::clone(shared), id, root)?)),
            (Structure::Append, _) => {
                let trie = Trie::open(Arc::clone(&self.append), id, Arc::clone(documents), root)?;
                Some(Tree::Append(Box::new(trie)))
            }
        })
    }

    /// Tables whose structures can be found through the files that belong to them alone.
    pub(crate) fn left(&self) -> Result<Vec<TableId>> {
        Ok(append::tables_with_nodes(self.append.store())?)
    }

    /// The newest root of such a table, if one passes its checks.
    pub(crate) fn newest_root(&self, id: TableId) -> Result<Option<FoundRoot>> {
        let found = append::newest_root(&self.append, id)?;
        Ok(found.map(|(root, place)| FoundRoot { structure: Structure::Append, root, place }))
    }
}

/// The kind of structure that wrote a redo, and the root record that the redo yields. The expected kind is tried first.
pub(crate) fn root_of_redo(expected: Structure, redo: &[u8], table: TableId) -> Result<(Structure, Vec<u8>)> {
    let root = |structure| {
        Ok::<_, Error>(match structure {
            Structure::BTree => btree::root_of_redo(redo, table)?,
            Structure::Append => append::root_of_redo(redo, table)?,
        })
    };
    let others = Structure::ALL.into_iter().filter(|other| *other != expected);
    root(expected).map(|found| (expected, found)).or_else(|error| {
        others.map(|other| (other, root(other))).find_map(|(other, found)| Some((other, found.ok()?))).ok_or(error)
    })
}
