//! The simulated crashes find every known bug that is put in on purpose. One test in a process of its own: the switch
//! is global.

mod common;
#[path = "common/in_order.rs"]
mod in_order;
#[path = "common/walks.rs"]
mod walks;

use std::panic::{AssertUnwindSafe, catch_unwind};

use seeded::Bug;

/// Every bug has to show within so many seeds.
const SEEDS: u64 = 3000;

#[test]
fn every_known_bug_turns_the_crash_test_red() {
    Bug::ALL.into_iter().for_each(|bug| finds(bug, common::run));
    Bug::OF_FILLS.into_iter().for_each(|bug| finds(bug, in_order::run));
    Bug::OF_WALKS.into_iter().for_each(|bug| finds(bug, walks::run));
}

fn finds(bug: Bug, run: fn(u64) -> Result<(), String>) {
    seeded::set(Some(bug));
    let found = (0..SEEDS).find_map(|seed| match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(Ok(())) => None,
        Ok(Err(problem)) => Some(problem),
        Err(_) => Some(format!("seed {seed}: a panic")),
    });
    seeded::set(None);
    match found {
        Some(problem) => eprintln!("{bug:?} shows: {problem}"),
        None => panic!("{bug:?} stayed hidden through {SEEDS} seeds"),
    }
}
