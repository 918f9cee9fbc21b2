//! Reading documents in submission batches, and appending them in key order.
//!
//! Documents are moved as they are stored: compressed ones stay compressed.
//!
//! 1. The documents are read in the order of their places where that is wanted, else in the order of their keys. One
//!    submission batch of them is in flight at a time. Half of a batch is submitted when the half before the last one
//!    has arrived, so the device never waits for the next submission.
//! 2. The documents are appended in the order of their keys. Each is appended as soon as all before it are, while
//!    others are read; or, where that is wanted, when all are read. Documents that are read sooner wait in memory.

use std::collections::VecDeque;

use doclog::{Appender, DocLog, Reads};

use super::{
    moves::{Fate, Moves},
    times::{CompactionTimes, Watch},
};
use crate::engine::cleaning::How;

/// Copies the documents that move. The copies are written, and stay if the appender is finished.
pub(super) fn fetch<'a>(
    documents: &'a DocLog, moves: &mut Moves, how: &How, times: &mut CompactionTimes, watch: &mut Watch,
) -> doclog::Result<Appender<'a>> {
    let moving = |index: &usize| moves.versions[*index].fate == Fate::Moves;
    let mut order: Vec<usize> = (0..moves.versions.len()).filter(moving).collect();
    if how.sorted {
        order.sort_unstable_by_key(|index| moves.versions[*index].document);
    }
    let places: Vec<_> = order.iter().map(|index| moves.versions[*index].document).collect();
    watch.lap(&mut times.sort);
    let half = (how.submission_batch / 2).max(1);
    let reads = Reads { in_flight: half, direct: how.direct };
    let mut halves = places.chunks(half).zip(order.chunks(half));
    let mut begin = || halves.next().map(|(places, order)| (documents.read_stored(places, reads), order));
    let mut under_way: VecDeque<_> = (0..how.submission_batch.clamp(1, 2)).map_while(|_| begin()).collect();
    let mut payloads: Vec<Option<Vec<u8>>> = vec![None; moves.versions.len()];
    let (mut mover, mut written) = (documents.mover(), 0);
    while let Some((reading, order)) = under_way.pop_front() {
        let outcomes = reading.finish();
        under_way.extend(begin());
        for (&index, outcome) in order.iter().zip(outcomes) {
            match outcome {
                Ok(payload) => payloads[index] = Some(payload),
                Err(error) if error.is_damage() => {
                    events::warn!(%error, "a document stays where it is");
                    moves.versions[index].fate = Fate::Stays;
                }
                Err(error) => return Err(error),
            }
        }
        watch.lap(&mut times.read);
        if !how.overlapped && !under_way.is_empty() {
            continue;
        }
        while let Some(version) = moves.versions.get_mut(written) {
            if version.fate == Fate::Moves {
                let Some(payload) = payloads[written].take() else { break };
                version.fate = Fate::Moved(mover.push_stored(&payload, version.document.length)?);
            }
            written += 1;
        }
        watch.lap(&mut times.write);
    }
    mover.write()?;
    watch.lap(&mut times.write);
    Ok(mover)
}
