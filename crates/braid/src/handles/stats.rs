//! Figures: the contents of a database, and its work since opening.

use std::sync::atomic::{AtomicU64, Ordering};

use index::Figure;
use psync::probe::LearnedProfile;
use space::StreamKind;

use crate::{
    engine::{Engine, counters::Recovery, delays::DelayStats, learned::DeviceStats, snapshot::SnapshotStats},
    error::Result,
    structures::pool::StructureCache,
    tables::catalog::{TableCore, TableState},
};

/// I/O of one kind of stream since opening.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StreamStats {
    /// `wal`, `doc`, `node` or `meta`.
    pub stream: String,
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

/// The buffer pool.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CacheStats {
    /// Most bytes of the pool.
    pub capacity_bytes: u64,
    /// Bytes in the pool.
    pub bytes: u64,
    /// The parts for nodes, one for each structure.
    pub structures: Vec<StructureCacheStats>,
    /// Part of the capacity for documents: the bytes that the structures leave, at least an eighth. Where no table is
    /// compressed, no more than all documents need.
    pub document_capacity_bytes: u64,
    /// Bytes of documents in the pool.
    pub document_bytes: u64,
    /// Documents that lookups found in the pool.
    pub document_hits: u64,
    /// Documents that lookups did not find in the pool.
    pub document_misses: u64,
    /// Bytes of the write buffer that are lent to the pool, beside its capacity.
    pub lent_bytes: u64,
    /// Bytes of the loan in use: pages, nodes and documents that were read, and for which there was no room in the
    /// pool.
    pub secondary_bytes: u64,
    /// Reads that the loan saved.
    pub secondary_hits: u64,
}

/// The part of the buffer pool for the nodes of one structure.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StructureCacheStats {
    /// The structure.
    pub structure: String,
    /// Bytes of the part: by the bytes that the nodes of all tables with the structure take.
    pub capacity_bytes: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Nodes that lookups and scans have asked for.
    pub lookups: Vec<NodeLookups>,
}

/// How many nodes lookups and scans have asked for.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NodeLookups {
    /// What they are: `internal nodes`, `leaves` or `nodes`.
    pub nodes: String,
    /// Found in the pool.
    pub hits: u64,
    /// Read from storage.
    pub reads: u64,
    /// Bytes of these reads, if they are counted.
    pub read_bytes: Option<u64>,
}

/// The write-ahead log.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LogStats {
    /// Bytes of the log that a recovery would read.
    pub retained_bytes: u64,
    /// Bytes of the whole log, for recovery and for readers of its changes.
    pub kept_bytes: u64,
    /// The oldest seq that [`Database::changes`](crate::Database::changes) can show.
    pub oldest_seq: u64,
    /// Records appended.
    pub records: u64,
    /// Of these records, those whose thread had the end of the log for itself.
    pub direct_records: u64,
    /// Of these records, those that took their space together with others, in a slot.
    pub consolidated_records: u64,
    /// Slots that were closed; `consolidated_records` divided by this is the records per slot.
    pub slots: u64,
    /// Groups written.
    pub groups: u64,
    /// Flushes.
    pub flushes: u64,
    /// Calls that these flushes served; divided by `flushes`, the commits per flush.
    pub flush_requests: u64,
    /// Number of times that a call had the sync lock.
    pub sync_lock_acquisitions: u64,
    /// Nanoseconds that these calls waited for the lock, in sum.
    pub sync_lock_wait_ns: u64,
    /// Nanoseconds that flushes took, in sum over the calls which flushed themselves.
    pub flush_ns: u64,
    /// Nanoseconds that calls waited for another call's flush, without the lock, in sum.
    pub flush_wait_ns: u64,
}

/// Pages of the data file.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SpaceStats {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// All pages.
    pub total_pages: u64,
    /// Free pages, holes included.
    pub free_pages: u64,
    /// Of the free pages, the holes: those whose space was returned to the disk.
    pub hole_pages: u64,
    /// Retired pages, which wait for readers of older versions, or for the next flush of the log.
    pub retired_pages: u64,
}

