//! Merging runs into new files.
//!
//! 1. The versions of each key come together, in the order in which they came to the tree, and the rules that all
//!    structures share say which of them stay ([`index::merge`]).
//! 2. A tombstone goes only where no older run can have its key: what it hides may be there.
//! 3. Files end when they have [`Output::bytes`], behind the last version of a key. The merge ends there, or at the end
//!    of its bounds.
//!
//! Invariant: the merged runs follow one another in age. So what they are merged into takes their place, and all
//! readers see what they saw before.

use std::collections::HashMap;
use std::sync::Arc;

use doclog::DocPointer;
use index::merge::{Rules, merge};
use index::{Bounds, Direction, Error, Operation, Payload, Result, TableId, Update};
use psync::File;

use crate::INLINE_BYTES_MAX;
use crate::files::Files;
use crate::format::footer::Written;
use crate::merged::Merged;
use crate::runs::Run;
use crate::scan::Pace;
use crate::shared::Shared;
use crate::version::Version;
use crate::writer::{Format, Writer};

/// Bytes that the walks of a merge read ahead together.
const READ_AHEAD_BYTES: usize = 4 << 20;
/// Most bytes of the versions of one key.
const KEY_VERSIONS_BYTES_MAX: usize = 2048 * INLINE_BYTES_MAX;
/// Bytes of a version beside its value.
const VERSION_BYTES: usize = 32;

/// What is to be merged.
pub(crate) struct Input<'a> {
    /// The oldest first.
    pub(crate) runs: &'a [Run],
    /// Those that are older than all of them.
    pub(crate) older: &'a [Run],
    /// The keys.
    pub(crate) bounds: &'a Bounds,
    /// The merge ends when it has so many bytes of keys from `counted` on.
    pub(crate) bytes: usize,
    pub(crate) counted: &'a [u8],
}

/// What runs were merged into.
#[derive(Default)]
pub(crate) struct Rewritten {
    /// The files, in key order, still to be flushed.
    pub(crate) made: Made,
    /// Documents that no version refers to any more.
    pub(crate) dropped: Vec<DocPointer>,
    /// The first key that was not merged, where the merge ended before the end of its bounds.
    pub(crate) next: Option<Vec<u8>>,
    /// Bytes of keys and values that were merged.
    pub(crate) bytes: usize,
    /// Versions that were merged, by the file that has them.
    pub(crate) taken: HashMap<u64, u64>,
}

/// Merges runs.
///
/// # Errors
/// When a file cannot be read, made or written. Nothing refers to files that were made then.
pub(crate) fn rewrite(
    shared: &Arc<Shared>, input: &Input<'_>, rules: Rules<'_>, mut output: Output,
) -> Result<Rewritten> {
    let pace = Pace::of_many(input.runs.len(), READ_AHEAD_BYTES);
    let mut merged = Merged::with_pace(shared, input.runs, input.bounds, Direction::Forward, pace, None)?;
    let (mut dropped, mut bytes, mut counted, mut next) = (Vec::new(), 0, 0, None);
    let mut taken: HashMap<u64, u64> = HashMap::new();
    while merged.advance()? {
        let key = merged.key();
        if counted >= input.bytes {
            next = Some(key.to_vec());
            break;
        }
        let mut arrived = Vec::with_capacity(merged.versions().len());
        let (mut may_go, before) = (false, bytes);
        merged.files().for_each(|number| *taken.entry(number).or_default() += 1);
        // Reversed, they are in the order in which they came.
        for (_, update) in merged.versions().rev() {
            bytes += key.len() + value_bytes(&update);
            may_go |= update.operation == Operation::Delete || update.operation.expiry().is_some();
            arrived.push(update);
        }
        counted += if key >= input.counted { bytes - before } else { 0 };
        let is_all = may_go && input.older.iter().all(|run| run.slice_of(key).is_none());
        let mut stay = merge(arrived, Rules { is_all, ..rules }, &mut dropped);
        stay.reverse();
        output.push(&stay)?;
    }
    Ok(Rewritten { made: output.finish()?, dropped, next, bytes, taken })
}

