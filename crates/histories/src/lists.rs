//! Dependencies from the reads of a list.
//!
//! 1. The longest read has the elements in the order in which they were appended. Every other read must be a prefix of
//!    the longest.
//! 2. A committed element that the longest read lacks was appended behind all elements of that read; the order among
//!    such elements is unknown. If such an element was lost, no order explains the reads, and that shows as well.
//! 3. Neighbours in this order are *ww*; the last element of a read is *wr*; the element behind a read is *rw*.

use std::collections::{HashMap, HashSet};

use crate::{
    DependencyKind, Element, Isolation, Key, Kind, Proof,
    anomaly::versus,
    findings::{Base, Edge, Findings, OfKey, Part, Write},
    history::shown,
};

/// The order of a list's elements.
struct Order {
    /// In the order of the longest read, without elements of transactions that do not count.
    elements: Vec<(Element, usize)>,
    /// Elements behind all of these, in no known order: one of each transaction.
    behind: Vec<(Element, usize)>,
}

pub(crate) fn infer(key: Key, of_key: &OfKey<'_>, parts: &[Part], findings: &mut Findings<'_>) {
    let writers = of_key.writers();
    let bases: Vec<&Base<'_>> = of_key.bases.iter().filter(|base| is_sound(key, base, &writers, findings)).collect();
    let Some(longest) = bases.iter().copied().max_by_key(|base| base.found.len()) else {
        return;
    };
    let order = order(longest.found, of_key, &writers, parts);
    for pair in order.elements.windows(2) {
        let ((before, from), (after, to)) = (pair[0], pair[1]);
        findings.depend(write_write(key, (before, from), (after, to)));
    }
    if let Some(last) = order.elements.last() {
        order.behind.iter().for_each(|after| findings.depend(write_write(key, *last, *after)));
    }
    for base in bases {
        if longest.found.starts_with(base.found) {
            depend_on(key, base, &order, &writers, parts, findings);
        } else {
            let (one, other) = (findings.transaction(base.txn).id, findings.transaction(longest.txn).id);
            let what = format!("{one} and {other} found {key} = {}", versus(base.found, longest.found));
            let promised = base.promised.min(longest.promised);
            findings.tell(Kind::IncompatibleOrder, promised, &[base.txn, longest.txn], what);
        }
    }
    findings.lost_updates(key, of_key, parts, |base| Some((base.found.len(), base.found.last().copied())));
}

/// Whether each element of a read is there once. Reports duplicates, and elements that the read should not have seen.
fn is_sound(key: Key, base: &Base<'_>, writers: &HashMap<Element, Write>, findings: &mut Findings<'_>) -> bool {
    let mut seen = HashSet::new();
    if !base.found.iter().all(|element| seen.insert(element)) {
        let what = format!("{} found {key} = {}", findings.transaction(base.txn).id, shown(base.found));
        findings.tell(Kind::DuplicateElement, base.promised, &[base.txn], what);
        return false;
    }
    for element in base.found {
        findings.look_at(key, base, *element, writers.get(element));
    }
    if let Some(element) = base.found.last()
        && let Some(write) = writers.get(element)
    {
        findings.ends_with(key, base, *element, write);
    }
    true
}

fn order(longest: &[Element], of_key: &OfKey<'_>, writers: &HashMap<Element, Write>, parts: &[Part]) -> Order {
    let counts = |element: &Element| writers.get(element).filter(|write| parts[write.txn] == Part::Whole);
    let elements = longest.iter().filter_map(|element| Some((*element, counts(element)?.txn))).collect();
    let mut told = HashSet::new();
    let unseen = of_key.writes.iter().filter_map(|write| Some((write.element?, write.txn)));
    let behind = unseen
        .filter(|(element, txn)| parts[*txn] == Part::Whole && !longest.contains(element) && told.insert(*txn))
        .collect();
    Order { elements, behind }
}

fn write_write(key: Key, (before, from): (Element, usize), (after, to): (Element, usize)) -> Edge {
    let proof = Proof::Order(before, Some(after));
    Edge { from, to, kind: DependencyKind::WriteWrite, key: Some(key), proof, promised: Isolation::Serializable }
}

/// Adds the edges of a read: from the writer of its last element, and to the writers behind.
fn depend_on(
    key: Key, base: &Base<'_>, order: &Order, writers: &HashMap<Element, Write>, parts: &[Part],
    findings: &mut Findings<'_>,
) {
    let counts = |element: &Element| writers.get(element).is_some_and(|write| parts[write.txn] == Part::Whole);
    let length = base.found.iter().filter(|element| counts(element)).count();
    let last = length.checked_sub(1).map(|last| order.elements[last]);
    if let Some((element, from)) = last {
        let (kind, proof) = (DependencyKind::WriteRead, Proof::Saw(element));
        findings.depend(Edge { from, to: base.txn, kind, key: Some(key), proof, promised: Isolation::Serializable });
    }
    let next = match order.elements.get(length) {
        Some(next) => std::slice::from_ref(next),
        None => &order.behind[..],
    };
    for (element, to) in next {
        let kind = DependencyKind::ReadWrite { absent: base.absent };
        let proof = Proof::Missed(base.found.last().copied(), Some(*element));
        findings.depend(Edge { from: base.txn, to: *to, kind, key: Some(key), proof, promised: base.promised });
    }
}
