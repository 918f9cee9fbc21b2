//! Records of the log, decoded for readers that follow changes and for checks.

use std::path::Path;

use index::{DocPointer, Expiry, Operation, Payload, Seq, TableId};
use wal::Record;

use crate::{
    error::{Error, Result, convert::malformed_record},
    format::{CreateTable, Logged, Operations, RollBack, VERSION, decode_table, kind},
};

/// A record that was read and not shown yet.
pub(crate) struct Ahead {
    pub(crate) seq: Seq,
    pub(crate) what: What,
}

pub(crate) enum What {
    Commit(Vec<Draft>),
    Create(CreateTable),
    Drop(TableId),
    Load(TableId),
    RollBack(RollBack),
    /// The record does not decode.
    Malformed(Error),
}

/// An operation whose table and document are not looked up yet.
pub(crate) struct Draft {
    pub(crate) table: TableId,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Value,
    pub(crate) expiry: Option<Expiry>,
}

pub(crate) enum Value {
    Here(Vec<u8>),
    Document(DocPointer),
    Deleted,
    /// All keys from the operation's key to below this one are deleted, or all from the operation's key on if there is
    /// none.
    RangeDeleted(Option<Vec<u8>>),
}

impl Ahead {
    /// Bytes of the documents of the record.
    pub(crate) fn document_bytes(&self) -> u64 {
        let What::Commit(drafts) = &self.what else { return 0 };
        let bytes =
            |draft: &Draft| if let Value::Document(document) = &draft.value { document.length.original() } else { 0 };
        drafts.iter().map(bytes).fold(0, u64::saturating_add)
    }
}

impl Draft {
    /// Whether the value is a document.
    pub(crate) const fn is_document(&self) -> bool {
        matches!(self.value, Value::Document(_))
    }
}

/// A record of the log, decoded.
pub(crate) fn decode(path: &Path, record: Record<'_>) -> Ahead {
    let seq = Seq(record.seq);
    let what = match record.kind {
        kind::COMMIT => drafts(record.payload, seq).map(What::Commit),
        kind::CREATE_TABLE => CreateTable::decode(record.payload).map(What::Create),
        kind::DROP_TABLE => decode_table(record.payload).map(What::Drop),
        kind::LOAD => decode_table(record.payload).map(What::Load),
        kind::ROLL_BACK => RollBack::decode(record.payload).map(What::RollBack),
        _ => None,
    };
    let malformed = || {
        let (expected, found) = (format!("a record of format version {VERSION}"), format!("kind {}", record.kind));
        What::Malformed(malformed_record(path, record.lsn, expected, found))
    };
    Ahead { seq, what: what.unwrap_or_else(malformed) }
}

/// Checks that a record decodes.
pub(crate) fn decodes(path: &Path, record: Record<'_>) -> Result<()> {
    match decode(path, record).what {
        What::Malformed(error) => Err(error),
        _ => Ok(()),
    }
}

fn drafts(payload: &[u8], seq: Seq) -> Option<Vec<Draft>> {
    let draft = |item: Option<(TableId, Logged<'_>)>| {
        let (table, logged) = item?;
        let update = match logged {
            Logged::Update(update) => update,
            Logged::DeleteRange { low, high } => {
                let value = Value::RangeDeleted(high.map(<[u8]>::to_vec));
                return Some(Draft { table, key: low.to_vec(), value, expiry: None });
            }
        };
        let expiry = update.operation.expiry();
        let value = match update.operation {
            Operation::Put(Payload::Inline(value), _) => Value::Here(value.to_vec()),
            Operation::Put(Payload::Document(document), _) => Value::Document(document),
            Operation::Delete => Value::Deleted,
        };
        Some(Draft { table, key: update.key.to_vec(), value, expiry })
    };
    Operations::new(payload, seq).map(draft).collect()
}
