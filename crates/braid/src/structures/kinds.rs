//! The kinds of structures in a database, each with what all its tables share. Only this folder knows more of a
//! structure than the traits of crate `index`.

use std::sync::Arc;

use doclog::DocLog;
use index::{FoundRoot, Home, Index, Kind, ReadAhead, TableId};
use space::{FileStore, PagedFile, Reserve};

use crate::{
    error::{Error, Result},
    words::structure::Structure,
};

/// The structures whose kinds have all files that they need, in the order of [`Structure::ALL`].
pub(super) struct Kinds(Vec<(Structure, Arc<dyn Kind>)>);

impl Kinds {
    pub(super) fn new(home: &Home<'_>) -> Self {
        let start = |structure: &Structure| Some((*structure, (structure.facts().start)(home)?));
        Self(Structure::ALL.iter().filter_map(start).collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Structure, &dyn Kind)> {
        self.0.iter().map(|(structure, kind)| (*structure, &**kind))
    }

    /// The kind of a structure; none where a file is missing that its tables would be in.
    fn found(&self, structure: Structure) -> Option<&dyn Kind> {
        self.iter().find(|(other, _)| *other == structure).map(|(_, kind)| kind)
    }

    /// The kind of a structure.
    ///
    /// # Panics
    /// When a file is missing that its tables would be in: an opened database has all of them.
    pub(super) fn of(&self, structure: Structure) -> &dyn Kind {
        self.found(structure).expect("the data file was opened")
    }
}

/// The structures of a database that may be damaged. They are only read, one table after the other.
pub(crate) struct DamagedKinds(Kinds);

impl DamagedKinds {
    /// The structures of a database with these pages, if there are any.
    pub(crate) fn new(store: &FileStore, pages: Option<&Arc<PagedFile>>, cache_bytes: u64) -> Self {
        Self(Kinds::new(&Home {
            store,
            pages,
            reserve: Arc::new(Reserve::new(store)),
            read_ahead: Arc::new(ReadAhead::new(u64::MAX)),
            cache_bytes,
            loans_bytes: 0,
            segment_bytes: u64::MAX,
            epoch: 0,
            lookups_in_flight: store.psync().pio_max(),
            gap_pages: None,
            has_longer_leaves: false,
        }))
    }

    /// Opens the structure that a root record describes; none if its file is missing.
    pub(crate) fn open(
        &self, structure: Structure, id: TableId, root: &[u8], documents: &Arc<DocLog>,
    ) -> Result<Option<Box<dyn Index>>> {
        Ok(self.0.found(structure).map(|kind| kind.open(id, root, documents)).transpose()?)
    }

    /// Tables whose structures can be found through the files that belong to them alone.
    pub(crate) fn tables_left(&self) -> Result<Vec<(Structure, TableId)>> {
        let mut left = Vec::new();
        for (structure, kind) in self.0.iter() {
            left.extend(kind.tables_left()?.into_iter().map(|table| (structure, table)));
        }
        Ok(left)
    }

    /// The newest root of such a table, if one passes its checks.
    pub(crate) fn newest_root(&self, structure: Structure, id: TableId) -> Result<Option<FoundRoot>> {
        let found = self.0.found(structure).map(|kind| kind.newest_root(id)).transpose()?;
        Ok(found.flatten())
    }
}

/// The structure that wrote a redo, and the root record that the redo yields, where `before` is the one before it. The
/// expected one is tried first.
pub(crate) fn root_of_redo(
    expected: Structure, redo: &[u8], table: TableId, before: Option<&[u8]>,
) -> Result<(Structure, Vec<u8>)> {
    let root = |structure: Structure| (structure.facts().root_of_redo)(redo, table, before).map_err(Error::from);
    let others = Structure::ALL.iter().filter(|other| **other != expected);
    root(expected).map(|found| (expected, found)).or_else(|error| {
        others.map(|other| (*other, root(*other))).find_map(|(other, found)| Some((other, found.ok()?))).ok_or(error)
    })
}
