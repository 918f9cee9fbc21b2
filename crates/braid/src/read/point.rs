//! Single keys, and batches of them, at a moment of a table: queues first, what they leave undecided in the structure.

use std::{sync::Arc, time::SystemTime};

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
    /// Where it lies, and what gives what it lies in.
    There(&'a [u8], Option<&'a dyn Fn() -> Arc<dyn Image>>),
    Copied(Vec<u8>),
    Document(Document),
}

/// Gives the value of `key` to `take`, now or as it was `then`. No lock is held meanwhile.
pub(crate) fn read<R>(
    engine: &Engine, table: &TableCore, key: &[u8], then: Option<&dyn Then>, take: impl FnOnce(Value<'_>) -> R,
) -> Result<Option<R>> {
    table.traffic.looked_up(1);
    // As long as the state is held, the document of a version that was found in it stays where it is.
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
        give(Value::Document(engine.trees.documents().read(table.id, &table.documents, &pointer)?));
    }
    Ok(taken)
}

/// What a reader that begins now reads for a while, or one that looks at what was `then`.
pub(crate) fn moment(engine: &Engine, table: &TableCore, then: Option<&dyn Then>) -> Result<(Arc<TableState>, Moment)> {
    reading(engine, table, then).map(|(state, at)| (Guard::into_inner(state), at))
}

/// What a reader that begins now reads at once, or one that looks at what was `then`.
fn reading(engine: &Engine, table: &TableCore, then: Option<&dyn Then>) -> Result<(Guard<Arc<TableState>>, Moment)> {
    // The state is held before it is asked whether the table is live: what a later drop frees waits for this reader.
    match then {
        Some(then) => then.of(table),
        None => {
            let moment = table.moment(|| engine.publisher.visible(), || engine.clock.now());
            engine.check_live(table)?;
            Ok(moment)
        }
    }
}

/// The values of many keys, now or as they were `then`.
pub(crate) fn read_many(
    engine: &Engine, table: &TableCore, keys: &[&[u8]], then: Option<&dyn Then>,
) -> Result<Vec<Option<Vec<u8>>>> {
    table.traffic.looked_up(keys.len());
    let (state, at) = moment(engine, table, then)?;
    let found = find_many(&state, keys, at)?;
    values(engine, table, found)
}

fn values(engine: &Engine, table: &TableCore, found: Vec<Option<Found>>) -> Result<Vec<Option<Vec<u8>>>> {
    let pointers: Vec<DocPointer> = found
        .iter()
        .filter_map(|found| match found.as_ref()?.value.as_ref()? {
            Stored::Document(document) => Some(*document),
            Stored::Inline(_) => None,
        })
        .collect();
    let documents = if pointers.is_empty() {
        Vec::new()
    } else {
        engine.trees.documents().read_many(table.id, &table.documents, &pointers)?
    };
    let mut documents = documents.into_iter();
    let value = |found: Option<Found>| match found?.value? {
        Stored::Inline(value) => Some(value),
        Stored::Document(_) => documents.next(),
    };
    Ok(found.into_iter().map(value).collect())
}

/// When the value of `key` expires, now or as it was `then`.
pub(crate) fn expiry(
    engine: &Engine, table: &TableCore, key: &[u8], then: Option<&dyn Then>,
) -> Result<Option<SystemTime>> {
    let (state, at) = reading(engine, table, then)?;
    let mut expiry = None;
    look(&state, key, at, &mut |seen| expiry = seen.expiry.filter(|_| seen.value.is_some()))?;
    Ok(expiry.map(system_time))
}

/// What the queues, and range deletes, say of a key.
enum Waiting {
    /// What there is of it.
    Decided(Option<Found>),
    /// The structure has it or nobody.
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

/// The newest versions of keys at or below the seq of `at`: queues first, what they leave undecided in the structure, as one batch.
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

/// Puts range deletes in place of what they hide, and in place of what was not found where `is_all` says that there is nothing else.
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

/// The seqs of the newest versions of many keys of a table; none where there is no version.
pub(crate) fn newest_many(engine: &Engine, table: &TableCore, keys: &[&[u8]]) -> Result<Vec<Option<Seq>>> {
    // Held before it is asked whether the table is live, as in [`Table::moment`].
    let state = table.state.load_full();
    engine.check_live(table)?;
    let found = find_many(&state, keys, Seq::MAX.into())?;
    Ok(found.into_iter().map(|found| found.map(|found| found.seq)).collect())
}
