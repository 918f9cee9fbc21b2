//! Tables by id, led by a feed.

use std::collections::BTreeMap;

use braid::{Change, ChangeEvent, ChangeOperation, Seq};

use crate::content::{Content, Outcome};

/// The tables there are: id, name and content of each.
pub(crate) type Tables = BTreeMap<u32, (String, Content)>;

/// What a follower has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) seq: Seq,
    pub(crate) tables: Tables,
}

impl Replica {
    /// Takes a change. What a load brought is in `loaded`, by table.
    pub(crate) fn take(&mut self, change: Change, loaded: impl Fn(u32) -> Option<Content>) -> Outcome<()> {
        // Only commits have seqs, and none is left out.
        if change.seq.0 != self.seq.0 + 1 {
            return Err(format!("seq {} follows {}", change.seq.0, self.seq.0));
        }
        self.seq = change.seq;
        match change.event {
            ChangeEvent::Commit(operations) => {
                operations.into_iter().try_for_each(|operation| self.operation(operation))
            }
            ChangeEvent::TableCreated { table, .. } => {
                match self.tables.insert(table.id, (table.name.to_string(), Content::new())) {
                    None => Ok(()),
                    Some(_) => Err(format!("table {} is there twice", table.id)),
                }
            }
            ChangeEvent::TableDropped { table } => match self.tables.remove(&table.id) {
                Some((name, _)) if *name == *table.name => Ok(()),
                other => Err(format!("{table:?} is dropped, and was {other:?}")),
            },
            ChangeEvent::Loaded { table } => {
                let content = loaded(table.id).ok_or_else(|| format!("a load of {table:?} that nobody made"))?;
                let known = self.tables.get_mut(&table.id).ok_or_else(|| format!("a load of {table:?}, not there"))?;
                if !known.1.is_empty() {
                    return Err(format!("a load of {table:?}, which is not empty"));
                }
                known.1 = content;
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    }

    fn operation(&mut self, operation: ChangeOperation) -> Outcome<()> {
        let (ChangeOperation::Put { table, .. }
        | ChangeOperation::Delete { table, .. }
        | ChangeOperation::DeleteRange { table, .. }) = &operation;
        let known = self.tables.get_mut(&table.id).filter(|(name, _)| **name == *table.name);
        let (_, content) = known.ok_or_else(|| format!("an operation on {table:?}, which is not there"))?;
        match operation {
            ChangeOperation::Put { key, value, .. } => drop(content.insert(key, value)),
            ChangeOperation::Delete { key, .. } => drop(content.remove(&key)),
            ChangeOperation::DeleteRange { from, to, .. } => {
                content.retain(|key, _| *key < from || to.as_ref().is_some_and(|to| key >= to));
            }
        }
        Ok(())
    }
}
