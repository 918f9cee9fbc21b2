//! Documents that move: the files that refer to them are written again, with the new places.
//!
//! A version of a batch is that of a file with the same key and seq. Where its document is another one, the document
//! has moved, and the old one is dropped. Where it is the same, nobody sees the version any more: a tombstone takes its
//! place, so that it goes on to hide what is older.

use std::collections::BTreeMap;
use std::sync::Arc;

use doclog::DocPointer;
use index::{Batch, Damage, Direction, Found, Operation, Payload, Result, Time, Update};

use crate::files::Files;
use crate::rewrite::{Made, Output};
use crate::scan::{Pace, Scan};
use crate::search::{Asked, find};
use crate::slices::Slice;
use crate::version::{Change, Version, stream_of};

/// Files to be written again, by their numbers, each with the versions of a batch that it has.
pub(crate) type Plan<'a> = BTreeMap<u64, Vec<Update<'a>>>;

/// Finds the files of the versions of a batch.
///
/// # Errors
/// When a read fails, or what was read does not check; or when a version is not there.
pub(crate) fn plan<'a>(base: &Version, moves: &'a dyn Batch) -> Result<Plan<'a>> {
    let mut plan = Plan::new();
    let asked = (0..moves.len()).map(|index| {
        let Update { key, seq: at, .. } = moves.get(index);
        Asked { key, at, files: base.files_of(key) }
    });
    let asked: Vec<_> = asked.collect();
    find(&base.shared, &asked, &mut |index, sst, update| {
        if update.seq == asked[index].at {
            plan.entry(sst.number()).or_default().push(moves.get(index));
        }
    })?;
    let found: usize = plan.values().map(Vec::len).sum();
    if found < moves.len() {
        let damage = Damage::new(0, "versions of documents that move", moves.len(), found);
        return Err(damage.in_record("the files of an LSM tree", base.table));
    }
    plan.values_mut().for_each(|moves| moves.sort_unstable_by_key(|moved| (moved.key, moved.seq)));
    Ok(plan)
}

/// Writes the files of a plan again.
///
/// # Errors
/// When a file cannot be read, made or written. All files that were made are removed then.
pub(crate) fn rewrite(
    base: &Version, files: &Arc<Files>, plan: &Plan<'_>, now: Time,
) -> Result<(Change, Made, Vec<DocPointer>)> {
    let (mut change, mut all, mut dropped) = (Change::default(), Made::default(), Vec::new());
    for (number, moves) in plan {
        change.removed.push(*number);
        for (level, slice) in base.all().filter(|(_, slice)| slice.sst().number() == *number) {
            let made = match substitute(base, files, (level, slice), moves, now, &mut dropped) {
                Ok(made) => made,
                Err(error) => {
                    files.abandon(&all.numbers());
                    return Err(error);
                }
            };
            let entry = |written| Slice::whole(stream_of(level), slice.age(), written).entry(level);
            change.added.extend(made.written.iter().map(entry));
            change.expires |= made.expires;
            all.written.extend(made.written);
            all.files.extend(made.files);
        }
    }
    Ok((change, all, dropped))
}

/// Writes a slice again.
fn substitute(
    base: &Version, files: &Arc<Files>, (level, slice): (usize, &Arc<Slice>), moves: &[Update<'_>], now: Time,
    dropped: &mut Vec<DocPointer>,
) -> Result<Made> {
    let mut scan = Scan::with_pace(&base.shared, slice.sst(), &slice.bounds(), Direction::Forward, Pace::WHOLE)?;
    let mut output = Output::new(base, files, level, base.format(level, now), usize::MAX);
    let mut key: Vec<u8> = Vec::new();
    let mut versions: Vec<Found> = Vec::new();
    let flush = |key: &[u8], versions: &mut Vec<Found>, output: &mut Output| {
        let updates: Vec<Update<'_>> = versions.iter().map(|found| found.update(key)).collect();
        let pushed = output.push(&updates);
        versions.clear();
        pushed
    };
    while scan.advance()? {
        let Some(update) = scan.current() else { break };
        if update.key != key {
            flush(&key, &mut versions, &mut output)?;
            key = update.key.to_vec();
        }
        let mut found = Found::of(&update, Time(0));
        let place = moves.binary_search_by(|moved| (moved.key, moved.seq).cmp(&(update.key, update.seq)));
        if let (Ok(place), Some(old)) = (place, update.operation.document()) {
            dropped.push(old);
            let operation = match moves[place].operation {
                Operation::Put(Payload::Document(new), _) if new == old => Operation::Delete,
                operation => operation,
            };
            found = Found::of(&Update { operation, ..update }, Time(0));
        }
        versions.push(found);
    }
    flush(&key, &mut versions, &mut output)?;
    output.finish()
}
