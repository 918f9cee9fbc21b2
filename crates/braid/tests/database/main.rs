//! A database as its users meet it: every part of its interface, on a simulated disk that loses power and fails.
//!
//! Tests with commands of their own, and those that put a bug into the whole process, are programs beside this one.

#[macro_use]
#[path = "../common/structures.rs"]
mod structures;
#[macro_use]
#[path = "../common/simplest.rs"]
mod simplest;

#[path = "../common/beside.rs"]
mod beside;
#[allow(clippy::allow_attributes, dead_code, reason = "each test program uses a part")]
#[path = "../common/content.rs"]
mod content;
#[path = "../common/seeds.rs"]
mod seeds;
#[path = "../common/values.rs"]
mod values;
#[path = "../common/walks.rs"]
mod walks;
#[path = "../common/whole.rs"]
mod whole;

mod backup;
mod behaviour;
mod changes;
mod cleaning;
mod compact;
mod compact_beside;
mod compression;
mod device;
mod documents;
mod ends;
mod expiry;
mod flush_scheme;
mod format_document;
mod gaps;
mod garbled_reads;
mod history;
mod in_place;
mod inline;
mod load;
mod loans;
mod long_commits;
mod open;
mod range_delete;
mod renewal;
mod rest;
mod rounds;
mod salvage;
mod snapshots;
mod threads;
mod tickets;
mod transactions;
mod verify;
