//! What a table must hold, and whether it does.

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow},
};

use braid::{Database, Range, Snapshot, Table};

pub(crate) type Content = BTreeMap<Vec<u8>, Vec<u8>>;
/// The error says what is wrong.
pub(crate) type Outcome<T> = Result<T, String>;
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Everything that a table holds.
pub(crate) fn read_all(table: &Table) -> Outcome<Content> {
    let found: Result<Content, _> = table.iter().collect();
    found.map_err(|error| format!("scanning {}: {error}", table.name()))
}

/// What can be read: a table as it is, or as a snapshot has it.
pub(crate) trait Source {
    fn get_many(&self, keys: &[Vec<u8>]) -> braid::Result<Vec<Option<Vec<u8>>>>;
    fn range(&self, bounds: &Bounds) -> Range;
}

impl Source for Table {
    fn get_many(&self, keys: &[Vec<u8>]) -> braid::Result<Vec<Option<Vec<u8>>>> {
        self.get_many(keys)
    }

    fn range(&self, bounds: &Bounds) -> Range {
        self.range::<Vec<u8>>(bounds.clone())
    }
}

impl Source for (&Snapshot, &Table) {
    fn get_many(&self, keys: &[Vec<u8>]) -> braid::Result<Vec<Option<Vec<u8>>>> {
        self.0.get_many(self.1, keys)
    }

    fn range(&self, bounds: &Bounds) -> Range {
        self.0.range::<Vec<u8>>(self.1, bounds.clone())
    }
}

/// Looks many keys up at once.
pub(crate) fn compare_many(table: &impl Source, keys: &[Vec<u8>], expected: &Content) -> Outcome<()> {
    let found = table.get_many(keys).map_err(|error| format!("get_many: {error}"))?;
    for (key, found) in keys.iter().zip(found) {
        if expected.get(key) != found.as_ref() {
            return Err(format!("key {key:?} reads {found:?} instead of {:?}", expected.get(key)));
        }
    }
    Ok(())
}

/// Reads the first pairs of a range, or its last ones.
pub(crate) fn compare_range(
    table: &impl Source, bounds: &Bounds, backward: bool, limit: usize, expected: &Content,
) -> Outcome<()> {
    let range = || {
        let range = table.range(bounds);
        Ok::<_, String>(if backward { range.rev() } else { range })
    };
    let found: Result<Vec<_>, _> = range()?.take(limit).collect();
    let found = found.map_err(|error| format!("range: {error}"))?;
    let shown = visited(range()?, limit).map_err(|error| format!("visit of a range: {error}"))?;
    if shown != found {
        return Err(format!("a visit showed {} pairs, an iterator {}, or others", shown.len(), found.len()));
    }
    let expected = within(expected, bounds).map(|(key, value)| (key.clone(), value.clone()));
    let expected: Vec<_> = if backward { expected.rev().take(limit).collect() } else { expected.take(limit).collect() };
    if found != expected {
        return Err(format!("a range of {} pairs differs from the expected {}", found.len(), expected.len()));
    }
    Ok(())
}

/// What a range shows when it is visited, with breaks of ever longer stretches, and every fourth pair taken by itself.
fn visited(mut range: Range, limit: usize) -> braid::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut shown, mut pause) = (Vec::new(), 1);
    while shown.len() < limit {
        let mut left = pause;
        let whole = range.visit(|key, value| {
            shown.push((key.to_vec(), value.to_vec()));
            left -= 1;
            if left > 0 && shown.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if whole.is_continue() {
            break;
        }
        pause += 1;
        if pause % 4 == 0
            && shown.len() < limit
            && let Some((key, value)) = range.next_pair()?
        {
            shown.push((key.to_vec(), value.to_vec()));
        }
    }
    Ok(shown)
}

/// The pairs within bounds; none where the bounds cross, which a map's own range refuses.
pub(crate) fn within<'a>(
    content: &'a Content, bounds: &Bounds,
) -> impl DoubleEndedIterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> {
    let crossed = match bounds {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
            lower >= upper
        }
        _ => false,
    };
    (!crossed).then(|| content.range::<Vec<u8>, _>(bounds.clone())).into_iter().flatten()
}

pub(crate) fn difference(expected: &Content, found: &Content) -> Option<String> {
    let lost = expected.iter().find(|(key, _)| !found.contains_key(*key));
    let back = found.iter().find(|(key, _)| !expected.contains_key(*key));
    let other = expected.iter().find(|(key, value)| found.get(*key).is_some_and(|found| found != *value));
    let say = |what: &str, pair: Option<(&Vec<u8>, &Vec<u8>)>| pair.map(|(key, _)| format!("key {key:?} {what}"));
    say("is lost", lost).or_else(|| say("came back", back)).or_else(|| say("has another value", other))
}

/// Checks everything that is on storage.
pub(crate) fn verify(db: &Database) -> Outcome<()> {
    let result = db.verify().map_err(|error| format!("verify: {error}"))?;
    match result.findings.first() {
        None => Ok(()),
        Some(finding) => Err(format!("verify: {finding}")),
    }
}
