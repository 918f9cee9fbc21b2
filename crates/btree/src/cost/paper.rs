//! The paper's equations, in its notation (table 1). Fractions of levels are the paper's: heights are logarithms.
//!
//! Levels are counted from the leaves, 0, upwards, because trees with longer leaves are lower. Level `ℓ` of a tree of
//! height `H` in the paper is `above = H - 1 - ℓ` here.
//!
//! # Where the paper is mended
//!
//! The sums of (9) and (15) disagree with each other: the first begins at `⌊η⌋`, the second at `⌈η⌉`; one ends below
//! the leaves and one at them. Both take levels *counted from the leaves* (`η` is the number of levels that do not fit
//! in memory) for levels counted from the root. Equations (11) to (14) say:
//!
//! - The `⌊η⌋` levels at the bottom are read in full.
//! - Of the level above those, *LastLevel*, the part `Cvrg = F'^-(η % 1)` is in memory.
//! - The levels above LastLevel are in memory.
//!
//! A level that is read costs `1 / G(ℓ)` reads for each insert, so LastLevel costs `(1 - Cvrg) / G(LastLevel)`. So:
//!
//! ```text
//! Insert' = ( Σ 1 / G(ℓ)  +  (1 - Cvrg) / G(LastLevel) ) · P'_r  +  (P'_r + P'_w) / G(H - 1)
//!         ℓ = H - ⌊η⌋ … H - 2
//! ```
//!
//! with `LastLevel = H - ⌊η⌋ - 1`. As printed, the lower bound, the `1 / G` that `Cvrg / G` is taken from, and the
//! level of that `G` are missing or off. `Search'` of (9) is right where `η >= 1`.
//!
//! Where even leaves fit in part, `η < 1`, (9) takes a leaf for a page and goes on to subtract reads of single pages.
//! Here a leaf takes its `L` pages of memory, and the part that is not in memory costs `P_r(L)`.

/// A tree. In the paper's trees, `leaf_entries` is `fanout`.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// `N`: entries.
    pub entries: f64,
    /// Entries of a page of a leaf, on average.
    pub leaf_entries: f64,
    /// `F'`: children of an internal node, on average.
    pub fanout: f64,
    /// `L`: pages of a leaf.
    pub leaf_pages: f64,
}

/// Times of a device for such a tree, in µs.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// `P_r`: a page read alone.
    pub read: f64,
    /// `P_w`: a page written alone.
    pub write: f64,
    /// `P_r(L)`: a leaf read alone.
    pub leaf_read: f64,
    /// `P'_r`: a page read in a batch.
    pub batched_read: f64,
    /// `P'_w`: a page written in a batch.
    pub batched_write: f64,
}

/// The operation queue.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Operations that wait for a batch update.
    pub entries: f64,
    /// `bcnt`: the most that one batch update takes.
    pub batch_max: f64,
}

/// Time per operation, in µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// A search.
    pub search: f64,
    /// An insert.
    pub insert: f64,
}

impl Cost {
    /// The average operation where the share `insert_ratio`, `R_i`, are inserts.
    #[must_use]
    pub fn average(&self, insert_ratio: f64) -> f64 {
        (1.0 - insert_ratio) * self.search + insert_ratio * self.insert
    }
}

/// How far memory reaches down a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buffered {
    /// `η`: levels that are not in memory, with the fraction of LastLevel; below 0 where memory has room for more.
    pub eta: f64,
    /// `H_nb`, (13): whole levels that are not in memory, from the leaves up.
    pub unbuffered: f64,
    /// `Cvrg`, (14): the part of LastLevel that is in memory. LastLevel is the one above those `unbuffered` levels.
    pub coverage: f64,
}

impl Buffered {
    /// The figures for a tree with `leaves` leaves and `nodes` of its nodes in memory, from the root down. The root is
    /// always in memory.
    #[must_use]
    pub fn new(leaves: f64, fanout: f64, nodes: f64) -> Self {
        let eta = (leaves / nodes.max(1.0)).log(fanout);
        if eta <= 0.0 {
            return Self { eta, unbuffered: 0.0, coverage: 1.0 };
        }
        Self { eta, unbuffered: eta.floor(), coverage: fanout.powf(-eta.fract()) }
    }
}

impl Tree {
    /// Leaves, at least one.
    #[must_use]
    pub fn leaves(&self) -> f64 {
        (self.entries / (self.leaf_entries * self.leaf_pages)).max(1.0)
    }

    /// `H`, (4): levels, leaves included. `log N / log F'` where leaves are nodes like others.
    #[must_use]
    pub fn height(&self) -> f64 {
        1.0 + self.leaves().log(self.fanout)
    }

    /// Nodes on a level, at least one.
    fn nodes(&self, above: usize) -> f64 {
        (self.leaves() / self.fanout.powi(i32::try_from(above).unwrap_or(i32::MAX))).max(1.0)
    }

