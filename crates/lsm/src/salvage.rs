//! Salvage: takes everything that checks out of a damaged tree.
//!
//! 1. Every block of every file is read. A block that does not check hides the keys from its fence to the next one,
//!    whatever other files have of them, because the newest version may be in it. A partition or a top that does not
//!    check hides the keys of all its blocks.
//! 2. Between these keys all runs are walked through together.
//! 3. Where no record names the files of a tree, all files of the table are taken whose footers check. Which of them
//!    were merged into others is not known then, so the newest version of a key counts, wherever it is; one that was
//!    deleted may come back where the tombstone went with its file ([`newest_root`]).
//!
//! Invariants: pairs come in key order; keys outside the ranges reported as lost are as the tree had them.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use index::{Bounds, Direction, Error, FoundRoot, Lost, PairRef, Rescue, Result, TableId, Time};
use space::FileStore;

use crate::blocks::Kind;
use crate::format::Place;
use crate::format::edit::{Edit, Record};
use crate::merged::Merged;
use crate::runs::Run;
use crate::scan::{Pace, Scan};
use crate::shared::{Shared, Want};
use crate::slices::{Slice, behind};
use crate::sst::{self, DIRECTORY, Sst};
use crate::version::{Version, stream_of};

/// Bytes of pairs that are shown together, about.
const SHOWN_BYTES: usize = 256 << 10;
/// Blocks that are read together.
const WINDOW: usize = 64;

/// Keys that are hidden.
struct Hidden {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    why: Error,
}

/// Shows the keys of a version that check, and the ranges that do not.
pub(crate) fn salvage(version: &Version, rescue: &mut dyn Rescue) {
    let mut hidden = Vec::new();
    for (_, slice) in version.all() {
        look(version, slice, &mut hidden);
    }
    let mut hidden = joined(hidden).into_iter();
    let mut from: Vec<u8> = Vec::new();
    loop {
        let next = hidden.next();
        let high = next.as_ref().map(|hidden| hidden.low.clone());
        if high.as_ref().is_none_or(|high| *high > from) {
            match walk(version, &from, high.as_deref(), rescue) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return,
                Err(failed) => {
                    let Failed { low, why } = *failed;
                    rescue.lost(Lost { low, high: high.clone(), taken: false, why });
                }
            }
        }
        let Some(Hidden { low, high, why }) = next else { return };
        rescue.lost(Lost { low, high: high.clone(), taken: false, why });
        let Some(high) = high else { return };
        from = high;
    }
}

/// A walk that has come to its end too early, and the keys from which on nothing was shown.
struct Failed {
    low: Vec<u8>,
    why: Error,
}

