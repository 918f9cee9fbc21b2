//! The braid command.
fn main() {}