/// A table.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TableStats {
    /// Its name.
    pub name: String,
    /// Its structure.
    pub structure: String,
    /// Compression of its large values: `none`, `lz4` or `zstd`.
    pub compression: String,
    /// Waiting operations: those in memory that the structure does not have yet.
    pub waiting_operations: u64,
    /// Bytes of memory of the waiting operations.
    pub waiting_bytes: u64,
    /// Share of puts and deletes among puts, deletes and keys looked up since opening, if there were enough of these to
    /// say.
    pub insert_share: Option<f64>,
    /// Entries of the structure, invisible versions included.
    pub entries: u64,
    /// Bytes of these entries.
    pub entry_bytes: u64,
    /// Bytes of the leaves that hold the entries, with the room that is left in them.
    pub stored_bytes: u64,
    /// The shape of the structure, in its own terms: `levels`, leaves included; `internal nodes`; `leaves`; and in a
    /// B-tree `adjacent leaves`, which begin where the leaf before them in key order ends, so that a scan reads them as
    /// one sequence.
    pub shape: Vec<Figure>,
    /// The settings of the structure, in its own terms, chosen when the table was created or last rebuilt: in a B-tree
    /// `new leaf`, its bytes.
    pub settings: Vec<Figure>,
    /// The settings that suit the use and the current contents of the table, by the cost model.
    pub settings_for_use: Option<Vec<Figure>>,
    /// The same by the profile that was learned from requests
    /// ([`Database::learned_profile`](crate::Database::learned_profile)), if one was learned.
    pub settings_by_learned: Option<Vec<Figure>>,
    /// Files of the structure's own, beside the data file that all tables share.
    pub own_files: u64,
    /// Bytes of these files, dead ones included.
    pub own_bytes: u64,
    /// Bytes of what is live in these files.
    pub own_live_bytes: u64,
    /// Document segments.
    pub document_segments: u64,
    /// Bytes of documents, dead ones included.
    pub document_bytes: u64,
    /// Bytes of live documents.
    pub document_live_bytes: u64,
    /// Retained states ([`Table::history`](crate::Table::history)).
    pub history_states: u64,
    /// Bytes of the structure's own files and of document segments that stay for retained states and are not live.
    pub history_bytes: u64,
}

impl TableStats {
    /// The figure of this name among those of shape and settings; none where the structure has no such figure.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<u64> {
        index::value_of(&self.shape, name).or_else(|| index::value_of(&self.settings, name))
    }

    /// The figures of `table` in `state`.
    pub(crate) fn of(engine: &Engine, table: &TableCore, state: &TableState, learned: &LearnedProfile) -> Result<Self> {
        let stats = state.view.stats()?;
        let shares = table.traffic.shares();
        let said = |settings: &[u8]| (table.structure.facts().describe)(settings).unwrap_or_default();
        let settings = table.tree.settings();
        let chosen = |profile| {
            let shares = shares.filter(|_| !settings.is_empty())?;
            Some(said(&engine.tuning.settings_now(profile, table.structure, &stats, shares)))
        };
        let (own, documents) = (table.tree.space(), table.documents.stats());
        Ok(Self {
            name: table.name.clone(),
            structure: table.structure.to_string(),
            compression: table.settings().compression.to_string(),
            waiting_operations: state.operations(),
            waiting_bytes: state.active.bytes() + state.frozen.as_ref().map_or(0, |frozen| frozen.bytes()),
            insert_share: shares.map(|shares| shares.insert),
            entries: stats.entries,
            entry_bytes: stats.entry_bytes,
            stored_bytes: stats.stored_bytes,
            settings: said(&settings),
            settings_for_use: chosen(&engine.tuning.profile),
            settings_by_learned: learned.is_any_enough().then(|| chosen(&learned.profile)).flatten(),
            shape: stats.figures,
            own_files: own.files,
            own_bytes: own.bytes,
            own_live_bytes: own.live_bytes,
            document_segments: documents.segments,
            document_bytes: documents.bytes,
            document_live_bytes: documents.live_bytes,
            history_states: table.history.headers().len() as u64,
            history_bytes: own.retained_bytes + documents.pinned_bytes,
        })
    }
}

