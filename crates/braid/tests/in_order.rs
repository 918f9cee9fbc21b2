//! Crashes while a table is filled in order, where leaves are packed at the end at which the table grows.
//!
//! `BRAID_IN_ORDER_SEED=N` runs one seed; `BRAID_IN_ORDER_SEEDS=N` runs that many, from `BRAID_IN_ORDER_FIRST` on.

#[path = "common/in_order.rs"]
mod in_order;
#[path = "common/seeds.rs"]
mod seeds;

#[test]
fn a_fill_in_order_loses_nothing_acknowledged() {
    seeds::run_all("BRAID_IN_ORDER", "in_order", 150, in_order::run);
}
