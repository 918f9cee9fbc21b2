//! The contents of a backup: tables at the snapshot, or changes up to the snapshot.
//!
//! The log does not have the pairs of a load, nor the effect of a rollback. At such a record the table begins anew in
//! the backup, with all its contents at the snapshot. Changes of the table before that record are harmless; changes
//! behind are left out.

use std::{collections::HashSet, ops::ControlFlow};

use index::{TableId, Time};

use super::{
    Backup, BackupPoint,
    blocks::Memory,
    documents::Gathered,
    encoder::Encoder,
    format::{Change, Pair},
    stretches::{Piece, Shows, Stretches},
};
use crate::{
    error::{Error, Result},
    format::{CreateTable, TableSettings},
    handles::{
        changes::{ChangeEvent, ChangeOperation, ChangedTable, Changes},
        table::Table,
    },
    words::{clock::Expires, structure::Structure},
};

impl Backup {
    /// Writes a whole table: pairs in the order of their keys, then those whose values are documents. Returns the
    /// number of the latter.
    pub(super) fn write_table(&self, table: &Table, encoder: &mut Encoder<'_>, memory: &Memory) -> Result<u64> {
        encoder.table(&CreateTable {
            id: table.core.id,
            structure: table.structure(),
            settings: table.core.settings(),
            structure_settings: table.core.tree.settings(),
            name: table.name().to_owned(),
        })?;
        let stretches = Stretches::new(&self.snapshot, table)?;
        let (mut first, mut shows, mut documents) = (0, Shows::All, 0);
        loop {
            let (mut gathered, mut left) = (Gathered::new(table.engine()), None);
            stretches.walk(first, shows, memory, &mut |stretch, piece| {
                match piece {
                    Piece::Block(block) => encoder.filled(block)?,
                    Piece::End(more) if left.is_none() => left = (!gathered.add(more)).then_some(stretch),
                    Piece::End(_) => {}
                }
                let is_enough = left.is_some() && shows == Shows::Documents;
                Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            documents += gathered.write(table, encoder)?;
            let Some(left) = left else { return Ok(documents) };
            (first, shows) = (left, Shows::Documents);
        }
    }

    /// The changes since another backup.
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

    /// Writes all changes up to the snapshot. Returns the number of changes that are documents of copied tables.
    pub(super) fn write_changes(
        &self, mut changes: Changes, encoder: &mut Encoder<'_>, memory: &Memory,
    ) -> Result<u64> {
        let (mut copied, mut documents) = (HashSet::new(), 0);
        while changes.seq() < self.seq() {
            let Some(change) = changes.next() else { break };
            match change.map_err(no_changes)?.event {
                ChangeEvent::Commit(operations) => {
                    for operation in &operations {
                        write_operation(operation, &copied, encoder)?;
                    }
                }
                ChangeEvent::TableCreated { table, structure, settings } => {
                    encoder.table(&self.begun(&table, structure, settings))?;
                }
                ChangeEvent::TableDropped { table } => encoder.dropped(TableId(table.id))?,
                // The copy replaces the table's contents from the backups before.
                ChangeEvent::Loaded { table } | ChangeEvent::RolledBack { table, .. } => {
                    // A table dropped by the time of the snapshot needs no contents.
                    let here = self.tables.iter().find(|here| here.core.id.0 == table.id);
                    if copied.insert(table.id)
                        && let Some(here) = here
                    {
                        documents += self.write_table(here, encoder, memory)?;
                    }
                }
            }
        }
        Ok(documents)
    }

    fn begun(&self, table: &ChangedTable, structure: Structure, settings: TableSettings) -> CreateTable {
        let id = TableId(table.id);
        let core = self.database.engine().catalog.any_by_id(id);
        let structure_settings = core.map_or_else(Vec::new, |core| core.tree.settings());
        CreateTable { id, structure, settings, structure_settings, name: table.name.to_string() }
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

/// Turns a gap in the change feed into a gap of an incremental backup.
fn no_changes(error: Error) -> Error {
    match error {
        Error::ChangesGone { after, oldest } => Error::BackupGap { after, oldest },
        error => error,
    }
}
