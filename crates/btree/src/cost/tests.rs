use psync::probe::{DeviceProfile, ReadCost, WriteCost};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::ours::shared;
use super::*;

fn profile() -> DeviceProfile {
    DeviceProfile::default()
}

fn workload(insert_share: f64) -> Workload {
    Workload {
        records: 20_000_000,
        record_bytes: 116,
        insert_share,
        batched_share: 0.0,
        memory: Memory::Divided { cache_bytes: 64 << 20, write_buffer_bytes: 64 << 20 },
    }
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-5 * expected.abs(), "{found} instead of {expected}");
}

#[test]
fn operations_share_nodes_before_there_are_as_many() {
    // 1 of 1: 1 / (1 - 1/e) = 1.5819767. A hundred on each: 100. Far fewer than nodes: 1.
    close(shared(1.0, 1.0), 1.581_976_7);
    close(shared(100.0, 1.0), 100.0);
    close(shared(1.0, 1e12), 1.0);
    assert!(shared(f64::MIN_POSITIVE, f64::MAX) >= 1.0);
}

/// All terms for L = 4, worked out by hand on figures that are easy to follow.
#[test]
fn every_term_is_what_the_formula_says() {
    let profile = DeviceProfile {
        reads: LEAF_PAGES.map(|pages| ReadCost { pages, alone_us: 100.0, batched_us: 10.0 * pages as f64 }).to_vec(),
        writes: LEAF_PAGES.map(|pages| WriteCost { pages, alone_us: 50.0, batched_us: 20.0 * pages as f64 }).to_vec(),
        ..DeviceProfile::default()
    };
    let found = estimate(&profile, &workload(0.25), 4, 4 << 20, 64 << 20);
    // 120 B an entry: 20e6 · 120 / (4 · 4096 · ln 2) = 211 332.28 leaves. Two of their pages are sorted, with 68
    // entries, so there is room for 136 and a filter has 17 words and two ends.
    // One leaf takes 24 + 4 + 144 B of a node's 4096 · ln 2 - 120: 15.808900 children. A node takes 14 B in the one
    // above: 194.22363. So there are 13367.931, 68.827518 and 1 nodes above.
    close(found.leaves, 211_332.28);
    close(found.nodes, 13_437.758);
    // A node takes 4096 · ln 2 · 1.05 = 2981.0874 B of memory; 4 MiB hold 1406.9712. Less 69.827518 for the two upper
    // levels they leave 1337.1437 of 13367.931 nodes: 0.10002623.
    close(found.nodes_cached, 1406.9712 / 13_437.758);
    assert_eq!(found.leaves_cached, 0.0);
    // One reader waits 100 for a page, of eight each 12.5, and thirty-two wait for the device's throughput, 10 a page:
    // 40.833333 in the mean.
    close(found.search.nodes_us, 36.748_929);
    // One lookup in five finds that its key is absent without a read. The filter has 94.637695 entries in 1088 bits, so
    // (1 - e^-(4 · 94.637695 / 1088))^4 = 0.00745631 read a page in vain. Each page is checked.
    close(found.search.leaf_us, (0.8 + 0.00745631) * (40.833_333 + 0.25));
    // A leaf has 94.637695 records on 2.7725887 pages: 50 of them are in 1.5283307 leaves. The device brings these in
    // 42.374325. So one reader waits 100, and any of many so long. All pages are checked.
    close(found.search.scan_us, 61.582_883 + 0.25 * 1.528_330_7 * 2.772_588_7);
    let search = 36.748_929 + 0.9 * 33.172997 + 0.1 * 62.642_241;
    close(found.search.total_us, search);
    // 64 MiB hold 0.8 of operations of 156 B, and where a round takes them twice as many wait: n = 688296.04. x = n /
    // 211 332.28 = 3.2569375; x / (1 - e^-x) = 3.3873722 share a leaf.
    close(found.shared, 3.387372);
    // 51.488601 share a node of level 1, 10000.303 of level 2, all share the root. Read (1 - 0.10002623) · 10 /
    // 51.488601; write 20 / each.
    close(found.insert.node_reads_us, 0.174_790_88);
    close(found.insert.node_writes_us, 0.390_464_49);
    // 3.3873722 · 120 / 4096 = 0.099239419 pages come at a time, 2 fit: 0.049619710 of the leaves are rewritten.
    // Append (10 + 20 · 1.099239419) · (1 - 0.049619710) / 3.3873722.
    // Rewrite (10 · 4 + 20 · 5.099239419) · 0.049619710 / 3.3873722.
    close(found.insert.append_us, 8.973833);
    close(found.insert.rewrite_us, 2.079855);
    // A round takes a 32nd of them: 21509.251 share two flushes of 500.
    close(found.insert.flush_us, 0.04649162);
    let total = 8.973833 + 2.079855 + 0.174_790_88 + 0.390_464_49 + 0.04649162;
    close(found.insert.total_us, total);
    close(found.total_us, 0.75 * search + 0.25 * total);
    // Pages of leaves and nodes: 4 · 211 332.28 + 13 437.758, of 4096 B, for 20e6 · 120 B. A tenth more counts as a
    // fortieth of the time.
    close(found.space, 1.465_628_8);
    close(found.cost_us, found.total_us * (1.0 + 0.25 * 0.465_628_8));
    // Half of the lookups in batches: 10 for a node, and for the page of a leaf.
    let batched = Workload { batched_share: 0.5, ..workload(0.25) };
    let found = estimate(&profile, &batched, 4, 4 << 20, 64 << 20);
    close(found.search.nodes_us, 22.874_333);
    close(found.search.leaf_us, 0.5 * 33.172997 + 0.5 * 8.276427);
    // Nothing inserted: 116 B an entry, in leaves that are full to 3840 / 4096.
    let loaded = estimate(&profile, &workload(0.0), 4, 8 << 20, 64 << 20);
    close(loaded.leaves, 20e6 * 116.0 / (4.0 * 3840.0));
}

