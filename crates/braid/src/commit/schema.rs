//! Creation and drop of tables.
//!
//! Invariant: there is one creation or drop at a time, and each is durable before it is visible.

use std::sync::Arc;

use doclog::{DocImage, DocLog};
use index::{Seq, TableId};
use space::FileStore;

use crate::{
    engine::{Engine, publish::Change},
    error::{Error, Result},
    format::{self, TableSettings, kind},
    opq::{Sections, Sorting},
    options::TableOptions,
    structures::Structures,
    tables::{
        catalog::{TableCore, TableIdentity},
        usage,
    },
    words::{applied::AppliedThrough, durability::Durability, structure::Structure},
};

/// Longest table name, in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 255;
/// Nominal bytes of a document segment until an engine sets the size of its log segments; a longer document has a
/// segment of its own.
pub(crate) const DOCUMENT_SEGMENT_BYTES: u64 = 64 << 20;
impl Engine {
    /// Opens a table; creates a missing one.
    ///
    /// A new table's structure gets the settings that are given, unless the options of the database say otherwise; if
    /// none are given, those that suit the use that the hints tell.
    pub(crate) fn table(
        &self, name: &str, structure: Structure, options: &TableOptions, given: Option<&[u8]>,
    ) -> Result<Arc<TableCore>> {
        check_name(name)?;
        options.check(structure)?;
        if let Some(table) = self.catalog.by_name(name) {
            return check_structure(table, structure);
        }
        self.check_writable()?;
        let _schema = self.schema.lock();
        let _writing = self.writing.read();
        self.check_writable()?;
        if let Some(table) = self.catalog.by_name(name) {
            return check_structure(table, structure);
        }
        let _turn = self.admit(0, false)?;
        let record = format::CreateTable {
            id: self.catalog.take_id(),
            structure,
            settings: options.settings,
            structure_settings: self.tuning.settings(structure, &options.hints, given),
            name: name.to_owned(),
        };
        let table = Arc::new(new_table(&self.store, &self.structures, &record, self.options.sorting)?);
        table.documents.set_segment_bytes(self.options.segment_bytes);
        let position = self.append(kind::CREATE_TABLE, &record.encode(), false)?;
        self.finish(position, Change::Create(Arc::clone(&table)), Durability::Sync)?;
        self.structures.adapt(&usage::footprints(&self.catalog.live()));
        Ok(table)
    }

    /// Drops a table.
    pub(crate) fn drop_table(&self, name: &str) -> Result<()> {
        let _schema = self.schema.lock();
        let _writing = self.writing.read();
        self.check_writable()?;
        let no_such_table = || Error::NoSuchTable { name: name.to_owned() };
        let table = self.catalog.by_name(name).ok_or_else(no_such_table)?;
        table.check_not_loading()?;
        let position = self.append(kind::DROP_TABLE, &format::encode_table(table.id), true)?;
        self.finish(position, Change::Drop(table.id), Durability::Sync)?;
        self.signal.kick();
        Ok(())
    }
}

/// The document log of a table with these settings.
pub(crate) fn open_documents(
    store: &FileStore, id: TableId, image: &DocImage, settings: &TableSettings,
) -> Result<Arc<DocLog>> {
    let documents = DocLog::open(store, id.0, image, DOCUMENT_SEGMENT_BYTES)?;
    Ok(Arc::new(documents.with_compression(settings.compression)))
}

/// The new table of a log record.
pub(crate) fn new_table(
    store: &FileStore, structures: &Structures, record: &format::CreateTable, sorting: Sorting,
) -> Result<TableCore> {
    let format::CreateTable { id, structure, settings, .. } = *record;
    let documents = open_documents(store, id, &DocImage::default(), &settings)?;
    let tree = structures.create(record, &documents)?;
    let identity = TableIdentity { id, name: record.name.clone(), structure, settings };
    let applied = AppliedThrough::new(Seq(0));
    Ok(TableCore::new(identity, tree, documents, applied, Sections::new(sorting)))
}

/// The rest of a dropped table whose pages are free: its name, and the documents that commits in the log name.
pub(crate) fn husk(store: &FileStore, structures: &Structures, table: &TableCore) -> Result<TableCore> {
    let mut image = table.documents.image();
    for segment in &mut image.segments {
        (segment.live_bytes, segment.sealed) = (0, true);
    }
    let documents = open_documents(store, table.id, &image, &table.settings())?;
    let (id, name, structure, settings) = (table.id, table.name.clone(), table.structure, table.settings());
    let structure_settings = table.tree.settings();
    let record = format::CreateTable { id, structure, settings, structure_settings, name: name.clone() };
    let tree = structures.create(&record, &documents)?;
    let identity = TableIdentity { id, name, structure, settings };
    let husk = TableCore::new(identity, tree, documents, table.applied(), Sections::new(Sorting::Always));
    husk.set_dropped(table.dropped());
    Ok(husk)
}

fn check_structure(table: Arc<TableCore>, wanted: Structure) -> Result<Arc<TableCore>> {
    if table.structure == wanted {
        return Ok(table);
    }
    Err(Error::WrongStructure { name: table.name.clone(), found: table.structure, wanted })
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > TABLE_NAME_BYTES_MAX {
        let shown = name.chars().take(40).collect();
        return Err(Error::TableName { name: shown, limit: TABLE_NAME_BYTES_MAX });
    }
    Ok(())
}
