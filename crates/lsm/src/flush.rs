//! A batch on its way into the tree: sorted operations become files of level 0.
//!
//! A file ends where it is long, and where the next keys are far: behind whole files of the level that level 0 is
//! merged into. So batches of several sections become files that do not overlap what lies between.

use std::sync::Arc;

use doclog::DocPointer;
use index::merge::{Rules, merge};
use index::{Batch, Horizon, Operation, Result, Update};

use crate::files::Files;
use crate::format::footer::Written;
use crate::rewrite::{Made, Output, check_bytes};
use crate::slices::Slice;
use crate::version::{Change, Version, stream_of};

/// The fewest bytes of a file that ends before keys that are far.
const FILE_BYTES_MIN: usize = 128 << 10;
/// Whole slices of the next level behind which the next keys are far.
const FAR: usize = 2;

/// Writes a batch. Returns the files, and the documents that no version refers to any more.
pub(crate) fn flush(
    base: &Version, files: &Arc<Files>, batch: &dyn Batch, horizon: &Horizon, progress: &dyn Fn(usize),
) -> Result<(Made, Vec<DocPointer>)> {
    let format = base.format(0, horizon.now);
    let (mut output, mut dropped) = (Output::new(base, files, 0, format, base.file_bytes()), Vec::new());
    let below = base.runs().max_by_key(|run| run.slices().len());
    let rules = Rules { horizon, through: batch.through(), is_all: false };
    let (mut begin, mut last) = (0, &[][..]);
    while begin < batch.len() {
        let key = batch.get(begin).key;
        let end = (begin + 1..batch.len()).find(|index| batch.get(*index).key != key).unwrap_or(batch.len());
        let updates: Vec<Update<'_>> = (begin..end).map(|index| batch.get(index)).collect();
        let may_go = updates.iter().any(|update| update.operation == Operation::Delete);
        let is_all = may_go && base.slices_of(key).next().is_none();
        let mut stay = merge(updates, Rules { is_all, ..rules }, &mut dropped);
        check_bytes(&stay)?;
        stay.reverse();
        if output.file_bytes() >= FILE_BYTES_MIN
            && below.is_some_and(|run| run.within(last, Some(key)).len() >= FAR + 2)
        {
            output.end_file()?;
        }
        output.push(&stay)?;
        if begin / PROGRESS != end / PROGRESS {
            progress(end);
        }
        (begin, last) = (end, key);
    }
    let made = output.finish()?;
    progress(batch.len());
    Ok((made, dropped))
}

/// Operations between two reports of the progress.
const PROGRESS: usize = 512;

/// The change that brings files of level 0.
pub(crate) fn change(made: &Made) -> Change {
    let entry = |written: &Written| Slice::whole(stream_of(0), written.number(), written).entry(0);
    Change { removed: Vec::new(), added: made.written.iter().map(entry).collect(), expires: made.expires }
}
