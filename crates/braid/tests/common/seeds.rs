//! Which seeds a test runs, and what it says of those that failed.

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

/// Runs `test` for as many seeds as the environment asks for: `{prefix}_SEED` is one seed, `{prefix}_SEEDS` says how
/// many, from
/// `{prefix}_FIRST` on. Panics if one fails, and says how to repeat it.
pub(crate) fn run_all(prefix: &str, target: &str, usual: u64, test: impl Fn(u64) -> Result<(), String>) {
    let (first, count) = match number(&format!("{prefix}_SEED")) {
        Some(seed) => (seed, 1),
        None => (number(&format!("{prefix}_FIRST")).unwrap_or(0), number(&format!("{prefix}_SEEDS")).unwrap_or(usual)),
    };
    let mut failures = Vec::new();
    for seed in first..first + count {
        if let Err(problem) = test(seed) {
            eprintln!("{problem}\n  repeat with: {prefix}_SEED={seed} cargo test -p braid --test {target}");
            failures.push(seed);
        }
    }
    assert!(failures.is_empty(), "{} of {count} seeds failed: {failures:?}", failures.len());
}
