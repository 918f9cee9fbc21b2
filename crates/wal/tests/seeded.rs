//! The crash property finds a log that reports a flush complete over a hole. Its own binary, for the switch is
//! process-wide.

mod common;

use common::crash;
use seeded::Bug;

#[test]
fn a_flush_over_a_hole_is_found() {
    seeded::set(Some(Bug::FlushOverHole));
    let found = (0..400).find_map(|seed| crash::run(seed).err().map(|broken| (seed, broken)));
    let (seed, broken) = found.expect("the crash property does not see a flush over a hole");
    println!("seed {seed}: {broken}");
}
