//! Merging runs into new files.
//!
//! 1. The versions of each key come together, in the order in which they came to the tree, and the rules that all
//!    structures share say which of them stay ([`index::merge`]).
//! 2. A tombstone goes only where no older run can have its key: what it hides may be there.
//! 3. Files end when they have [`Target::bytes`], behind the last version of a key.
//!
//! Invariant: the merged runs follow one another in age. So what they are merged into takes their place, and all
//! readers see what they saw before.

use std::sync::Arc;

use doclog::DocPointer;
use index::merge::{Rules, merge};
use index::{Direction, Error, Operation, Payload, Result, TableId, Update};
use psync::File;

use crate::format::footer::Written;
use crate::merged::Merged;
use crate::runs::Run;
use crate::shared::Shared;
use crate::writer::{Format, Writer};

/// Most bytes of the versions of one key.
const KEY_VERSIONS_BYTES_MAX: usize = 4 << 20;
/// Bytes of a version beside its value.
const VERSION_BYTES: usize = 32;

/// What new files are to be.
pub struct Target<'a> {
    /// The table.
    pub table: TableId,
    /// How they are written.
    pub format: Format,
    /// Bytes of a file, about.
    pub bytes: usize,
    /// Makes an empty file, and gives its number.
    pub make: &'a mut dyn FnMut() -> Result<(u64, File)>,
}

/// What runs were merged into.
#[derive(Default)]
pub struct Rewritten {
    /// The files, in key order, still to be flushed.
    pub written: Vec<Written>,
    /// The same files, open.
    pub files: Vec<File>,
    /// Documents that no version refers to any more.
    pub dropped: Vec<DocPointer>,
}

/// Merges `runs`, the oldest first. `older` are the runs that are older than all of them.
///
/// # Errors
/// When a file cannot be read, made or written. New files are then not referred to, and the caller removes them.
pub fn rewrite(
    shared: &Arc<Shared>, runs: &[Run], older: &[Run], rules: Rules<'_>, target: Target<'_>,
) -> Result<Rewritten> {
    let mut merged = Merged::new(shared, runs, None, Direction::Forward)?;
    let (mut output, mut dropped) = (Output::new(shared, target), Vec::new());
    while merged.advance()? {
        let key = merged.key();
        let is_all = older.iter().all(|run| run.file_of(key).is_none());
        let rules = Rules { is_all, ..rules };
        // Reversed, they are in the order in which they came.
        let arrived = merged.versions().iter().rev().map(|version| version.of(key)).collect();
        let mut stay = merge(arrived, rules, &mut dropped);
        check_bytes(&stay)?;
        stay.reverse();
        output.push(&stay)?;
    }
    output.end_file()?;
    Ok(Rewritten { written: output.written, files: output.files, dropped })
}

fn check_bytes(versions: &[Update<'_>]) -> Result<()> {
    let value = |update: &Update<'_>| match update.operation {
        Operation::Put(Payload::Inline(value), _) => value.len(),
        _ => 0,
    };
    let bytes = versions.iter().map(|update| VERSION_BYTES + value(update)).sum();
    match versions.len() {
        0 | 1 => Ok(()),
        _ if bytes <= KEY_VERSIONS_BYTES_MAX => Ok(()),
        versions => Err(Error::TooManyVersions { versions, bytes, limit: KEY_VERSIONS_BYTES_MAX }),
    }
}

/// Files that are being written, one after the other.
struct Output<'s, 'a> {
    shared: &'s Shared,
    target: Target<'a>,
    writer: Option<Writer<'s>>,
    written: Vec<Written>,
    files: Vec<File>,
}

impl<'s, 'a> Output<'s, 'a> {
    const fn new(shared: &'s Shared, target: Target<'a>) -> Self {
        Self { shared, target, writer: None, written: Vec::new(), files: Vec::new() }
    }

    /// Adds the versions of a key, the newest first.
    fn push(&mut self, versions: &[Update<'_>]) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        if self.writer.as_ref().is_some_and(|writer| writer.is_full() || writer.bytes() >= self.target.bytes) {
            self.end_file()?;
        }
        if self.writer.is_none() {
            let (number, file) = (self.target.make)()?;
            self.files.push(file.clone());
            let psync = self.shared.store().psync();
            self.writer = Some(Writer::new(psync, file, self.target.table, number, self.target.format));
        }
        self.writer.iter_mut().for_each(|writer| writer.push(versions));
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        self.written.extend(writer.finish()?);
        Ok(())
    }
}
