//! The checkpoint image.

use codec::Fields;
use index::{RangeTombstones, Seq, TableId, Time};
use wal::Lsn;

use super::{
    blocks::{applied, length_of, put_applied, put_block},
    history::{self, RetainedHeader},
    ranges,
    settings::TableSettings,
    table::new_table_id,
};

use crate::words::{applied::AppliedThrough, structure::Structure};

/// The first bytes of an image.
pub(crate) const IMAGE_MAGIC: [u8; 8] = *b"BRAIDIMG";

/// A table in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableImage {
    /// Identity.
    pub(crate) id: TableId,
    /// Its structure.
    pub(crate) structure: Structure,
    /// The settings chosen for the table.
    pub(crate) settings: TableSettings,
    /// Which commits are in the structure.
    pub(crate) applied: AppliedThrough,
    /// The commit that dropped the table; 0 while the table is live.
    pub(crate) dropped: Seq,
    /// Name.
    pub(crate) name: String,
    /// Root of the structure, in the structure's own format.
    pub(crate) root: Vec<u8>,
    /// Document segments, in the document log's format.
    pub(crate) documents: Vec<u8>,
    /// Range deletes up to `visible` that still hide a version.
    pub(crate) tombstones: RangeTombstones,
    /// Retained states of the table, the oldest first.
    pub(crate) headers: Vec<RetainedHeader>,
}

/// The checkpoint image: recovery begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Commits up to this one are counted in `documents` of the tables. Those that create or drop tables are counted in
    /// the lists.
    pub(crate) visible: Seq,
    /// Flush-ends below this position are in the roots.
    pub(crate) flush_ends_below: Lsn,
    /// Where replay of the log begins.
    pub(crate) log_start: Lsn,
    /// The log was on stable storage up to here: a bad group below is damage, never a torn tail.
    pub(crate) log_durable: Lsn,
    /// The log is kept from here on, for readers that follow its changes.
    pub(crate) kept_from: Lsn,
    /// The first seq at or above that position.
    pub(crate) kept_seq: Seq,
    /// The database's clock never returns an earlier time.
    pub(crate) time: Time,
    /// The id of the next table.
    pub(crate) next_table: u32,
    /// Live tables.
    pub(crate) tables: Vec<TableImage>,
    /// Dropped tables whose pages are not free yet.
    pub(crate) dropped: Vec<TableImage>,
    /// The free list, in the page allocator's format.
    pub(crate) allocator: Vec<u8>,
}

impl Image {
    /// The bytes of the image.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = IMAGE_MAGIC.to_vec();
        let positions = [self.flush_ends_below, self.log_start, self.log_durable, self.kept_from];
        bytes.extend_from_slice(&self.visible.0.to_le_bytes());
        positions.iter().for_each(|position| bytes.extend_from_slice(&position.0.to_le_bytes()));
        bytes.extend_from_slice(&self.kept_seq.0.to_le_bytes());
        bytes.extend_from_slice(&self.time.0.to_le_bytes());
        bytes.extend_from_slice(&self.next_table.to_le_bytes());
        for tables in [&self.tables, &self.dropped] {
            bytes.extend_from_slice(&length_of(tables.len()).to_le_bytes());
            for table in tables {
                bytes.extend_from_slice(&table.id.0.to_le_bytes());
                bytes.push(table.structure.facts().code);
                bytes.extend_from_slice(&table.settings.encode());
                put_applied(&mut bytes, &table.applied);
                bytes.extend_from_slice(&table.dropped.0.to_le_bytes());
                put_block(&mut bytes, table.name.as_bytes());
                put_block(&mut bytes, &table.root);
                put_block(&mut bytes, &table.documents);
                ranges::put_tombstones(&mut bytes, &table.tombstones);
                history::put_headers(&mut bytes, &table.headers);
            }
        }
        put_block(&mut bytes, &self.allocator);
        bytes
    }

    /// Decodes an image whose checksum was checked; none if a field makes no sense.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let image = Self::read(&mut fields);
        image.filter(|_| fields.end())
    }

    /// Decodes an image at the beginning of these bytes. The bytes need not have been checked: for salvage.
    pub(crate) fn decode_unchecked(bytes: &[u8]) -> Option<Self> {
        Self::read(&mut Fields(bytes))
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        if fields.array()? != IMAGE_MAGIC {
            return None;
        }
        Some(Self {
            visible: Seq(fields.u64().filter(|visible| *visible < u64::MAX)?),
            flush_ends_below: Lsn(fields.u64()?),
            log_start: Lsn(fields.u64()?),
            log_durable: Lsn(fields.u64()?),
            kept_from: Lsn(fields.u64()?),
            kept_seq: Seq(fields.u64()?),
            time: Time(fields.u64()?),
            next_table: fields.u32()?,
            tables: decode_tables(fields)?,
            dropped: decode_tables(fields)?,
            allocator: fields.block()?.to_vec(),
        })
    }
}

fn decode_tables(fields: &mut Fields<'_>) -> Option<Vec<TableImage>> {
    let count = fields.u32()?;
    let mut tables = Vec::new();
    for _ in 0..count {
        tables.push(TableImage {
            id: new_table_id(fields)?,
            structure: Structure::of_code(fields.u8()?)?,
            settings: TableSettings::read(fields)?,
            applied: applied(fields)?,
            dropped: Seq(fields.u64()?),
            name: String::from_utf8(fields.block()?.to_vec()).ok()?,
            root: fields.block()?.to_vec(),
            documents: fields.block()?.to_vec(),
            tombstones: ranges::tombstones(fields)?,
            headers: history::headers(fields)?,
        });
    }
    Some(tables)
}
