//! The data to be compacted.
//!
//! A [`Stock`] is a database that was filled and closed once for all runs of a figure. Each run has a copy: document
//! segments are linked, because they never change once they are sealed, and everything else is copied.

use std::fs;
use std::path::{Path, PathBuf};

use braid::{Database, Structure, Table, WriteBatch};
use tempfile::TempDir;

use super::scale::{KEY_BYTES, Scale, Set, VALUE_BYTES};
use crate::keys::{self, Permutation, mix};
use crate::reproduce::lab::Lab;
use crate::{Error, Result, process, values};

const TABLE: &str = "pairs";
/// The directory of document segments in a database.
const DOCUMENTS: &str = "doc";
/// Pairs of a batch.
const BATCH_PAIRS: usize = 256;
/// Keys that are looked up after a run.
const CHECKED: u64 = 256;

/// A filled database that no run changes.
pub(super) struct Stock {
    directory: TempDir,
    pairs: u64,
}

/// Key and value of a version of a pair.
pub(super) fn pair(index: u64, nonce: u64) -> (Vec<u8>, Vec<u8>) {
    let mut value = vec![0; VALUE_BYTES];
    values::write(index, nonce, &mut value);
    (keys::key(index, KEY_BYTES), value)
}

/// Fails unless `value` is a value of the pair.
pub(super) fn check(index: u64, value: Option<&[u8]>) -> Result<()> {
    let is_right = value.is_some_and(|value| value.len() == VALUE_BYTES && values::is_right(index, value));
    let bytes = value.map_or(0, <[u8]>::len);
    if is_right { Ok(()) } else { Err(Error::WrongValue { table: TABLE.into(), index, bytes }) }
}

impl Stock {
    /// Fills a new database.
    pub(super) fn make(lab: &Lab<'_>, scale: &Scale, set: &Set) -> Result<Self> {
        lab.phase(&format!("writing {} pairs of 4 KiB", set.pairs));
        let directory = tempfile::tempdir_in(lab.path()).map_err(Error::io("creating a directory in", lab.path()))?;
        let database = scale.options().open_on(lab.psync().clone(), directory.path())?;
        let table = database.table(TABLE, Structure::Append)?;
        for (number, share) in [(1, set.pairs), (2, set.pairs / 2)] {
            let order = Permutation::new(set.pairs, number);
            let mut batch = WriteBatch::new();
            for position in 0..share {
                let (key, value) = pair(order.at(position), number);
                batch.put(&table, key, value);
                if batch.len() == BATCH_PAIRS || position + 1 == share {
                    lab.go_on()?;
                    database.write(&batch)?;
                    batch.clear();
                }
            }
        }
        database.drain()?;
        drop(table);
        database.close()?;
        Ok(Self { directory, pairs: set.pairs })
    }

    /// A copy, with none of its pages in the page cache.
    pub(super) fn copy(&self, lab: &Lab<'_>) -> Result<TempDir> {
        let copy = tempfile::tempdir_in(lab.path()).map_err(Error::io("creating a directory in", lab.path()))?;
        copy_below(self.directory.path(), copy.path(), false)?;
        process::evict_page_cache(copy.path())?;
        Ok(copy)
    }

    pub(super) const fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Looks up some of the pairs.
    pub(super) fn check_some(&self, table: &Table, seed: u64) -> Result<()> {
        let indexes: Vec<u64> = (0..CHECKED).map(|number| mix(number ^ seed) % self.pairs).collect();
        let keys: Vec<_> = indexes.iter().map(|index| keys::key(*index, KEY_BYTES)).collect();
        let values = table.get_many(&keys)?;
        indexes.iter().zip(values).try_for_each(|(index, value)| check(*index, value.as_deref()))
    }
}

/// Opens a copy and its table of pairs.
pub(super) fn open(options: braid::Options, path: &Path) -> Result<(Database, Table)> {
    let database = options.open(path)?;
    let table = database.open_table(TABLE)?;
    Ok((database, table))
}

fn copy_below(from: &Path, to: &Path, link: bool) -> Result<()> {
    for entry in fs::read_dir(from).map_err(Error::io("listing", from))? {
        let entry = entry.map_err(Error::io("listing", from))?;
        let (path, into): (PathBuf, PathBuf) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(Error::io("looking at", &path))?.is_dir() {
            fs::create_dir(&into).map_err(Error::io("creating", &into))?;
            copy_below(&path, &into, entry.file_name() == DOCUMENTS)?;
        } else if link {
            fs::hard_link(&path, &into).map_err(Error::io("linking", &into))?;
        } else {
            fs::copy(&path, &into).map_err(Error::io("copying to", &into))?;
        }
    }
    Ok(())
}
