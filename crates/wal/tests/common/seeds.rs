//! Which seeds a test of crashes runs.

/// Seeds to run: `BRAID_SEEDS=from..to`, or so many from 0.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("BRAID_SEEDS") else { return 0..count };
    let (from, to) = text.split_once("..").expect("BRAID_SEEDS is from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}
