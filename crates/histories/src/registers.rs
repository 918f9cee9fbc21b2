//! Dependencies from the reads of a register.
//!
//! 1. The last write of a transaction is its version of the key. The initial absence comes before all versions.
//! 2. Where commits have seqs, the seqs order the versions. Elsewhere only one rule is known: a transaction that read a
//!    version and wrote the key made a later version.
//! 3. A reader of a version missed all versions that are known to be later: *rw*.
//!
//! Absence is the same for every deletion. Where any transaction may have deleted the key, a read that finds nothing
//! tells nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    DependencyKind, Element, Isolation, Key, Outcome, Proof,
    findings::{Base, Edge, Findings, OfKey, Part, Write},
};

/// The version that a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Version {
    /// Absence before any write.
    Initial,
    /// The version that a transaction wrote.
    Of(Element),
}

/// The versions of a key.
struct Versions {
    /// Every version that counts, by its transaction; `None` is a deletion.
    last: BTreeMap<usize, Option<Element>>,
    /// Whether absence may be a deletion.
    deleted: bool,
    /// The transactions in the order of their versions, where the seqs of commits tell the order.
    order: Option<Vec<usize>>,
}

pub(crate) fn infer(key: Key, of_key: &OfKey<'_>, parts: &[Part], findings: &mut Findings<'_>) {
    let writers = of_key.writers();
    let versions = versions(of_key, parts, findings);
    let read = |base: &Base<'_>| version(base, &writers, &versions);
    for base in &of_key.bases {
        for element in base.found {
            findings.look_at(key, base, *element, writers.get(element));
        }
        let Some((element, write)) = base.found.last().and_then(|element| Some((*element, writers.get(element)?)))
        else {
            continue;
        };
        findings.ends_with(key, base, element, write);
        if parts[write.txn] == Part::Whole {
            let (from, kind, proof) = (write.txn, DependencyKind::WriteRead, Proof::Saw(element));
            let promised = Isolation::Serializable;
            findings.depend(Edge { from, to: base.txn, kind, key: Some(key), proof, promised });
        }
    }
    let later = later(of_key, &versions, &writers, read);
    for (before, txns) in &later {
        let Version::Of(before) = before else { continue };
        for to in txns {
            let (from, kind) = (writers[before].txn, DependencyKind::WriteWrite);
            let proof = Proof::Order(*before, versions.last[to]);
            findings.depend(Edge { from, to: *to, kind, key: Some(key), proof, promised: Isolation::Serializable });
        }
    }
    for base in &of_key.bases {
        let Some(version) = read(base) else { continue };
        for to in later.get(&version).into_iter().flatten() {
            let kind = DependencyKind::ReadWrite { absent: base.absent };
            let proof = Proof::Missed(base.found.last().copied(), versions.last[to]);
            findings.depend(Edge { from: base.txn, to: *to, kind, key: Some(key), proof, promised: base.promised });
        }
    }
    findings.lost_updates(key, of_key, parts, read);
}

fn versions(of_key: &OfKey<'_>, parts: &[Part], findings: &Findings<'_>) -> Versions {
    let final_writes = || of_key.writes.iter().filter(|write| !write.intermediate);
    let deleted = of_key.writes.iter().any(|write| write.element.is_none());
    let whole = final_writes().filter(|write| parts[write.txn] == Part::Whole);
    let last: BTreeMap<_, _> = whole.map(|write| (write.txn, write.element)).collect();
    let seqs: Option<Vec<_>> =
        last.keys().map(|txn| findings.transaction(*txn).commit_seq.map(|seq| (seq, *txn))).collect();
    // A commit of unknown outcome has no seq, so its version may be anywhere between the others.
    let certain = final_writes().all(|write| findings.transaction(write.txn).outcome != Outcome::Unknown);
    let order = seqs.filter(|_| certain).map(|mut seqs| {
        seqs.sort_unstable();
        seqs.into_iter().map(|(_, txn)| txn).collect()
    });
    Versions { last, deleted, order }
}

/// The version that a read found, if the version is known and counts.
fn version(base: &Base<'_>, writers: &HashMap<Element, Write>, versions: &Versions) -> Option<Version> {
    let Some(element) = base.found.last() else {
        return (!versions.deleted).then_some(Version::Initial);
    };
    let write = writers.get(element)?;
    (versions.last.get(&write.txn) == Some(&Some(*element))).then_some(Version::Of(*element))
}

/// For each version the transactions with later versions: only the next one where the order is known, else all that are
/// known to be later.
fn later(
    of_key: &OfKey<'_>, versions: &Versions, writers: &HashMap<Element, Write>,
    read: impl Fn(&Base<'_>) -> Option<Version>,
) -> BTreeMap<Version, BTreeSet<usize>> {
    let mut later: BTreeMap<Version, BTreeSet<usize>> = BTreeMap::new();
    if let Some(order) = &versions.order {
        let version_of = |txn: &usize| versions.last[txn].map(Version::Of);
        later.entry(Version::Initial).or_default().extend(order.first());
        for pair in order.windows(2) {
            if let Some(version) = version_of(&pair[0]) {
                later.entry(version).or_default().insert(pair[1]);
            }
        }
        return later;
    }
    later.entry(Version::Initial).or_default().extend(versions.last.keys());
    for base in of_key.bases.iter().filter(|base| versions.last.contains_key(&base.txn)) {
        if let Some(version @ Version::Of(element)) = read(base)
            && writers[&element].txn != base.txn
        {
            later.entry(version).or_default().insert(base.txn);
        }
    }
    later
}