/// The contents of a database, and its work since opening.
///
/// With feature `serde` they can be serialized, into JSON for example:
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let users = db.table("users", braid::Structure::BTree)?;
/// users.put("ada", "1815")?;
/// let stats = db.stats()?;
/// assert_eq!((stats.visible_seq, stats.failure.as_deref()), (db.seq().0, None));
/// assert!(stats.cache.capacity_bytes > stats.cache.bytes);
/// println!("{}", serde_json::to_string_pretty(&stats).expect("JSON"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Directory.
    pub path: String,
    /// I/O backend.
    pub backend: String,
    /// The reason why a better backend was not taken, if there is one.
    pub backend_fallback: Option<String>,
    /// Whether the data file is read and written past the page cache.
    pub direct_io: bool,
    /// The reason why the database is read-only, if a write failed.
    pub failure: Option<String>,
    /// The reason why puts are refused, if the disk is full.
    pub full_disk: Option<String>,
    /// The newest visible commit.
    pub visible_seq: u64,
    /// Commits since opening.
    pub commits: u64,
    /// Documents that cleaning in the background relocated since opening.
    pub documents_cleaned: u64,
    /// Bytes of these documents in their segments.
    pub document_bytes_cleaned: u64,
    /// Operations of the commits since opening.
    pub operations: u64,
    /// Bytes of the keys and values of these operations.
    pub user_bytes: u64,
    /// Keys looked up since opening.
    pub lookups: u64,
    /// Rounds of batch updates since opening.
    pub applies: u64,
    /// Operations that these rounds applied to the structures.
    pub applied_operations: u64,
    /// Time of these rounds, in seconds.
    pub apply_seconds: f64,
    /// Checkpoints since opening.
    pub checkpoints: u64,
    /// Bytes of waiting operations.
    pub write_buffer_bytes: u64,
    /// Most bytes of waiting operations.
    pub write_buffer_capacity_bytes: u64,
    /// How long commits were delayed, and why.
    pub delays: DelayStats,
    /// Bytes written to storage since opening for each byte that users wrote.
    pub write_amplification: f64,
    /// Open snapshots and transactions.
    pub snapshots: SnapshotStats,
    /// Bytes of the writes and reads that open transactions hold.
    pub transaction_bytes: u64,
    /// Memory for open transactions. Beyond it they take up to a quarter of the cache.
    pub transaction_capacity_bytes: u64,
    /// Bytes that scans have read ahead, or requested.
    pub read_ahead_bytes: u64,
    /// Most bytes that scans read ahead together, approximately.
    pub read_ahead_capacity_bytes: u64,
    /// The part of the log that opening replayed.
    pub recovery: Recovery,
    /// The buffer pool.
    pub cache: CacheStats,
    /// The log.
    pub log: LogStats,
    /// Pages of the data file.
    pub space: SpaceStats,
    /// I/O by stream.
    pub streams: Vec<StreamStats>,
    /// The device: the profile that choices follow from, and the learned profile.
    pub device: DeviceStats,
    /// Tables.
    pub tables: Vec<TableStats>,
}

