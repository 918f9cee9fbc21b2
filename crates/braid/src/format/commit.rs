//! The record of a commit.

use std::collections::BTreeMap;

use codec::Fields;
use index::{DocPointer, Expiry, Operation, Payload, Seq, TableId, Time, Update};
use wal::Group;

use super::{blocks::put_block, kind};

/// Operation codes inside a commit; 0 is never valid, 8 and up are free.
mod code {
    pub(super) const PUT: u8 = 1;
    pub(super) const PUT_DOCUMENT: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const DELETE_RANGE: u8 = 4;
    pub(super) const PUT_EXPIRING: u8 = 5;
    pub(super) const PUT_DOCUMENT_EXPIRING: u8 = 6;
    pub(super) const TIME: u8 = 7;
}

/// Bytes of the time at the beginning of a commit.
pub(crate) const COMMIT_TIME_BYTES: usize = 9;

/// Begins a commit's payload with the time of the commit. A commit needs the time only if a value can have expired by
/// then.
pub(crate) fn put_commit_time(payload: &mut Vec<u8>, time: Time) {
    payload.push(code::TIME);
    payload.extend_from_slice(&time.0.to_le_bytes());
}

/// Appends one operation to a commit's payload: code, table, key, expiry if the value expires, value.
pub(crate) fn put_operation(payload: &mut Vec<u8>, table: TableId, key: &[u8], operation: Operation<'_>) {
    let code = match operation {
        Operation::Put(Payload::Inline(_), None) => code::PUT,
        Operation::Put(Payload::Document(_), None) => code::PUT_DOCUMENT,
        Operation::Put(Payload::Inline(_), Some(_)) => code::PUT_EXPIRING,
        Operation::Put(Payload::Document(_), Some(_)) => code::PUT_DOCUMENT_EXPIRING,
        Operation::Delete => code::DELETE,
    };
    put_head(payload, code, table, key);
    if let Some(expiry) = operation.expiry() {
        payload.extend_from_slice(&expiry.encode());
    }
    match operation {
        Operation::Put(Payload::Inline(value), _) => put_block(payload, value),
        Operation::Put(Payload::Document(document), _) => payload.extend_from_slice(&document.encode()),
        Operation::Delete => {}
    }
}

/// Appends the delete of a non-empty range of keys to a commit's payload. The layout is that of a put: the key is the
/// first of the range, and the value is the end of the range, empty if there is none. The commit's other operations of
/// that table come behind it.
pub(crate) fn put_delete_range(payload: &mut Vec<u8>, table: TableId, low: &[u8], high: Option<&[u8]>) {
    put_head(payload, code::DELETE_RANGE, table, low);
    put_block(payload, high.unwrap_or_default());
}

/// Appends the beginning of every operation: code, table, key.
fn put_head(payload: &mut Vec<u8>, code: u8, table: TableId, key: &[u8]) {
    payload.push(code);
    payload.extend_from_slice(&table.0.to_le_bytes());
    let key_len = u16::try_from(key.len()).expect("keys are checked when a commit is admitted");
    payload.extend_from_slice(&key_len.to_le_bytes());
    payload.extend_from_slice(key);
}

/// One operation of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged<'a> {
    /// A put or a delete of one key.
    Update(Update<'a>),
    /// All versions of the keys from `low` to below `high` that came before this commit are gone.
    DeleteRange {
        /// The first key.
        low: &'a [u8],
        /// The end of the range, if there is one.
        high: Option<&'a [u8]>,
    },
}

impl Logged<'_> {
    /// The document that the operation refers to.
    pub(crate) const fn document(&self) -> Option<DocPointer> {
        match self {
            Self::Update(update) => update.operation.document(),
            Self::DeleteRange { .. } => None,
        }
    }
}

/// The operations of a commit's payload, each with its table. Updates have the commit's seq.
pub(crate) struct Operations<'a> {
    /// When the commit was made, if the payload says so; else the earliest time.
    pub(crate) time: Time,
    fields: Fields<'a>,
    seq: Seq,
}

impl<'a> Operations<'a> {
    /// Reads `payload`, the commit of `seq`.
    pub(crate) const fn new(payload: &'a [u8], seq: Seq) -> Self {
        match payload.split_first_chunk::<COMMIT_TIME_BYTES>() {
            Some(([code::TIME, time @ ..], rest)) => {
                Self { time: Time(u64::from_le_bytes(*time)), fields: Fields(rest), seq }
            }
            _ => Self { time: Time(0), fields: Fields(payload), seq },
        }
    }

    fn read(&mut self) -> Option<(TableId, Logged<'a>)> {
        let code = self.fields.u8()?;
        let table = TableId(self.fields.u32()?);
        let key_len = self.fields.u16()?;
        let key = self.fields.bytes(key_len.into())?;
        if code == code::DELETE_RANGE {
            let high = Some(self.fields.block()?).filter(|high| !high.is_empty());
            return index::is_below(key, high).then_some((table, Logged::DeleteRange { low: key, high }));
        }
        let expiry = match code {
            code::PUT_EXPIRING | code::PUT_DOCUMENT_EXPIRING => Some(Expiry::at(self.fields.u64()?)?),
            _ => None,
        };
        let operation = match code {
            code::PUT | code::PUT_EXPIRING => Operation::Put(Payload::Inline(self.fields.block()?), expiry),
            code::PUT_DOCUMENT | code::PUT_DOCUMENT_EXPIRING => {
                Operation::Put(Payload::Document(document(&mut self.fields)?), expiry)
            }
            code::DELETE => Operation::Delete,
            _ => return None,
        };
        Some((table, Logged::Update(Update { key, seq: self.seq, operation })))
    }
}

impl<'a> Iterator for Operations<'a> {
    /// An operation, or none if the payload does not decode.
    type Item = Option<(TableId, Logged<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fields.0.is_empty() {
            return None;
        }
        let operation = self.read();
        if operation.is_none() {
            self.fields.0 = &[];
        }
        Some(operation)
    }
}

/// The documents that the commits of a log group refer to, by table.
pub(crate) fn documents_of(group: &Group<'_>) -> BTreeMap<TableId, Vec<DocPointer>> {
    let mut by_table: BTreeMap<TableId, Vec<DocPointer>> = BTreeMap::new();
    for record in group.records().filter(|record| record.kind == kind::COMMIT) {
        for (table, logged) in Operations::new(record.payload, Seq(record.seq)).flatten() {
            if let Some(document) = logged.document() {
                by_table.entry(table).or_default().push(document);
            }
        }
    }
    by_table
}

pub(super) fn document(fields: &mut Fields<'_>) -> Option<DocPointer> {
    Some(DocPointer::decode(&fields.array()?))
}
