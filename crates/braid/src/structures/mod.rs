//! The structures of tables, with the memory and the room that they share, and the documents beside them.

pub(crate) mod documents;
pub(crate) mod footprint;
pub(crate) mod kinds;
pub(crate) mod load;
pub(crate) mod pool;
mod room;

use std::sync::Arc;

use doclog::{DocLog, DocPointer, PackedDocuments};
use index::{Home, Index, ReadAhead, TableId};
use space::Loan;

use crate::{
    error::Result,
    format::CreateTable,
    structures::{
        documents::Documents,
        footprint::Footprint,
        kinds::Kinds,
        pool::{Pool, StructureCache, Taker},
        room::Room,
    },
    words::structure::Structure,
};

/// The shared parts of the structures of all tables.
pub(crate) struct Structures {
    kinds: Arc<Kinds>,
    pool: Pool,
    documents: Arc<Documents>,
    room: Room,
    read_ahead: Arc<ReadAhead>,
}

impl Structures {
    pub(crate) fn new(home: &Home<'_>) -> Self {
        let kinds = Arc::new(Kinds::new(home));
        let documents = Arc::new(Documents::new(home.cache_bytes, home.loans_bytes, Arc::clone(&home.read_ahead)));
        Self {
            pool: Pool::new(&kinds, &documents, home.cache_bytes),
            kinds,
            documents,
            room: Room::new(Arc::clone(&home.reserve), home.segment_bytes),
            read_ahead: Arc::clone(&home.read_ahead),
        }
    }

    /// Creates the structure of a table from the log record that begins the table. Values too large for it go to
    /// `documents`.
    pub(crate) fn create(&self, record: &CreateTable, documents: &Arc<DocLog>) -> Result<Box<dyn Index>> {
        Ok(self.kinds.of(record.structure).create(record.id, &record.structure_settings, documents)?)
    }

    /// Opens the structure that a root record describes.
    pub(crate) fn open(
        &self, structure: Structure, id: TableId, root: &[u8], documents: &Arc<DocLog>,
    ) -> Result<Box<dyn Index>> {
        Ok(self.kinds.of(structure).open(id, root, documents)?)
    }

    /// Removes the files of structures whose tables are not known.
    pub(crate) fn remove_strays(&self, is_known: impl Fn(TableId) -> bool) -> Result<()> {
        for (_, kind) in self.kinds.iter() {
            let mut strays = kind.tables_left()?.into_iter().filter(|table| !is_known(*table));
            strays.try_for_each(|table| kind.remove_left(table))?;
        }
        Ok(())
    }

    /// The read-ahead memory of all scans and batches.
    pub(crate) const fn read_ahead(&self) -> &Arc<ReadAhead> {
        &self.read_ahead
    }

    /// The cached documents.
    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Adapts the shared parts of structures to the sizes of these tables.
    pub(crate) fn adapt(&self, tables: &[Footprint]) {
        self.pool.divide(tables);
        self.room.adapt(&self.kinds, tables);
    }

    /// Takes so many bytes of the buffer pool, in place of those that `taker` took before.
    pub(crate) fn take_from_pool(&self, taker: Taker, bytes: u64, tables: impl FnOnce() -> Vec<Footprint>) {
        if self.pool.take(taker, bytes) {
            self.pool.divide(&tables());
        }
    }

    /// Fills the reserve, then appends documents. So on a full disk an append fails while operations that free space
    /// still have the reserve.
    pub(crate) fn append_documents(&self, documents: &DocLog, packed: &PackedDocuments<'_>) -> Result<Vec<DocPointer>> {
        self.room.append_documents(documents, packed)
    }

    /// Lends so many bytes of the reserve to a relocation of documents that lets their segment be released. None unless
    /// the reserve holds these bytes and a part of the nodes' share besides, because the nodes that refer to the
    /// documents take space from that part.
    pub(crate) fn lend_room(&self, bytes: u64) -> Result<Option<Loan>> {
        self.room.lend(bytes)
    }

    /// Whether others, who can wait, may take so many bytes of the disk's free room. Otherwise that is for the
    /// operations that give space back.
    pub(crate) fn can_spare(&self, bytes: u64) -> bool {
        self.room.can_spare(bytes)
    }

    /// Whether a part of the reserve is lent.
    pub(crate) fn is_room_lent(&self) -> bool {
        self.room.is_lent()
    }

    /// Lends the buffer pool so many bytes, in place of those lent before.
    pub(crate) fn lend(&self, bytes: u64) {
        self.pool.lend(bytes);
    }

    /// Forgets everything that is cached.
    pub(crate) fn clear_cache(&self) {
        self.pool.clear();
    }

    /// Size and use of each structure's part of the buffer pool.
    pub(crate) fn caches(&self) -> Vec<StructureCache> {
        self.pool.structures()
    }
}
