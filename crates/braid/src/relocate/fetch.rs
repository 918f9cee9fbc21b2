//! Reading documents in submission batches, and appending them in key order.
//!
//! Documents are moved as they are stored: what is compressed stays so.
//!
//! 1. The documents are taken in the order of their places, where that is wanted, else in that of their keys; so many at a time are read in one submission.
//! 2. When a batch is complete the next one is submitted, and is under way while the documents of the first are appended; or behind that, where that is wanted.
//! 3. They are appended in the order of their keys: one is as soon as all before it are. What is read sooner waits in memory.

use doclog::{DocLog, Reads};
use psync::File;

use super::{CompactionTimes, Fate, Moves, Watch};

/// How documents are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Documents that are read in one submission.
    pub(crate) submission_batch: usize,
    /// By place, not by key.
    pub(crate) sorted: bool,
    /// Past the page cache, where the file system allows that.
    pub(crate) direct: bool,
    /// The next submission is under way while the documents of one are appended.
    pub(crate) overlapped: bool,
}

/// Copies the documents that move; the files that have them.
pub(super) fn fetch(
    documents: &DocLog, moves: &mut Moves, how: &How, times: &mut CompactionTimes, watch: &mut Watch,
) -> doclog::Result<Vec<File>> {
    let moving = |index: &usize| moves.versions[*index].fate == Fate::Moves;
    let mut order: Vec<usize> = (0..moves.versions.len()).filter(moving).collect();
    if how.sorted {
        order.sort_unstable_by_key(|index| moves.versions[*index].document);
    }
    let places: Vec<_> = order.iter().map(|index| moves.versions[*index].document).collect();
    watch.lap(&mut times.sort);
    let batch = how.submission_batch.max(1);
    let reads = Reads { in_flight: batch, direct: how.direct };
    let mut batches = places.chunks(batch).zip(order.chunks(batch));
    let mut begin = || batches.next().map(|(places, order)| (documents.read_stored(places, reads), order));
    let mut payloads: Vec<Option<Vec<u8>>> = vec![None; moves.versions.len()];
    let (mut mover, mut written) = (documents.mover(), 0);
    let mut under_way = begin();
    while let Some((reading, order)) = under_way {
        let outcomes = reading.finish();
        under_way = if how.overlapped { begin() } else { None };
        for (&index, outcome) in order.iter().zip(outcomes) {
            match outcome {
                Ok(payload) => payloads[index] = Some(payload),
                Err(error) if error.is_damage() => {
                    tracing::warn!(%error, "a document stays where it is");
                    moves.versions[index].fate = Fate::Stays;
                }
                Err(error) => return Err(error),
            }
        }
        watch.lap(&mut times.read);
        while let Some(version) = moves.versions.get_mut(written) {
            if version.fate == Fate::Moves {
                let Some(payload) = payloads[written].take() else { break };
                version.fate = Fate::Moved(mover.push_stored(&payload, version.document.length)?);
            }
            written += 1;
        }
        watch.lap(&mut times.write);
        if !how.overlapped {
            under_way = begin();
            watch.lap(&mut times.read);
        }
    }
    let files = mover.finish()?;
    watch.lap(&mut times.write);
    Ok(files)
}
