//! Flush-ends of several records, put together.
//!
//! Pieces 0, 1, … of a table follow one another in the log, with records of other tables between them. A piece 0
//! discards earlier pieces of a flush-end of its table that did not end.

use std::collections::BTreeMap;

use index::TableId;

use crate::format::FlushEndPiece;

/// Pieces of incomplete flush-ends: for each table the number of pieces, and their bytes.
#[derive(Default)]
pub(crate) struct Pieces(BTreeMap<TableId, (u32, Vec<u8>)>);

impl Pieces {
    /// Takes a piece. If another piece of its table is due, the piece is ignored, and the number of the due one is
    /// returned.
    pub(crate) fn take(&mut self, piece: &FlushEndPiece<'_>) -> Result<(), u32> {
        let (due, body) = self.0.entry(piece.table).or_default();
        if piece.number == 0 {
            (*due, *body) = (0, Vec::new());
        }
        if piece.number != *due {
            return Err(*due);
        }
        *due += 1;
        body.extend_from_slice(piece.bytes);
        Ok(())
    }

    /// The bytes of all pieces of a table, once the last was taken.
    pub(crate) fn end(&mut self, table: TableId) -> Vec<u8> {
        self.0.remove(&table).map(|(_, body)| body).unwrap_or_default()
    }
}
