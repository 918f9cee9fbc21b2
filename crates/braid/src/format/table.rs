//! Records of tables that come and go.

use codec::Fields;
use index::TableId;

use super::{blocks::put_block, settings::TableSettings};

use crate::words::structure::Structure;

/// The record that begins a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateTable {
    /// Identity.
    pub(crate) id: TableId,
    /// Its structure.
    pub(crate) structure: Structure,
    /// The settings chosen for the table.
    pub(crate) settings: TableSettings,
    /// Pages of a leaf, if the structure has leaves.
    pub(crate) leaf_pages: u32,
    /// Name.
    pub(crate) name: String,
}

impl CreateTable {
    /// The payload of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.id.0.to_le_bytes().to_vec();
        bytes.push(self.structure.facts().code);
        bytes.extend_from_slice(&self.settings.encode());
        bytes.extend_from_slice(&self.leaf_pages.to_le_bytes());
        put_block(&mut bytes, self.name.as_bytes());
        bytes
    }

    /// Decodes a payload.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let record = Self {
            id: new_table_id(&mut fields)?,
            structure: Structure::of_code(fields.u8()?)?,
            settings: TableSettings::read(&mut fields)?,
            leaf_pages: fields.u32()?,
            name: String::from_utf8(fields.block()?.to_vec()).ok()?,
        };
        fields.end().then_some(record)
    }
}

/// The payload of a record that names only its table: one that ends the table, or one that ends a load of it.
pub(crate) fn encode_table(id: TableId) -> [u8; 4] {
    id.0.to_le_bytes()
}

/// Decodes the payload of a record that names only its table.
pub(crate) fn decode_table(payload: &[u8]) -> Option<TableId> {
    let mut fields = Fields(payload);
    fields.u32().map(TableId).filter(|_| fields.end())
}

/// The id of a table. It is below the last possible one, so the next table has an id.
pub(super) fn new_table_id(fields: &mut Fields<'_>) -> Option<TableId> {
    fields.u32().filter(|id| *id < u32::MAX).map(TableId)
}
