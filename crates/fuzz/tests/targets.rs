//! Every target takes valid encodings, what is kept, and some thousands of changes of them: the same each time.
//!
//! `BRAID_FUZZ_SEED=N` runs one seed; `BRAID_FUZZ_SEEDS=N` runs that many a target.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fuzz::{Target, bytes_max, changed, target, targets};

/// Changes of a target that costs microseconds.
const USUAL: u64 = 4000;

/// Of one that opens files.
const USUAL_OF_FILES: u64 = 150;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

fn seeds(target: &Target) -> std::ops::Range<u64> {
    let files = target.name.contains("_open_") || target.name.ends_with("_segment");
    let usual = if files { USUAL_OF_FILES } else { USUAL };
    match number("BRAID_FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BRAID_FUZZ_SEEDS").unwrap_or(usual),
    }
}

#[test]
fn no_target_minds_changed_bytes() {
    let mut failures = Vec::new();
    for target in targets() {
        let inputs = [target.valid(), target.kept().expect("the corpus is there")].concat();
        assert!(!inputs.is_empty(), "{} has nothing to begin with", target.name);
        inputs.iter().for_each(|input| target.run(input));
        for seed in seeds(&target) {
            let input = changed(&inputs, seed);
            if catch_unwind(AssertUnwindSafe(|| target.run(&input))).is_err() {
                eprintln!(
                    "repeat with: BRAID_FUZZ_SEED={seed} cargo test -p braid-fuzz --test targets ({})",
                    target.name
                );
                failures.push((target.name, seed));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn names_are_those_of_targets_and_of_no_two() {
    let mut names: Vec<_> = targets().iter().map(|target| target.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(names.iter().all(|name| target(name).is_some()) && target("nothing").is_none());
}

#[test]
fn a_seed_changes_the_same_each_time_and_changes_something() {
    let inputs = vec![vec![7; 100], (0..200).collect()];
    let outputs: Vec<_> = (0..200).map(|seed| changed(&inputs, seed)).collect();
    assert_eq!(outputs, (0..200).map(|seed| changed(&inputs, seed)).collect::<Vec<_>>());
    let same = outputs.iter().filter(|output| inputs.contains(output)).count();
    assert!(same < 40, "{same} of 200 are unchanged");
}

#[test]
fn memory_is_counted() {
    let taken = allocation_counter::measure(|| drop(vec![1_u8; 3 << 20])).bytes_max;
    assert!((3 << 20..4 << 20).contains(&taken), "{taken}");
    assert!(bytes_max(100, 0) < 1 << 20);
}