    /// Internal levels.
    fn internal_levels(&self) -> usize {
        // Rounding must not make one level more of an exact power.
        whole((self.leaves().log(self.fanout) - 1e-9).ceil())
    }

    /// `G`, (8): operations of a batch update that share a node of a level.
    #[must_use]
    pub fn shared(&self, above: usize, queue: &Queue) -> f64 {
        (queue.entries / self.nodes(above)).min(queue.batch_max).max(1.0)
    }
}

/// Entries that a queue of `opq_pages`, `O`, holds: full pages of `F' / U` each (8).
#[must_use]
pub fn queue_entries(opq_pages: f64, fanout: f64, utilisation: f64) -> f64 {
    opq_pages * fanout / utilisation
}

/// The figure of the utility/cost method, (3), for a node size: the larger the better.
#[must_use]
pub fn utility_per_cost(entries: f64, read: f64) -> f64 {
    entries.log2() / read
}

/// `C_b+`, (5): the plain B+-tree without a buffer.
#[must_use]
pub fn b_plus(tree: &Tree, times: &Times) -> Cost {
    let search = tree.height() * times.read;
    Cost { search, insert: search + times.write }
}

/// `C'_b+`, (6), which is (11) with (12) to (14): the plain B+-tree with `nodes` of its nodes in memory, `M`.
#[must_use]
pub fn b_plus_buffered(tree: &Tree, nodes: f64, times: &Times) -> Cost {
    let memory = Buffered::new(tree.leaves(), tree.fanout, nodes);
    let search = (memory.unbuffered + 1.0 - memory.coverage) * times.read;
    Cost { search, insert: search + times.write }
}

/// `C_pio`, (7): the PIO B-tree without a buffer.
#[must_use]
pub fn pio(tree: &Tree, queue: &Queue, times: &Times) -> Cost {
    let search = (tree.height() - 1.0) * times.read + times.leaf_read;
    let nodes: f64 = (1..=tree.internal_levels()).map(|above| 1.0 / tree.shared(above, queue)).sum();
    Cost { search, insert: nodes * times.batched_read + leaf_insert(tree, queue, times) }
}

/// `C'_pio`, (9) and (15) as mended above: with `pages` of memory for nodes, `M - O`.
#[must_use]
pub fn pio_buffered(tree: &Tree, queue: &Queue, pages: f64, times: &Times) -> Cost {
    let memory = Buffered::new(tree.leaves(), tree.fanout, pages);
    let insert = read_for_insert(tree, queue, &memory) * times.batched_read + leaf_insert(tree, queue, times);
    if memory.unbuffered < 1.0 {
        // Leaves are LastLevel, and each takes its pages.
        let uncovered = (1.0 - pages / (tree.leaves() * tree.leaf_pages)).max(0.0);
        return Cost { search: uncovered * times.leaf_read, insert };
    }
    Cost { search: (memory.unbuffered - memory.coverage) * times.read + times.leaf_read, insert }
}

/// Internal nodes read for an insert, (15).
fn read_for_insert(tree: &Tree, queue: &Queue, memory: &Buffered) -> f64 {
    let last = whole(memory.unbuffered);
    if last == 0 {
        return 0.0;
    }
    let whole: f64 = (1..last).map(|above| 1.0 / tree.shared(above, queue)).sum();
    whole + (1.0 - memory.coverage) / tree.shared(last, queue)
}

/// A count of levels.
#[expect(clippy::cast_possible_truncation, reason = "a logarithm of a number of nodes, at least 0")]
fn whole(levels: f64) -> usize {
    levels.max(0.0) as usize
}

