//! Copies the remains of a tree into a new table.
//!
//! Pairs come one leaf at a time. Their documents are read together, [`DOCUMENT_BYTES`] at a time.

use std::{ops::ControlFlow, sync::Arc};

use doclog::DocLog;
use index::{Lost, PairRef, Payload, Rescue, TableId};

use super::{
    SalvageProgress, SalvagedTable,
    report::{LostDocument, LostRange},
    source::{Source, SourceTable},
};
use crate::{
    error::{Error, Result},
    handles::{load::Loader, table::Table},
    root::DATA,
    words::portions::first_portion,
};

/// Bytes of documents read at once, unless a single document is longer.
const DOCUMENT_BYTES: u64 = 16 << 20;

/// Copies `table` into `new`, and reports its losses.
pub(super) fn copy(
    source: &Source, id: TableId, table: &SourceTable, new: &Table, told: &mut SalvagedTable,
    progress: &mut dyn FnMut(SalvageProgress),
) -> Result<()> {
    let Some(root) = &table.root else { return Ok(()) };
    let nothing = |why: String| LostRange { low: Vec::new(), high: None, taken: false, why };
    let documents = source.documents(id)?;
    let tree = match source.kinds.open(table.structure, id, root, &documents) {
        Ok(Some(tree)) => tree,
        Ok(None) => {
            told.lost.push(nothing(format!("there is no file {DATA}")));
            return Ok(());
        }
        Err(error) => {
            told.lost.push(nothing(error.to_string()));
            return Ok(());
        }
    };
    let mut copier = Copier { new, loader: None, documents, table, told, progress, failed: None };
    tree.salvage(&mut copier);
    let Copier { loader, failed, .. } = copier;
    if let Some(error) = failed {
        return Err(error);
    }
    loader.map_or(Ok(0), Loader::finish).map(drop)
}

struct Copier<'a> {
    new: &'a Table,
    /// None before the first pair.
    loader: Option<Loader>,
    documents: Arc<DocLog>,
    table: &'a SourceTable,
    told: &'a mut SalvagedTable,
    progress: &'a mut dyn FnMut(SalvageProgress),
    failed: Option<Error>,
}

impl Copier<'_> {
    fn push(&mut self, pair: &PairRef<'_>, value: &[u8]) -> Result<()> {
        let loader = match &mut self.loader {
            Some(loader) => loader,
            none => none.insert(self.new.loader()?),
        };
        loader.push_until(pair.key, value, pair.expiry)?;
        self.told.pairs += 1;
        Ok(())
    }

    fn take(&mut self, mut pairs: &[PairRef<'_>]) -> Result<()> {
        let length = |pair: &PairRef<'_>| pair.value.document().map_or(0, |document| document.length.original());
        while !pairs.is_empty() {
            let first = first_portion(pairs, DOCUMENT_BYTES, length);
            pairs = &pairs[first.len()..];
            let named = first.iter().filter_map(|pair| pair.value.document());
            let mut read = self.documents.read_each(&named.collect::<Vec<_>>()).into_iter();
            for pair in first {
                match pair.value {
                    Payload::Inline(value) => self.push(pair, value)?,
                    Payload::Document(_) => match read.next().expect("as many documents as pointers") {
                        Ok(value) => self.push(pair, &value)?,
                        Err(error) => {
                            let (key, why) = (pair.key.to_vec(), error.to_string());
                            self.told.documents_lost.push(LostDocument { key, why });
                        }
                    },
                }
            }
        }
        Ok(())
    }
}

impl Rescue for Copier<'_> {
    fn pairs(&mut self, pairs: &[PairRef<'_>]) -> ControlFlow<()> {
        let is_live = |pair: &&PairRef<'_>| !self.table.hides(pair.key, pair.seq);
        let live: Vec<_> = pairs.iter().filter(is_live).copied().collect();
        if let Err(error) = self.take(&live) {
            self.failed = Some(error);
            return ControlFlow::Break(());
        }
        (self.progress)(SalvageProgress { table: self.told.name.clone(), pairs: self.told.pairs });
        ControlFlow::Continue(())
    }

    fn lost(&mut self, lost: Lost) {
        let Lost { low, high, taken, why } = lost;
        self.told.lost.push(LostRange { low, high, taken, why: why.to_string() });
    }
}
