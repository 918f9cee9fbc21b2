//! Cleaning of document segments: live documents move, dead ones give their space back, and nobody notices.

#[macro_use]
#[path = "../common/structures.rs"]
mod structures;

mod inline;
#[path = "../common/whole.rs"]
mod whole;

mod background;
mod by_hand;
mod faults;
mod model;
