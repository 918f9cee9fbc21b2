//! The crash property finds every known bug of a log that is put in on purpose. Its own binary, for the switch is
//! process-wide.

mod common;

use common::crash;
use seeded::Bug;

#[test]
fn every_known_bug_of_a_log_is_found() {
    for bug in Bug::OF_LOGS {
        seeded::set(Some(bug));
        let found = (0..4000).find_map(|seed| crash::run(seed).err().map(|broken| (seed, broken)));
        seeded::set(None);
        let (seed, broken) = found.unwrap_or_else(|| panic!("the crash property does not see {bug:?}"));
        println!("{bug:?}: seed {seed}: {broken}");
    }
}
