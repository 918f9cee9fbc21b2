//! Power goes at random, in work and in recovery; nothing that was promised is lost.

mod common;

use common::crash;

#[test]
fn what_was_flushed_survives_every_crash() {
    for seed in crash::seeds::seeds(400) {
        if let Err(broken) = crash::run(seed) {
            panic!("{broken}; again with BRAID_SEEDS={seed}..{}", seed + 1);
        }
    }
}
