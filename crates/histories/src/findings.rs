//! The parts of an inference that all of its steps know: reads and writes by key, dependencies, and anomalies so far.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::Hash,
};

use crate::{
    Anomaly, DependencyKind, Element, History, Isolation, Key, Kind, Outcome, Proof, Transaction, history::shown,
};

/// How a transaction takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Not at all: its outcome is unknown and no participant saw its writes, or it aborted and aborted reads are not
    /// checked.
    None,
    /// By its reads alone.
    Reader,
    /// By reads and writes: its commit happened.
    Whole,
}

/// A write of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    /// Index of its transaction.
    pub(crate) txn: usize,
    /// The written element; `None` for a deletion.
    pub(crate) element: Option<Element>,
    /// Whether the same transaction wrote the key again later.
    pub(crate) intermediate: bool,
}

/// The version that a transaction found under a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base<'h> {
    /// Index of the transaction.
    pub(crate) txn: usize,
    pub(crate) found: &'h [Element],
    /// Whether the read was of a range that did not show the key.
    pub(crate) absent: bool,
    /// The isolation promised to this read.
    pub(crate) promised: Isolation,
}

/// All reads and writes of one key.
#[derive(Default)]
pub(crate) struct OfKey<'h> {
    pub(crate) is_register: bool,
    pub(crate) writes: Vec<Write>,
    pub(crate) bases: Vec<Base<'h>>,
}

impl OfKey<'_> {
    /// The write of each element.
    pub(crate) fn writers(&self) -> HashMap<Element, Write> {
        self.writes.iter().filter_map(|write| Some((write.element?, *write))).collect()
    }
}

/// A dependency between transactions, by their indexes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: DependencyKind,
    pub(crate) key: Option<Key>,
    pub(crate) proof: Proof,
    /// The isolation promised to the read that missed a write; meaningless for other edges.
    pub(crate) promised: Isolation,
}

/// Most anomalies of one kind that are reported, because more of them have the same cause.
const TOLD_MAX: usize = 5;

/// The results of a check so far.
pub(crate) struct Findings<'h> {
    pub(crate) history: &'h History,
    pub(crate) anomalies: Vec<Anomaly>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) known: HashSet<(usize, usize, DependencyKind, Isolation)>,
}

impl Findings<'_> {
    /// Reports an anomaly among some transactions that is not a cycle.
    pub(crate) fn tell(&mut self, kind: Kind, promised: Isolation, of: &[usize], what: String) {
        if self.anomalies.iter().filter(|known| known.kind == kind).count() < TOLD_MAX {
            let transactions = of.iter().map(|txn| self.transaction(*txn).id).collect();
            let (real_time, cycle) = (false, Vec::new());
            self.anomalies.push(Anomaly { kind, real_time, promised, transactions, what, cycle });
        }
    }

    /// Adds an edge between two transactions; nothing if both are the same.
    pub(crate) fn depend(&mut self, edge: Edge) {
        if edge.from != edge.to && self.known.insert((edge.from, edge.to, edge.kind, edge.promised)) {
            self.edges.push(edge);
        }
    }

    pub(crate) fn transaction(&self, txn: usize) -> &Transaction {
        &self.history.transactions[txn]
    }

    pub(crate) fn aborted(&self, txn: usize) -> bool {
        self.transaction(txn).outcome == Outcome::Aborted
    }

    /// Reports a read of an element that was never written, or whose writer aborted.
    pub(crate) fn look_at(&mut self, key: Key, base: &Base<'_>, element: Element, write: Option<&Write>) {
        let reader = self.transaction(base.txn).id;
        match write {
            None => {
                let what = format!("{reader} saw {element} in {key}, which nobody wrote");
                self.tell(Kind::GarbageRead, base.promised, &[base.txn], what);
            }
            Some(write) if self.aborted(write.txn) => {
                let what = format!("{reader} saw {element} in {key}, and {} aborted", self.transaction(write.txn).id);
                self.tell(Kind::AbortedRead, base.promised, &[base.txn, write.txn], what);
            }
            Some(_) => {}
        }
    }

    /// Reports a read that ends with an intermediate write of another transaction.
    pub(crate) fn ends_with(&mut self, key: Key, base: &Base<'_>, element: Element, write: &Write) {
        if write.intermediate && write.txn != base.txn {
            let (reader, writer) = (self.transaction(base.txn).id, self.transaction(write.txn).id);
            let what = format!("{reader} saw {key} end with {element}, and {writer} wrote it again after that");
            self.tell(Kind::IntermediateRead, base.promised, &[base.txn, write.txn], what);
        }
    }

    /// Reports lost updates: of the transactions that read one version and wrote the key, at most one may commit.
    pub(crate) fn lost_updates<V: Copy + Eq + Hash + Ord>(
        &mut self, key: Key, of_key: &OfKey<'_>, parts: &[Part], version: impl Fn(&Base<'_>) -> Option<V>,
    ) {
        let writers: HashSet<_> =
            of_key.writes.iter().filter(|write| parts[write.txn] == Part::Whole).map(|write| write.txn).collect();
        let mut of_version: BTreeMap<V, BTreeMap<usize, &Base<'_>>> = BTreeMap::new();
        for base in of_key.bases.iter().filter(|base| writers.contains(&base.txn)) {
            if let Some(version) = version(base) {
                of_version.entry(version).or_default().insert(base.txn, base);
            }
        }
        for updaters in of_version.into_values().filter(|updaters| updaters.len() > 1) {
            let promised = updaters.values().map(|base| base.promised).min().unwrap_or(Isolation::ReadCommitted);
            let txns: Vec<_> = updaters.keys().copied().collect();
            let names: Vec<_> = txns.iter().map(|txn| self.transaction(*txn).id.to_string()).collect();
            let found = updaters.values().next().map_or(&[][..], |base| base.found);
            let what = format!("{} all read {key} = {} and wrote it", names.join(", "), shown(found));
            self.tell(Kind::LostUpdate, promised, &txns, what);
        }
    }
}
