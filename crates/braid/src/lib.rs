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
//! db.write(&batch)?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! 1. A commit takes log space and its sequence number in one step. It is made as safe as its [`Durability`] asks,
//!    together with all commits that wait at the same time. Commits become visible in the order of sequence numbers
//!    (`commit`, `engine::publish`).
//! 2. The operations of a commit wait in the operation queues of their tables (`opq`) until the background worker
//!    applies a whole queue to the table's structure in one sweep of batched I/O (`upkeep::worker`, `apply::round`).
//! 3. A reader takes {queues, structure} of a table as one unit and searches newest first (`read`).
//! 4. Sorted pairs for an empty table bypass log and queue (`handles::load`), and a table can be rebuilt in key order
//!    (`upkeep::compact`).
//! 5. Committed changes can be read from the log in order (`handles::changes`), as far back as the log is kept
//!    (`engine::retention`).
//! 6. A backup is a snapshot, or the changes in the log since another backup, written as blocks (`backup`).
//! 7. A checkpoint keeps roots and free list so that the log can be trimmed; opening replays the log after the
//!    checkpoint (`upkeep::checkpoint`, `open::recovery`).
//!
//! # Features
//!
//! All are on by default. A database opens alike with any of them.
//!
//! | feature | with it | without it |
//! |---|---|---|
//! | `lz4` | [`Compression::Lz4`] | tables cannot ask for it; values stored so are [`Error::MissingFeature`] |
//! | `zstd` | [`Compression::Zstd`]; needs a C compiler | the same |
//! | `serde` | statistics, costs and profiles are `Serialize` | they are plain structs |
//! | `tracing` | what goes wrong in the background is an event of crate `tracing` | nobody is told |
//!
//! Braid runs on Linux alone.
//!
//! # What is guaranteed
//!
//! After a crash at any instruction, with any subset of unflushed sectors lost or torn:
//!
//! - Every commit acknowledged under [`Durability::Sync`] is there, whole.
//! - No commit is there in part.
//! - The commits that are there are a prefix of the order of commits.
//! - Deleted keys stay deleted.
//!
//! Damage that a crash can't explain is detected by checksum and named with file and offset.

mod apply;
mod backup;
mod commit;
mod engine;
mod error;
mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handles;
mod open;
mod opq;
mod options;
mod read;
mod root;
mod salvage;
mod structures;
mod tables;
mod upkeep;
mod verify;
mod words;

pub use backup::{
    Backup, BackupKind, BackupPoint, BackupProgress, BackupReport, BackupSummary, RestoreProgress, RestoreReport,
    RestoreSummary,
};
pub use commit::VALUE_BYTES_MAX;
pub use commit::schema::TABLE_NAME_BYTES_MAX;
pub use doclog::Compression;
pub use engine::snapshot::SnapshotStats;
pub use engine::tuning::ProfileSource;
pub use engine::{counters::Recovery, delays::DelayStats, learned::DeviceStats};
pub use error::{Error, ErrorKind, Result};
pub use format::TableSettings;
pub use handles::at::TableAt;
pub use handles::batch::WriteBatch;
pub use handles::changes::{Change, ChangeEvent, ChangeOperation, ChangedTable, Changes};
pub use handles::cursor::Cursor;
pub use handles::database::{Database, TableInfo};
pub use handles::load::Loader;
pub use handles::lookup::{Lookup, LookupMany};
pub use handles::range::{Entry, Range};
pub use handles::snapshot::Snapshot;
pub use handles::stats::{
    CacheStats, LogStats, NodeLookups, SpaceStats, Stats, StreamStats, StructureCacheStats, TableStats,
};
pub use handles::table::Table;
pub use handles::ticket::Ticket;
pub use handles::transaction::{Isolation, Savepoint, Transaction, TransactionOptions, TransactionRange};
pub use handles::writes::Swap;
pub use index::{Figure, Seq, Unit};
pub use options::{HISTORY_MAX, Options, TableHints, TableOptions};
pub use psync::{
    BackendKind, Error as IoError,
    probe::{DeviceProfile, LearnedFigure, LearnedProfile, RequestKind},
};
pub use read::pinned::Pinned;
pub use salvage::{LostCommits, LostDocument, LostRange, Salvage, SalvageProgress, SalvagedTable, salvage, salvage_on};
pub use tables::history::CommitHeader;
pub use upkeep::compact::{CompactOptions, CompactProgress, CompactReport, Compaction, SUBMISSION_BATCH_MAX};
pub use upkeep::relocate::CompactionTimes;
pub use verify::{Verification, VerifyProgress};
pub use wal::FlushScheme;
pub use words::clock::{Expires, ManualClock};
pub use words::{durability::Durability, structure::Structure};

// Handles go from thread to thread, and those that are read through are shared by threads.
const _: () = {
    const fn sent<T: Send>() {}
    const fn shared<T: Send + Sync>() {}
    shared::<Database>();
    shared::<Table>();
    shared::<TableAt>();
    shared::<Snapshot>();
    shared::<Transaction>();
    shared::<WriteBatch>();
    shared::<Ticket>();
    shared::<Pinned>();
    shared::<Options>();
    shared::<Error>();
    sent::<Range>();
    sent::<Cursor>();
    sent::<TransactionRange<'_>>();
    sent::<Loader>();
    sent::<Changes>();
    sent::<Lookup>();
    sent::<LookupMany>();
};
