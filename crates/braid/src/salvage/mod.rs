//! Copies all that checks from a damaged database into a new one, and tells what is gone.
//!
//! 1. What is left is found out (`source`): the newest checkpoint image that checks, or else any that can be read, and behind it the whole groups of
//!    the log, over its holes; for `append` tables of which neither knows a root, the newest commit header in their nodes. All together
//!    give the tables, the newest root of each tree, and which commits each tree has.
//! 2. Each tree is walked past what does not check, and the pairs found are loaded into a new table (`copy`).
//! 3. Commits that the trees lack are written behind that, in seq order (`replay`).
//! 4. The new database is closed with a checkpoint. Memory is that of an open database, and a leaf with some of its documents.
//!
//! What is told as lost may be missing, older than it should be, or deleted and back; nothing else is. Nothing is put there that was never
//! committed under that key, and no older version of a key takes the place of one whose document is damaged.
//!
//! Not found again: leaves and nodes below a node that does not check. A node's parent holds the incarnation that its checksums begin with, so
//! what lies about in the data file cannot be told from what was deleted long ago.
//!
//! Invariants: nothing is written to the damaged database, and nobody has it open for writing meanwhile; the new one was not there before.

mod copy;
mod image;
mod replay;
mod report;
mod source;

use std::path::Path;

use psync::Psync;
use space::FileStore;

use crate::{
    engine::learned,
    error::{Error, Result},
    handles::database::Database,
    open,
    options::{Options, TableOptions},
};

pub use report::{LostCommits, LostDocument, LostRange, Salvage, SalvageProgress, SalvagedTable};

/// Copies all that checks from the damaged database in directory `from` into a new one in `to`, which is made with `options`, and tells what is gone.
/// The damaged one is only read. See [`Salvage`] for what can be relied upon.
///
/// # Errors
/// [`Error::Occupied`] when `to` holds something already; when `from` holds nothing that leads to a table or is open for writing, or writing the new database fails: then it
/// has a part of the data, and should be removed.
pub fn salvage(
    from: impl AsRef<Path>, to: impl AsRef<Path>, options: Options, progress: &mut dyn FnMut(SalvageProgress),
) -> Result<Salvage> {
    let psync = Psync::new(options.backend)?;
    salvage_on(&psync, from.as_ref(), to.as_ref(), options, progress)
}

/// As [`salvage`], on `psync`'s storage: a simulated disk, say.
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
        let mut told = SalvagedTable::new(*id, name, table);
        copy::copy(&source, *id, table, &new, &mut told, progress)?;
        tables.insert(*id, new);
        report.tables.push(told);
    }
    replay::replay(&source, &database, &tables, segment_bytes, &mut report)?;
    drop(tables);
    database.close()?;
    // The requests that it timed were those to the damaged database too, which may lie on a disk that fails.
    learned::forget(psync, to)?;
    Ok(report)
}

/// Its name, or one that says which it was.
fn free_name(database: &Database, table: &source::SourceTable) -> String {
    let taken = |name: &str| database.open_table(name).is_ok();
    let plain = table.name.clone().unwrap_or_else(|| format!("table-{}", table.id.0));
    let numbered = (2..).map(|number| format!("table-{}-{number}", table.id.0));
    std::iter::once(plain).chain(numbered).find(|name| !taken(name)).expect("there are more names than tables")
}
