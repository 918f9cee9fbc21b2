//! Simulated crashes: after power is lost anywhere, everything acknowledged is there, whole and in order.
//!
//! `BRAID_CRASH_SEED=N` runs one seed; `BRAID_CRASH_SEEDS=N` runs that many, from `BRAID_CRASH_FIRST` on.

mod common;
#[path = "common/seeds.rs"]
mod seeds;

#[test]
fn nothing_acknowledged_is_lost() {
    seeds::run_all("BRAID_CRASH", "crash", 200, common::run);
}