#[test]
fn the_papers_figure_stands_beside_ours() {
    let found = estimate(&profile(), &workload(0.5), 4, 64 << 20, 64 << 20);
    // All internal nodes are in memory: a leaf, P_r(4) = 80 + 3 · 3, less the part of its pages that 16 384 pages are:
    // 1 - 16384 / 845329.13.
    close(found.paper_search_us, 89.0 * (1.0 - 16_384.0 / 845_329.13));
    // 0.8 · 64 MiB / 156 B = 344148.02 operations on 211 332.28 leaves: G = 1.6284688. On 1943.0132 and 10.004000 nodes
    // and the root G is larger (bounded by all), and none of these is read.
    close(found.paper_insert_us, 16.0 / 1.6284688);
    close(found.paper_us, (found.paper_search_us + found.paper_insert_us) / 2.0);
}

#[test]
fn lookups_want_small_leaves_and_puts_large_ones() {
    let chosen = |insert_share| choose(&profile(), &workload(insert_share)).leaf_pages;
    assert!(chosen(0.0) <= chosen(0.5) && chosen(0.5) <= chosen(1.0));
    assert!(chosen(0.0) <= 8, "{}", chosen(0.0));
    assert!(chosen(1.0) >= 16, "{}", chosen(1.0));
    let batched = Workload { batched_share: 1.0, ..workload(0.1) };
    assert!(choose(&profile(), &batched).leaf_pages <= 8);
}

/// A database that measures on another day, or beside a neighbour, may be off by a tenth in every figure.
#[test]
fn a_profile_that_is_measured_again_chooses_the_same() {
    let usual = Workload { records: 10_000_000, record_bytes: 128, ..workload(0.5) };
    let expected = choose(&profile(), &usual).leaf_pages;
    let mut random = SmallRng::seed_from_u64(1);
    let same = (0..1000).filter(|_| {
        let mut noisy = || random.random_range(0.95..1.05);
        let mut measured = profile();
        for read in &mut measured.reads {
            (read.alone_us, read.batched_us) = (read.alone_us * noisy(), read.batched_us * noisy());
        }
        for write in &mut measured.writes {
            (write.alone_us, write.batched_us) = (write.alone_us * noisy(), write.batched_us * noisy());
        }
        choose(&measured, &usual).leaf_pages == expected
    });
    let same = same.count();
    assert!(same >= 900, "{same} of 1000 profiles choose {expected} pages");
}

