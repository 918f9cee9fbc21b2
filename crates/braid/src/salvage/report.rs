//! The report of a salvage.

use index::{Seq, TableId};

/// Progress of a salvage.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SalvageProgress {
    /// The table being copied.
    pub table: String,
    /// Pairs copied from this table so far.
    pub pairs: u64,
}

/// The copied tables and the losses of a salvage.
///
/// A pair of the new database is the pair of the undamaged database, with these exceptions:
///
/// - its key is in a range of [`SalvagedTable::lost`];
/// - its key is among [`SalvagedTable::documents_lost`];
/// - one of [`Salvage::lost_commits`] may have changed the pair.
#[derive(Clone, Debug, Default)]
pub struct Salvage {
    /// The tables of the new database.
    pub tables: Vec<SalvagedTable>,
    /// Commits of which nothing is left. Later commits may be present, so the contents then match no moment of the
    /// past.
    pub lost_commits: Vec<LostCommits>,
    /// Damage without losses beyond those reported elsewhere.
    pub findings: Vec<String>,
    /// An incomplete commit at the end of the log. A crash explains this. If there was no crash, this commit and all
    /// later ones are lost.
    pub torn: Option<String>,
    /// Commits of the log that were written after the contents of the trees.
    pub commits: u64,
}

/// A copied table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SalvagedTable {
    /// Id in the damaged database.
    pub id: u32,
    /// Name in the new database.
    pub name: String,
    /// Whether the name is the original one. If false, the original name is lost or was taken.
    pub is_name_known: bool,
    /// Pairs from the tree of the table.
    pub pairs: u64,
    /// Operations from the log, applied after the pairs.
    pub operations: u64,
    /// Ranges of keys hidden by damage.
    pub lost: Vec<LostRange>,
    /// Keys whose values are damaged documents. The new table does not have these keys.
    pub documents_lost: Vec<LostDocument>,
}

/// Keys that may be missing, have an older value than they should, or be deleted keys that are back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// The first key.
    pub low: Vec<u8>,
    /// The exclusive upper bound; none at the end of the table.
    pub high: Option<Vec<u8>>,
    /// Whether some keys of the range are in the new table all the same.
    pub taken: bool,
    /// The part that does not check, with file and offset.
    pub why: String,
}

/// A key whose value is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostDocument {
    /// The key.
    pub key: Vec<u8>,
    /// The part that does not check, with file and offset.
    pub why: String,
}

/// Lost commits. The keys that they changed have their earlier contents, unless changed again later.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostCommits {
    /// The first commit.
    pub first: Seq,
    /// The last commit; none when the number of lost commits, possibly zero, is unknown.
    pub last: Option<Seq>,
    /// The part that does not check, with file and offset.
    pub why: String,
}

impl Salvage {
    /// Whether the new database has everything that the damaged one had.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let whole =
            |table: &SalvagedTable| table.is_name_known && table.lost.is_empty() && table.documents_lost.is_empty();
        self.lost_commits.is_empty() && self.tables.iter().all(whole)
    }
}

impl SalvagedTable {
    pub(super) const fn new(id: TableId, name: String, is_name_known: bool) -> Self {
        Self { id: id.0, name, is_name_known, pairs: 0, operations: 0, lost: Vec::new(), documents_lost: Vec::new() }
    }
}
