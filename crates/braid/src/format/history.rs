//! The format of retained states, and of the records about them.
//!
//! The retained states of a table are a block of its entry in an image. Each state:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | seq: the state has all commits up to this one, and no other |
//! | 8 | 8 | the time at which the state is seen |
//! | 16 | 4 | bytes of the root |
//! | 20 | . | root record of the structure |
//! | . | 4 | bytes of the documents |
//! | . | 24 each | segments with documents of the state: number, bytes of these documents, end of the last of them |
//! | . | 4 | bytes of the tombstones |
//! | . | . | range tombstones |
//!
//! Records:
//!
//! | kind | fields, with their bytes |
//! |---|---|
//! | `ROLL_BACK` | table 4, seq of the state 8 |
//! | `SET_HISTORY` | table 4, number 4 |
//!
//! A flush-end ends with a byte 0. Behind a `ROLL_BACK` it ends with a byte 1 and two blocks:
//!
//! 1. segments with dead documents, each its number 8 and bytes 8;
//! 2. the range tombstones that are valid from here on.

use codec::Fields;
use doclog::{Retained, SegmentId};
use index::{RangeTombstones, Seq, TableId, Time};

use super::{blocks::put_block, ranges};

/// A retained state of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetainedHeader {
    /// The state has all commits up to this one, and no other.
    pub(crate) seq: Seq,
    /// The time at which the state is seen.
    pub(crate) time: Time,
    /// Root of the structure, in the structure's own format.
    pub(crate) root: Vec<u8>,
    /// Documents that the structure refers to.
    pub(crate) documents: Vec<Retained>,
    /// Range deletes up to `seq` that hide a version of the state.
    pub(crate) tombstones: RangeTombstones,
}

/// The effect of a rollback on documents and range tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restored {
    /// Bytes of documents, by segment, that are not referred to any more.
    pub(crate) dropped: Vec<(SegmentId, u64)>,
    /// Range deletes that hide a version.
    pub(crate) tombstones: RangeTombstones,
}

/// The record that a table goes back. The record changes nothing by itself; the flush-end behind it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RollBack {
    /// The table that goes back.
    pub(crate) table: TableId,
    /// The seq of the state to go back to.
    pub(crate) to: Seq,
}

/// The record that so many states of a table are retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetHistory {
    /// The table.
    pub(crate) table: TableId,
    /// The number of retained states.
    pub(crate) keep: u32,
}

impl RollBack {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.table.0.to_le_bytes()[..], &self.to.0.to_le_bytes()].concat()
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let record = Self { table: TableId(fields.u32()?), to: Seq(fields.u64()?) };
        fields.end().then_some(record)
    }
}

impl SetHistory {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [self.table.0.to_le_bytes(), self.keep.to_le_bytes()].concat()
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let record = Self { table: TableId(fields.u32()?), keep: fields.u32()? };
        fields.end().then_some(record)
    }
}

/// Appends retained states as a block.
pub(super) fn put_headers(bytes: &mut Vec<u8>, headers: &[RetainedHeader]) {
    let mut block = Vec::new();
    for header in headers {
        [header.seq.0, header.time.0].iter().for_each(|field| block.extend_from_slice(&field.to_le_bytes()));
        put_block(&mut block, &header.root);
        let fields = |retained: &Retained| [retained.segment.0, retained.bytes, retained.end];
        let fields = header.documents.iter().flat_map(fields);
        put_block(&mut block, &fields.flat_map(u64::to_le_bytes).collect::<Vec<_>>());
        ranges::put_tombstones(&mut block, &header.tombstones);
    }
    put_block(bytes, &block);
}

/// Reads a block of retained states, in the order of rising seqs.
pub(super) fn headers(fields: &mut Fields<'_>) -> Option<Vec<RetainedHeader>> {
    let mut block = Fields(fields.block()?);
    let mut headers: Vec<RetainedHeader> = Vec::new();
    while !block.end() {
        let (seq, time, root) = (Seq(block.u64()?), Time(block.u64()?), block.block()?.to_vec());
        let (mut stored, mut documents) = (Fields(block.block()?), Vec::new());
        while !stored.end() {
            let segment = SegmentId(stored.u64()?);
            documents.push(Retained { segment, bytes: stored.u64()?, end: stored.u64()? });
        }
        headers.push(RetainedHeader { seq, time, root, documents, tombstones: ranges::tombstones(&mut block)? });
    }
    Some(headers)
}

