//! Braid: an embedded, ordered key-value store for flash SSDs that hands the device a batch on every path.
//!
//! ```
//! # fn main() -> braid::Result<()> {
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let path = directory.path().join("data");
//! use braid::{Database, Structure, WriteBatch};
//!
//! let db = Database::open(&path)?;
//! let users = db.table("users", Structure::BTree)?;
//! users.put(b"ada", b"1815")?; // durable when it returns
//! users.put(b"grace", b"1906")?;
//! assert_eq!(users.get(b"ada")?.as_deref(), Some(&b"1815"[..]));
//! let found = users.get_many(&["ada", "alan"])?; // one batch for the device
//! assert_eq!(found, [Some(b"1815".to_vec()), None]);
//! for pair in users.range("a".."z").rev() {
//!     let (key, value) = pair?;
//!     println!("{key:?} {value:?}");
//! }
//! let mut batch = WriteBatch::new(); // atomic, across tables too
//! batch.delete(&users, "ada");
//! batch.put(&db.table("retired", Structure::BTree)?, "ada", "1852");
//! db.write(batch)?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! 1. A commit takes log space and its sequence number in one step, is made as safe as its [`Durability`] asks together with
//!    everybody who waits with it, and becomes visible in that order (`engine`, `publish`).
//! 2. Its operations wait in their tables' operation queues (`opq`) until the background worker applies a whole queue to
//!    the table's structure in one sweep of batched I/O (`worker`).
//! 3. A reader takes {queues, structure} of its table as one unit and asks newest first (`table`, `walk`).
//! 4. Sorted pairs for an empty table go past log and queue (`load`), and a table can be rebuilt in key order (`compact`).
//! 5. What was committed can be followed, in order, out of the log (`changes`), as far back as the log is kept (`retention`).
//! 6. A backup is a snapshot, or what the log says changed since another backup, written out as blocks (`backup`).
//! 7. A checkpoint keeps roots and free list so that the log can be trimmed; opening replays what came after it (`checkpoint`,
//!    `recovery`).
//!
//! # What is guaranteed
//!
//! After a crash at any instruction, with any subset of unflushed sectors lost or torn: every commit acknowledged under
//! [`Durability::Sync`] is there, whole; none is there in part; what is there is a prefix of the order of commits; what was
//! deleted stays deleted. Damage that a crash can't explain is detected by checksum and named with file and offset.

mod applied;
mod at;
mod backlog;
mod backup;
mod batch;
mod carry_out;
mod catalog;
mod changes;
mod checkpoint;
mod choice;
mod clean;
mod clock;
mod commit;
mod compact;
mod convert;
mod database;
mod documents;
mod engine;
mod error;
mod expiry;
mod fields;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gaps;
mod garbage;
mod health;
mod hidden;
mod history;
mod keeper;
mod key_range;
mod learned;
mod load;
mod loans;
mod open;
mod opq;
mod options;
mod pieces;
mod pinned;
mod pressure;
mod publish;
mod range;
mod recent;
mod recovery;
mod relocate;
mod rest;
mod retention;
mod roll_back;
mod round;
mod salvage;
mod schema;
mod signal;
mod snapshot;
mod stats;
mod superblock;
mod swap;
mod sweep;
mod table;
mod threads;
mod traffic;
mod transaction;
mod tree;
mod tuning;
mod verify;
mod verify_storage;
mod walk;
mod worker;

pub use at::TableAt;
pub use backup::{
    Backup, BackupKind, BackupPoint, BackupProgress, BackupReport, BackupSummary, RestoreProgress, RestoreReport,
    RestoreSummary,
};
pub use batch::WriteBatch;
pub use changes::{Change, ChangeEvent, ChangeOperation, ChangedTable, Changes};
pub use clock::Expires;
#[doc(hidden)]
pub use clock::SetClock;
pub use commit::{KEY_BYTES_MAX_APPEND, KEY_BYTES_MAX_BTREE, VALUE_BYTES_MAX};
pub use compact::{CompactOptions, CompactProgress, CompactReport, Compaction, SUBMISSION_BATCH_MAX};
pub use database::{Database, TableInfo};
pub use doclog::Compression;
pub use error::{Error, ErrorKind, Result};
pub use format::TableSettings;
pub use history::{CommitHeader, HISTORY_MAX};
pub use index::Seq;
pub use learned::DeviceStats;
pub use load::Loader;
pub use options::{Durability, Options, Structure, TableOptions};
pub use pinned::Pinned;
pub use psync::{
    BackendKind,
    probe::{DeviceProfile, LearnedFigure, LearnedProfile, RequestKind},
};
pub use range::{Entry, Range};
pub use relocate::CompactionTimes;
pub use salvage::{LostCommits, LostDocument, LostRange, Salvage, SalvageProgress, SalvagedTable, salvage, salvage_on};
pub use schema::TABLE_NAME_BYTES_MAX;
pub use snapshot::{Snapshot, SnapshotStats};
pub use stats::{CacheStats, LogStats, Recovery, SpaceStats, Stats, StreamStats, TableStats};
pub use table::{Swap, Table};
pub use transaction::{Isolation, Savepoint, Transaction, TransactionOptions, TransactionRange};
pub use tuning::ProfileSource;
pub use verify::{Verification, VerifyProgress};
pub use wal::FlushScheme;
