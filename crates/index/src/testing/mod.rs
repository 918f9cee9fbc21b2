//! Shared parts of the tests of structures: batches and models of them, and steps that a structure and its model take
//! together ([`steps`]).
//!
//! For tests of the workspace alone.

pub mod sorted;
pub mod steps;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use doclog::{DocLength, DocPointer, SegmentId};

use crate::{Batch, Bounds, Direction, Found, Operation, Pair, Payload, Result, Seq, Stored, Update, View, Visit};

/// The effect of an update, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A value.
    Put(Vec<u8>),
    /// A document that exists only in pointers.
    Document(u64),
    /// A tombstone.
    Delete,
}

/// The pointer of a document.
#[must_use]
pub fn document(id: u64) -> DocPointer {
    DocPointer { segment: SegmentId(1 + id % 3), offset: 8 * (id % 1000), length: DocLength::from_bits(id), crc: 0x55 }
}

/// The document of a pointer.
#[must_use]
pub const fn id_of(pointer: &DocPointer) -> u64 {
    pointer.length.bits()
}

/// What a verification saw of a structure that has no shared pages.
#[derive(Debug, Default)]
pub struct Seen {
    /// Defects.
    pub findings: Vec<String>,
    /// Documents that live versions refer to.
    pub documents: Vec<DocPointer>,
    /// Live keys.
    pub keys: u64,
}

impl Visit for Seen {
    fn finding(&mut self, finding: String) {
        self.findings.push(finding);
    }

    fn extent(&mut self, page: u64, _pages: u32) {
        panic!("page {page} of a structure that has none");
    }

    fn document(&mut self, document: &DocPointer) {
        self.documents.push(*document);
    }

    fn is_hidden(&self, _: &[u8], _: Seq) -> bool {
        false
    }

    fn keys(&mut self, count: u64) {
        self.keys += count;
    }
}

/// A batch in memory.
#[derive(Clone, Debug, Default)]
pub struct Updates {
    updates: Vec<(Vec<u8>, u64, Change)>,
    /// The batch's `through`, where that is not the greatest seq.
    through: Option<u64>,
}

impl Updates {
    /// A batch; of equal keys and seqs the last entry stays.
    #[must_use]
    pub fn new(updates: Vec<(Vec<u8>, u64, Change)>) -> Self {
        let sorted: BTreeMap<_, _> = updates.into_iter().map(|(key, seq, change)| ((key, seq), change)).collect();
        Self { updates: sorted.into_iter().map(|((key, seq), change)| (key, seq, change)).collect(), through: None }
    }

    /// A part of a batch.
    #[must_use]
    pub fn part(updates: &[(Vec<u8>, u64, Change)], through: u64) -> Self {
        Self { through: Some(through), ..Self::new(updates.to_vec()) }
    }

    /// The same value for keys.
    pub fn puts(keys: impl IntoIterator<Item = Vec<u8>>, seq: u64, value: &[u8]) -> Self {
        Self::new(keys.into_iter().map(|key| (key, seq, Change::Put(value.to_vec()))).collect())
    }

    /// Key, seq, change.
    pub fn iter(&self) -> impl Iterator<Item = &(Vec<u8>, u64, Change)> {
        self.updates.iter()
    }
}

impl Batch for Updates {
    fn len(&self) -> usize {
        self.updates.len()
    }

    fn get(&self, index: usize) -> Update<'_> {
        let (key, seq, change) = &self.updates[index];
        let operation = match change {
            Change::Put(value) => Operation::Put(Payload::Inline(value), None),
            Change::Document(id) => Operation::Put(Payload::Document(document(*id)), None),
            Change::Delete => Operation::Delete,
        };
        Update { key, seq: Seq(*seq), operation }
    }

    fn through(&self) -> Seq {
        let newest = || self.updates.iter().map(|(_, seq, _)| *seq).max().unwrap_or(0);
        Seq(self.through.unwrap_or_else(newest))
    }
}

/// All versions that were ever written.
#[derive(Clone, Debug, Default)]
pub struct Model {
    keys: BTreeMap<Vec<u8>, BTreeMap<u64, Change>>,
}

impl Model {
    /// Takes a batch.
    pub fn apply(&mut self, updates: &Updates) {
        for (key, seq, change) in updates.iter() {
            self.keys.entry(key.clone()).or_default().insert(*seq, change.clone());
        }
    }

    /// The live version of a key at a seq.
    #[must_use]
    pub fn get(&self, key: &[u8], at: u64) -> Option<(u64, Change)> {
        let (seq, change) = self.keys.get(key)?.range(..=at).next_back()?;
        (*change != Change::Delete).then(|| (*seq, change.clone()))
    }

