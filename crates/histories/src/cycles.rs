//! Cycles among dependencies, and their names.
//!
//! 1. Each transaction has two points, its start and its commit, and every dependency puts a point of one transaction
//!    before a point of another:
//!
//!    | dependency | point of the earlier transaction | point of the later transaction |
//!    |---|---|---|
//!    | a version was overwritten or read | commit | start |
//!    | a read missed a write, under snapshot isolation | start | commit |
//!    | a read missed a write, under serializability | commit | commit |
//!
//! 2. An execution that an isolation forbids is therefore a cycle of points, with the edges of that isolation. Snapshot
//!    isolation forbids a cycle with reads that missed writes, unless two such reads follow one another.
//! 3. The search goes from the strongest evidence to the weakest ([`Evidence`]). Anomalies that every isolation forbids
//!    come first; anomalies that the promised isolation allows come last, and are reported all the same. Each strongly
//!    connected component without a known cycle gives its shortest one.
//! 4. The cycle is named by its own edges.

use std::collections::{BTreeSet, VecDeque};

use petgraph::{
    algo::tarjan_scc,
    graph::{DiGraph, NodeIndex},
    visit::EdgeRef,
};

use crate::{
    Anomaly, Dependency, DependencyKind, History, Isolation, Kind, Outcome, Proof,
    findings::{Edge, Part},
};

/// The edges that a search takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// Writes over writes.
    Writes,
    /// And reads of writes.
    Reads,
    /// And reads that missed writes, with the edges of snapshot isolation, if at least this isolation was promised to
    /// the read.
    Snapshots(Isolation),
    /// The same, with the edges of serializability.
    Serial(Isolation),
}

impl Evidence {
    /// In the order of the search. The last two find allowed anomalies.
    const ALL: [Self; 6] = [
        Self::Writes,
        Self::Reads,
        Self::Snapshots(Isolation::Snapshot),
        Self::Serial(Isolation::Serializable),
        Self::Snapshots(Isolation::ReadCommitted),
        Self::Serial(Isolation::ReadCommitted),
    ];

    /// Whether the edge counts (`Some`), and whether its first point is the commit (`true`) or the start.
    fn takes(self, edge: &Edge) -> Option<bool> {
        match (edge.kind, self) {
            (DependencyKind::WriteWrite | DependencyKind::RealTime, _) => Some(true),
            (DependencyKind::WriteRead, Self::Writes) => None,
            (DependencyKind::WriteRead, _) => Some(true),
            (DependencyKind::ReadWrite { .. }, Self::Writes | Self::Reads) => None,
            (DependencyKind::ReadWrite { .. }, Self::Snapshots(least)) => (edge.promised >= least).then_some(false),
            (DependencyKind::ReadWrite { .. }, Self::Serial(least)) => (edge.promised >= least).then_some(true),
        }
    }
}

/// Points of transactions. An edge has the index of its dependency, or `None` between the two points of one
/// transaction.
type Points = DiGraph<(), Option<usize>>;

/// Every anomaly that is a cycle.
pub(crate) fn search(history: &History, parts: &[Part], mut edges: Vec<Edge>, real_time: bool) -> Vec<Anomaly> {
    let mut found = Vec::new();
    seek(history, parts, &edges, &Evidence::ALL, &mut found);
    if real_time {
        edges.extend(in_real_time(history, parts));
        seek(history, parts, &edges, &Evidence::ALL[..4], &mut found);
    }
    found
}

fn seek(history: &History, parts: &[Part], edges: &[Edge], evidence: &[Evidence], found: &mut Vec<Anomaly>) {
    // The graph of the weakest evidence has every cycle of the others, and most histories have none.
    let whole = points(parts.len(), edges, Evidence::Serial(Isolation::ReadCommitted));
    if tarjan_scc(&whole).iter().all(|component| component.len() == 1) {
        return;
    }
    for evidence in evidence {
        let points = points(parts.len(), edges, *evidence);
        for component in tarjan_scc(&points) {
            let members: BTreeSet<_> = component.iter().map(|point| point.index()).collect();
            let ids: BTreeSet<_> = members.iter().map(|point| history.transactions[point / 2].id).collect();
            let is_known = |known: &Anomaly| known.transactions.iter().all(|txn| ids.contains(txn));
            if ids.len() < 2 || found.iter().any(is_known) {
                continue;
            }
            let cycle = shortest_cycle(&points, &members);
            let cycle: Vec<_> = cycle.into_iter().map(|edge| edges[edge]).collect();
            found.push(named(history, &cycle));
        }
    }
}

