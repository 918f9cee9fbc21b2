//! What salvage tells.

use index::{Seq, TableId};

use super::source::SourceTable;

/// How far a salvage is.
#[derive(Clone, Debug)]
pub struct SalvageProgress {
    /// The table being copied.
    pub table: String,
    /// Pairs of it copied so far.
    pub pairs: u64,
}

/// What was copied out of a damaged database, and what is gone.
///
/// A pair of the new database is what the damaged one would have shown when whole, unless its key is in a range of [`SalvagedTable::lost`] or
/// among [`SalvagedTable::documents_lost`], or one of [`Salvage::lost_commits`] may have changed it.
#[derive(Clone, Debug, Default)]
pub struct Salvage {
    /// The tables, as they were made.
    pub tables: Vec<SalvagedTable>,
    /// Commits of which nothing is there, though later ones may be: then what is there is no moment of the past.
    pub lost_commits: Vec<LostCommits>,
    /// Damage by which nothing more is lost than is told otherwise.
    pub findings: Vec<String>,
    /// A commit at the end of the log that is not whole. A crash explains it; if there was none, it and what came after it are lost.
    pub torn: Option<String>,
    /// Commits of the log that were written behind what the trees had.
    pub commits: u64,
}

/// A table that was copied.
#[derive(Clone, Debug)]
pub struct SalvagedTable {
    /// Its id in the damaged database.
    pub id: u32,
    /// Its name in the new one.
    pub name: String,
    /// Whether that is the name it had; else that is lost.
    pub is_name_known: bool,
    /// Pairs that its tree had.
    pub pairs: u64,
    /// Operations of the log that came behind them.
    pub operations: u64,
    /// Ranges of keys that damage hides.
    pub lost: Vec<LostRange>,
    /// Keys whose values are damaged documents: they are not in the new table.
    pub documents_lost: Vec<LostDocument>,
}

/// Keys that may be missing, or have an older value than they should, or have been deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The first.
    pub low: Vec<u8>,
    /// Behind the last; none at the end of the table.
    pub high: Option<Vec<u8>>,
    /// Whether something of it is there all the same.
    pub taken: bool,
    /// What does not check, with file and offset.
    pub why: String,
}

/// A key whose value is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostDocument {
    /// The key.
    pub key: Vec<u8>,
    /// What does not check, with file and offset.
    pub why: String,
}

/// Commits that are gone. Whatever they changed is as it was before them, unless it was changed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCommits {
    /// The first.
    pub first: Seq,
    /// The last; none where it is not known whether there was any, and how many.
    pub last: Option<Seq>,
    /// What does not check, with file and offset.
    pub why: String,
}

impl Salvage {
    /// Whether the new database has all that the damaged one had.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let whole =
            |table: &SalvagedTable| table.is_name_known && table.lost.is_empty() && table.documents_lost.is_empty();
        self.lost_commits.is_empty() && self.tables.iter().all(whole)
    }
}

impl SalvagedTable {
    pub(super) fn new(id: TableId, name: String, table: &SourceTable) -> Self {
        let is_name_known = table.name.as_ref() == Some(&name);
        Self { id: id.0, name, is_name_known, pairs: 0, operations: 0, lost: Vec::new(), documents_lost: Vec::new() }
    }
}
