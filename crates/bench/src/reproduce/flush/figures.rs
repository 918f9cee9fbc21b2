//! The workloads of figures 5a, 5b and 6.

use super::workload::Work;

/// A workload, its figure, and the paper's results: aggregated over existing with 8, 16, 32, 64 and 128 threads.
pub(super) struct Workload {
    pub(super) figure: &'static str,
    pub(super) name: &'static str,
    pub(super) work: Work,
    pub(super) paper: [f64; 5],
    pub(super) title: &'static str,
    pub(super) note: &'static str,
}

/// Figure 5a.
pub(super) const INSERT: Workload = Workload {
    figure: "5a",
    name: "insert",
    work: Work::Insert,
    paper: [3.9, 5.5, 1.83, 1.72, 1.3],
    title: "Transactions per second, insert",
    note: "Each transaction puts one new key; the keys of all clients grow together.",
};

/// Figure 5b.
pub(super) const UPDATE_SEARCH: Workload = Workload {
    figure: "5b",
    name: "update and search",
    work: Work::UpdateSearch,
    paper: [1.6, 2.8, 4.1, 1.7, 1.6],
    title: "Transactions per second, 50 % update and 50 % search",
    note: "Each client updates or searches a random loaded entry, one after the other in random order, as many of each; a search flushes nothing.",
};

/// Figure 6.
pub(super) const OLTP: Workload = Workload {
    figure: "6",
    name: "update, delete and insert",
    work: Work::Oltp,
    paper: [6.4, 3.3, 2.3, 1.7, 1.4],
    title: "Transactions per second, an update, a delete and an insert",
    note: "Like sysbench OLTP's writes: a transaction updates a random loaded entry, deletes the client's oldest entry and inserts a new one, in one atomic batch.",
};