/// The last segment of a leaf is read and written once for all that share it.
fn leaf_insert(tree: &Tree, queue: &Queue, times: &Times) -> f64 {
    (times.batched_read + times.batched_write) / tree.shared(0, queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { read: 100.0, write: 200.0, leaf_read: 150.0, batched_read: 10.0, batched_write: 20.0 };

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6 * expected.abs().max(1.0), "{found} instead of {expected}");
    }

    fn b_plus_tree(entries: f64) -> Tree {
        Tree { entries, leaf_entries: 100.0, fanout: 100.0, leaf_pages: 1.0 }
    }

    /// N = 10^10, F' = 100, L = 10: 10^10 / (100 · 10) = 10^7 leaves, above them 10^5, 10^3, 10 and 1 nodes.
    const PIO: Tree = Tree { entries: 1e10, leaf_entries: 100.0, fanout: 100.0, leaf_pages: 10.0 };

    /// O = 1000 pages, U = 1/2: 1000 · 100 / (1/2) = 200 000 entries.
    fn queue() -> Queue {
        Queue { entries: queue_entries(1000.0, 100.0, 0.5), batch_max: 5000.0 }
    }

    #[test]
    fn equations_4_and_5() {
        // H = log 10^9 / log 100 = 9 / 2. Search 4.5 · 100; insert + 200; half of each: 4.5 · 100 + 0.5 · 200 = 550.
        let tree = b_plus_tree(1e9);
        close(tree.height(), 4.5);
        let cost = b_plus(&tree, &TIMES);
        close(cost.search, 450.0);
        close(cost.insert, 650.0);
        close(cost.average(0.5), 550.0);
    }

    #[test]
    fn equations_6_and_11_to_14() {
        // M = 10^4: η = log_100(10^9 / 10^4) - 1 = 1.5, so H_nb = 1 and Cvrg = 100^-0.5 = 0.1.
        // The level with 10^9 / 100^2 = 10^5 nodes has a tenth in memory.
        // (1 + 1 - 0.1) · 100 + R_i · 200 = 190 + 0.5 · 200 = 290.
        let tree = b_plus_tree(1e9);
        let memory = Buffered::new(tree.leaves(), 100.0, 1e4);
        close(memory.eta, 1.5);
        close(memory.unbuffered, 1.0);
        close(memory.coverage, 0.1);
        close(b_plus_buffered(&tree, 1e4, &TIMES).average(0.5), 290.0);
        // M = 10^6: η = 0.5, a tenth of the leaves: 0.9 · 100.
        close(b_plus_buffered(&tree, 1e6, &TIMES).search, 90.0);
        // All 10^7 leaves, and more than all.
        close(b_plus_buffered(&tree, 1e7, &TIMES).search, 0.0);
        close(b_plus_buffered(&tree, 1e9, &TIMES).insert, 200.0);
    }

    #[test]
    fn equation_8() {
        let queue = queue();
        close(queue.entries, 200_000.0);
        // 2·10^5 / 10^7 is below 1; 2·10^5 / 10^5 = 2; / 10^3 = 200; / 10 = 20 000, above bcnt.
        close(PIO.shared(0, &queue), 1.0);
        close(PIO.shared(1, &queue), 2.0);
        close(PIO.shared(2, &queue), 200.0);
        close(PIO.shared(3, &queue), 5000.0);
    }

    #[test]
    fn equation_7() {
        // H - 1 = log_100 10^7 = 3.5: search 3.5 · 100 + 150 = 500.
        // Insert: (1/2 + 1/200 + 1/5000 + 1/5000) · 10 + (10 + 20) / 1 = 5.054 + 30.
        // R_i = 1/4: 0.75 · 500 + 0.25 · 35.054 = 383.7635.
        let cost = pio(&PIO, &queue(), &TIMES);
        close(cost.search, 500.0);
        close(cost.insert, 35.054);
        close(cost.average(0.25), 383.7635);
    }

    #[test]
    fn equations_9_and_15_as_mended() {
        // M - O = 10^4: η = log_100(10^10 / (10 · 10^4)) - 1 = 1.5: leaves are not in memory, and a tenth of the 10^5
        // nodes above them is.
        // Search (1 - 0.1) · 100 + 150 = 240. Insert (1 - 0.1) / 2 · 10 + 30 = 34.5. Half of each: 137.25.
        let cost = pio_buffered(&PIO, &queue(), 1e4, &TIMES);
        close(cost.search, 240.0);
        close(cost.insert, 34.5);
        close(cost.average(0.5), 137.25);
        // M - O = 100: η = 2.5: a tenth of the 10^3 nodes of the second level above leaves.
        // Search (2 - 0.1) · 100 + 150 = 340. Insert (1/2 + 0.9/200) · 10 + 30 = 35.045.
        let cost = pio_buffered(&PIO, &queue(), 100.0, &TIMES);
        close(cost.search, 340.0);
        close(cost.insert, 35.045);
    }

    #[test]
    fn leaves_in_memory_take_all_their_pages() {
        // 5 · 10^7 pages are half of 10^7 leaves of 10 pages.
        let cost = pio_buffered(&PIO, &queue(), 5e7, &TIMES);
        close(cost.search, 75.0);
        close(cost.insert, 30.0);
        // With L = 1 the result is (6): η = 0.5.
        let tree = b_plus_tree(1e9);
        let times = Times { leaf_read: TIMES.read, ..TIMES };
        close(pio_buffered(&tree, &queue(), 1e6, &times).search, b_plus_buffered(&tree, 1e6, &times).search);
    }

    #[test]
    fn with_next_to_no_memory_little_is_left_of_the_buffer() {
        let without = pio(&PIO, &queue(), &TIMES);
        // One page: η = log_100(10^7) = 3.5, so three levels, leaves among them, are not in memory, and a tenth of the
        // 10 nodes above is.
        // Search (2 + 0.9) · 100 + 150 = 440.
        let root_only = pio_buffered(&PIO, &queue(), 1.0, &TIMES);
        close(root_only.search, 440.0);
        assert!(root_only.insert < without.insert && root_only.insert > without.insert - 0.01);
    }

    #[test]
    fn utility_over_cost_is_equation_3() {
        // log2(1024) = 10.
        close(utility_per_cost(1024.0, 50.0), 0.2);
    }
}
