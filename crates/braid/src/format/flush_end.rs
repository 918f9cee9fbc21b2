//! The record of a flush-end, which may be in several pieces.

use codec::Fields;
use doclog::{Retained, SegmentId};
use index::{DocPointer, TableId, Time};

use super::{
    blocks::{applied, length_of, put_applied, put_block},
    commit::document,
    history::{self, Restored},
};

use crate::words::applied::AppliedThrough;

/// The record that ends an apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlushEnd {
    /// The table of the structure.
    pub(crate) table: TableId,
    /// The time of the end of the apply. Values that had expired before may be gone.
    pub(crate) time: Time,
    /// Which commits the structure has.
    pub(crate) applied: AppliedThrough,
    /// Redo in the structure's own format.
    pub(crate) redo: Vec<u8>,
    /// Documents that are not referred to any more.
    pub(crate) dropped: Vec<DocPointer>,
    /// Documents, by segment, that the structure refers to from here on and that no commit names: those of a load, or
    /// relocated copies.
    pub(crate) retained: Vec<Retained>,
    /// For a rollback: its effect on documents and range tombstones.
    pub(crate) restored: Option<Restored>,
}

/// Bytes of table and number before each piece of a flush-end.
const PIECE_HEADER: usize = 8;

/// A piece of a flush-end: the table, the piece's number, and bytes. Pieces 0, 1, … of a table follow one another. The
/// last piece is the record of kind `FLUSH_END`, the others are of kind `FLUSH_END_PART`. A piece 0 discards earlier
/// pieces of a flush-end that did not end.
pub(crate) struct FlushEndPiece<'a> {
    /// The table of the structure.
    pub(crate) table: TableId,
    /// Number among the pieces.
    pub(crate) number: u32,
    /// Bytes of the flush-end.
    pub(crate) bytes: &'a [u8],
}

impl<'a> FlushEndPiece<'a> {
    /// Decodes a payload.
    pub(crate) fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        Some(Self { table: TableId(fields.u32()?), number: fields.u32()?, bytes: fields.0 })
    }
}

impl FlushEnd {
    /// The payloads of the pieces, each of at most `most` bytes.
    pub(crate) fn encode(&self, most: usize) -> Vec<Vec<u8>> {
        let piece = |(number, bytes): (usize, &[u8])| {
            [&self.table.0.to_le_bytes(), &length_of(number).to_le_bytes(), bytes].concat()
        };
        self.body().chunks(most - PIECE_HEADER).enumerate().map(piece).collect()
    }

    fn body(&self) -> Vec<u8> {
        let mut bytes = self.time.0.to_le_bytes().to_vec();
        put_applied(&mut bytes, &self.applied);
        put_block(&mut bytes, &self.redo);
        for count in [self.dropped.len(), self.retained.len()] {
            bytes.extend_from_slice(&length_of(count).to_le_bytes());
        }
        for document in &self.dropped {
            bytes.extend_from_slice(&document.encode());
        }
        for retained in &self.retained {
            for field in [retained.segment.0, retained.bytes, retained.end] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        history::put_restored(&mut bytes, self.restored.as_ref());
        bytes
    }

    /// Decodes the bytes of all pieces.
    pub(crate) fn decode(table: TableId, body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let time = Time(fields.u64()?);
        let applied = applied(&mut fields)?;
        let redo = fields.block()?.to_vec();
        let counts = (fields.u32()?, fields.u32()?);
        let mut dropped = Vec::new();
        for _ in 0..counts.0 {
            dropped.push(document(&mut fields)?);
        }
        let mut retained = Vec::new();
        for _ in 0..counts.1 {
            retained.push(Retained { segment: SegmentId(fields.u64()?), bytes: fields.u64()?, end: fields.u64()? });
        }
        let restored = history::restored(&mut fields)?;
        fields.end().then_some(Self { table, time, applied, redo, dropped, retained, restored })
    }
}
