//! A trie as the layer above uses it, on a simulated disk.

#[path = "../common/mod.rs"]
mod common;

mod crash;
mod deep;
mod failure;
mod hidden;
mod model;
mod rewrite;
mod scan;
