//! A version of a tree, which never changes: its files, by level.
//!
//! 1. Level 0 has the files of the newest versions, in the order of their numbers. They overlap, so they are sorted
//!    into **sublevels** ([`Run::sublevels`]). Every other level is one run.
//! 2. An **edit** makes the next version. Files that both have are the same in memory, so a file lives as long as a
//!    version has it.
//!
//! Invariant: for each key, versions in a newer run are not older than those in an older one. Runs are, from the newest
//! on: the sublevels from the last to the first, then the levels from 1 on.

use std::sync::Arc;

use index::{Damage, Found, Moment, Result, TableId};
use space::StreamKind;

use crate::format::Checked;
use crate::format::edit::{Edit, LEVELS, Record};
use crate::format::footer::Written;
use crate::runs::Run;
use crate::search::{Asked, find};
use crate::shared::Shared;
use crate::sst::Sst;

/// A version of a tree.
#[derive(Clone)]
pub struct Version {
    table: TableId,
    /// The lowest number that no file had.
    next: u64,
    newest: Vec<Arc<Sst>>,
    sublevels: Vec<Run>,
    /// Levels 1 and on.
    levels: [Run; LEVELS - 1],
}

impl Version {
    /// A tree without files.
    #[must_use]
    pub fn empty(table: TableId) -> Self {
        Self { table, next: 1, newest: Vec::new(), sublevels: Vec::new(), levels: Default::default() }
    }

    /// The runs, the oldest first.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.levels.iter().rev().filter(|run| !run.files().is_empty()).chain(&self.sublevels)
    }

    /// The files of a level, in key order, or for level 0 in the order of their numbers.
    fn files(&self, level: usize) -> &[Arc<Sst>] {
        level.checked_sub(1).map_or(&self.newest, |below| self.levels[below].files())
    }

    /// The files that may have `key`, the newest first.
    fn files_of<'a>(&'a self, key: &[u8]) -> Vec<&'a Sst> {
        let runs = self.sublevels.iter().rev().chain(&self.levels);
        runs.filter_map(|run| run.file_of(key)).map(|file| &**file).collect()
    }

    /// Looks keys up in all files; `out[i]` is left as it is where no file has a version of `keys[i]` at or below the
    /// seq of `at`.
    ///
    /// # Errors
    /// When a read fails, or what was read does not check.
    pub fn get_many(&self, shared: &Shared, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> Result<()> {
        let asked: Vec<_> = keys.iter().map(|key| Asked { key, files: self.files_of(key) }).collect();
        find(shared, &asked, at, &mut |index, update| out[index] = Some(Found::of(update, at.now)))
    }

    /// The bytes that a checkpoint keeps to find this version again.
    #[must_use]
    pub fn root(&self) -> Vec<u8> {
        let of_level = |level| self.files(level).iter().map(move |file| (level, file.written().clone()));
        let added = (0..LEVELS).flat_map(of_level).collect();
        Edit { table: self.table, next: self.next, removed: Vec::new(), added }.encode(Record::Root)
    }

    /// The version that a checkpoint kept. Its files are not looked at.
    ///
    /// # Errors
    /// When the record is malformed, or of another table.
    pub fn open(table: TableId, kind: StreamKind, root: &[u8]) -> Result<Self> {
        let edit = Edit::decode(root, Record::Root, table);
        edit.and_then(|edit| Self::empty(table).after(&edit, kind))
            .map_err(|damage| damage.in_record("the root", table))
    }

    /// The record of a change: the numbers of files that go, and files that come, each with its level.
    #[must_use]
    pub fn redo(&self, removed: Vec<u64>, added: Vec<(usize, Written)>) -> Vec<u8> {
        let next = added.iter().map(|(_, written)| written.number() + 1).max().unwrap_or(0).max(self.next);
        Edit { table: self.table, next, removed, added }.encode(Record::Redo)
    }

    /// The version after a change.
    ///
    /// # Errors
    /// When the record is malformed, of another table, or does not fit this version: a file that goes is not there, or
    /// files of a level would overlap.
    pub fn replay(&self, kind: StreamKind, redo: &[u8]) -> Result<Self> {
        let edit = Edit::decode(redo, Record::Redo, self.table);
        edit.and_then(|edit| self.after(&edit, kind)).map_err(|damage| damage.in_record("a redo", self.table))
    }

    fn after(&self, edit: &Edit, kind: StreamKind) -> Checked<Self> {
        let damage = |what, expected: &str, found: u64| Err(Damage::new(0, what, expected, found));
        let mut levels: [Vec<Arc<Sst>>; LEVELS] = std::array::from_fn(|level| self.files(level).to_vec());
        for number in &edit.removed {
            let is_it = |file: &Arc<Sst>| file.written().number() == *number;
            let in_level = |(level, files): (usize, &Vec<Arc<Sst>>)| Some((level, files.iter().position(is_it)?));
            let Some((level, index)) = levels.iter().enumerate().find_map(in_level) else {
                return damage("file that goes", "one that is there", *number);
            };
            levels[level].remove(index);
        }
        for (level, written) in &edit.added {
            let number = written.number();
            if number >= edit.next || levels.iter().flatten().any(|file| file.written().number() == number) {
                return damage("file that comes", "a new one, below the next number", number);
            }
            levels[*level].push(Arc::new(Sst::new(kind, written.clone())));
        }
        let [newest, levels @ ..] = &mut levels;
        newest.sort_by_key(|file| file.written().number());
        for files in levels.iter_mut() {
            files.sort_by(|one, other| one.written().low.cmp(&other.written().low));
            let overlaps = |files: &&[Arc<Sst>]| files[0].written().high >= files[1].written().low;
            if let Some(files) = files.windows(2).find(overlaps) {
                return damage("files of a level", "no overlap", files[1].written().number());
            }
        }
        Ok(Self {
            table: self.table,
            next: edit.next.max(self.next),
            sublevels: Run::sublevels(newest),
            newest: std::mem::take(newest),
            levels: levels.each_mut().map(|files| Run::new(std::mem::take(files))),
        })
    }
}