#[test]
fn noise_of_a_percent_changes_nothing() {
    // Reads cost the same whatever their size: the smallest leaves of the equal ones are taken, also when others
    // measured a little less.
    let noisy = |pages: usize| 100.0 - if pages == 8 { 0.9 } else { 0.0 };
    let reads = LEAF_PAGES.map(|pages| ReadCost { pages, alone_us: noisy(pages), batched_us: noisy(pages) }).to_vec();
    let profile = DeviceProfile { reads, ..profile() };
    let all_in_memory = Memory::Divided { cache_bytes: 1 << 30, write_buffer_bytes: 64 << 20 };
    let lookups = Workload { records: 100_000_000, memory: all_in_memory, ..workload(0.0) };
    assert_eq!(choose(&profile, &lookups).leaf_pages, 1);
}

#[test]
fn memory_is_divided_by_what_it_is_for() {
    let divided = |insert_share| {
        let memory = Memory::Total { bytes: 256 << 20 };
        let choice = choose(&profile(), &Workload { memory, ..workload(insert_share) });
        assert_eq!(choice.cache_bytes + choice.write_buffer_bytes, 256 << 20);
        choice.write_buffer_bytes
    };
    assert_eq!(divided(0.0), 8 << 20);
    // More than half only where nothing is looked up.
    assert_eq!(divided(0.999), 128 << 20);
    assert!((192 << 20..=224 << 20).contains(&divided(1.0)), "{}", divided(1.0));
    assert!((8 << 20..=128 << 20).contains(&divided(0.5)));
}

#[test]
fn any_figures_make_a_choice() {
    let broken = DeviceProfile { reads: Vec::new(), writes: Vec::new(), best_depth: 0, ..profile() };
    for profile in [profile(), broken] {
        for (records, record_bytes, share) in
            [(0, 0, 0.0), (u64::MAX, u64::MAX, f64::NAN), (1, 1 << 20, -3.0), (1 << 50, 8, 7.0)]
        {
            for memory in [
                Memory::Total { bytes: 0 },
                Memory::Total { bytes: u64::MAX },
                Memory::Divided { cache_bytes: 0, write_buffer_bytes: 0 },
            ] {
                let workload = Workload { records, record_bytes, insert_share: share, batched_share: share, memory };
                let choice = choose(&profile, &workload);
                assert!(LEAF_PAGES.contains(&(choice.leaf_pages as usize)));
                assert!(PIO_MAX_BOUNDS.contains(&choice.pio_max));
                assert!(choice.estimates.iter().all(|of| of.total_us.is_finite() && of.total_us >= 0.0));
                assert!(choice.estimates.iter().all(|of| of.paper_us.is_finite() && of.paper_us >= 0.0));
            }
        }
    }
}

#[test]
fn a_plain_tree_has_the_node_size_with_the_least_cost() {
    // Reads of any size cost the same, writes by their pages. Lookups alone favour the largest nodes, inserts the
    // smallest.
    let reads = LEAF_PAGES.map(|pages| ReadCost { pages, alone_us: 100.0, batched_us: 10.0 }).to_vec();
    let cost = |pages: usize| WriteCost { pages, alone_us: 500.0 * pages as f64, batched_us: 1.0 };
    let profile = DeviceProfile { reads, writes: LEAF_PAGES.map(cost).to_vec(), ..profile() };
    let choice = |insert_share| node_pages(&profile, 1_000_000_000, 16, 16 << 20, insert_share);
    assert_eq!(choice(1.0).pages, 1);
    assert_eq!(choice(0.0).pages_by_utility, 64);
    // One page, loaded: F' = 256 · 15/16 = 240; M = 4096; η = log_240(10^9 / 4096) - 1 = 1.2635134; Cvrg =
    // 240^-0.2635134 = 0.23592960: (1 + 1 - 0.23592960) · 100 = 176.407040.
    close(choice(0.0).costs[0].1, 176.407040);
}