fn points(transactions: usize, edges: &[Edge], evidence: Evidence) -> Points {
    let mut points = Points::with_capacity(2 * transactions, transactions + edges.len());
    let nodes: Vec<_> = (0..2 * transactions).map(|_| points.add_node(())).collect();
    let (start, commit) = (|txn: usize| nodes[2 * txn], |txn: usize| nodes[2 * txn + 1]);
    for txn in 0..transactions {
        points.add_edge(start(txn), commit(txn), None);
    }
    for (index, edge) in edges.iter().enumerate() {
        let Some(from_commit) = evidence.takes(edge) else { continue };
        let from = if from_commit { commit(edge.from) } else { start(edge.from) };
        let misses = matches!(edge.kind, DependencyKind::ReadWrite { .. });
        points.add_edge(from, if misses { commit(edge.to) } else { start(edge.to) }, Some(index));
    }
    points
}

/// Most points of a component at which a search begins.
const BEGINNINGS_MAX: usize = 400;

/// The dependencies of the shortest cycle through some of these points, which are strongly connected.
fn shortest_cycle(points: &Points, members: &BTreeSet<usize>) -> Vec<usize> {
    let cycles = members.iter().take(BEGINNINGS_MAX).map(|begin| cycle_through(points, members, *begin));
    cycles.min_by_key(Vec::len).unwrap_or_default()
}

/// A shortest cycle through `begin`.
fn cycle_through(points: &Points, members: &BTreeSet<usize>, begin: usize) -> Vec<usize> {
    // For each reached point: the point before, and the edge from there.
    let mut reached: Vec<Option<(usize, Option<usize>)>> = vec![None; points.node_count()];
    let mut next = VecDeque::from([begin]);
    while let Some(point) = next.pop_front() {
        for edge in points.edges(NodeIndex::new(point)) {
            let to = edge.target().index();
            if members.contains(&to) && reached[to].is_none() {
                reached[to] = Some((point, *edge.weight()));
                next.push_back(to);
            }
        }
        if reached[begin].is_some() {
            break;
        }
    }
    let (mut cycle, mut point) = (Vec::new(), begin);
    while let Some((before, edge)) = reached[point] {
        cycle.extend(edge);
        point = before;
        if point == begin {
            break;
        }
    }
    cycle.reverse();
    cycle
}

fn named(history: &History, cycle: &[Edge]) -> Anomaly {
    let missed = |edge: &Edge| matches!(edge.kind, DependencyKind::ReadWrite { .. });
    let count = cycle.iter().filter(|edge| missed(edge)).count();
    let adjacent = cycle.iter().zip(cycle.iter().cycle().skip(1)).any(|(one, next)| missed(one) && missed(next));
    let has = |kind: DependencyKind| cycle.iter().any(|edge| edge.kind == kind);
    let kind = match count {
        0 if has(DependencyKind::WriteRead) => Kind::G1c,
        0 => Kind::G0,
        1 => Kind::GSingle,
        _ if !adjacent => Kind::GNonadjacent,
        _ if has(DependencyKind::ReadWrite { absent: true }) => Kind::G2,
        _ => Kind::G2Item,
    };
    let id = |txn: usize| history.transactions[txn].id;
    let promised = match cycle.iter().filter(|edge| missed(edge)).map(|edge| edge.promised).min() {
        Some(promised) => promised,
        None => cycle.iter().map(|edge| history.transactions[edge.to].isolation).min().unwrap_or(Isolation::Snapshot),
    };
    let shown = cycle.iter().map(|edge| Dependency {
        from: id(edge.from),
        to: id(edge.to),
        kind: edge.kind,
        key: edge.key,
        proof: edge.proof,
    });
    Anomaly {
        kind,
        real_time: has(DependencyKind::RealTime),
        promised,
        transactions: cycle.iter().map(|edge| id(edge.from)).collect(),
        what: String::new(),
        cycle: shown.collect(),
    }
}

/// The real-time order: an edge from each transaction to those that began after its end, without edges that follow from
/// two others.
fn in_real_time(history: &History, parts: &[Part]) -> Vec<Edge> {
    let mut ended: Vec<_> =
        history.transactions.iter().enumerate().filter(|(txn, _)| parts[*txn] != Part::None).collect();
    ended.sort_by_key(|(_, transaction)| transaction.ended);
    // The latest beginning among the transactions that have ended so far.
    let latest: Vec<u64> = ended
        .iter()
        .scan(0, |latest, (_, transaction)| {
            *latest = transaction.began.max(*latest);
            Some(*latest)
        })
        .collect();
    let mut edges = Vec::new();
    for (to, transaction) in &ended {
        let before = ended.partition_point(|(_, other)| other.ended < transaction.began);
        let Some(latest) = before.checked_sub(1).map(|last| latest[last]) else { continue };
        let near = ended[..before].iter().rev().take_while(|(_, other)| other.ended >= latest);
        // A commit of unknown outcome may still happen later.
        for (from, other) in near.filter(|(_, other)| other.outcome != Outcome::Unknown) {
            let (kind, key) = (DependencyKind::RealTime, None);
            let proof = Proof::Times(other.ended, transaction.began);
            edges.push(Edge { from: *from, to: *to, kind, key, proof, promised: Isolation::Serializable });
        }
    }
    edges
}
