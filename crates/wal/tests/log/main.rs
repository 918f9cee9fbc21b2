//! A log as the layer above uses it, on a simulated disk.

#[path = "../common/mod.rs"]
mod common;

mod closed;
mod concurrent;
mod damage;
mod full;
mod growing;
mod long;
mod model;
mod parts;
mod quiet;
mod reader;
mod recycled;
