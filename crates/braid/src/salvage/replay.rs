//! Writes the commits missing in the trees after the copied pairs, in their order.
//!
//! In key ranges that a tree has lost, commits are written even if the tree had them, because the log may still have
//! the newest value of a key. A put whose document is damaged deletes its key, because an older value would be worse
//! than none. A later operation on the key repairs this loss.

use std::collections::BTreeMap;

use index::{Operation, Payload, TableId, Update};

use super::{
    report::{LostDocument, LostRange, Salvage},
    source::Source,
};
use crate::{
    error::Result,
    format::{Logged, Operations},
    handles::{batch::WriteBatch, database::Database, table::Table},
    words::durability::Durability,
};

/// Bytes of a batch.
const BATCH_BYTES: usize = 1 << 20;

/// Writes the commits of the log to `database`. `tables` are keyed by their old ids. The new log has segments of
/// `segment_bytes`.
pub(super) fn replay(
    source: &Source, database: &Database, tables: &BTreeMap<TableId, Table>, segment_bytes: u64, report: &mut Salvage,
) -> Result<()> {
    let most = usize::try_from(segment_bytes / 4).map_or(BATCH_BYTES, |bytes| bytes.min(BATCH_BYTES));
    let mut lost: BTreeMap<TableId, BTreeMap<Vec<u8>, String>> = BTreeMap::new();
    for table in &mut report.tables {
        let documents = std::mem::take(&mut table.documents_lost).into_iter();
        lost.insert(TableId(table.id), documents.map(|document| (document.key, document.why)).collect());
    }
    let lost_keys: BTreeMap<_, _> =
        report.tables.iter().map(|table| (TableId(table.id), LostKeys::new(&table.lost))).collect();
    let mut places: BTreeMap<TableId, u64> = BTreeMap::new();
    let mut batch = WriteBatch::new();
    source.commits(&mut |seq, payload| {
        let mut is_new = false;
        for (id, logged) in Operations::new(payload, seq).flatten() {
            let (Some(table), Some(new)) = (source.table(id), tables.get(&id)) else { continue };
            // Range deletes are skipped, because the versions that they hide are never written.
            let Logged::Update(update) = logged else { continue };
            if table.is_forgotten(seq) || table.hides(update.key, seq) {
                continue;
            }
            if seq <= table.applied.at(update.key) && !lost_keys[&id].holds(update.key) {
                continue;
            }
            is_new = true;
            *places.entry(id).or_default() += 1;
            let lost = lost.entry(id).or_default();
            lost.remove(update.key);
            if let Some(why) = write(source, id, new, &update, &mut batch)? {
                lost.insert(update.key.to_vec(), why);
            }
            if batch.bytes() >= most {
                database.write_with(&batch, Durability::Os)?;
                batch.clear();
            }
        }
        report.commits += u64::from(is_new);
        Ok(())
    })?;
    database.write_with(&batch, Durability::Os)?;
    for table in &mut report.tables {
        let id = TableId(table.id);
        table.operations = places.get(&id).copied().unwrap_or(0);
        let lost = lost.remove(&id).unwrap_or_default();
        table.documents_lost = lost.into_iter().map(|(key, why)| LostDocument { key, why }).collect();
    }
    Ok(())
}

/// Keys that a tree may have lost, as ranges that do not touch.
struct LostKeys(Vec<(Vec<u8>, Option<Vec<u8>>)>);

impl LostKeys {
    fn new(lost: &[LostRange]) -> Self {
        let mut ranges: Vec<_> = lost.iter().map(|lost| (lost.low.clone(), lost.high.clone())).collect();
        ranges.sort();
        ranges.dedup_by(|(low, high), (_, before)| {
            let touch = before.as_ref().is_none_or(|before| *low <= *before);
            if touch && before.is_some() && high.as_ref().is_none_or(|high| Some(high) > before.as_ref()) {
                *before = high.take();
            }
            touch
        });
        Self(ranges)
    }

    fn holds(&self, key: &[u8]) -> bool {
        let next = self.0.partition_point(|(low, _)| low.as_slice() <= key);
        next > 0 && self.0[next - 1].1.as_deref().is_none_or(|high| key < high)
    }
}

/// Adds an operation to the batch. Returns the reason when its document is lost.
fn write(
    source: &Source, id: TableId, table: &Table, update: &Update<'_>, batch: &mut WriteBatch,
) -> Result<Option<String>> {
    match update.operation {
        Operation::Put(Payload::Inline(value), expiry) => batch.put_until(table, update.key, value, expiry),
        Operation::Delete => batch.delete(table, update.key),
        Operation::Put(Payload::Document(document), expiry) => {
            let read = source.documents(id)?.read_each(&[document]).pop();
            match read.expect("as many documents as pointers") {
                Ok(value) => batch.put_until(table, update.key, &value, expiry),
                Err(error) => {
                    batch.delete(table, update.key);
                    return Ok(Some(error.to_string()));
                }
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let range = |low: u8, high: Option<u8>| LostRange {
            low: vec![low],
            high: high.map(|high| vec![high]),
            taken: false,
            why: String::new(),
        };
        let lost = [
            range(1, Some(3)),
            range(2, Some(3)),
            range(3, Some(5)),
            range(1, Some(2)),
            range(8, None),
            range(9, Some(10)),
        ];
        let lost_keys = LostKeys::new(&lost);
        assert_eq!(lost_keys.0.len(), 2);
        let held: Vec<_> = (0..12).filter(|key| lost_keys.holds(&[*key])).collect();
        assert_eq!(held, [1, 2, 3, 4, 8, 9, 10, 11]);
    }
}