fn value_bytes(update: &Update<'_>) -> usize {
    match update.operation {
        Operation::Put(Payload::Inline(value), _) => VERSION_BYTES + value.len(),
        _ => VERSION_BYTES,
    }
}

/// Fails where the versions of a key are too many to be kept.
pub(crate) fn check_bytes(versions: &[Update<'_>]) -> Result<()> {
    let bytes = versions.iter().map(value_bytes).sum();
    match versions.len() {
        0 | 1 => Ok(()),
        _ if bytes <= KEY_VERSIONS_BYTES_MAX => Ok(()),
        versions => Err(Error::TooManyVersions { versions, bytes, limit: KEY_VERSIONS_BYTES_MAX }),
    }
}

/// Files that were made.
#[derive(Clone, Default)]
pub(crate) struct Made {
    /// In key order.
    pub(crate) written: Vec<Written>,
    /// The same files, open.
    pub(crate) files: Vec<File>,
    /// Whether a value in them expires.
    pub(crate) expires: bool,
}

impl Made {
    /// The numbers of the files.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.written.iter().map(Written::number).collect()
    }
}

/// Files that are being written, one after the other. Dropped after a failed write, it removes them, because there may
/// be no room; dropped otherwise before its end, it leaves them to the next checkpoint.
pub(crate) struct Output {
    shared: Arc<Shared>,
    files: Arc<Files>,
    table: TableId,
    level: usize,
    format: Format,
    /// Bytes of a file, about.
    bytes: usize,
    writer: Option<(u64, Writer)>,
    made: Made,
    /// A file could not be made or written.
    failed: bool,
}

impl Output {
    /// Files for a level of the version that follows `version`, of about so many bytes each.
    pub(crate) fn new(version: &Version, files: &Arc<Files>, level: usize, format: Format, bytes: usize) -> Self {
        let (shared, files, table) = (Arc::clone(&version.shared), Arc::clone(files), version.table);
        Self { shared, files, table, level, format, bytes, writer: None, made: Made::default(), failed: false }
    }

    /// Bytes of the file that is being written.
    pub(crate) fn file_bytes(&self) -> usize {
        self.writer.as_ref().map_or(0, |(_, writer)| writer.bytes())
    }

    /// Adds the versions of a key, the newest first.
    pub(crate) fn push(&mut self, versions: &[Update<'_>]) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        if self.writer.as_ref().is_some_and(|(_, writer)| writer.is_full() || writer.bytes() >= self.bytes) {
            self.end_file()?;
        }
        if self.writer.is_none() {
            let created = self.files.create(self.level);
            self.failed = created.is_err();
            let (number, file) = created?;
            let psync = self.shared.store().psync();
            self.writer = Some((number, Writer::new(psync, file, self.table, number, self.format)));
        }
        if let Some((_, writer)) = &mut self.writer {
            writer.push(versions);
        }
        Ok(())
    }

    /// There is no room for the rest.
    pub(crate) const fn fail(&mut self) {
        self.failed = true;
    }

    /// Files that were ended.
    pub(crate) const fn made(&self) -> &Made {
        &self.made
    }

    /// Ends the file that is being written.
    pub(crate) fn end_file(&mut self) -> Result<()> {
        let Some((number, writer)) = self.writer.take() else { return Ok(()) };
        let (file, expires) = (writer.file().clone(), writer.expires());
        match writer.finish() {
            Ok(written) => {
                let written = written.expect("a file has a key from the beginning on");
                self.files.note(number, written.bytes);
                self.made.written.push(written);
                self.made.files.push(file);
                self.made.expires |= expires;
                Ok(())
            }
            Err(error) => {
                self.failed = true;
                self.files.abandon(&[number]);
                Err(error)
            }
        }
    }

    /// The files.
    pub(crate) fn finish(mut self) -> Result<Made> {
        self.end_file()?;
        Ok(std::mem::take(&mut self.made))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let mut numbers = self.made.numbers();
        numbers.extend(self.writer.take().map(|(number, _)| number));
        if self.failed {
            self.files.abandon(&numbers);
        } else {
            self.files.settle(&numbers);
        }
    }
}