    /// All live versions within bounds.
    #[must_use]
    pub fn range(&self, bounds: &Bounds, at: u64) -> Vec<(Vec<u8>, u64, Change)> {
        let keys = self.keys.keys().filter(|key| bounds.contains(key));
        keys.filter_map(|key| self.get(key, at).map(|(seq, change)| (key.clone(), seq, change))).collect()
    }

    /// Every key that there ever was.
    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.keys.keys()
    }
}

/// The change of a value in a model, where documents exist only in pointers.
#[must_use]
pub fn change_of(value: &Stored) -> Change {
    match value {
        Stored::Inline(value) => Change::Put(value.clone()),
        Stored::Document(pointer) => {
            assert_eq!(*pointer, document(id_of(pointer)));
            Change::Document(id_of(pointer))
        }
    }
}

/// The content of a view under some keys, in the terms of a model.
///
/// # Errors
/// The view's.
pub fn found(view: &dyn View, keys: &[&[u8]], at: u64) -> Result<Vec<Option<(u64, Change)>>> {
    found_as(view, keys, at, &change_of)
}

/// As [`found`], with `change_of` to translate values.
///
/// # Errors
/// The view's.
pub fn found_as(
    view: &dyn View, keys: &[&[u8]], at: u64, change_of: &dyn Fn(&Stored) -> Change,
) -> Result<Vec<Option<(u64, Change)>>> {
    let mut out: Vec<Option<Found>> = vec![None; keys.len()];
    view.get_many(keys, Seq(at).into(), &mut out)?;
    let live = |found: Found| found.value.map(|value| (found.seq.0, change_of(&value)));
    Ok(out.into_iter().map(|found| found.and_then(live)).collect())
}

/// Checks that a walk over the documents of a view shows those that its verification meets: in one go, and stopped at
/// every few keys.
///
/// # Errors
/// The view's.
///
/// # Panics
/// When the walk shows others.
pub fn check_documents(view: &dyn View) -> Result<()> {
    let mut met = Met::default();
    view.verify(&mut met)?;
    met.0.sort_unstable();
    for most in [usize::MAX, 3] {
        let (mut shown, mut from) = (Vec::new(), Some(Vec::new()));
        while let Some(low) = from.take() {
            let mut keys = 0;
            view.documents(&low, &mut |key, versions| {
                assert!(key >= low.as_slice(), "a key before the first");
                assert!(versions.is_sorted_by_key(|version| version.seq) && versions.iter().all(|own| own.key == key));
                let mut documents: Vec<_> =
                    versions.iter().filter_map(|own| Some((own.seq, own.operation.document()?))).collect();
                documents.dedup();
                shown.extend(documents.into_iter().map(|(_, document)| document));
                keys += 1;
                if keys < most {
                    return ControlFlow::Continue(());
                }
                from = Some(if versions.is_empty() { key.to_vec() } else { [key, &[0]].concat() });
                ControlFlow::Break(())
            })?;
        }
        shown.sort_unstable();
        assert_eq!(shown, met.0, "documents that were shown, {most} keys at a time, and those that there are");
    }
    Ok(())
}

/// The documents that a verification meets.
#[derive(Default)]
struct Met(Vec<DocPointer>);

impl Visit for Met {
    fn finding(&mut self, finding: String) {
        panic!("{finding}");
    }
    fn extent(&mut self, _: u64, _: u32) {}
    fn document(&mut self, document: &DocPointer) {
        self.0.push(*document);
    }
    fn keys(&mut self, _: u64) {}
    fn is_hidden(&self, _: &[u8], _: Seq) -> bool {
        false
    }
}

/// The pairs of a view, in key order.
///
/// # Errors
/// The view's.
pub fn scan(
    view: &Arc<dyn View>, bounds: &Bounds, at: u64, direction: Direction,
) -> Result<Vec<(Vec<u8>, u64, Change)>> {
    scan_as(view, bounds, at, direction, &change_of)
}

/// As [`scan`], with `change_of` to translate values.
///
/// # Errors
/// The view's.
pub fn scan_as(
    view: &Arc<dyn View>, bounds: &Bounds, at: u64, direction: Direction, change_of: &dyn Fn(&Stored) -> Change,
) -> Result<Vec<(Vec<u8>, u64, Change)>> {
    let mut cursor = Arc::clone(view).cursor(bounds, Seq(at).into(), direction)?;
    let mut out = Vec::new();
    while let Some(Pair { key, seq, value, .. }) = cursor.next()? {
        out.push((key, seq.0, change_of(&value)));
    }
    assert!(cursor.next()?.is_none(), "an end stays an end");
    if direction == Direction::Backward {
        out.reverse();
    }
    Ok(out)
}
