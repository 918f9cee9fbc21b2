//! A full disk refuses commits and does nothing else: what is there stays, deletes go on, and with room again so do
//! puts.

#[macro_use]
#[path = "../common/structures.rs"]
mod structures;
#[path = "../common/seeds.rs"]
mod seeds;

mod faults;
mod model;
mod mounted;
mod simulated;
mod slices;