/// Appends the effect of a rollback, or that the flush-end is of no rollback.
pub(super) fn put_restored(bytes: &mut Vec<u8>, restored: Option<&Restored>) {
    bytes.push(u8::from(restored.is_some()));
    if let Some(Restored { dropped, tombstones }) = restored {
        let fields = dropped.iter().flat_map(|(segment, bytes)| [segment.0, *bytes]);
        put_block(bytes, &fields.flat_map(u64::to_le_bytes).collect::<Vec<_>>());
        ranges::put_tombstones(bytes, tombstones);
    }
}

/// Reads the effect of a rollback, or that the flush-end is of no rollback.
pub(super) fn restored(fields: &mut Fields<'_>) -> Option<Option<Restored>> {
    match fields.u8()? {
        0 => Some(None),
        1 => {
            let (mut stored, mut dropped) = (Fields(fields.block()?), Vec::new());
            while !stored.end() {
                dropped.push((SegmentId(stored.u64()?), stored.u64()?));
            }
            Some(Some(Restored { dropped, tombstones: ranges::tombstones(fields)? }))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn header() -> RetainedHeader {
        let mut tombstones = RangeTombstones::default();
        tombstones.add(b"k", None, Seq(9), &index::Horizon::default());
        let documents = vec![Retained { segment: SegmentId(6), bytes: 10, end: 11 }];
        RetainedHeader { seq: Seq(10), time: Time(0x0102_0304_0506), root: vec![3, 4], documents, tombstones }
    }

    #[test]
    fn bytes_are_those_of_version_1() {
        let mut bytes = Vec::new();
        put_headers(&mut bytes, &[header()]);
        let tombstone: &[u8] = &[1, 0, 0, 0, b'k', 0, 0, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let fields: [&[u8]; 9] = [
            &[10, 0, 0, 0, 0, 0, 0, 0],
            &[6, 5, 4, 3, 2, 1, 0, 0],
            &[2, 0, 0, 0, 3, 4],
            &[24, 0, 0, 0],
            &[6, 0, 0, 0, 0, 0, 0, 0],
            &[10, 0, 0, 0, 0, 0, 0, 0],
            &[11, 0, 0, 0, 0, 0, 0, 0],
            &[22, 0, 0, 0],
            tombstone,
        ];
        let block = fields.concat();
        assert_eq!(bytes, [&[u8::try_from(block.len()).expect("short"), 0, 0, 0], &block[..]].concat());
        assert_eq!(headers(&mut Fields(&bytes)), Some(vec![header()]));

        let restored_bytes = Restored { dropped: vec![(SegmentId(2), 88)], tombstones: header().tombstones };
        let mut bytes = Vec::new();
        put_restored(&mut bytes, Some(&restored_bytes));
        let fields: [&[u8]; 6] =
            [&[1], &[16, 0, 0, 0], &[2, 0, 0, 0, 0, 0, 0, 0], &[88, 0, 0, 0, 0, 0, 0, 0], &[22, 0, 0, 0], tombstone];
        assert_eq!(bytes, fields.concat());
        assert_eq!(restored(&mut Fields(&bytes)), Some(Some(restored_bytes)));
        assert_eq!(restored(&mut Fields(&[2])), None);

        let record = RollBack { table: TableId(2), to: Seq(3) };
        assert_eq!(record.encode(), [2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(RollBack::decode(&record.encode()), Some(record));
        let record = SetHistory { table: TableId(2), keep: 3 };
        assert_eq!(record.encode(), [2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(SetHistory::decode(&record.encode()), Some(record));
        assert_eq!((RollBack::decode(&[0; 8]), SetHistory::decode(&[0; 12])), (None, None));
    }
}
