//! The `braid` binary from outside: what people and scripts rely on.

mod backup;
mod bench;
mod common;
mod compression;
mod device;
mod exits;
mod help;
mod history;
mod inline_bytes;
mod kill9;
mod load;
mod records;
mod reproduce;
mod tour;
mod ycsb;
