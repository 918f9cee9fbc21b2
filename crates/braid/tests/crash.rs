//! Simulated crashes: after power is lost anywhere, everything acknowledged is there, whole and in order.
//!
//! `BRAID_CRASH_SEED=N` runs one seed; `BRAID_CRASH_SEEDS=N` runs that many, from `BRAID_CRASH_FIRST` on.

mod common;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

#[test]
fn nothing_acknowledged_is_lost() {
    let (first, count) = match number("BRAID_CRASH_SEED") {
        Some(seed) => (seed, 1),
        None => (number("BRAID_CRASH_FIRST").unwrap_or(0), number("BRAID_CRASH_SEEDS").unwrap_or(200)),
    };
    let mut failures = Vec::new();
    for seed in first..first + count {
        if let Err(problem) = common::run(seed) {
            eprintln!("{problem}\n  repeat with: BRAID_CRASH_SEED={seed} cargo test -p braid --test crash");
            failures.push(seed);
        }
    }
    assert!(failures.is_empty(), "{} of {count} seeds failed: {failures:?}", failures.len());
}
