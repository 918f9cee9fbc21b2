//! The change feed: what it shows leads another database through the same states, over checkpoints, crashes and
//! reopenings; what is not kept
//! is told; and it keeps up with writers.

mod follow;
mod kept;
mod model;
mod replica;

#[test]
fn a_follower_goes_through_the_same_states() {
    crate::seeds::run_all("BRAID_CHANGES", "database changes", 150, model::run);
}
