//! Copies everything that checks from a damaged database into a new one, and reports the losses.
//!
//! 1. The remains are found (`source`): the newest checkpoint image that checks, otherwise any readable image; then the
//!    whole groups of the log, across its holes; for `append` tables without a root in both, the newest commit header
//!    in their nodes. Together these give the tables, the newest root of each tree, and the commits in each tree.
//! 2. Each tree is walked past the parts that do not check, and the pairs found are loaded into a new table (`copy`).
//! 3. Commits missing in the trees are written after the copy, in seq order (`replay`).
//! 4. The new database is closed with a checkpoint. The memory needed is that of an open database, plus a leaf with
//!    some of its documents.
//!
//! Keys and commits reported as lost may be missing, older than they should be, or deleted and back. All others are
//! unaffected. No value appears under a key for which it was never committed. No older version replaces one whose
//! document is damaged.
//!
//! Not found: leaves and nodes below a node that does not check, because only the parent of a node holds the
//! incarnation with which its checksums begin. So stray nodes in the data file cannot be told from nodes deleted long
//! ago.
//!
//! Invariants:
//!
//! - The damaged database is only read, and no process has this database open for writing meanwhile.
//! - The new database did not exist before.

mod copy;
mod image;
mod replay;
mod report;
mod source;

use std::path::Path;

use psync::Psync;
use space::FileStore;

use crate::{
    engine::learned_file,
    error::{Error, Result},
    handles::database::Database,
    open,
    options::{Options, TableOptions},
};

pub use report::{LostCommits, LostDocument, LostRange, Salvage, SalvageProgress, SalvagedTable};

/// Copies everything that checks from the damaged database in directory `from` into a new database in `to`, and reports
/// the losses.
///
/// The new database is made with `options`. The damaged one is only read. The guarantees are listed at [`Salvage`].
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("data");
/// # let whole = directory.path().join("whole");
/// use braid::{Database, Options, Structure};
///
/// Database::open(&path)?.table("users", Structure::BTree)?.put("ada", "1815")?;
/// let salvage = braid::salvage(&path, &whole, Options::new(), &mut |_| {})?;
/// assert!(salvage.is_complete(), "{salvage:?}"); // nothing was damaged here
/// assert!(Database::open(&whole)?.open_table("users")?.contains_key("ada")?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Occupied`] when `to` is not empty; when `from` has nothing that leads to a table, or is open for writing;
/// or when writing the new database fails. In that last case `to` holds a part of the data and should be removed.
pub fn salvage(
    from: impl AsRef<Path>, to: impl AsRef<Path>, options: Options, progress: &mut dyn FnMut(SalvageProgress),
) -> Result<Salvage> {
    let psync = Psync::new(options.backend)?;
    salvage_on(&psync, from.as_ref(), to.as_ref(), options, progress)
}

/// As [`salvage`], on the storage of `psync`, for example a simulated disk.
///
/// # Errors
/// As [`salvage`].
#[doc(hidden)]
pub fn salvage_on(
    psync: &Psync, from: &Path, to: &Path, options: Options, progress: &mut dyn FnMut(SalvageProgress),
) -> Result<Salvage> {
    if !psync.exists(from)? {
        return Err(Error::NoDatabase { path: from.to_owned() });
    }
    let occupied = |found: String| Error::Occupied { path: to.to_owned(), found };
    if to.starts_with(from) {
        return Err(occupied("the damaged database".into()));
    }
    if psync.exists(to)?
        && let Some(name) = psync.list(to)?.into_iter().next()
    {
        return Err(occupied(format!("{name:?}")));
    }
    let store = FileStore::open(psync.clone(), from, true)?;
    let _lock = open::lock(&store, from, true)?;
    let cache_bytes = options.cache_bytes.unwrap_or(crate::options::CACHE_BYTES);
    let mut source = source::Source::find(&store, cache_bytes)?;
    let segment_bytes = options.segment_bytes;
    let database = options.read_only(false).create(true).open_on(psync.clone(), to)?;
    let mut report = source.begin_report();
    let mut tables = std::collections::BTreeMap::new();
    for (id, table) in source.tables() {
        let name = free_name(&database, table);
        let options = TableOptions::new().settings(table.settings);
        let new = database.table_with(&name, table.structure, &options)?;
        let is_name_known = table.name.as_ref() == Some(&name);
        let mut told = SalvagedTable::new(*id, name, is_name_known);
        copy::copy(&source, *id, table, &new, &mut told, progress)?;
        tables.insert(*id, new);
        report.tables.push(told);
    }
    replay::replay(&source, &database, &tables, segment_bytes, &mut report)?;
    drop(tables);
    database.close()?;
    // The timed requests include those to the damaged database, which may be on a failing disk.
    learned_file::forget(psync, to)?;
    Ok(report)
}

/// The name of the table; if lost or taken, a name with the id of the table.
fn free_name(database: &Database, table: &source::SourceTable) -> String {
    let taken = |name: &str| database.open_table(name).is_ok();
    let plain = table.name.clone().unwrap_or_else(|| format!("table-{}", table.id.0));
    let numbered = (2..).map(|number| format!("table-{}-{number}", table.id.0));
    std::iter::once(plain).chain(numbered).find(|name| !taken(name)).expect("there are more names than tables")
}
