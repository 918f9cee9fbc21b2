//! Concurrent transactions, searched for isolation anomalies: transactions open beside one another in one thread, in an
//! order that a seed
//! gives, and threads that race, while rounds, checkpoints and compactions go on and the database is closed, killed or
//! loses power.
//!
//! `BRAID_HISTORY_SEED=N` runs one seed; `BRAID_HISTORY_SEEDS=N` runs that many, from `BRAID_HISTORY_FIRST` on. The
//! history of a seed that
//! fails is kept.

#[path = "../common/seeds.rs"]
mod seeds;
mod store;
mod world;

#[test]
fn transactions_get_what_they_were_promised() {
    seeds::run_all("BRAID_HISTORY", "histories", 300, world::interleaved);
}

#[test]
fn threads_get_it_too() {
    seeds::run_all("BRAID_HISTORY_THREADS", "histories", 6, world::threads);
}