impl Stats {
    pub(crate) fn of(engine: &Engine) -> Result<Self> {
        let (counters, tables) = (&engine.counters, engine.catalog.live());
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let streams: Vec<StreamStats> = StreamKind::ALL.iter().map(|&kind| stream(engine, kind)).collect();
        let written: u64 = streams.iter().map(|stream| stream.written_bytes).sum();
        let user_bytes = load(&counters.user_bytes);
        let pages = engine.pages.stats();
        let psync = engine.store.psync();
        let device = DeviceStats::of(engine);
        #[expect(clippy::cast_precision_loss, reason = "ratios and seconds need no more digits")]
        Ok(Self {
            path: engine.path.display().to_string(),
            backend: psync.backend().to_string(),
            backend_fallback: psync.fallback_reason(),
            direct_io: engine.pages.file().is_direct(),
            failure: engine.health.cause().map(str::to_owned),
            full_disk: engine.pressure.full_disk(),
            visible_seq: engine.publisher.visible().0,
            commits: load(&counters.commits),
            documents_cleaned: engine.cleaning.moved().0,
            document_bytes_cleaned: engine.cleaning.moved().1,
            operations: load(&counters.operations),
            user_bytes,
            lookups: load(&counters.lookups) + tables.iter().map(|table| table.traffic.lookups()).sum::<u64>(),
            applies: load(&counters.applies),
            applied_operations: load(&counters.applied_operations),
            apply_seconds: load(&counters.apply_micros) as f64 / 1e6,
            checkpoints: load(&counters.checkpoints),
            write_buffer_bytes: engine.pressure.used(),
            write_buffer_capacity_bytes: engine.pressure.budget(),
            delays: engine.pressure.delays(),
            write_amplification: if user_bytes == 0 { 0.0 } else { written as f64 / user_bytes as f64 },
            snapshots: engine.snapshots.stats(user_bytes),
            transaction_bytes: engine.transactions.held(),
            transaction_capacity_bytes: engine.transactions.own(),
            read_ahead_bytes: engine.structures.read_ahead().held_bytes(),
            read_ahead_capacity_bytes: engine.structures.read_ahead().capacity_bytes(),
            recovery: counters.recovery.clone(),
            cache: cache(engine),
            log: log(engine),
            space: SpaceStats {
                page_bytes: space::PAGE as u64,
                total_pages: pages.total_pages,
                free_pages: pages.free_pages + pages.hole_pages,
                hole_pages: pages.hole_pages,
                retired_pages: pages.retired_pages,
            },
            streams,
            tables: tables
                .iter()
                .map(|table| TableStats::of(engine, table, &table.state.load_full(), &device.learned))
                .collect::<Result<_>>()?,
            device,
        })
    }
}

fn stream(engine: &Engine, kind: StreamKind) -> StreamStats {
    let counted = engine.store.counters(kind).snapshot();
    StreamStats {
        stream: kind.to_string(),
        reads: counted.reads,
        read_bytes: counted.read_bytes,
        writes: counted.writes,
        written_bytes: counted.written_bytes,
        flushes: counted.flushes,
    }
}

fn cache(engine: &Engine) -> CacheStats {
    let (structures, documents) = (engine.structures.caches(), engine.structures.documents().cache().stats());
    let parts = || structures.iter().map(|part| &part.cache).chain([&documents]);
    CacheStats {
        capacity_bytes: engine.tuning.cache_bytes,
        bytes: parts().map(|part| part.bytes).sum(),
        document_capacity_bytes: documents.capacity_bytes,
        document_bytes: documents.bytes,
        document_hits: documents.hits,
        document_misses: documents.misses,
        lent_bytes: engine.loans.lent(),
        secondary_bytes: parts().map(|part| part.secondary_bytes).sum(),
        secondary_hits: parts().map(|part| part.secondary_hits).sum(),
        structures: structures.iter().map(structure_cache).collect(),
    }
}

fn structure_cache(part: &StructureCache) -> StructureCacheStats {
    let lookups = part.lookups.iter().map(|of| NodeLookups {
        nodes: of.nodes.to_owned(),
        hits: of.hits,
        reads: of.reads,
        read_bytes: of.read_bytes,
    });
    StructureCacheStats {
        structure: part.structure.to_string(),
        capacity_bytes: part.cache.capacity_bytes,
        bytes: part.cache.bytes,
        lookups: lookups.collect(),
    }
}

fn log(engine: &Engine) -> LogStats {
    let stats = engine.wal.stats();
    LogStats {
        retained_bytes: engine.wal.bytes_retained(),
        kept_bytes: engine.wal.bytes_kept(),
        oldest_seq: engine.retention.kept().seq.0,
        records: stats.records,
        direct_records: stats.direct_records,
        consolidated_records: stats.consolidated_records,
        slots: stats.slots,
        groups: stats.groups,
        flushes: stats.flushes,
        flush_requests: stats.flush_requests,
        sync_lock_acquisitions: stats.sync_lock_acquisitions,
        sync_lock_wait_ns: stats.sync_lock_wait_ns,
        flush_ns: stats.flush_ns,
        flush_wait_ns: stats.flush_wait_ns,
    }
}
