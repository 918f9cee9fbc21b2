//! A database does what a map does, whatever is done to it: random operations, splits, joins, mass deletes, rounds,
//! checkpoints,
//! reopening, power cuts and kills, on a simulated disk.
//!
//! 1. A seed decides a case: the shape of the tree, the steps ([`steps`]), and what a power cut leaves. The database
//!    runs without
//!    background threads, so a seed repeats exactly.
//! 2. [`world`] takes the steps and holds the database against a map. Every commit is `Sync`: after a power cut all of
//!    them
//!    are there, and the one that the power interrupted is there whole or not at all.
//! 3. A case that fails is made smaller before it is told.
//!
//! `BRAID_PROPERTY_SEED=N` runs one seed; `BRAID_PROPERTY_SEEDS=N` runs that many, from `BRAID_PROPERTY_FIRST` on.

#[path = "../common/content.rs"]
mod content;
#[path = "../common/seeds.rs"]
mod seeds;
mod steps;
#[path = "../common/values.rs"]
mod values;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use steps::{Case, Order, Range, Shape, Size, Step};

/// Runs a seed's case; the error has the smallest case found that fails too.
fn run(seed: u64) -> Result<(), String> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let case = steps::case().new_tree(&mut runner).map_err(|reason| format!("seed {seed}: {reason}"))?;
    let outcome = runner.run_one(case, |case| {
        let outcome = catch_unwind(AssertUnwindSafe(|| world::run(seed, &case)));
        outcome.unwrap_or_else(|_| Err("a panic".into())).map(|_| ()).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(_) => Ok(()),
        Err(TestError::Fail(reason, case)) => Err(format!("seed {seed}: {reason}, in {case:#?}")),
        Err(TestError::Abort(reason)) => Err(format!("seed {seed}: {reason}")),
    }
}

#[test]
fn a_database_is_a_map() {
    seeds::run_all("BRAID_PROPERTY", "property", 200, run);
}

/// The steps do what they are for: trees grow high, lose their height, and give everything back.
#[test]
fn cases_reach_what_they_are_for() {
    let fill = |shape, size| Step::Fill { shape, from: 0, count: 700, size, expire: None, at_once: false };
    let clear = |order| Step::Clear { range: Range::all(), keep: 0, order };
    let steps = vec![
        fill(Shape::Far, Size::Small(40)),
        fill(Shape::Dense, Size::Inline(900)),
        Step::Drain,
        clear(Order::Shuffled),
        fill(Shape::Dense, Size::Document(3000)),
        Step::Checkpoint,
        Step::Crash { after: 0 },
        clear(Order::Falling),
        Step::RollBack { which: 0 },
        clear(Order::Rising),
    ];
    // Even seeds have the one structure, odd ones the other.
    for (seed, leaf_pages, height) in [(0, 1, 5), (0, 4, 4), (1, 1, 2)] {
        let case = Case { leaf_pages, segment_bytes: 64 << 10, steps: steps.clone() };
        let seen = world::run(seed, &case).expect("a map");
        assert!(seen.height >= height, "{seen:?}");
        assert_eq!(seen.rollbacks, usize::from(seed % 2 == 1), "{seen:?}");
        assert!(seen.crashes >= 2 && seen.emptied >= 2, "{seen:?}");
    }
}
