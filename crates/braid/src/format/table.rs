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
    /// The settings of the structure, in its own terms; empty where it has none.
    pub(crate) structure_settings: Vec<u8>,
    /// Name.
    pub(crate) name: String,
}

impl CreateTable {
    /// The payload of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.id.0.to_le_bytes().to_vec();
        bytes.push(self.structure.facts().code);
        bytes.extend_from_slice(&self.settings.encode());
        put_structure_settings(&mut bytes, &self.structure_settings);
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
            structure_settings: structure_settings(&mut fields)?,
            name: String::from_utf8(fields.block()?.to_vec()).ok()?,
        };
        fields.end().then_some(record)
    }
}

/// Settings of a structure begin with a `u32`: a number from 1 to below this one is the settings themselves.
const LONG_SETTINGS: u32 = 1 << 31;

/// Puts the settings of a structure. Settings of four bytes that are such a number stand as they are, as in records of
/// earlier versions. Other settings follow their length, of which the highest bit is set. For none there is a 0.
fn put_structure_settings(bytes: &mut Vec<u8>, settings: &[u8]) {
    if settings.is_empty() {
        bytes.extend_from_slice(&[0; 4]);
    } else if is_short(settings) {
        bytes.extend_from_slice(settings);
    } else {
        let length = u32::try_from(settings.len()).ok().filter(|length| *length < LONG_SETTINGS);
        let length = length.expect("settings are a few bytes");
        bytes.extend_from_slice(&(LONG_SETTINGS | length).to_le_bytes());
        bytes.extend_from_slice(settings);
    }
}

fn structure_settings(fields: &mut Fields<'_>) -> Option<Vec<u8>> {
    match fields.u32()? {
        0 => Some(Vec::new()),
        short @ 1..LONG_SETTINGS => Some(short.to_le_bytes().to_vec()),
        long => {
            let settings = fields.bytes((long & !LONG_SETTINGS) as usize)?;
            // There is one way to write each.
            (!settings.is_empty() && !is_short(settings)).then(|| settings.to_vec())
        }
    }
}

fn is_short(settings: &[u8]) -> bool {
    settings.try_into().is_ok_and(|number| (1..LONG_SETTINGS).contains(&u32::from_le_bytes(number)))
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
