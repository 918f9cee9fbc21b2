//! The change feed: what it shows leads another database through the same states, over checkpoints, crashes and
//! reopenings; what is not kept
//! is told; and it keeps up with writers.

#[macro_use]
#[path = "../common/structures.rs"]
mod structures;

#[path = "../common/content.rs"]
#[allow(clippy::allow_attributes, dead_code, reason = "each test binary uses a part")]
mod content;
mod follow;
mod kept;
mod model;
mod replica;
#[path = "../common/seeds.rs"]
mod seeds;

#[test]
fn a_follower_goes_through_the_same_states() {
    seeds::run_all("BRAID_CHANGES", "changes", 150, model::run);
}
