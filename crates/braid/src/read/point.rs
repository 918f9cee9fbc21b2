//! Lookups of single keys, and of batches of keys, at a moment of a table: the queues first, then the structure for
//! undecided keys.

use std::{convert::identity, sync::Arc, time::SystemTime};

use arc_swap::Guard;
use index::{DocPointer, Found, Fragment, Image, Moment, Payload, Seen, Seq, Stored};

use crate::{
    engine::Engine,
    error::Result,
    read::then::Then,
    structures::documents::Document,
    tables::catalog::{TableCore, TableState},
    words::clock::system_time,
};

/// A value that was read.
pub(crate) enum Value<'a> {
    /// The bytes in memory, and a function that gives the image around them.
    There(&'a [u8], Option<&'a dyn Fn() -> Arc<dyn Image>>),
    Copied(Vec<u8>),
    Document(Document),
}

/// Passes the value of `key` to `take`, now or at the moment `then`. No lock is held meanwhile.
pub(crate) fn read<R>(
    engine: &Engine, table: &TableCore, key: &[u8], then: Option<&dyn Then>, take: impl FnOnce(Value<'_>) -> R,
) -> Result<Option<R>> {
    table.check_key(key)?;
    table.traffic.looked_up(1);
    // While the state is held, the document of a version in the state stays where it is.
    let (state, at) = reading(engine, table, then)?;
    let (mut take, mut taken, mut document) = (Some(take), None, None);
    let mut give = |value: Value<'_>| taken = take.take().map(|take| take(value));
    match waiting(&state, key, at)? {
        Waiting::Decided(found) => match found.and_then(|found| found.value) {
            Some(Stored::Inline(value)) => give(Value::Copied(value)),
            Some(Stored::Document(pointer)) => document = Some(pointer),
            None => {}
        },
        Waiting::Below => state.view.look(key, at, &mut |seen| match seen.value {
            Some(Payload::Inline(value)) => give(Value::There(value, seen.home)),
            Some(Payload::Document(pointer)) => document = Some(pointer),
            None => {}
        })?,
    }
    if let Some(pointer) = document {
        give(Value::Document(engine.structures.documents().read(table.id, &table.documents, &pointer)?));
    }
    Ok(taken)
}

/// The state and moment of a reader that begins now, or at the moment `then`. The state may be held for a while.
pub(crate) fn moment(engine: &Engine, table: &TableCore, then: Option<&dyn Then>) -> Result<(Arc<TableState>, Moment)> {
    reading(engine, table, then).map(|(state, at)| (Guard::into_inner(state), at))
}

/// The state and moment of a reader that begins now, or at the moment `then`. The state is borrowed, for a short read.
fn reading(engine: &Engine, table: &TableCore, then: Option<&dyn Then>) -> Result<(Guard<Arc<TableState>>, Moment)> {
    // The state is held before the table is checked to be live, so that the files a later drop frees wait for this
    // reader.
    match then {
        Some(then) => then.of(table),
        None => {
            let moment = table.moment(|| engine.publisher.visible(), || engine.clock.now());
            engine.check_live(table)?;
            Ok(moment)
        }
    }
}

/// The values of many keys, now or at the moment `then`, each as a copy.
pub(crate) fn read_many(
    engine: &Engine, table: &TableCore, keys: &[&[u8]], then: Option<&dyn Then>,
) -> Result<Vec<Option<Vec<u8>>>> {
    read_many_as(engine, table, keys, then, identity, Document::into_vec)
}

/// The values of many keys, now or at the moment `then`, as they are kept.
pub(crate) fn read_many_as<V>(
    engine: &Engine, table: &TableCore, keys: &[&[u8]], then: Option<&dyn Then>, inline: impl Fn(Vec<u8>) -> V,
    document: impl Fn(Document) -> V,
) -> Result<Vec<Option<V>>> {
    keys.iter().try_for_each(|key| table.check_key(key))?;
    table.traffic.looked_up(keys.len());
    let (state, at) = moment(engine, table, then)?;
    let found = find_many(&state, keys, at)?;
    let pointer = |found: &Option<Found>| match found.as_ref()?.value.as_ref()? {
        Stored::Document(document) => Some(*document),
        Stored::Inline(_) => None,
    };
    let pointers: Vec<DocPointer> = found.iter().filter_map(pointer).collect();
    let mut documents = if pointers.is_empty() {
        None
    } else {
        Some(engine.structures.documents().get_many(table.id, &table.documents, &pointers)?)
    };
    let value = |found: Option<Found>| match found?.value? {
        Stored::Inline(value) => Some(inline(value)),
        Stored::Document(_) => documents.as_mut()?.next().map(&document),
    };
    Ok(found.into_iter().map(value).collect())
}

/// Whether there is a value of `key`, now or at the moment `then`. A document is not read.
pub(crate) fn contains(engine: &Engine, table: &TableCore, key: &[u8], then: Option<&dyn Then>) -> Result<bool> {
    table.check_key(key)?;
    table.traffic.looked_up(1);
    let (state, at) = reading(engine, table, then)?;
    let mut is_there = false;
    look(&state, key, at, &mut |seen| is_there = seen.value.is_some())?;
    Ok(is_there)
}

/// The values of keys as they are stored, now or at the moment `then`. While the state is held, documents stay where
/// they are.
pub(crate) fn find(
    engine: &Engine, table: &TableCore, keys: &[&[u8]], then: Option<&dyn Then>,
) -> Result<(Arc<TableState>, Vec<Option<Stored>>)> {
    keys.iter().try_for_each(|key| table.check_key(key))?;
    table.traffic.looked_up(keys.len());
    let (state, at) = moment(engine, table, then)?;
    let found = find_many(&state, keys, at)?;
    Ok((state, found.into_iter().map(|found| found?.value).collect()))
}

/// The expiry of `key`, now or at the moment `then`.
pub(crate) fn expiry(
    engine: &Engine, table: &TableCore, key: &[u8], then: Option<&dyn Then>,
) -> Result<Option<SystemTime>> {
    table.check_key(key)?;
    let (state, at) = reading(engine, table, then)?;
    let mut expiry = None;
    look(&state, key, at, &mut |seen| expiry = seen.expiry.filter(|_| seen.value.is_some()))?;
    Ok(expiry.map(system_time))
}

/// The answer of the queues, and of range deletes, for a key.
enum Waiting {
    /// The version that decides, if any.
    Decided(Option<Found>),
    /// Only the structure can have the key.
    Below,
}

fn waiting(state: &TableState, key: &[u8], at: Moment) -> Result<Waiting> {
    if !state.tombstones.is_empty() {
        return Ok(Waiting::Decided(find_many(state, &[key], at)?.pop().flatten()));
    }
    let frozen = || state.frozen.as_ref().and_then(|frozen| frozen.sections().get(key, at));
    Ok(match state.active.get(key, at).or_else(frozen) {
        Some(found) => Waiting::Decided(Some(found)),
        None => Waiting::Below,
    })
}

/// Shows the newest version of `key` at or below the seq of `at`, if there is one.
fn look(state: &TableState, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()> {
    match waiting(state, key, at)? {
        Waiting::Decided(found) => found.iter().for_each(|found| show(&found.seen())),
        Waiting::Below => state.view.look(key, at, show)?,
    }
    Ok(())
}

/// The newest versions of keys at or below the seq of `at`: the queues first, then the undecided keys in the structure,
/// as one batch.
fn find_many(state: &TableState, keys: &[&[u8]], at: Moment) -> Result<Vec<Option<Found>>> {
    let mut found: Vec<Option<Found>> = vec![None; keys.len()];
    state.active.get_many(keys, at, &mut found);
    if let Some(frozen) = &state.frozen {
        frozen.sections().get_many(keys, at, &mut found);
    }
    hide(state, keys, at.seq, &mut found, |fragment| fragment.is_bare(at.seq));
    let undecided: Vec<usize> = (0..keys.len()).filter(|&i| found[i].is_none()).collect();
    if undecided.len() == keys.len() {
        state.view.get_many(keys, at, &mut found)?;
    } else if !undecided.is_empty() {
        let rest: Vec<&[u8]> = undecided.iter().map(|&i| keys[i]).collect();
        let mut below = vec![None; rest.len()];
        state.view.get_many(&rest, at, &mut below)?;
        undecided.iter().zip(below).for_each(|(&i, slot)| found[i] = slot);
    }
    hide(state, keys, at.seq, &mut found, |_| true);
    Ok(found)
}

/// Puts range deletes in place of the versions they hide. Also puts them in place of missing versions, where `is_all`
/// says that there is nothing else.
fn hide(state: &TableState, keys: &[&[u8]], at: Seq, found: &mut [Option<Found>], is_all: impl Fn(&Fragment) -> bool) {
    if state.tombstones.is_empty() {
        return;
    }
    for (key, slot) in keys.iter().zip(found) {
        let Some(fragment) = state.tombstones.of_key(key) else { continue };
        let Some(delete) = fragment.newest_at(at) else { continue };
        if slot.as_ref().map_or_else(|| is_all(fragment), |found| found.seq < delete) {
            *slot = Some(Found { seq: delete, value: None, expiry: None });
        }
    }
}

/// The seqs of the newest versions of many keys of a table; none for keys without a version.
pub(crate) fn newest_many(engine: &Engine, table: &TableCore, keys: &[&[u8]]) -> Result<Vec<Option<Seq>>> {
    // The state is held before the table is checked to be live, as in [`TableCore::moment`].
    let state = table.state.load_full();
    engine.check_live(table)?;
    let found = find_many(&state, keys, Seq::MAX.into())?;
    Ok(found.into_iter().map(|found| found.map(|found| found.seq)).collect())
}
