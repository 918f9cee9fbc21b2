//! What a backup holds: tables as the snapshot has them, or changes up to it.
//!
//! A load is not in the log. Where one is met, the table begins anew there, with everything that the snapshot has of it, and what the log says of it
//! before and behind is left out or harmless.

use std::{collections::HashSet, ops::ControlFlow};

use index::{TableId, Time};

use super::{
    Backup, BackupPoint,
    encoder::Encoder,
    format::{Change, Pair},
};
use crate::{
    ChangeEvent, ChangeOperation, ChangedTable, Changes, Error, Expires, Result, Structure, Table, format::CreateTable,
};

impl Backup {
    /// A table, whole.
    pub(super) fn write_table(&self, table: &Table, encoder: &mut Encoder<'_>) -> Result<()> {
        encoder.table(&CreateTable {
            id: table.core.id,
            leaf_pages: table.core.tree.leaf_pages(),
            structure: table.structure(),
            name: table.name().to_owned(),
        })?;
        let show = |key: &[u8], value: &[u8], expiry| match encoder.pair(key, value, expiry) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        };
        match self.snapshot.iter(table)?.visit_expiring(show)? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// The changes behind another backup.
    pub(super) fn changes_since(&self, since: &BackupPoint) -> Result<Changes> {
        let other = |problem: String| Error::BackupChain { file: format!("a backup after {since}"), problem };
        if since.database != self.point.database {
            return Err(other("it is of another database".into()));
        }
        if since.seq > self.seq() {
            return Err(other(format!("the database is at seq {} only", self.seq().0)));
        }
        self.database.changes(since.seq).map_err(no_changes)
    }

    /// All changes up to the snapshot.
    pub(super) fn write_changes(&self, mut changes: Changes, encoder: &mut Encoder<'_>) -> Result<()> {
        let mut copied = HashSet::new();
        while changes.seq() < self.seq() {
            let Some(change) = changes.next() else { break };
            match change.map_err(no_changes)?.event {
                ChangeEvent::Commit(operations) => {
                    for operation in &operations {
                        write_operation(operation, &copied, encoder)?;
                    }
                }
                ChangeEvent::TableCreated { table, structure } => encoder.table(&self.begun(&table, structure))?,
                ChangeEvent::TableDropped { table } => encoder.dropped(TableId(table.id))?,
                ChangeEvent::Loaded { table } => {
                    // One that is dropped by now needs no content.
                    let here = self.tables.iter().find(|here| here.core.id.0 == table.id);
                    if copied.insert(table.id)
                        && let Some(here) = here
                    {
                        self.write_table(here, encoder)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begun(&self, table: &ChangedTable, structure: Structure) -> CreateTable {
        let id = TableId(table.id);
        let core = self.database.engine().catalog.any_by_id(id);
        let leaf_pages = core.map_or(0, |core| core.tree.leaf_pages());
        CreateTable { id, leaf_pages, structure, name: table.name.to_string() }
    }
}

fn write_operation(operation: &ChangeOperation, copied: &HashSet<u32>, encoder: &mut Encoder<'_>) -> Result<()> {
    let (ChangeOperation::Put { table, .. }
    | ChangeOperation::Delete { table, .. }
    | ChangeOperation::DeleteRange { table, .. }) = operation;
    if copied.contains(&table.id) {
        return Ok(());
    }
    let id = TableId(table.id);
    encoder.change(&match operation {
        ChangeOperation::Put { key, value, expiry, .. } => {
            let expiry = expiry.map(|time| Expires::At(time).expiry(Time(0)));
            Change::Put(id, Pair::whole(key, value).until(expiry))
        }
        ChangeOperation::Delete { key, .. } => Change::Delete(id, key),
        ChangeOperation::DeleteRange { from, to, .. } => Change::DeleteRange(id, from, to.as_deref()),
    })
}

/// What is missing for an incremental backup.
fn no_changes(error: Error) -> Error {
    match error {
        Error::ChangesGone { after, oldest } => Error::BackupGap { after, oldest },
        error => error,
    }
}
