//! The handles of users: databases, tables, batches, ranges, transactions, loaders, followers of changes, and figures.

pub(crate) mod at;
pub(crate) mod batch;
pub(crate) mod changes;
pub(crate) mod compaction;
pub(crate) mod contents;
pub(crate) mod cursor;
pub(crate) mod database;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod lookup;
pub(crate) mod range;
pub(crate) mod roll_back;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod ticket;
pub(crate) mod transaction;
pub(crate) mod writes;
