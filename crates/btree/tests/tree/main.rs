//! A tree as the layer above uses it, on a simulated disk.

#[path = "../common/mod.rs"]
mod common;

mod cost;
mod damage;
mod discard;
mod documents;
mod failure;
mod filling;
mod load;
mod long_entries;
mod model;
mod parts;
mod readers;
mod scan;
mod search;
mod uncached;
mod underflow;