/// Walks through the keys from `from` on and below `until`.
fn walk(
    version: &Version, from: &[u8], until: Option<&[u8]>, rescue: &mut dyn Rescue,
) -> std::result::Result<ControlFlow<()>, Box<Failed>> {
    let runs: Vec<Run> = version.runs().cloned().collect();
    let upper = until.map_or(Bound::Unbounded, |until| Bound::Excluded(until.to_vec()));
    let bounds = Bounds { lower: Bound::Included(from.to_vec()), upper };
    let merged = Merged::with_pace(&version.shared, &runs, &bounds, Direction::Forward, Pace::SHORT, None);
    let mut merged = merged.map_err(|why| Box::new(Failed { low: from.to_vec(), why }))?;
    let (mut pairs, mut bytes): (Vec<index::Pair>, usize) = (Vec::new(), 0);
    let show = |pairs: &mut Vec<index::Pair>, rescue: &mut dyn Rescue| {
        let shown: Vec<PairRef<'_>> = pairs.iter().map(index::Pair::borrowed).collect();
        let flow = if shown.is_empty() { ControlFlow::Continue(()) } else { rescue.pairs(&shown) };
        pairs.clear();
        flow
    };
    let mut last = from.to_vec();
    loop {
        match merged.advance() {
            Ok(true) => {}
            Ok(false) => return Ok(show(&mut pairs, rescue)),
            Err(error) => {
                return if show(&mut pairs, rescue).is_break() {
                    Ok(ControlFlow::Break(()))
                } else {
                    Err(Box::new(Failed { low: last, why: error }))
                };
            }
        }
        last = behind(merged.key());
        // Newest by its seq, since the order of runs is not known where no record names them.
        let newest = merged.versions().map(|(_, update)| update).max_by_key(|update| update.seq);
        if let Some(update) = newest
            && let Some(value) = update.operation.shown(Time(0))
        {
            let value = value.to_stored();
            bytes += update.key.len() + 64;
            if let index::Stored::Inline(value) = &value {
                bytes += value.len();
            }
            pairs.push(index::Pair {
                key: update.key.to_vec(),
                seq: update.seq,
                value,
                expiry: update.operation.expiry(),
            });
        }
        if bytes >= SHOWN_BYTES {
            bytes = 0;
            if show(&mut pairs, rescue).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
}

/// Adds the keys of a slice that cannot be read.
fn look(version: &Version, slice: &Slice, hidden: &mut Vec<Hidden>) {
    let end_of_slice = || Some(slice.end());
    // Keys of the slice from one fence to another one.
    let mut hide = |low: Vec<u8>, high: Option<Vec<u8>>, why: Error| {
        let low = low.max(slice.low().to_vec());
        let high = high.into_iter().chain(end_of_slice()).min();
        if high.as_ref().is_none_or(|high| low < *high) {
            hidden.push(Hidden { low, high, why });
        }
    };
    let (shared, sst) = (&version.shared, slice.sst());
    let top = match sst.top(shared) {
        Ok(top) => Arc::clone(top),
        Err(error) => return hide(Vec::new(), None, error),
    };
    let top = top.fences();
    for index in 0..top.len() {
        let end = (index + 1 < top.len()).then(|| top.key(index + 1).concat());
        let begin = top.key(index).concat();
        let read = |place: Place, kind| shared.read_again(&[Want { sst, place, kind }]);
        let filter = top.place(index, 1);
        if filter.bytes > 0
            && let Err(error) = read(filter, Kind::Filter)
        {
            // No walk reads it, but it tells of damage nearby. The blocks are looked at below.
            events::warn!(%error, "a filter is damaged");
        }
        let partition = match read(top.place(index, 0), Kind::Partition) {
            Ok(mut read) => read.remove(0),
            Err(error) => {
                hide(begin, end, error);
                continue;
            }
        };
        let fences = partition.fences();
        for first in (0..fences.len()).step_by(WINDOW) {
            let window = first..(first + WINDOW).min(fences.len());
            let want = |block: usize| Want { sst, place: fences.place(block, 0), kind: Kind::Data };
            if shared.read_again(&window.clone().map(want).collect::<Vec<_>>()).is_ok() {
                continue;
            }
            for block in window {
                if let Err(error) = shared.read_again(&[want(block)]) {
                    let next =
                        if block + 1 < fences.len() { Some(fences.key(block + 1).concat()) } else { end.clone() };
                    let low = fences.key(block).concat();
                    // Several blocks of one key have the same fence.
                    let next = next.map(|next| if next == low { behind(&next) } else { next });
                    hide(low, next, error);
                }
            }
        }
    }
}

/// Hidden keys in order, without overlaps.
fn joined(mut hidden: Vec<Hidden>) -> Vec<Hidden> {
    hidden.sort_by(|one, other| one.low.cmp(&other.low));
    let mut all: Vec<Hidden> = Vec::new();
    for next in hidden {
        match all.last_mut() {
            Some(last) if last.high.as_ref().is_none_or(|high| next.low < *high) => {
                last.high = match (last.high.take(), next.high) {
                    (Some(one), Some(other)) => Some(one.max(other)),
                    _ => None,
                };
            }
            _ => all.push(next),
        }
    }
    all
}

/// The root record after a redo, which has one change alone.
///
/// # Errors
/// [`Error::Corrupt`] when `redo` is not one of this table, or when the root record before it is not known, or another.
pub(crate) fn root_of_redo(redo: &[u8], table: TableId, before: Option<&[u8]>) -> Result<Vec<u8>> {
    let edit = Edit::decode(redo, Record::Redo, table).map_err(|damage| damage.in_record("redo", table))?;
    let unknown = |found| index::Damage::new(0, "slices before a redo", "those of a root record", found);
    let Some(before) = before else { return Err(unknown("none").in_record("redo", table)) };
    let before = match before {
        [] => Edit::default(),
        before => Edit::decode(before, Record::Root, table).map_err(|damage| damage.in_record("root", table))?,
    };
    let is_there = |number: &u64| before.added.iter().any(|entry| entry.footer.number == *number);
    if !edit.removed.iter().all(is_there) {
        return Err(unknown("others").in_record("redo", table));
    }
    let stays = before.added.into_iter().filter(|entry| !edit.removed.contains(&entry.footer.number));
    let (next, expires) = (edit.next.max(before.next), edit.expires || before.expires);
    let added = stays.chain(edit.added).collect();
    Ok(Edit { table, next, expires, removed: Vec::new(), added }.encode(Record::Root))
}

/// The tables that have left files, rising.
///
/// # Errors
/// When files cannot be listed.
pub(crate) fn tables_with_files(store: &FileStore) -> Result<Vec<TableId>> {
    let mut tables: Vec<TableId> = sst::list(store)?.into_iter().map(|(table, _)| table).collect();
    tables.sort_unstable();
    tables.dedup();
    Ok(tables)
}

/// A root record with all files of a table whose footers check. For use when no record tells which of them the newest
/// version has.
///
/// # Errors
/// When files cannot be listed.
pub(crate) fn newest_root(shared: &Arc<Shared>, table: TableId) -> Result<Option<FoundRoot>> {
    let mut numbers: Vec<u64> =
        sst::list(shared.store())?.into_iter().filter(|(of, _)| *of == table).map(|(_, number)| number).collect();
    numbers.sort_unstable();
    let mut edit = Edit { table, next: 1, ..Edit::default() };
    for number in numbers {
        let Ok(sst) = Sst::find(shared.store(), stream_of(0), table, number) else { continue };
        let sst = Arc::new(sst);
        let end = |direction| {
            let mut scan = Scan::new(shared, &sst, &Bounds::all(), direction)?;
            Ok::<_, Error>(if scan.advance()? { Some(scan.key().to_vec()) } else { None })
        };
        let (Ok(Some(low)), Ok(Some(high))) = (end(Direction::Forward), end(Direction::Backward)) else { continue };
        let slice = Slice::all_of(&sst, number, low, high);
        edit.added.push(slice.entry(0));
        edit.next = number + 1;
    }
    if edit.added.is_empty() {
        return Ok(None);
    }
    edit.expires = true;
    let place = format!("{} files of {}", edit.added.len(), shared.store().path_of(DIRECTORY)?.display());
    Ok(Some(FoundRoot { root: edit.encode(Record::Root), place }))
}
